"""Names of switches as values of node labels, which take at most 63 characters and few kinds of them."""

import re
from typing import Final

_LEGAL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


def is_label_value(text: str) -> bool:
    """Whether Kubernetes takes the text as the value of a label (an empty one says nothing, and is not)."""
    return _LEGAL.fullmatch(text) is not None


def label_value(name: str) -> str:
    """The name itself where it is a legal value, else ``x`` and its 64-bit FNV-1a hash in hexadecimal digits.

    The hash is Topograph's for names that are too long, so that both write the same value; Topograph leaves
    names with other characters as they are, and the server refuses them.
    """
    return name if is_label_value(name) else f"x{fnv1a_64(name.encode()):x}"


def fnv1a_64(data: bytes) -> int:
    """Fowler, Noll and Vo's hash, variant 1a, of 64 bits."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value
