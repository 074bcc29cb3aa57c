"""Where manifests are: files, folders, or what comes through a pipe; and whether a file has changed."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

from closeby.objects.reasons import Problem

STDIN: Final = "-"
#: What messages call it.
STDIN_NAME: Final = "standard input"
#: How files begin that gzip made.
GZIP: Final = b"\x1f\x8b"
#: More than the manifests of any cluster: a small file may unpack to any size.
MOST_UNPACKED: Final = 1 << 30
_ENDINGS: Final = (".yaml", ".yml", ".json")
_READ: Final = (*_ENDINGS, *(f"{one}.gz" for one in _ENDINGS))
_CHUNK: Final = 1 << 20


def find_files(paths: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """The files behind ``paths``, each once, and what is wrong with the paths.

    A folder stands for all files below it that end in .yaml, .yml or .json, or so and in .gz, in the order of
    their names; folders whose names begin with a dot are left out.
    """
    files: dict[str, str] = {}
    errors = []
    for path in paths:
        if path == STDIN:
            files.setdefault(STDIN, STDIN)
        elif os.path.isdir(path):
            found = list(_below(path))
            if not found:
                message = f"no file in it ends in {', '.join(_ENDINGS)}"
                errors.append(Problem(file=path, message=message, remedy="name a folder with manifests"))
            for file in found:
                files.setdefault(os.path.realpath(file), file)
        elif os.path.exists(path):
            files.setdefault(os.path.realpath(path), path)
        else:
            message, remedy = "no such file or folder", "check the path"
            errors.append(Problem(file=path, message=message, remedy=remedy))
    return list(files.values()), errors


def read_file(path: str) -> bytes | Problem:
    """The content of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        return Problem(file=path, message=f"can't be read: {reason}", remedy="check the path")


def unpacked(data: bytes, most: int = MOST_UNPACKED) -> bytes | str:
    """The content of what gzip made, and anything else as it is; a text says what is wrong with it."""
    if not data.startswith(GZIP):
        return data
    try:
        packed, found = gzip.GzipFile(fileobj=BytesIO(data)), BytesIO()
        while found.tell() <= most and (part := packed.read(_CHUNK)):
            found.write(part)
        if found.tell() > most:
            return f"is longer than {most >> 20:,} MiB when it is unpacked"
        return found.getvalue()
    except (OSError, EOFError, zlib.error) as error:
        return f"is compressed, and can't be unpacked: {error}"


def stamp_of(path: str) -> tuple[int, int, int] | None:
    """Another one when the file has changed or is another file; None where there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


def not_utf8(data: bytes) -> int | None:
    """The position of the first byte that is not UTF-8; None when all of them are."""
    if data.isascii():
        return None
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _CHUNK):
        try:
            decoder.decode(data[start : start + _CHUNK], final=start + _CHUNK >= len(data))
        except UnicodeDecodeError as error:
            return start + error.start
    return None


def _below(folder: str) -> Iterable[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(root, name) for name in sorted(names) if name.endswith(_READ))
