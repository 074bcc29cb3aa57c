"""Whether a gang that waits could ever start where it wants to: what domains would hold if empty."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.report.words import plural, plural_noun
from closeby.simulator.runs import Run
from closeby.topology.tree import ROOT_LEVEL, Tree


def prospect(run: Run, group: PodGroup, reason: str | None, waiting: Sequence[Pod]) -> str | None:
    """A sentence for gangs of equal pods that lack room; None for all others."""
    specs = {pod.spec for pod in waiting}
    tree = run.tree_of(group)
    if len(specs) != 1 or tree is None or group.subgroups:
        return None
    spec = specs.pop()
    needed = min(group.min_member, len(waiting))
    if reason == Reason.GANG_DOES_NOT_FIT:
        most = int(_room(run, tree, ROOT_LEVEL, spec).max(initial=0))
        if most < needed:
            return f"Even if it were empty, the cluster would hold only {most} of its {needed} pods."
        return "It can start once enough of the cluster is free."
    required = None if group.constraint is None else group.constraint.required
    level = None if required is None else tree.level_named(required)
    if reason != Reason.TOPOLOGY_PLACEMENT_FAILED or level is None:
        return None
    name = tree.level_names[level]
    room = _room(run, tree, level, spec)[tree.labelled[level]]
    most, holding = int(room.max(initial=0)), int((room >= needed).sum())
    if not holding:
        return (
            f"Even if it were empty, no {name} would hold more than {most} of its {needed} pods: "
            f"ask for a coarser level or for fewer pods at once."
        )
    would = f"{plural(holding, name)} would" if holding > 1 else f"one of the {plural_noun(name)} would"
    return f"If they were empty, {would} hold all {needed} pods, so it can start once enough is free."


def _room(run: Run, tree: Tree, level: int, spec: PodSpec) -> NDArray[np.int64]:
    """Pods that each domain of a level would hold if nothing else ran there; resources alone count."""
    cluster = run.engine.cluster
    fits: NDArray[np.int64] = cluster.allocatable[cluster.row_of["pods"], tree.slot_at]
    for resource, amount in spec.requests:
        if amount:
            row = cluster.row_of.get(resource)
            offered = 0 if row is None else cluster.allocatable[row, tree.slot_at]
            fits = np.minimum(fits, offered // amount)
    if level == tree.node_level or not len(fits):
        return fits
    if level == ROOT_LEVEL:
        return np.asarray([fits.sum()])
    return np.add.reduceat(fits, tree.bounds[level][:-1])
