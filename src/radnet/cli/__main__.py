"""The command line again, for ``python -m``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
