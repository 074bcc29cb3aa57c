"""The lines of an explanation: domains, nodes and subgroups."""

from collections.abc import Mapping

from msgspec import Struct

from closeby.report.documents.scheduling import DomainPath


class DomainLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One domain as it looked before the decision. ``taken`` counts the members it got."""

    domain: DomainPath
    level: str | None
    fits: int
    wanted: int
    taken: int
    nodes: int
    #: Nodes that take none of the pods, by reason.
    blocked_by: Mapping[str, int]
    #: The resource it has least of, free and asked for; empty when it holds all.
    lack: str


class NodeLine(Struct, frozen=True, kw_only=True):
    """One node that passed the filters. ``scores`` by plugin, ``total`` the weighted sum."""

    node: str
    total: float
    scores: Mapping[str, float]


class PartLine(Struct, frozen=True, kw_only=True):
    """One subgroup; ``domain`` is the tightest one that holds its placed pods, in ``topology``."""

    name: str
    pods: int
    placed: int
    topology: str | None
    domain: DomainPath
