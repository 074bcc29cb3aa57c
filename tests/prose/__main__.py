"""Checks the documentation, the source and the tests' names; `make lint` runs it.

It prints one line for each finding, `PATH:LINE: what is wrong`, and then exits with 1.
"""

import sys
from pathlib import Path

from tests.prose.checks import findings

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Print all findings; returns the exit code."""
    found = findings(ROOT)
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
