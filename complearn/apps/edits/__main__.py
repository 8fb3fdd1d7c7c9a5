"""`python -m complearn.apps.edits captions.csv negatives.jsonl`: nbdev reads no notebook whose name begins with an underscore."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
