"""What a long-running command does, in lines on standard error, for people or for collectors of logs.

A line is one line, of bounded length, whatever an object or a peer wrote: what can't be printed is escaped,
and of a long value the beginning is written.
"""

import json
import logging
import math
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp.http_exceptions import HttpProcessingError

from closeby.objects.bounds import clipped
from closeby.objects.process import Contained, traced
from closeby.objects.quantities import utc

#: Bytes of one value, as they are written; those of a traceback, which is long by nature.
LONGEST_VALUE: Final = 2048
LONGEST_TRACEBACK: Final = 16_384
#: A sign that is escaped takes at most so many bytes for each of its own.
_ESCAPED: Final = 6
#: What needs no quotes: most of what is written.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch
#: Seconds until a library's message of the same kind is written again, and kinds that are remembered.
_AGAIN: Final = 60.0
_KINDS: Final = 256


class Write(Protocol):
    """Writes one line."""

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        """As ``text_line`` and ``json_line``."""


def text_line(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Writes ``time=… level=info msg=placed item=…``; fields that are None or empty are left out."""
    entries = _entries(message, warning, fields)
    _write(" ".join(f"{key}={_bounded(key, str(value), _quoted)}" for key, value in entries.items()))


def json_line(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Writes one JSON object; fields that are None or empty are left out, and a field may be the level."""
    entries = _entries(message, warning, fields)
    _write(f"{{{', '.join(f'{json.dumps(key)}: {_json(key, value)}' for key, value in entries.items())}}}")


#: By the name that ``--log-format`` gives them.
FORMATS: Final = {"text": text_line, "json": json_line}


class LibraryLines(logging.Handler):
    """What libraries log, as lines of ours: of each kind of message one a minute, and how many were left out.

    Requests that are no HTTP are not worth a line: their senders got an answer.
    """

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        super().__init__(logging.WARNING)
        self._write = write
        self._clock = clock
        #: By kind of message: when it was written last, and how many were not since.
        self._kinds: OrderedDict[tuple[str, str, str], tuple[float, int]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless one of this kind was written a moment ago."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            return
        # The template, not the message: that may hold what a peer made up.
        kind = record.name, clipped(str(record.msg), 200), type(error).__name__
        now = self._clock()
        before, left_out = self._kinds.get(kind, (-math.inf, 0))
        if now - before < _AGAIN:
            self._kinds[kind] = before, left_out + 1
            return
        self._kinds[kind] = now, 0
        self._kinds.move_to_end(kind)
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        with Contained() as formatting:
            text = record.getMessage()
        if formatting.error is not None:
            text = str(record.msg)
        self._write(
            "a library complains",
            warning=True,
            logger=record.name,
            text=text,
            left_out=left_out or None,
            traceback=None if error is None else traced(error),
        )


def take_over_logging(write: Write) -> None:
    """Libraries log and warn through ``write`` from now on, unless another handler is installed already."""
    if not logging.getLogger().handlers:
        logging.basicConfig(handlers=[LibraryLines(write)], level=logging.WARNING)
        logging.captureWarnings(True)


def _entries(message: str, warning: bool, fields: dict[str, object]) -> dict[str, object]:
    now = utc(time.time(), "milliseconds")
    level = "warning" if warning else "info"
    told = {key: value for key, value in fields.items() if value not in (None, "")}
    return {"time": now, "level": level, "msg": message, **told}


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _json(key: str, value: object) -> str:
    """As JSON. Nothing stands for a number that is none in JSON, so its name does; a long list is a text."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    if isinstance(value, list | tuple | dict):
        structure = json.dumps(value, default=str)
        if len(structure) <= LONGEST_VALUE:
            return structure
    return _bounded(key, str(value), json.dumps)


def _bounded(key: str, text: str, written: Callable[[str], str]) -> str:
    """``text`` as it is written, cut so that this is not too long."""
    most = LONGEST_TRACEBACK if key == "traceback" else LONGEST_VALUE
    text = clipped(text, most)
    line = written(text)
    return (
        line if len(line.encode(errors="replace")) <= most else written(clipped(text, most // _ESCAPED - 2))
    )


def _quoted(text: str) -> str:
    if _PLAIN(text):
        return text
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
