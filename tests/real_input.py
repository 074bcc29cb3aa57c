"""Finds manifests that others wrote, which tests read from a folder beside the repository.

The folder is named by the environment variable CLOSEBY_REAL_INPUT, and is `../shared/data` without it.
"""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_data(relative: str) -> Path:
    """The path of a file or folder of real input; where it is absent the test is skipped by name."""
    named = os.environ.get("CLOSEBY_REAL_INPUT")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    path = folder / relative
    if not path.exists():
        pytest.skip(f"real input {relative} is not here")
    return path
