"""``python -m iegopt``."""

import sys

from iegopt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
