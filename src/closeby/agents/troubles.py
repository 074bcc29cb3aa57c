"""What can go wrong for an agent, as data; and how it tells an operator what it does."""

from typing import Protocol

from msgspec import Struct


class Trouble(Struct, frozen=True):
    """A stable token, which metrics count by, and a sentence with the way out."""

    reason: str
    message: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.reason}: {self.message}"


class Say(Protocol):
    """Writes one line."""

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        """``message`` is a stable phrase; what varies is in the fields; those that are None are left out."""
