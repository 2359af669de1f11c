"""`python -m lakeshore` is the `lakeshore` command."""

import sys

from lakeshore.cli import main

if __name__ == "__main__":
    sys.argv[0] = "lakeshore"  # as which the command shows itself in help
    sys.exit(main())
