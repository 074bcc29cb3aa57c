"""What plugins share: the domains that a part may use, the resources that score, what nodes offer, and random
draws.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple
from zlib import crc32

import numpy as np
from msgspec import Meta, Struct
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from closeby.objects.nodes import is_accelerator
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate, Handle, PartView
from closeby.scheduling.plugin_view import NodeChanges, Nodes
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


def confines(part: PartView, tree: Tree) -> tuple[Domain, ...]:
    """Domains that may hold the part as a whole and have room, the tightest first.

    Those of the required level, beside the members that already run; all that the part may use where no level
    is required.
    """
    outer = part.domain_in(tree)
    levels = part.levels
    level = outer.level if levels is None or levels.required is None else levels.required
    bound = bool(part.anchors) and levels is not None and levels.required is not None
    owners = tree.owners_of_slots(part.anchors, level) if bound else None
    if level <= outer.level:
        beside = owners is None or (owners == tree.ancestor(outer, level).index).all()
        return (outer,) if beside and _room(part, tree, outer) >= part.needed else ()
    first, end = tree.within(outer, level)
    room = part.room(tree, level)[first:end]
    usable = (room >= part.needed) & tree.labelled[level][first:end]
    if owners is not None:
        usable &= (owners == owners[0]).all() & (np.arange(first, end) == owners[0])
    found = np.flatnonzero(usable)
    order = found[np.argsort(room[found], kind="stable")]
    return tuple(Domain(level, first + index) for index in order.tolist())


def wherever_allowed(part: PartView) -> list[Candidate] | None:
    """For plugins that mind no topology: the domains of a level that is required, else anywhere (None)."""
    if part.levels is None or part.levels.required is None:
        return None
    tree = part.levels.tree
    return [Candidate(slots=tree.slots_in(domain)) for domain in confines(part, tree)]


def _room(part: PartView, tree: Tree, domain: Domain) -> int:
    return int(part.room(tree, domain.level)[0 if domain.level == ROOT_LEVEL else domain.index])


#: Resources that score every pod; any other one scores only the pods that ask for it.
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class ScoredResource(Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that counts in the score; ``weight`` is its share of the mean."""

    name: str
    weight: Annotated[int, Meta(ge=1, le=100)] = 1


def check_resources(resources: Sequence[ScoredResource]) -> None:
    """Raises ValueError unless there are some, each named once."""
    names = [resource.name for resource in resources]
    if not names or len(set(names)) < len(names):
        raise ValueError("resources must name at least one resource, and none twice")


class ScoredRequest(NamedTuple):
    """One resource of one pod's score."""

    row: int
    amount: int
    weight: int


def scored_requests(
    pod: Pod, weights: Iterable[tuple[str, int]], row_of: Mapping[str, int]
) -> tuple[ScoredRequest, ...]:
    """The resources of ``weights`` that count for this pod and that some node may offer."""
    requests = {**dict(pod.spec.requests), "pods": 1}
    return tuple(
        ScoredRequest(row_of[name], requests.get(name, 0), weight)
        for name, weight in weights
        if name in row_of and (requests.get(name, 0) or name in NATIVE)
    )


class Offers:
    """What nodes offer, in the shape that a mean needs; follows the nodes' changes, not their use."""

    def __init__(self, handle: Handle) -> None:
        """``handle`` is the plugin's."""
        self._cluster = handle.cluster
        self._changes = NodeChanges(handle.cluster)
        self._room = 0
        self._divisors: dict[int, NDArray[np.float64]] = {}
        self._weights: dict[tuple[tuple[int, int], ...], NDArray[np.float64]] = {}

    def follow(self) -> None:
        """Bring what is kept up to date."""
        changed = self._changes.take()
        room = self._cluster.alive.shape[0]
        if changed is None or room != self._room:
            self._room = room
            self._divisors.clear()
            self._weights.clear()
        elif len(changed):
            for row, divisors in self._divisors.items():
                divisors[changed] = self._divisors_at(row, changed)
            for pairs, weights in self._weights.items():
                weights[changed] = self._weights_at(pairs, changed)

    def divisors(self, row: int) -> NDArray[np.float64]:
        """Allocatable amount per slot, infinite where there is none, so that a share of it is 0."""
        known = self._divisors.get(row)
        if known is None:
            known = self._divisors[row] = self._divisors_at(row, slice(None))
        return known

    def weights(self, scored: Sequence[ScoredRequest]) -> NDArray[np.float64]:
        """Sum per slot of the weights of the scored resources that the node offers, at least 1."""
        pairs = tuple((row, weight) for row, _, weight in scored)
        known = self._weights.get(pairs)
        if known is None:
            known = self._weights[pairs] = self._weights_at(pairs, slice(None))
        return known

    def _divisors_at(self, row: int, index: NDArray[np.intp] | slice) -> NDArray[np.float64]:
        offered = self._cluster.allocatable[row][index]
        return np.where(offered > 0, offered, np.inf)

    def _weights_at(
        self, pairs: tuple[tuple[int, int], ...], index: NDArray[np.intp] | slice
    ) -> NDArray[np.float64]:
        offered = [weight * (self._cluster.allocatable[row][index] > 0) for row, weight in pairs]
        sums: NDArray[np.float64] = np.sum(offered, axis=0, dtype=np.float64)
        return np.maximum(sums, 1.0, out=sums)


def asked_accelerators(pod: Pod) -> tuple[tuple[str, int], ...]:
    """The accelerators that a pod asks for, each with the weight 1."""
    return tuple((name, 1) for name, amount in pod.spec.requests if amount and is_accelerator(name))


def lots(seed: int, pod: Pod, nodes: Nodes) -> NDArray[np.float64]:
    """Numbers in [0, 1); shape (len(nodes),). What is asked first or twice changes nothing.

    They belong to the pod's uid: in a simulation the seed of the run is part of that.
    """
    slots = nodes.slots
    room = int(slots.max()) + 1 if len(slots) else 0
    return Generator(PCG64([seed, crc32(pod.uid.encode())])).random(room)[slots]
