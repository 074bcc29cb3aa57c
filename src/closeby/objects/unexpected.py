"""Unexpected exceptions: bugs in closeby, or in a plugin that it runs."""

import traceback
from pathlib import PurePath
from types import TracebackType
from typing import Final

from closeby.objects.bounds import clipped, line

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
        """Begins."""
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
