"""`python -m complearn` is the command `complearn`."""

import sys

from complearn.command import main

if __name__ == "__main__":
    sys.exit(main())
