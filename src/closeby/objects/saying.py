"""How the live parts tell an operator what they do: one line a fact, with fields that tools can match on."""

from typing import Protocol


class Say(Protocol):
    """Writes one line."""

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        """``message`` is a stable phrase; what varies is in the fields; those that are None are left out."""
