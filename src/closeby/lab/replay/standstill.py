"""Notices a run over time whose clock stands still: it would never end."""

from math import inf
from typing import Final

from closeby.errors import StandstillError

#: Moments at one time at which nothing comes, ends or starts, before that is a fault. Some are usual: several
#: jobs that wait may become due one after the other.
PATIENCE: Final = 1_000


class Standstill:
    """Counts the moments at one time at which nothing happened."""

    def __init__(self) -> None:
        self._at = -inf
        self._moments = 0

    def moment(self, now: float, *, happened: bool) -> None:
        """One moment is over; ``happened``: something came, ended, started or was evicted.

        Raises:
            StandstillError: too many in a row, at the same time.
        """
        if happened or now > self._at:
            self._at, self._moments = now, 0
            return
        self._moments += 1
        if self._moments >= PATIENCE:
            raise StandstillError(
                f"time stands still at {now!r} s: in {self._moments} moments nothing came, ended, started or "
                "was evicted; this is a fault of closeby, please report it with the command that shows it"
            )
