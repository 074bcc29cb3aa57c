"""Which nodes meet the terms of a node selector, by columns of labels.

The rules are upstream's (``component-helpers/scheduling/corev1/nodeaffinity``).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np

from closeby.objects.arrays import Bools, Ints
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import NodeSelectorTerm, Requirement
from closeby.topology.labels import LabelTable

#: Alternatives; None stands for what all nodes meet.
Terms: TypeAlias = tuple[NodeSelectorTerm, ...] | None

_NAME: Final = "metadata.name"
#: Without a limit on the zeros in front, as there; of other digits no 64-bit integer has more.
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class NodesByName(Protocol):
    """The nodes of a cluster, by slot."""

    @property
    def structure(self) -> tuple[int, ...]:
        """Another value whenever nodes came, went or got other labels."""

    @property
    def nodes(self) -> Sequence[Node | None]:
        """slot -> node."""

    @property
    def capacity(self) -> int:
        """Number of slots."""

    @property
    def alive(self) -> Bools:
        """Which slots hold a node; it may be longer than that."""

    @property
    def labels(self) -> LabelTable:
        """The labels of all nodes."""

    @property
    def slots_by_name(self) -> Mapping[str, int]:
        """The slot of each node."""


def satisfies(requirement: Requirement, value: str | None) -> bool:
    """Whether a label meets a requirement; ``value`` is None where the object does not carry the label."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            have = None if value is None else integer(value)
            bound = integer(requirement.values[0])
            if have is not None and bound is not None:
                return have > bound if requirement.operator == "Gt" else have < bound
    return False


def integer(text: str) -> int | None:
    """A 64-bit integer as Go's ParseInt reads it, None for anything else."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if _LEAST <= number <= _GREATEST else None


def all_met(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    return all(satisfies(one, labels.get(one.key)) for one in requirements)


def meets(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Whether a node meets one of the terms; a term without requirements is met by none."""
    return any(
        bool(term.expressions or term.fields)
        and all_met(term.expressions, node.labels)
        and all(one.key == _NAME and satisfies(one, node.name) for one in term.fields)
        for term in terms
    )


def only_host(terms: tuple[NodeSelectorTerm, ...]) -> str | None:
    """The name of the one node that can meet the terms, if they say so by its name or its host name."""
    if len(terms) != 1:
        return None
    for one in (*terms[0].expressions, *terms[0].fields):
        if one.key in (HOSTNAME, _NAME) and one.operator == "In" and len(one.values) == 1:
            return one.values[0]
    return None


def meeting(terms: Iterable[NodeSelectorTerm], labels: LabelTable, nodes: Mapping[str, int], n: int) -> Bools:
    """The slots whose nodes meet one of the terms; shape (n,). ``nodes`` are the slots of all nodes by name.

    What it says of slots without a node means nothing.
    """
    found = np.zeros(n, dtype=np.bool_)
    for term in terms:
        if not term.expressions and not term.fields:
            continue
        hit = np.ones(n, dtype=np.bool_)
        for one in term.expressions:
            hit &= _expression(one, labels, n)
        for one in term.fields:
            named = np.zeros(n, dtype=np.bool_)
            named[[nodes[name] for name in one.values if name in nodes]] = True
            hit &= named if one.operator == "In" and one.key == _NAME else _other_field(one, named)
        found |= hit
    return found


def _expression(requirement: Requirement, labels: LabelTable, n: int) -> Bools:
    column = labels.column(requirement.key)
    codes = np.zeros(n, dtype=np.int32)
    size = min(n, len(column.codes))
    codes[:size] = column.codes[:size]
    if requirement.operator in ("In", "NotIn"):
        matching = np.zeros(len(column.values), dtype=np.bool_)
        matching[[code for one in requirement.values if (code := column.code(one)) is not None]] = True
        if requirement.operator == "NotIn":
            np.logical_not(matching, out=matching)
    else:
        matching = column.matching(lambda value: satisfies(requirement, value))
    return matching.take(codes)


def _other_field(requirement: Requirement, named: Bools) -> Bools:
    sound = requirement.key == _NAME and requirement.operator == "NotIn"
    return ~named if sound else np.zeros(len(named), dtype=np.bool_)


class NodeReach:
    """Where the terms of volumes and classes are met, remembered as long as no node comes, goes or moves."""

    def __init__(self, nodes: NodesByName) -> None:
        self._nodes = nodes
        #: Of the nodes as they were when the rest was worked out.
        self._stamp: tuple[int, ...] = ()
        self._masks: dict[Terms, Bools] = {}
        self._reached: dict[Terms, Ints] = {}

    def current(self) -> tuple[int, ...]:
        """Another value whenever nodes have come, gone or moved."""
        stamp = (*self._nodes.structure, self._nodes.capacity)
        if stamp != self._stamp:
            self._stamp = stamp
            self._masks.clear()
            self._reached.clear()
        return stamp

    def mask(self, terms: Terms) -> Bools:
        """The slots whose nodes meet one of the terms (None: all); shape (capacity,)."""
        self.current()
        found = self._masks.get(terms)
        if found is None:
            nodes = self._nodes
            alive = nodes.alive[: nodes.capacity]
            if terms is None:
                found = alive.copy()
            else:
                found = alive & meeting(terms, nodes.labels, nodes.slots_by_name, nodes.capacity)
            self._masks[terms] = found
        return found

    def slots(self, terms: Terms) -> Ints:
        """The same slots, ascending."""
        self.current()
        found = self._reached.get(terms)
        if found is None:
            one = None if terms is None else self._only(terms)
            found = np.flatnonzero(self.mask(terms)) if one is None else np.asarray([one], dtype=np.intp)
            self._reached[terms] = found
        return found

    def _only(self, terms: tuple[NodeSelectorTerm, ...]) -> int | None:
        """The only slot, found without a look at all of them; None where that can't be done."""
        name = only_host(terms)
        slot = None if name is None else self._nodes.slots_by_name.get(name)
        node = None if slot is None else self._nodes.nodes[slot]
        if node is None or node.labels.get(HOSTNAME, node.name) != node.name or not meets(terms, node):
            return None
        for one in terms[0].expressions:
            self._nodes.labels.column(one.key)  # From now on a change of this label is noticed.
        return slot
