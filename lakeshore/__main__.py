"""`python -m lakeshore` is the `lakeshore` command."""

import sys

from lakeshore.cli import main

if __name__ == "__main__":
    sys.exit(main())
