"""closeby: a network-topology-aware scheduler for Kubernetes."""

from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def full_version() -> str:
    """The version with the commit where that is known, as ``0.1.0+76afb8905a1b``.

    What was built has the commit in a file (``deploy/image/commit.py``); in a checkout git is asked.
    """
    package = Path(__file__).parent
    written = package / "commit.txt"
    commit = written.read_text().strip() if written.exists() else _of_checkout(package.parents[1])
    return f"{__version__}+{commit}" if commit else __version__


def _of_checkout(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    import subprocess

    command = ("git", "describe", "--always", "--dirty=.dirty", "--abbrev=12", "--exclude=*")
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
