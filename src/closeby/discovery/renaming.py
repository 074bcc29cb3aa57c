"""Names of domains that outlast a switch that is off.

A domain bears the name of one of its switches. While that one is off, or does not tell its name, all nodes
of the domain are found under another: nothing moved, and a label that changed on all of them, node after
node, would put them apart meanwhile. So they keep the name as they keep a label that is missed.
"""

from collections.abc import Iterable, Mapping, Set

from msgspec import Struct
from msgspec.structs import replace

from closeby.discovery.findings import FoundNode
from closeby.discovery.labelling import label_value
from closeby.discovery.relabelling import NodeNow, Wrote, written


class KeptNames(Struct, frozen=True):
    """What is to be written of one node."""

    found: FoundNode
    #: By label, for how many rounds in a row its value was found no more; those with former values alone.
    missed: Mapping[str, int] = {}


def keep_names(
    source: str, nodes: Iterable[NodeNow], found: Mapping[str, FoundNode], misses: int
) -> dict[str, KeptNames]:
    """``found``, by node, with former values of labels where these were merely called otherwise.

    A value that no node had before stands for another one while that is found nowhere, was that of all its
    nodes that had any, and all who had it and are found have the new one now; for less than ``misses``
    rounds in a row. Where domains part or join their labels change at once.
    """
    wrote = {node.name: written(source, node) for node in nodes}
    kept = {node: KeptNames(one) for node, one in found.items()}
    for label in sorted({label for one in found.values() for label in one.labels}):
        before = {node: its[label] for node, its in wrote.items() if label in its}
        domains = _members({node: one.labels[label] for node, one in found.items() if label in one.labels})
        holders = _members({node: its.value for node, its in before.items()})
        for value, members in domains.items():
            former = None if value in holders else _former(members, domains, holders, before)
            missed = 1 + min((before[node].missed for node in members & before.keys()), default=0)
            if former is not None and missed < misses:
                for node in members:
                    kept[node] = _called(kept[node], label, former, missed)
    return kept


def _members(values: Mapping[str, str]) -> dict[str, set[str]]:
    """The nodes of each value."""
    found: dict[str, set[str]] = {}
    for node, value in values.items():
        found.setdefault(value, set()).add(node)
    return found


def _former(
    members: Set[str],
    domains: Mapping[str, Set[str]],
    holders: Mapping[str, Set[str]],
    before: Mapping[str, Wrote],
) -> str | None:
    """The name that a domain with a new one had; None where it is new itself, or not all of what it was."""
    names = {before[node].value for node in members & before.keys()}
    if len(names) != 1:
        return None
    (former,) = names
    elsewhere = holders[former] - members
    apart = any(not elsewhere.isdisjoint(others) for others in domains.values())
    return None if former in domains or apart else former


def _called(kept: KeptNames, label: str, former: str, missed: int) -> KeptNames:
    one = kept.found
    quality = {
        former if label_value(name) == one.labels[label] else name: its for name, its in one.qos.items()
    }
    return KeptNames(
        replace(one, labels={**one.labels, label: former}, qos=quality), {**kept.missed, label: missed}
    )
