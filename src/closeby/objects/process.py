"""A process of closeby: the lines that it writes, exceptions that it survives, and its garbage collector."""

import gc
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from closeby.objects.bounds import clipped, line

#: Things of which is remembered what was reported last; things that are gone are among them.
_REMEMBERED: Final = 10_000

Key = TypeVar("Key", bound=Hashable)


class Say(Protocol):
    """Writes one line."""

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        """``message`` is a stable phrase; what varies is in the fields; those that are None are left out."""


class Reported(Generic[Key]):
    """What was last reported of each thing, so that the same is reported once for as long as it lasts."""

    def __init__(self) -> None:
        self._last: dict[Key, Hashable] = {}

    def __iter__(self) -> Iterator[Key]:
        """All of which something that lasts was reported."""
        return iter(tuple(self._last))

    def __contains__(self, key: Key) -> bool:
        """Whether something that lasts was reported of it."""
        return key in self._last

    def changes(self, key: Key, what: Hashable) -> bool:
        """Notes what is so now; returns whether that is to be reported."""
        changed = key not in self._last or self._last[key] != what
        if key not in self._last and len(self._last) >= _REMEMBERED:
            self._last.clear()
        self._last[key] = what
        return changed

    def over(self, key: Key) -> bool:
        """Nothing is left to report; returns whether something was."""
        return self._last.pop(key, self) is not self


#: Of a traceback: the calls of one exception, and the lines of all that led to one another.
_CALLS: Final = 20
_LINES: Final = 60


class Contained:
    """Keeps an exception inside its block, so that the caller continues and reports it.

    Only ``Exception`` is kept: the end of a task or of the process is none.
    """

    def __init__(self) -> None:
        #: What came of the block; None when all went well.
        self.error: Exception | None = None

    def __enter__(self) -> "Contained":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Whether there was something to keep."""
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


def brief(error: BaseException) -> str:
    """One line, such as ``KeyError: 'cost' (weights.py:121)``."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({PurePath(where[0].filename).name}:{where[0].lineno})" if where else ""
    text = line(str(error))
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def fields_of(error: BaseException) -> dict[str, str]:
    """What a line of the log says of it: ``error`` in brief, and the ``traceback`` as Python prints it."""
    return {"error": brief(error), "traceback": traced(error)}


def traced(error: BaseException) -> str:
    """The traceback as Python prints it: of a long one the first lines and the last ones."""
    told = traceback.TracebackException.from_exception(error, limit=-_CALLS)
    lines = [clipped(one) for one in told.format()]
    if len(lines) > _LINES:
        lines[_LINES // 2 : -_LINES // 2] = [f"… and {len(lines) - _LINES} more lines\n"]
    return "".join(lines).rstrip()


@contextmanager
def collector_paused() -> Iterator[None]:
    """The collector does not run inside. May be nested; nothing may be awaited inside.

    Decoding tens of thousands of objects allocates much and leaves no cycles. The collector, which runs by
    the number of allocations, would look at all of them again and again, and take longer than the decoding.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def spare() -> None:
    """Spares later collections all objects there are now, without a look at them.

    For while the first lists come: most of what comes stays.
    """
    gc.freeze()


def settle() -> None:
    """The same after a last look, for when the first lists are complete."""
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Collects what was spared and is needed no more; to be called before all is listed once more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
