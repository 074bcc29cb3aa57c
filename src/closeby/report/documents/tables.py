"""Summaries for spreadsheets: one line a gang or job, as CSV."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.quality.placements import NODE_LEVEL
from closeby.report.documents.quality import QualityEntry
from closeby.report.documents.scheduling import GroupEntry, SchedulingReport
from closeby.whatif.records import DomainPath

Cell = str | int | float | None

#: A spreadsheet takes what begins so for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


class CsvTable(Struct, frozen=True):
    """Lines below their columns."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]


def to_csv(table: CsvTable) -> str:
    """CSV as RFC 4180 has it, with one line of names. Text that looks like a formula gets an apostrophe."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(table.columns)
    writer.writerows([_harmless(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def gangs_table(report: SchedulingReport) -> CsvTable:
    """The gangs of a report, in its order."""
    members = Counter((pod.namespace, pod.group) for pod in report.pods)
    columns = (
        "namespace",
        "name",
        "minMember",
        "pods",
        "scheduled",
        "topology",
        "level",
        "domain",
        "nodes",
        "span",
        "meanDistance",
        "slowdown",
        "reason",
        "message",
    )
    return CsvTable(columns, [_gang(group, members[group.namespace, group.name]) for group in report.groups])


def _gang(group: GroupEntry, pods: int) -> tuple[Cell, ...]:
    quality = group.quality if isinstance(group.quality, QualityEntry) else None
    return (
        group.namespace,
        group.name,
        group.min_member,
        pods,
        group.scheduled,
        group.topology,
        group.level,
        domain_cell(group.domain),
        group.span.get(NODE_LEVEL),
        span_cell(group.span),
        None if quality is None else quality.mean_distance,
        None if quality is None else quality.slowdown,
        group.reason,
        group.message,
    )


def domain_cell(domain: DomainPath) -> str:
    """A path such as ``zone-a/rack-1``; a value that is missing is empty."""
    return "/".join(value or "" for value in domain)


def span_cell(span: Mapping[str, int]) -> str:
    """Distinct domains by level, such as ``zone=1 rack=2 hostname=4``."""
    return " ".join(f"{level}={count}" for level, count in span.items())


def _harmless(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
