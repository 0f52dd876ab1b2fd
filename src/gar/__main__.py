"""`python -m gar`: the same as `gar`."""

import sys

from gar.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
