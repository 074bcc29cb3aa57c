"""How good the places of gangs and applications are, as data: the measures of one run over manifests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from closeby.objects.pods import Pod, gang_key
from closeby.objects.words import natural_key
from closeby.quality.gangs import GangGauge, GangMeasures, Members
from closeby.simulator.runs import Run
from closeby.topology.tree import Tree

T = TypeVar("T")


class QualityEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How close the placed members of one gang are; what has a value a level is by its short name.

    Six digits are shown. ``null`` is unknown. The seconds and slowdowns are modelled.
    """

    #: By level: domains used, over the fewest that could hold the gang on an empty cluster; 1 is ideal.
    excess_span: Mapping[str, float | None]
    #: By level: pairs of members that are in different domains.
    cross_pairs: Mapping[str, int]
    #: Pairs of members.
    pairs: int
    #: Edges of the tree between two members, mean over all pairs.
    mean_distance: float | None
    #: Edges of the tree between the two members that are farthest apart.
    diameter: int
    #: By level: edges of the ring of ranks that leave a domain.
    ring_crossings: Mapping[str, int]
    #: Edges of the tree that the ring of ranks runs over.
    ring_hops: int
    #: The fewest that it could run over with another order of ranks.
    least_ring_hops: int
    #: By level: domains that a data- or pipeline-parallel group of the gang touches; the greatest of them.
    group_spread: Mapping[str, float]
    #: Modelled: an all-reduce over the ring of ranks while all nodes of the cluster send.
    all_reduce_seconds: float
    #: Modelled: the same among the flows that were there.
    contended_all_reduce_seconds: float
    #: Modelled: the same on an ideal placement on an empty cluster.
    ideal_all_reduce_seconds: float | None
    #: Modelled: times that communication takes longer than on an ideal placement.
    slowdown: float | None
    #: Modelled: times that the whole job takes longer than on an ideal placement.
    job_slowdown: float | None


def gang_qualities(run: Run) -> dict[str, QualityEntry]:
    """The quality of each gang that has placed members, by ``namespace/name``.

    Gangs that are in one topology are measured together, so that they share its links.
    """
    gauge = GangGauge(run.engine.cluster)
    by_tree: dict[str, tuple[Tree, dict[str, Members]]] = {}
    members = _members(run)
    for group in run.groups:
        if group.key in members:
            tree = run.tree_of(group) or run.engine.topologies.flat()
            by_tree.setdefault(tree.name, (tree, {}))[1][group.key] = members[group.key]
    entries: dict[str, QualityEntry] = {}
    for tree, gangs in by_tree.values():
        measured = gauge.measure(tree, tuple(gangs.values()))
        entries |= {
            key: _entry(found, tree) for key, found in zip(gangs, measured, strict=True) if found is not None
        }
    return entries


def _members(run: Run) -> dict[str, Members]:
    """Placed members of each gang with their slots, by rank; those without one last."""
    found: dict[str, list[tuple[tuple[object, ...], Pod, int]]] = {}
    for pod in run.pods:
        slot = run.engine.cluster.placement(pod.uid)
        if pod.group is not None and slot is not None:
            binding = run.bindings.get(pod.uid)
            rank = run.engine.state.rank(pod) if binding is None else binding.rank
            place = (0, rank) if rank is not None else (1, natural_key(pod.name))
            found.setdefault(gang_key(pod), []).append((place, pod, slot))
    return {
        key: [(pod, slot) for _, pod, slot in sorted(rows, key=lambda row: row[0])]
        for key, rows in found.items()
    }


def _by_level(tree: Tree, levels: Iterable[str], values: Iterable[T]) -> Iterator[tuple[str, T]]:
    """A measure by level, without levels of which no node carries the label."""
    named = zip(levels, values, tree.carried, strict=True)
    return ((name, value) for name, value, carried in named if carried)


def _entry(found: GangMeasures, tree: Tree) -> QualityEntry:
    levels = found.levels
    return QualityEntry(
        excess_span=dict(_by_level(tree, levels, map(six_digits, found.excess_span))),
        cross_pairs=dict(_by_level(tree, levels, found.cross_pairs)),
        pairs=found.pairs,
        mean_distance=six_digits(found.mean_distance),
        diameter=found.diameter,
        ring_crossings=dict(_by_level(tree, levels, found.ring_crossings)),
        ring_hops=found.ring_hops,
        least_ring_hops=found.least_ring_hops,
        group_spread=dict(_by_level(tree, levels, found.group_spread)),
        all_reduce_seconds=_digits(found.all_reduce),
        contended_all_reduce_seconds=_digits(found.contended_all_reduce),
        ideal_all_reduce_seconds=six_digits(found.ideal_all_reduce),
        slowdown=six_digits(found.slowdown),
        job_slowdown=six_digits(found.job_slowdown),
    )


def six_digits(value: float | None) -> float | None:
    """A measure as it is written, to six digits."""
    return None if value is None else _digits(value)


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
