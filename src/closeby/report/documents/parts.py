"""Subgroups of a gang and where the pods of each lie."""

from collections.abc import Sequence

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.report.documents.lines import PartLine
from closeby.simulator.runs import Run


def parts_of(run: Run, group: PodGroup, pods: Sequence[Pod]) -> tuple[PartLine, ...]:
    """The leaf subgroups of a gang in declared order; empty for a gang without subgroups."""
    parents = {subgroup.parent for subgroup in group.subgroups}
    lines = []
    for subgroup in group.subgroups:
        if subgroup.name in parents:
            continue
        members = [pod for pod in pods if pod.subgroup == subgroup.name]
        place = run.place_of(group, members, subgroup.name)
        lines.append(
            PartLine(
                name=subgroup.name,
                pods=len(members),
                placed=sum(run.node_of(pod) is not None for pod in members),
                topology=None if place is None else place.topology or None,
                domain=() if place is None else place.path,
            )
        )
    return tuple(lines)


def all_parts(run: Run) -> dict[str, tuple[PartLine, ...]]:
    """The subgroups of all gangs that have some, by gang."""
    members: dict[str, list[Pod]] = {}
    for pod in run.pods:
        if pod.group is not None:
            members.setdefault(f"{pod.namespace}/{pod.group}", []).append(pod)
    return {
        group.key: parts_of(run, group, members.get(group.key, ())) for group in run.groups if group.subgroups
    }
