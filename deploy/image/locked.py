"""Prints the part of requirements.lock that something needs, with all hashes.

    python deploy/image/locked.py closeby      what closeby needs to run
    python deploy/image/locked.py hatchling    that package, and what it needs

The lock is for development, and holds linters and tests too. It says of each package who asked for it
(``# via``); for closeby that is what pyproject.toml names as dependencies. Needs nothing but Python.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PROJECT = "closeby"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VIA = re.compile(r"^    #(?: via)? +(?:via )?([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def needed(lock: str, project: str, roots: Iterable[str]) -> str:
    """The entries of ``lock`` for the packages ``roots`` and all that they need.

    ``project`` is the text of pyproject.toml. Raises KeyError: a root that is not in the lock.
    """
    entries = _entries(lock)
    wanted = set()
    for root in roots:
        dependencies = tomllib.loads(project)["project"]["dependencies"]
        wanted |= {_canonical(one) for one in dependencies} if root == _PROJECT else {_canonical(root)}
    for name in wanted:
        entries[name]
    while more := {name for name, entry in entries.items() if _askers(entry) & wanted} - wanted:
        wanted |= more
    return "".join(entry for name, entry in entries.items() if name in wanted)


def _entries(lock: str) -> dict[str, str]:
    """Each package's lines."""
    pieces = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)[1:]
    return {_canonical(piece): piece for piece in pieces}


def _askers(entry: str) -> set[str]:
    return {_canonical(name) for name in _VIA.findall(entry)}


def _canonical(requirement: str) -> str:
    """The name that a requirement begins with, as package indexes compare names."""
    found = _NAME.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} names no package")
    return re.sub(r"[-_.]+", "-", found[0]).rstrip("-").lower()


if __name__ == "__main__":
    sys.stdout.write(
        needed((ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text(), sys.argv[1:])
    )
