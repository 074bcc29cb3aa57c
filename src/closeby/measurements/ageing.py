"""What is known from one source: the last good reading, how old it is, and why nothing came after it."""

import time
from collections.abc import Callable
from enum import StrEnum

from msgspec.structs import replace

from closeby.scheduling.services import Measurements, Reading, Source


class State(StrEnum):
    """How good what is known is."""

    #: No request was made yet.
    UNREAD = "unread"
    GOOD = "good"
    #: The last attempt failed; what was read before is used still.
    STALE = "stale"
    #: What there was is too old, or there never was anything.
    GONE = "gone"


class Known:
    """Takes answers in as they come; its owner calls ``now`` from time to time."""

    def __init__(
        self,
        source: Source,
        clock: Callable[[], float] = time.monotonic,
        epoch: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` never goes back, ``epoch`` is seconds since the epoch."""
        self.source = source
        self._clock = clock
        self._epoch = epoch
        self._reading: Reading | None = None
        #: When that was measured, by the clock that never goes back.
        self._measured = 0.0
        self._trouble = ""
        self.state = State.UNREAD
        #: Attempts that came to nothing.
        self.failures = 0

    @property
    def age(self) -> float | None:
        """Seconds since what is used was measured; None when nothing is."""
        return None if self._reading is None else max(0.0, self._clock() - self._measured)

    def take(self, answer: Reading | str) -> Measurements:
        """One more answer of the source, or the sentence why there is none."""
        if isinstance(answer, Reading):
            trouble = self._objection(answer)
            if not trouble:
                self._keep(answer)
                return self.now()
        else:
            trouble = answer
        self._trouble = trouble
        self.failures += 1
        self.state = State.GONE if self._reading is None else State.STALE
        return self.now()

    def now(self) -> Measurements:
        """What is known now; what is too old is dropped."""
        age = self.age
        if age is not None and age >= self.source.max_age:
            self._reading, self.state, age = None, State.GONE, None
            self._trouble = (
                self._trouble or f"{self.source.name} gave nothing newer for {self.source.max_age:g} s"
            )
        return Measurements(reading=self._reading, age=age, trouble=self._trouble)

    def _objection(self, answer: Reading) -> str:
        """Why an answer is not better than what is known; empty when it is."""
        age = self._age_of(answer)
        if age >= self.source.max_age:
            return f"what {self.source.name} knows was measured {age:.0f} s ago"
        # By such a clock, or in such units, nothing would ever be old.
        ahead = 0.0 if answer.measured is None else answer.measured - self._epoch()
        if ahead > self.source.max_age:
            when = f"{self.source.name} says that it measured {ahead:.3g} s from now"
            return f"{when}; set its clock, or ours, and give seconds since the epoch"
        if answer.empty and self._reading is not None:
            return f"{self.source.name} knows of no host"
        return ""

    def _keep(self, answer: Reading) -> None:
        self._measured = self._clock() - self._age_of(answer)
        # Who does not say when it was measured, means now.
        self._reading = answer if answer.measured is not None else replace(answer, measured=self._epoch())
        self._trouble = ""
        self.state = State.GOOD

    def _age_of(self, answer: Reading) -> float:
        return 0.0 if answer.measured is None else max(0.0, self._epoch() - answer.measured)
