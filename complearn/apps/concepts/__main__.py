"""`python -m complearn.apps.concepts graph captions.csv graph`: nbdev reads no notebook whose name begins with an underscore."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
