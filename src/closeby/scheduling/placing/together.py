"""Improving where the talking pods of a gang lie, inside the domains that were chosen for them."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet
from closeby.scheduling.moving.local_search import improve
from closeby.scheduling.moving.sites import sites_of
from closeby.scheduling.outcomes import Improvement
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Placed, Tools
from closeby.scheduling.traffic import Traffic
from closeby.topology.tree import Domain

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]


def used_domains(candidate: Candidate | None, scope: NodeSet, slots: Ints, capacity: int) -> Bools | None:
    """Where pods on ``slots`` may be moved: the domains in use inside their candidate; None for anywhere.

    Domains of the level that the candidate asks to use the fewest of, else of the one below its own, so that
    moving pods never spreads them over more of those.
    """
    if candidate is None:
        return scope.allowed(capacity)
    inside = scope.narrowed(candidate, capacity)
    allowed = inside.allowed(capacity)
    tree = inside.tree
    if tree is None or candidate.domain is None:
        return allowed
    finest = max(tree.node_level - 1, candidate.domain.level)
    level = candidate.domain.level + 1 if candidate.fill_level is None else candidate.fill_level
    used = np.zeros(capacity, dtype=np.bool_)
    for position in tree.position_of[slots].tolist():
        used[tree.slots_in(tree.ancestor(Domain(tree.node_level, position), min(level, finest)))] = True
    return used if allowed is None else used & allowed


def move_together(
    tools: Tools,
    statement: Statement,
    traffic: Traffic,
    pods: Sequence[Pod],
    confines: Callable[[Pod], Bools | None],
) -> Improvement:
    """Move the placed ones among ``pods`` to where their talk costs less; all stay placed.

    ``traffic`` is that of ``pods`` before any was placed. ``confines`` says where each may go, None meaning
    anywhere.
    """
    batches = tuple(statement.since(0))
    home = {pod.uid: slot for pod, slot in statement.state.placed}
    statement.rollback(0)
    flat = tools.topologies.flat()
    sites = sites_of(tools.cluster, tools.table, traffic, pods, home.values(), flat, tools.pace)
    allowed = sites.allowed[sites.class_of]
    for row, pod in enumerate(pods):
        mask = confines(pod)
        if mask is not None:
            allowed[row] &= mask[sites.slots]
    sites = replace(sites, allowed=allowed, class_of=np.arange(len(pods)))
    found = improve(traffic, sites, [home.get(pod.uid) for pod in pods], tools.pace)
    wanted = [(pod, slot) for pod, slot in zip(pods, found.slots, strict=True) if slot is not None]
    final = found.cost
    if found.cost >= found.cost_before or not _assume(tools, statement, wanted):
        statement.rollback(0)
        statement.assume_again(batches)
        final = found.cost_before
    return Improvement(greedy=found.cost_before, final=final, evaluated=found.evaluated, spent=found.spent)


def _assume(tools: Tools, statement: Statement, wanted: Sequence[Placed]) -> bool:
    """Place pods where they are wanted; False at the first one that a filter keeps out."""
    for pod, slot in wanted:
        if not tools.allows(statement.state, pod, slot):
            return False
        statement.assume_one(pod, slot)
    return True
