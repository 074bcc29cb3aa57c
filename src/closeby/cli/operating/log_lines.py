"""What a long-running command does, in lines on standard error, for people or for collectors of logs."""

import json
import re
import sys
from datetime import UTC, datetime
from typing import Final

#: What needs no quotes: most of what is written.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch


def text_line(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Writes ``time=… level=info msg=placed item=…``; fields that are None or empty are left out."""
    _write(" ".join(f"{key}={_quoted(value)}" for key, value in _entries(message, warning, fields).items()))


def json_line(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Writes one JSON object; fields that are None or empty are left out."""
    _write(json.dumps(_entries(message, warning, fields), default=str))


#: By the name that ``--log-format`` gives them.
FORMATS: Final = {"text": text_line, "json": json_line}


def _entries(message: str, warning: bool, fields: dict[str, object]) -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    level = "warning" if warning else "info"
    told = {key: value for key, value in fields.items() if value not in (None, "")}
    return {"time": now, "level": level, "msg": message, **told}


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _quoted(value: object) -> str:
    text = str(value)
    if _PLAIN(text):
        return text
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
