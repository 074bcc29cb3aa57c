"""Files that a command writes are none that it reads, and no two of them are the same."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import click


def check_written(written: Mapping[str, str | None], read: Iterable[str | None]) -> None:
    """Says at once that a file would be lost; ``written`` holds file names by option.

    Raises:
        UsageError: it would be.
    """
    kept = {Path(path).resolve() for path in read if path}
    options: dict[Path, str] = {}
    for option, path in written.items():
        if not path:
            continue
        place = Path(path).resolve()
        if place in kept:
            raise click.UsageError(f"{option} {path} would overwrite a file that is read; name another one")
        other = options.setdefault(place, option)
        if other != option:
            raise click.UsageError(f"{other} and {option} both write {path}; name another file for one")
