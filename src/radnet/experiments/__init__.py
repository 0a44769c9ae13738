"""The experiments of the paper, one file each: frozen settings, seeds in, plain data out."""
