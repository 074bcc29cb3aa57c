"""Where a placed gang would be if the domain it is in were not there, and how much worse that is."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.groups import PodGroup
from closeby.objects.words import path_text, plural
from closeby.scheduling.fork import Change
from closeby.scheduling.gangs.places import place_of
from closeby.scheduling.outcomes import Place
from closeby.topology.tree import Domain, Tree
from closeby.topology.uplinks import link_distances
from closeby.whatif.questions import where_entry, where_text
from closeby.whatif.records import Counterfactual, DistanceEntry, Kind
from closeby.whatif.trials import TrialResult, Trials, as_waiting


def runner_up(trials: Trials, group: PodGroup, tree: Tree | None) -> Iterator[Counterfactual]:
    """The place that the engine would choose were the gang to start again without its domain.

    Nothing that waits takes part. Nothing is said of gangs that are in no domain or that have not all their
    members.
    """
    state, cluster = trials.engine.state, trials.engine.cluster
    members = state.placed(group.key)
    slots = [slot for slot in (cluster.placement(pod.uid) for pod in members) if slot is not None]
    if tree is None or len(slots) < max(len(members), group.min_member, 1):
        return
    here = place_of(tree, list(zip(members, slots, strict=True)))
    domain = tree.domain_named(here.path)
    if not here.path or domain is None:
        return
    first, end = tree.span(domain)
    closed = [cluster.node_at(slot) for slot in tree.slot_at[first:end].tolist()]
    result = trials.try_out(
        group.key,
        Change(
            waiting=tuple(map(as_waiting, members)),
            nodes=tuple(replace(node, ready=False) for node in closed),
        ),
    )
    where = path_text(here.path)
    if result is None:
        if not trials.spent:
            yield Counterfactual(
                kind=Kind.RUNNER_UP, fits=False, sentence=f"Without {where} it would fit nowhere else."
            )
        return
    there = np.asarray([cluster.slot(one.node) or 0 for one in result.bindings], dtype=np.intp)
    distance = DistanceEntry(
        here=round(mean_distance(tree, np.asarray(slots, dtype=np.intp)), 3),
        there=round(mean_distance(tree, there), 3),
    )
    cost = _cost(here, result, distance, len(slots))
    yield Counterfactual(
        kind=Kind.RUNNER_UP,
        fits=True,
        sentence=f"Without {where} it would be {where_text(result)}: {cost}.",
        where=where_entry(result),
        distance=distance,
    )


def _cost(here: Place, result: TrialResult, distance: DistanceEntry, members: int) -> str:
    parts = []
    if len(result.bindings) < members:
        parts.append(f"with {len(result.bindings)} of its {plural(members, 'pod')}")
    elif distance.here != distance.there:
        parts.append(f"pods {distance.there:g} edges apart on average instead of {distance.here:g}")
    else:
        parts.append("pods just as far apart")
    there = result.place
    if there is not None:
        for (level, before), after in zip(here.span.items(), there.span.values(), strict=False):
            if before != after:
                name = "node" if level == list(here.span)[-1] else level
                parts.append(f"{plural(after, name)} instead of {before}")
    return ", ".join(parts)


def mean_distance(tree: Tree, slots: Ints) -> float:
    """Mean edges between two of these pods, degraded links by their cost; 0 for a single pod."""
    positions, pods = np.unique(tree.position_of[slots], return_counts=True)
    number = len(slots)
    if number < 2:
        return 0.0
    # Two pods of one node are no edge apart.
    total = sum(
        count * float(link_distances(tree, Domain(tree.node_level, position))[positions] @ pods)
        for position, count in zip(positions.tolist(), pods.tolist(), strict=True)
    )
    return float(total / (number * (number - 1)))
