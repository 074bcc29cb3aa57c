"""Why a cluster can't be talked to at all: told as data, with what the user can do about it."""

from msgspec import Struct


class Fault(Struct, frozen=True):
    """What is wrong, and the way out."""

    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


#: What to do when a part of closeby is missing that only some clusters need.
INSTALL_EXTRA = "install it: pip install 'closeby[kube]'"
