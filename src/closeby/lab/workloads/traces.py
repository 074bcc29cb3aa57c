"""Workloads as CSV files: one job a line, with a header.

Columns are ``name``, ``submitted`` and ``duration`` in seconds, ``pods``, ``gpus`` of each pod, ``priority``
and ``kind``; the last two may be left out, and other columns are ignored with a notice. The job traces of
AcmeTrace (``trace_seren.csv``, ``trace_kalos.csv``) are read as published too: ``job_id``, ``submit_time``,
``duration``, ``gpu_num``, ``type``; a job of more than 8 GPUs is spread evenly over as few hosts of 8 as
hold it, one pod each.
"""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import RemediedError
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.reasons import Problem
from closeby.reading.decoding.sources import GZIP
from closeby.simulator.synthetic import GPUS_PER_HOST

COLUMNS: Final = ("name", "submitted", "duration", "pods", "gpus", "priority", "kind")
_OPTIONAL: Final = ("priority", "kind")
#: AcmeTrace's columns that are read.
_ACME: Final = ("job_id", "submit_time", "duration", "gpu_num", "type")
#: Faults that are listed; a file of another kind would have one on every line.
_MOST_FAULTS: Final = 20
_MOST_PODS: Final = 1_000_000
#: Three thousand years. Greater ones are milliseconds by mistake, and cost the digits of all others.
_MOST_SECONDS: Final = 1e11
#: A trace that begins later counts from 1970, not from its own beginning.
_SINCE_1970: Final = 1e9
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")


class Trace(Struct, frozen=True, kw_only=True, eq=False):
    """What a trace file holds. ``jobs`` is None when it has faults."""

    jobs: Jobs | None
    faults: tuple[Problem, ...] = ()
    #: What was left aside, for people.
    notices: tuple[str, ...] = ()


class _Job(Struct, frozen=True):
    name: str
    submitted: float
    duration: float
    pods: int
    gpus: int
    priority: int
    kind: str
    #: GPUs beyond those that the trace says, as all pods of a job are equal.
    added: int = 0


class _Rows(Iterator[list[str]], Protocol):
    """What ``csv.reader`` gives."""

    @property
    def line_num(self) -> int:
        """Lines read so far; a row may have several."""


class _FieldError(RemediedError):
    """A field can't be read."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.field = field


def read_trace(path: str | Path, name: str = "") -> Trace:
    """The jobs of a CSV file, in the order in which they were submitted.

    Times are seconds since the workload's beginning. Where they are dates, or seconds since 1970, it begins
    with the first job. Dates without a time zone are UTC. ``name`` is what faults call the file, its path
    unless given.
    """
    found = _read_file(path)
    return replace(found, faults=tuple(replace(one, file=name or str(path)) for one in found.faults))


def _read_file(path: str | Path) -> Trace:
    try:
        with Path(path).open("rb") as file:
            packed = file.peek(len(GZIP)).startswith(GZIP)
            content: BinaryIO = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
            text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
            try:
                return _read(csv.reader(text, strict=True))
            except UnicodeDecodeError as error:
                return _not_utf8(content, error)
    except (EOFError, zlib.error) as error:
        return _unusable(f"is compressed, and can't be unpacked: {error}", "save it again")
    except OSError as error:
        return _unusable(f"can't be read: {error.strerror or error}", "check the path")


def write_trace(path: str | Path, jobs: Jobs) -> None:
    """Writes jobs so that ``read_trace`` gives the same ones; applications' graphs are not kept.

    Raises:
        OSError: the file can't be written.
    """
    columns = (
        jobs.names,
        [repr(time) for time in jobs.submitted.tolist()],
        [repr(time) for time in jobs.durations.tolist()],
        jobs.pods.tolist(),
        jobs.gpus.tolist(),
        jobs.priorities.tolist(),
        jobs.kinds,
    )
    # At once, as half a trace would look like a whole one.
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*columns, strict=True))
    Path(path).write_text(text.getvalue(), encoding="utf-8", newline="")


def _read(rows: _Rows) -> Trace:
    try:
        header = next(rows, [])
    except csv.Error as error:
        return _unusable(f"is not CSV: {error}", "check the quotes", line=1)
    if not any(name.strip() for name in header):
        return _unusable("has no header", f"begin the file with {','.join(COLUMNS)}", line=1)
    names = [name.strip() for name in header]
    called = [name for name in names if name]
    if len(set(called)) < len(called):
        return _unusable("names a column twice", "keep one of them", line=1)
    if all(name in names for name in _ACME[:-1]):
        known: tuple[str, ...] = _ACME
        jobs, faults, skipped = _all(rows, names, _read_acme)
        dates = True
    elif all(name in names for name in COLUMNS if name not in _OPTIONAL):
        known = COLUMNS
        jobs, faults, skipped = _all(rows, names, _read_own)
        dates = False
    else:
        lacking = [name for name in COLUMNS if name not in names and name not in _OPTIONAL]
        begin = f"begin the file with {','.join(COLUMNS)}"
        if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
            begin = f"separate columns by commas and {begin}"
        return _unusable(f"lacks {', '.join(lacking)}", begin, line=1)
    extra = [name for name in called if name not in known]
    notices = []
    if extra:
        notices.append(f"columns that are not read: {', '.join(extra)}")
    if skipped:
        said = "1 job without GPUs is" if skipped == 1 else f"{skipped:,} jobs without GPUs are"
        notices.append(f"{said} left out")
    notices.extend(_rounded_up(jobs))
    if not jobs and not faults:
        return _unusable("has no jobs", "check that it is the right file")
    if faults:
        return Trace(jobs=None, faults=tuple(faults), notices=tuple(notices))
    return Trace(jobs=_in_columns(jobs, dates), notices=tuple(notices))


def _rounded_up(jobs: Sequence[_Job]) -> Iterator[str]:
    """Says which jobs get more GPUs than they ask for."""
    uneven = [job for job in jobs if job.added]
    if not uneven:
        return
    first, added = uneven[0], sum(job.added for job in uneven)
    said = "1 job asks" if len(uneven) == 1 else f"{len(uneven):,} jobs ask"
    more = "1 GPU" if added == 1 else f"{added:,} GPUs"
    yield (
        f"{said} for GPUs that can't be shared out evenly over hosts, such as {first.name} "
        f"({first.pods * first.gpus - first.added}, taken as {first.pods} x {first.gpus}): {more} more in all"
    )


def _all(
    rows: _Rows, names: Sequence[str], read: Callable[[Mapping[str, str]], _Job | None]
) -> tuple[list[_Job], list[Problem], int]:
    """Jobs, faults, and how many jobs have no GPUs to ask for."""
    jobs: list[_Job] = []
    faults: list[Problem] = []
    skipped = 0
    seen: dict[str, int] = {}
    while len(faults) < _MOST_FAULTS:
        line = rows.line_num + 1
        try:
            row = next(rows, None)
            if row is None:
                break
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(names):
                raise _miscounted(len(row), len(names))
            job = read(dict(zip(names, row, strict=True)))
            if job is None:
                skipped += 1
                continue
            if seen.setdefault(job.name, line) != line:
                raise _FieldError("name", f"{job.name} is the job of line {seen[job.name]} too", "rename one")
        except _FieldError as wrong:
            faults.append(Problem(line=line, field=wrong.field, message=wrong.message, remedy=wrong.remedy))
        except csv.Error as error:
            faults.append(Problem(line=line, message=f"is not CSV: {error}", remedy="check the quotes"))
            break
        else:
            jobs.append(job)
    else:
        faults.append(Problem("may have more faults; only the first are listed"))
    return jobs, faults, skipped


def _miscounted(fields: int, columns: int) -> _FieldError:
    count = "1 field" if fields == 1 else f"{fields} fields"
    remedy = "quote commas" if fields > columns else "leave no column out, not even an empty one"
    return _FieldError("", f"has {count}, but the header {columns}", remedy)


def _read_own(row: Mapping[str, str]) -> _Job:
    return _Job(
        name=_name(row, "name"),
        submitted=_seconds(row, "submitted"),
        duration=_seconds(row, "duration"),
        pods=_whole(row, "pods", least=1, most=_MOST_PODS),
        gpus=_whole(row, "gpus", least=0, most=_MOST_PODS),
        priority=_whole(row, "priority", least=-(2**31), most=2**31 - 1)
        if row.get("priority", "").strip()
        else 0,
        kind=row.get("kind", "").strip(),
    )


def _read_acme(row: Mapping[str, str]) -> _Job | None:
    gpus = _whole(row, "gpu_num", least=0, most=_MOST_PODS)
    if not gpus:
        return None
    pods = -(-gpus // GPUS_PER_HOST)
    each = -(-gpus // pods)
    text = row["submit_time"].strip()
    try:
        date = datetime.fromisoformat(text)
        # Else the result would depend on the time zone of the machine.
        submitted = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _FieldError(
            "submit_time", f"{text!r} is not a time", "write it like 2023-03-01 00:18:22+08:00"
        ) from None
    return _Job(
        name=_name(row, "job_id"),
        submitted=submitted,
        duration=_seconds(row, "duration"),
        pods=pods,
        gpus=each,
        priority=0,
        kind=row.get("type", "").strip().lower(),
        added=pods * each - gpus,
    )


def _name(row: Mapping[str, str], field: str) -> str:
    name = row[field].strip()
    if not _NAME.fullmatch(name):
        remedy = "write up to 52 of a-z, 0-9 and -, as names of Kubernetes objects are"
        raise _FieldError(field, f"{name!r} is not a name", remedy)
    return name


def _seconds(row: Mapping[str, str], field: str) -> float:
    text = row[field].strip()
    try:
        # Python's own numbers may have underscores and other alphabets' digits.
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise _FieldError(field, f"{text!r} is not a time", "write seconds, 0 or more, like 90 or 1.5")
    if value > _MOST_SECONDS:
        raise _FieldError(field, f"{text!r} is more than 3,000 years", "write seconds, not milliseconds")
    return value


def _whole(row: Mapping[str, str], field: str, *, least: int, most: int) -> int:
    text = row[field].strip()
    try:
        value = int(text) if text.isascii() and "_" not in text else most + 1
    except ValueError:
        value = most + 1
    if not least <= value <= most:
        raise _FieldError(field, f"{text!r} is not a number of {least} to {most}", "write a whole number")
    return value


def _in_columns(jobs: list[_Job], dates: bool) -> Jobs:
    jobs.sort(key=lambda job: job.submitted)
    submitted = np.array([job.submitted for job in jobs], dtype=np.float64)
    return Jobs(
        names=tuple(job.name for job in jobs),
        # A trace of dates would begin half a century late.
        submitted=submitted - submitted[0] if dates or submitted[0] > _SINCE_1970 else submitted,
        durations=np.array([job.duration for job in jobs], dtype=np.float64),
        pods=np.array([job.pods for job in jobs], dtype=np.int64),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        priorities=np.array([job.priority for job in jobs], dtype=np.int64),
        kinds=tuple(job.kind for job in jobs),
    )


def _not_utf8(file: BinaryIO, error: UnicodeDecodeError) -> Trace:
    line = 0
    if file.seekable():
        # The error counts from the beginning of what was decoded last.
        before = file.tell() - len(error.object) + error.start
        file.seek(0)
        line = 1 + file.read(before).count(b"\n")
    return _unusable("is not UTF-8", "save it as UTF-8", line)


def _unusable(message: str, remedy: str, line: int | None = None) -> Trace:
    return Trace(jobs=None, faults=(Problem(line=line, message=message, remedy=remedy),))
