"""``python -m iegopt_runtime``: the same as ``iegopt``, for processes that start others."""

from __future__ import annotations

import sys

from iegopt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
