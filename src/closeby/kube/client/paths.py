"""Paths of requests. This is the only place where names become parts of one.

Names come from objects, and whoever writes an object chooses them. Unquoted, an owner reference to
``?watch=true`` would become a watch, and one to ``../..`` a request for something else.
"""

from typing import Final
from urllib.parse import quote

#: No API server stores an object with a longer name.
LONGEST_NAME: Final = 253


def is_name(name: str) -> bool:
    """Whether an API server takes ``name`` as a path segment.

    The rules are those of apimachinery's ``IsValidPathSegmentName``, which hold for the names of all kinds.
    """
    if not 0 < len(name) <= LONGEST_NAME or name in (".", ".."):
        return False
    return "/" not in name and "%" not in name


def path_of(*segments: str) -> str:
    """The path of these segments, each of them quoted.

    Raises:
        ValueError: a segment is not a name. Check names that a user chose with ``is_name`` first.
    """
    for one in segments:
        if not is_name(one):
            raise ValueError(f"{one[:LONGEST_NAME]!r} can't be a segment of a path")
    return "".join(f"/{quote(one, safe='')}" for one in segments)
