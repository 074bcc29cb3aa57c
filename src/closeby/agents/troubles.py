"""What can go wrong for an agent, as data."""

from msgspec import Struct


class Trouble(Struct, frozen=True):
    """A stable token, which metrics count by, and a sentence with the way out."""

    reason: str
    message: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.reason}: {self.message}"
