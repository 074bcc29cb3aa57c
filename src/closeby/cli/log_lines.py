"""What a long-running command does, in lines on standard error: ``time=… level=info msg=placed item=…``."""

import json
import re
import sys
from datetime import UTC, datetime
from typing import Final

#: What needs no quotes: most of what is written.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch


def log_line(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Writes one line; fields that are None or empty are left out."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    level = "warning" if warning else "info"
    entries = {"time": now, "level": level, "msg": message, **fields}
    line = " ".join(f"{key}={_quoted(value)}" for key, value in entries.items() if value not in (None, ""))
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _quoted(value: object) -> str:
    text = str(value)
    if _PLAIN(text):
        return text
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
