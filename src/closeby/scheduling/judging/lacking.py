"""What pods lack: resources of which they ask for more than is free on the nodes that they may use."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster, offered
from closeby.objects.arrays import Amounts, Bools, Ints
from closeby.objects.bounds import shown
from closeby.objects.pods import Pod
from closeby.objects.quantities import format_amount
from closeby.objects.topologies import tier_of
from closeby.objects.words import natural_key, plural
from closeby.topology.labels import MISSING

#: Resources that a message names, and names that are proposed for one that no node offers.
NAMED: Final = 3
KNOWN: Final = 5
#: Values of a label that are looked at for the one that was meant.
LOOKED_AT: Final = 200
#: Nodes without a label that are listed one by one; of more, the command that lists them is given.
LISTED: Final = 8
#: Slots of which all resources are looked at in one array; arrays of more would be slow to allocate.
TOGETHER: Final = 1024


class ResourceLack(Struct, frozen=True, kw_only=True):
    """One resource that some pods lack."""

    resource: str
    #: Of how many pods, by all of them, and by one of them at the most.
    pods: int
    asked: int
    each: int
    #: Free on nodes that the pods may use, on so many nodes, and on one of them at the most.
    free: int
    nodes: int
    largest: int
    #: How many of the pods that is enough for, node by node.
    fits: int = 0
    #: Free on nodes that they may not use, on so many nodes.
    barred: int = 0
    barred_nodes: int = 0
    #: Whether any node has some of it, and if not, what nodes have instead: the nearest names first.
    offered: bool = True
    known: tuple[str, ...] = ()

    def text(self, *, nodes: bool = True) -> str:
        """``nvidia.com/gpu: 32 free on 4 nodes, 64 asked``; without ``nodes`` not on how many."""
        name = shown(self.resource)
        if not self.offered:
            return f"no node offers {name}" + (f"; known: {', '.join(self.known)}" if self.known else "")
        free, asked, each = (self._amount(one) for one in (self.free, self.asked, self.each))
        if self.free < self.asked and free == asked:  # Rounded for reading, they would hide what lacks.
            free, asked = str(self.free), str(self.asked)
        where = f" on {plural(self.nodes, 'node')}" if nodes and self.nodes else ""
        if self.pods == 1 and self.nodes > 1:
            said = f"at most {self._amount(self.largest)} free on one node, {asked} asked"
        elif self.free < self.asked:
            said = f"{free} free{where}, {asked} asked"
        elif self.largest < self.each:
            said = f"{free} free{where}, at most {self._amount(self.largest)} on one, {each} per pod asked"
        else:
            said = f"{free} free{where}, enough for {self.fits:,} of {self.pods:,} pods with {each} each"
        if self.barred:
            there = plural(self.barred_nodes, "node")
            said += f", {self._amount(self.barred)} more free on {there} that may not be used"
        return f"{name}: {said}"

    def _amount(self, amount: int) -> str:
        return format_amount(self.resource, amount)


def lacks_of(
    cluster: Cluster, demand: Sequence[tuple[Pod, int]], index: Ints | slice, alive: Bools, usable: Bools
) -> tuple[ResourceLack, ...]:
    """What so many pods like these lack on some slots, the scarcest first.

    ``alive`` says which slots hold a node, ``usable`` from which of them only a lack of resources keeps pods.
    What does not lack costs a few array operations.
    """
    asked: dict[str, int] = {}
    each: dict[str, int] = {}
    count = sum([number for _, number in demand])
    for pod, number in demand:
        for resource, amount in (*pod.spec.requests, ("pods", 1)):
            asked[resource] = asked.get(resource, 0) + amount * number
            each[resource] = max(each.get(resource, 0), amount)
    found: list[tuple[float, str, ResourceLack]] = []
    known = [resource for resource, amount in asked.items() if amount and resource in cluster.row_of]
    together = _Room(cluster, known, index, usable) if len(usable) <= TOGETHER else None
    any_usable, others = bool(usable.any()), alive & ~usable
    any_other = bool(others.any())
    for resource, amount in asked.items():
        if not amount or (resource == "pods" and found):  # Places for pods count where nothing else lacks.
            continue
        row, most = cluster.row_of.get(resource), each[resource]
        if row is None:
            found.append((-1.0, resource, _unknown(cluster, resource, count, amount, most)))
            continue
        room = _Room(cluster, (resource,), index, usable) if together is None else together
        largest = room.largest[resource]
        if count == 1 and largest >= most:
            continue
        if not largest and not cluster.allocatable[row].any():
            found.append((-1.0, resource, _unknown(cluster, resource, count, amount, most)))
            continue
        if not any_usable:  # Something else than resources keeps the pods out.
            continue
        total, fits = room.total[resource], count
        enough = total >= amount and largest >= most
        if len(demand) == 1 and enough and total < amount + len(usable) * most:
            fits = room.fits(resource, most)
        if enough and fits >= count:
            continue
        barred, barred_nodes = room.barred(resource, others) if any_other else (0, 0)
        lack = ResourceLack(
            resource=resource,
            pods=count,
            asked=amount,
            each=most,
            free=total,
            nodes=room.nodes(resource),
            largest=largest,
            fits=fits,
            barred=0 if resource == "pods" else barred,
            barred_nodes=barred_nodes,
        )
        found.append((total / amount, resource, lack))
    return tuple(lack for *_, lack in sorted(found, key=lambda one: one[:2]))


class _Room:
    """What some slots have free of one resource or several, worked out for all of them at once."""

    def __init__(
        self, cluster: Cluster, resources: Sequence[str], index: Ints | slice, usable: Bools
    ) -> None:
        rows = [cluster.row_of[one] for one in resources]
        #: (resources, slots)
        self._free = _at(cluster.allocatable, rows, index) - _at(cluster.requested, rows, index)
        np.maximum(self._free, 0, out=self._free)
        self._usable = self._free * usable
        self._place = {resource: place for place, resource in enumerate(resources)}
        largest = np.maximum.reduce(self._usable, axis=1, initial=0)
        #: Free on one of the usable slots at the most, by resource.
        self.largest: dict[str, int] = dict(zip(resources, largest.tolist(), strict=True))

    @cached_property
    def total(self) -> dict[str, int]:
        """Free on all usable slots together, by resource."""
        return dict(zip(self._place, np.add.reduce(self._usable, axis=1).tolist(), strict=True))

    def nodes(self, resource: str) -> int:
        """Usable slots that have some of it free."""
        return int(np.count_nonzero(self._usable[self._place[resource]]))

    def fits(self, resource: str, each: int) -> int:
        """How many pods that ask for so much of it each the usable slots hold."""
        return int((self._usable[self._place[resource]] // each).sum())

    def barred(self, resource: str, others: Bools) -> tuple[int, int]:
        """What other slots have free of it, and how many of them have some."""
        there = self._free[self._place[resource]] * others
        return int(there.sum()), int(np.count_nonzero(there))


def _at(amounts: Amounts, rows: Sequence[int], index: Ints | slice) -> Amounts:
    if len(rows) == 1:
        return amounts[rows[0] : rows[0] + 1, index]
    of = np.asarray(rows, dtype=np.intp)
    return amounts[of, index] if isinstance(index, slice) else amounts[of[:, None], index]


def lacks_text(lacks: Sequence[ResourceLack], *, nodes: bool = True) -> str:
    """The first few as one line; empty where nothing lacks."""
    return "; ".join(lack.text(nodes=nodes) for lack in lacks[:NAMED])


def _unknown(cluster: Cluster, resource: str, pods: int, asked: int, each: int) -> ResourceLack:
    known = _nearest(resource, offered(cluster))
    return ResourceLack(
        resource=resource,
        pods=pods,
        asked=asked,
        each=each,
        free=0,
        nodes=0,
        largest=0,
        offered=False,
        known=known,
    )


def _nearest(name: str, names: Collection[str]) -> tuple[str, ...]:
    """The names most like one; else those of devices, or all."""
    close = get_close_matches(shown(name), names, n=KNOWN, cutoff=0.6)
    if close:
        return tuple(close)
    devices = [one for one in names if "/" in one]
    return tuple(devices or names)[:KNOWN]


def unknown_values(cluster: Cluster, pod: Pod) -> str:
    """The values of a label that a pod asks for and no node has, with what nodes have; else empty.

    ``no node has example.com/rack=R1; the nearest is r1``: of a node selector, or a required affinity of one
    term.
    """
    wanted: list[tuple[str, tuple[str, ...]]] = [(key, (value,)) for key, value in pod.spec.node_selector]
    terms = pod.spec.required_affinity or ()
    for one in terms[0].expressions if len(terms) == 1 else ():
        wanted += [(one.key, tuple(one.values))] if one.operator == "In" and one.values else []
    for key, values in wanted:
        column = cluster.labels.column(key)
        codes = np.unique(column.codes[: cluster.capacity][cluster.alive[: cluster.capacity]])
        carried = codes[codes != MISSING]
        if not len(carried) or np.isin(carried, [column.code(value) or MISSING for value in values]).any():
            continue
        known = sorted((column.values[code] or "" for code in carried[:LOOKED_AT].tolist()), key=natural_key)
        spelt = {one.casefold(): one for one in reversed(known)}
        close = get_close_matches(values[0].casefold(), spelt, n=1, cutoff=0.8)
        asked = " or ".join(shown(one) for one in values[:NAMED])
        there = (
            f"the nearest is {shown(spelt[close[0]])}" if close else f"nodes have {', '.join(known[:KNOWN])}"
        )
        return f"no node has {shown(key)}={asked}; {there}"
    return ""


class Unlabelled(Struct, frozen=True, kw_only=True):
    """Nodes that carry no label which a constraint or a pod asks for."""

    label: str
    #: What the label would have to be; None where any value may do.
    value: str | None = None
    #: How many there are, and whether that is every node.
    nodes: int
    every: bool
    #: The first of them, in natural order.
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``8 nodes carry no label example.com/rack``, ``8 nodes are in no HyperNode of tier 1``."""
        tier = tier_of(self.label)
        if tier is not None:
            if self.every:
                return f"no node is in a HyperNode of tier {tier}"
            verb = "is" if self.nodes == 1 else "are"
            return f"{plural(self.nodes, 'node')} {verb} in no HyperNode of tier {tier}"
        if self.every:
            return f"no node carries label {shown(self.label)}"
        verb = "carries" if self.nodes == 1 else "carry"
        return f"{plural(self.nodes, 'node')} {verb} no label {shown(self.label)}"

    @property
    def remedy(self) -> str:
        """The command that labels them, or what else makes them a part of such a domain."""
        if tier_of(self.label) is not None:
            them = ", ".join(self.names) if self.nodes == len(self.names) else "them"
            members = "a member" if self.nodes == 1 else "members"
            return f"make {them} {members} of one (kubectl get hypernodes lists those that there are)"
        label = f"{shown(self.label)}={shown(self.value or 'VALUE')}"
        if self.every:
            return f"label them: kubectl label nodes NODE {label}"
        if self.nodes > len(self.names):
            which = f"'!{shown(self.label)}'"
            return f"label them: kubectl label nodes NODE {label} (kubectl get nodes -l {which} lists them)"
        return (
            f"label {'them' if self.nodes > 1 else 'it'}: kubectl label nodes {' '.join(self.names)} {label}"
        )


def unlabelled(
    cluster: Cluster, label: str, slots: Ints, *, value: str | None = None, every: bool
) -> Unlabelled | None:
    """Which of some slots lack a label; None if none do. ``every``: no node at all carries it."""
    codes = cluster.labels.column(label).codes
    missing = slots[codes[slots] == MISSING]
    if not len(missing):
        return None
    names: tuple[str, ...] = ()
    if len(missing) <= LISTED:
        names = tuple(sorted((cluster.node_at(slot).name for slot in missing.tolist()), key=natural_key))
    return Unlabelled(label=label, value=value, nodes=len(missing), every=every, names=names)
