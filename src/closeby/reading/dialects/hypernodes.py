"""Volcano's ``HyperNode`` (``topology.volcano.sh``): a tree of nodes by their names or labels, in tiers.

All HyperNodes together are one topology, with a level for each tier. A node's domain at a tier is the highest
HyperNode above it whose tier is not greater, so that trees may be uneven: that is what Volcano's
``highestTierAllowed`` means. A node without one has no label at that level.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from closeby.errors import FieldError
from closeby.objects.bounds import quoted, some
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition, few, invalid
from closeby.objects.topologies import HYPERNODES, HyperMember, HyperNode, Topology, TopologyLevel, tier_level
from closeby.objects.words import natural_key
from closeby.reading.common.patterns import takes_too_long
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.selectors import LabelSelectorWire, Refusal, label_selector
from closeby.reading.decoding.wire import Wire, WithSpec, object_id

_SOURCE: Final = "topology.volcano.sh/v1alpha1"
_NODE: Final = "Node"
_HYPERNODE: Final = "HyperNode"
#: A topology has no more levels.
_MOST_TIERS: Final = 16


class ExactMatchWire(Wire, gc=False):
    """``exactMatch``."""

    name: str = ""


class RegexMatchWire(Wire, gc=False):
    """``regexMatch``."""

    pattern: str = ""


class SelectorWire(Wire):
    """``selector`` of a member: one of three."""

    exact_match: ExactMatchWire | None = None
    regex_match: RegexMatchWire | None = None
    label_match: LabelSelectorWire | None = None


class MemberWire(Wire):
    """``members[]``."""

    type: str = ""
    selector: SelectorWire | None = None


class SpecWire(Wire):
    """``spec``."""

    tier: int = 0
    tier_name: str | None = None
    members: list[MemberWire] | None = None


def read_hypernode(document: Document, reading: DocumentReading) -> HyperNode:
    """A HyperNode. A member that can't be understood has no nodes, and is reported.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    spec = wire.spec or SpecWire()
    name = reading.name(document, wire.meta)
    if spec.tier < 0:
        raise FieldError(("spec", "tier"), f"{spec.tier} is negative", "give zero or more")
    members, conditions = [], []
    for i, one in enumerate(spec.members or ()):
        field = f"spec.members[{i}]"
        member, problems = _member(one, field)
        if member is not None:
            members.append(member)
        conditions += [invalid(object_id(_HYPERNODE, "", name), *problem) for problem in problems]
    return HyperNode(
        name=name,
        tier=spec.tier,
        tier_name=spec.tier_name or "",
        members=tuple(members),
        conditions=few(conditions),
    )


def _member(wire: MemberWire, field: str) -> tuple[HyperMember | None, list[tuple[str, str, str]]]:
    """The member, and field, message and remedy of what is wrong with it."""
    selector = wire.selector or SelectorWire()
    given = [one for one in (selector.exact_match, selector.regex_match, selector.label_match) if one]
    if wire.type not in (_NODE, _HYPERNODE):
        return None, [(f"{field}.type", f"{quoted(wire.type)} is not a type", f"use {_NODE} or {_HYPERNODE}")]
    if len(given) != 1:
        message = "must have exactly one of exactMatch, regexMatch and labelMatch"
        return None, [(f"{field}.selector", message, "leave the others out" if given else "add one")]
    if selector.exact_match is not None:
        return HyperMember(nested=wire.type == _HYPERNODE, name=selector.exact_match.name), []
    if wire.type == _HYPERNODE:
        message = "HyperNodes are members by exactMatch only, so it has no members"
        return None, [(f"{field}.selector", message, "name each HyperNode by exactMatch")]
    if selector.regex_match is not None:
        pattern = selector.regex_match.pattern
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            message = f"{quoted(pattern)} is not a regular expression ({error}), so it has no members"
            return None, [(f"{field}.selector.regexMatch.pattern", message, "correct it")]
        if (why := takes_too_long(pattern)) is not None:
            message = f"{quoted(pattern)} may take very long to match ({why}), so it has no members"
            return None, [(f"{field}.selector.regexMatch.pattern", message, "write a simpler one")]
        return HyperMember(pattern=pattern), []
    refused: list[Refusal] = []
    labels = label_selector(selector.label_match, (), refused)
    if labels is None or labels.empty or refused:
        message = refused[0][1] if refused else "selects by no label, so it has no members"
        return None, [(f"{field}.selector.labelMatch", message, "name a label")]
    return HyperMember(labels=labels), []


class HyperTree:
    """All HyperNodes of a cluster: the topology that they make, and the labels that they give to nodes."""

    def __init__(self, hypernodes: Iterable[HyperNode]) -> None:
        by_name = {one.name: one for one in sorted(hypernodes, key=lambda one: natural_key(one.name))}
        self._problems: list[Condition] = []
        #: Each HyperNode's parent.
        self._parents: dict[str, HyperNode] = {}
        #: HyperNodes by the name of a node that they list, and those that select nodes.
        self._exact: dict[str, list[HyperNode]] = {}
        self._selecting: list[tuple[re.Pattern[str] | None, HyperMember, HyperNode]] = []
        for one in by_name.values():
            for member in one.members:
                self._add(member, one, by_name)
        self._tiers = sorted({one.tier for one in by_name.values()})
        self._names = self._tier_names(by_name.values())
        #: The labels of a node, by the HyperNode that holds it; none where there are more tiers than levels.
        counted = by_name.values() if len(self._tiers) <= _MOST_TIERS else ()
        self._labels = {one.name: self._labels_below(one) for one in counted}

    @property
    def topology(self) -> Topology | None:
        """Levels from the highest tier to the lowest; None without HyperNodes."""
        if not self._tiers:
            return None
        levels = [TopologyLevel(tier_level(tier), self._names.get(tier)) for tier in reversed(self._tiers)]
        problems = self._problems
        if len(levels) > _MOST_TIERS:
            message, remedy = f"{len(levels)} tiers are more than {_MOST_TIERS}", "merge tiers"
            problems = [
                *problems,
                invalid(f"Topology/{HYPERNODES}", "spec.tier", message, remedy, blocking=True),
            ]
        return Topology(name=HYPERNODES, levels=tuple(levels), source=_SOURCE, conditions=few(problems))

    def labelled(self, node: Node) -> Node:
        """The node with a label for each tier at which it has a HyperNode."""
        labels = self.labels_of(node)
        return node if not labels else msgspec.structs.replace(node, labels={**node.labels, **labels})

    def labels_of(self, node: Node) -> Mapping[str, str]:
        """The HyperNode that holds a node at each tier, by the tier's label."""
        holders = [*self._exact.get(node.name, ())]
        holders += [one for found, member, one in self._selecting if _selects(found, member, node)]
        if not holders:
            return {}
        # The lowest tier says most; of several at one tier the first by name counts.
        return self._labels.get(min(holders, key=lambda one: (one.tier, natural_key(one.name))).name, {})

    def _add(self, member: HyperMember, owner: HyperNode, by_name: Mapping[str, HyperNode]) -> None:
        if not member.nested:
            if member.name:
                self._exact.setdefault(member.name, []).append(owner)
            else:
                found = re.compile(member.pattern) if member.pattern else None
                self._selecting.append((found, member, owner))
            return
        child = by_name.get(member.name)
        if child is None:
            self._say(owner, f"its member HyperNode {quoted(member.name)} does not exist", "create it")
        elif child.tier >= owner.tier:
            message = (
                f"its tier {owner.tier} is not above tier {child.tier} of its member {child.name}, "
                "which does not count as a member"
            )
            self._say(owner, message, "give the parent the greater tier")
        elif child.name in self._parents:
            message = f"{child.name} is already a member of {self._parents[child.name].name}, which counts"
            self._say(owner, message, "leave each HyperNode one parent")
        else:
            self._parents[child.name] = owner

    def _say(self, owner: HyperNode, message: str, remedy: str) -> None:
        self._problems.append(invalid(object_id(_HYPERNODE, "", owner.name), "spec.members", message, remedy))

    def _above(self, one: HyperNode) -> Iterator[HyperNode]:
        """It and the HyperNodes above it, whose tiers ascend."""
        step: HyperNode | None = one
        while step is not None:
            yield step
            step = self._parents.get(step.name)

    def _labels_below(self, one: HyperNode) -> dict[str, str]:
        found, way = {}, list(self._above(one))
        for tier in self._tiers:
            holding = [step.name for step in way if step.tier <= tier]
            if holding:
                found[tier_level(tier)] = holding[-1]
        return found

    def _tier_names(self, hypernodes: Iterable[HyperNode]) -> dict[int, str]:
        """The name of each tier that has one; a tier has one name, and a name one tier."""
        names: dict[int, dict[str, HyperNode]] = {}
        for one in hypernodes:
            if one.tier_name:
                names.setdefault(one.tier, {}).setdefault(one.tier_name, one)
        found: dict[int, str] = {}
        for tier, called in sorted(names.items()):
            first, *others = called
            if others:
                message = f"tier {tier} has several names: {some(list(called))}; {first} counts"
                owner = object_id(_HYPERNODE, "", called[others[0]].name)
                self._problems.append(invalid(owner, "spec.tierName", message, "give it one name"))
            if first in found.values():
                message = f"{quoted(first)} is already the name of another tier"
                owner = object_id(_HYPERNODE, "", called[first].name)
                self._problems.append(invalid(owner, "spec.tierName", message, "give each tier its own name"))
            else:
                found[tier] = first
        return found


def _selects(found: re.Pattern[str] | None, member: HyperMember, node: Node) -> bool:
    if found is not None:
        return found.search(node.name) is not None
    return member.labels is not None and member.labels.matches(node.labels)
