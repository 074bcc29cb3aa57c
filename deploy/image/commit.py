"""Writes the commit of the sources into what is built, as `closeby/commit.txt`: a build hook of hatchling.

The commit is that of CLOSEBY_COMMIT, else what git says of this folder. Without both, what an earlier build
wrote counts (a source distribution has the file), or nothing is written. An editable installation asks git as
it runs.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FILE = "closeby/commit.txt"
_GIT = ("git", "describe", "--always", "--dirty=.dirty", "--abbrev=12", "--exclude=*")


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called before each build of a wheel or a source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the file to what is built."""
        commit = os.environ.get("CLOSEBY_COMMIT", "").strip() or _asked(self.root)
        if version == "editable" or not commit:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="closeby-commit-")
        file = Path(self._folder.name) / "commit.txt"
        file.write_text(f"{commit}\n")
        inside = _FILE if self.target_name == "wheel" else f"src/{_FILE}"
        build_data["force_include"][str(file)] = inside

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes it."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _asked(root: str) -> str:
    # A folder that lies in the checkout of something else has not its commit.
    if not (Path(root) / ".git").exists():
        return ""
    try:
        return subprocess.run(_GIT, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
