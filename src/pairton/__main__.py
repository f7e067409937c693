"""`python -m pairton` is the same as `pairton`."""

from pairton.cli import main

main()
