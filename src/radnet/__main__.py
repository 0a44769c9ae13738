"""``python -m radnet`` is the command line ``radnet``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
