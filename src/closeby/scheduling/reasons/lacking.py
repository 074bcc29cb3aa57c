"""What pods lack: resources of which they ask for more than is free on the nodes that they may use."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster, offered
from closeby.objects.arrays import Bools, Ints
from closeby.objects.bounds import shown
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key
from closeby.scheduling.reasons.facts import ResourceLack, UnknownValue, Unlabelled
from closeby.topology.labels import MISSING

#: Names that are proposed for one that no node offers.
KNOWN: Final = 5
#: Values of a label that are looked at for the one that was meant.
LOOKED_AT: Final = 200
#: Nodes without a label that are listed one by one; of more, the command that lists them is given.
LISTED: Final = 8


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
    any_usable, others, none = bool(usable.any()), alive & ~usable, np.zeros(len(usable), dtype=np.int64)
    for resource, amount in asked.items():
        if not amount or (resource == "pods" and found):  # Places for pods count where nothing else lacks.
            continue
        row, most = cluster.row_of.get(resource), each[resource]
        free = none if row is None else cluster.free(row, index)
        there = free[usable]
        largest = int(there.max(initial=0))
        if count == 1 and largest >= most:
            continue
        if not largest and (row is None or not cluster.allocatable[row].any()):
            known = _nearest(resource, offered(cluster))
            lack = ResourceLack(
                resource=resource, pods=count, asked=amount, each=most, offered=False, known=known
            )
            found.append((-1.0, resource, lack))
            continue
        if not any_usable:  # Something else than resources keeps the pods out.
            continue
        total, fits = int(there.sum()), count
        enough = total >= amount and largest >= most
        if len(demand) == 1 and enough and total < amount + len(usable) * most:
            fits = int((there // most).sum())
        if enough and fits >= count:
            continue
        barred = free[others]
        lack = ResourceLack(
            resource=resource,
            pods=count,
            asked=amount,
            each=most,
            free=total,
            nodes=int(np.count_nonzero(there)),
            largest=largest,
            fits=fits,
            barred=0 if resource == "pods" else int(barred.sum()),
            barred_nodes=int(np.count_nonzero(barred)),
        )
        found.append((total / amount, resource, lack))
    return tuple(lack for *_, lack in sorted(found, key=lambda one: one[:2]))


def _nearest(name: str, names: Collection[str]) -> tuple[str, ...]:
    """The names most like one; else those of devices, or all."""
    close = get_close_matches(shown(name), names, n=KNOWN, cutoff=0.6)
    if close:
        return tuple(close)
    devices = [one for one in names if "/" in one]
    return tuple(devices or names)[:KNOWN]


def wanted_labels(pod: Pod) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The labels of a pod's node selector or only affinity term, each with the values that may be."""
    for key, value in pod.spec.node_selector:
        yield key, (value,)
    terms = pod.spec.required_affinity or ()
    for one in terms[0].expressions if len(terms) == 1 else ():
        if one.operator in ("In", "Exists", "Gt", "Lt"):
            yield one.key, tuple(one.values) if one.operator == "In" else ()


def unknown_value(cluster: Cluster, pod: Pod) -> UnknownValue | None:
    """The values of a label that a pod asks for and no node has; None if there is no such label."""
    for key, values in wanted_labels(pod):
        column = cluster.labels.column(key)
        codes = np.unique(column.codes[: cluster.capacity][cluster.alive[: cluster.capacity]])
        carried = codes[codes != MISSING]
        known = np.isin(carried, [column.code(value) or MISSING for value in values])
        if not values or not len(carried) or known.any():
            continue
        there = sorted((column.values[code] or "" for code in carried[:LOOKED_AT].tolist()), key=natural_key)
        spelt = {one.casefold(): one for one in reversed(there)}
        close = get_close_matches(values[0].casefold(), spelt, n=1, cutoff=0.8)
        nearest = spelt[close[0]] if close else None
        return UnknownValue(label=key, asked=values, nearest=nearest, known=tuple(there[:KNOWN]))
    return None


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
