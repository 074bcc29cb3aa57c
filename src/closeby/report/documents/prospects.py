"""Whether a gang that waits could ever start where it wants to: what domains would hold if empty."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.bounds import shown
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.words import all_pods, names_text, plural, plural_noun
from closeby.scheduling.extension import Scope
from closeby.scheduling.judging.lacking import Unlabelled
from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.reserving.hypothetical import HypotheticalCluster
from closeby.simulator.runs import Run
from closeby.topology.tree import ROOT_LEVEL, Tree
from closeby.whatif.room import domain_room

#: Causes that keep nodes from taking a gang for good that are named, and nodes that are looked at for that.
CAUSES = 3
NODES = 10_000


class _Asked(Struct, frozen=True, eq=False):
    """A gang of equal pods, and the cluster without all that may go."""

    run: Run
    tree: Tree
    #: What it requires; ``ROOT_LEVEL`` if nothing.
    level: int
    pod: Pod
    #: Pods that must find a node together, and members that have theirs.
    needed: int
    own: tuple[Placed, ...]
    hypothetical: HypotheticalCluster
    #: Nodes that could hold its pods but do not carry the label of the level.
    bare: Unlabelled | None = None

    def room(self, level: int, *, pinned: bool = True) -> NDArray[np.int64]:
        """Pods that each domain of a level would hold; -1 where the gang may not be.

        ``pinned``: if all but pinned pods were gone, else if all that ends had ended.
        """
        with self.hypothetical.emptied(self.own, pinned=pinned) as diagnosis:
            room = diagnosis.room(self.pod)
        return domain_room(self.tree, level, [slot for _, slot in self.own], room)

    def named(self, level: int) -> str:
        return self.tree.level_names[level]


def prospect(run: Run, group: PodGroup, reason: str | None, members: Sequence[Pod]) -> Iterator[str]:
    """Sentences for gangs of equal pods that lack room; none for all others."""
    waiting = [pod for pod in members if run.node_of(pod) is None]
    required = None if group.constraint is None else group.constraint.required
    tree = run.tree_of(group) or (run.engine.topologies.flat() if required is None else None)
    known = reason in (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
    if not known or len({pod.spec for pod in waiting}) != 1 or tree is None or group.subgroups:
        return
    level = ROOT_LEVEL if required is None else tree.level_named(required)
    if level is None or (level == ROOT_LEVEL and reason == Reason.TOPOLOGY_PLACEMENT_FAILED):
        return
    state, outcome = run.engine.state, run.gang_outcomes.get(group.key)
    placed = [(pod, run.engine.cluster.placement(pod.uid)) for pod in state.placed(group.key)]
    there = len(placed) + len(state.done(group.key))
    asked = _Asked(
        run=run,
        tree=tree,
        level=level,
        pod=waiting[0],
        needed=min(max(group.min_member - there, 1), len(waiting)),
        own=tuple((pod, slot) for pod, slot in placed if slot is not None),
        hypothetical=run.engine.fork().hypothetical,
        bare=None if outcome is None else outcome.unlabelled,
    )
    if not asked.hypothetical.knows_all(asked.pod) or (asked.bare is not None and asked.bare.every):
        return  # What a level that no node carries could hold is no question.
    room = asked.room(level)
    if (room >= asked.needed).any():
        yield _some_day(asked, int((room >= asked.needed).sum()))
    else:
        yield _never(asked, max(int(room.max(initial=0)), 0))
        yield from _causes(asked)


def _some_day(asked: _Asked, holding: int) -> str:
    """It would fit; whether the ends of what runs are enough for that."""
    pods = all_pods(asked.needed)
    ends = bool((asked.room(asked.level, pinned=False) >= asked.needed).any())
    if asked.level == ROOT_LEVEL:
        if ends:
            return "It can start once enough of the cluster is free."
        begin = f"If nothing else ran there, the cluster would hold {pods}"
    else:
        name = asked.named(asked.level)
        would = f"{plural(holding, name)} would" if holding > 1 else f"one of the {plural_noun(name)} would"
        begin = f"If they were empty, {would} hold {pods}"
        if asked.hypothetical.staying(pinned=True):
            begin = f"If nothing else ran there than what comes back at once, {would} hold {pods}"
    if ends:
        return f"{begin}, so it can start once enough is free."
    return (
        f"{begin}, but the end of jobs is not enough for that: long-running pods (of Deployments, "
        "StatefulSets and the like) would have to go."
    )


def _never(asked: _Asked, most: int) -> str:
    """It would not even fit then; what it could ask for instead."""
    pods = plural(asked.needed, "pod") if asked.needed > 1 else "pod"
    some = f"any of its {pods}" if asked.needed > 1 else "its pod"
    even = "Even if nothing ran there but what comes back at once"
    even = even if asked.hypothetical.staying(pinned=True) else "Even if it were empty"
    if asked.level == ROOT_LEVEL:
        held = f"hold only {most} of its {pods}" if most else f"not hold {some}"
        return f"{even}, the cluster would {held}."
    instead = []
    advice = ""
    if asked.bare is not None:
        which = "node" if asked.bare.nodes == 1 else f"{asked.bare.nodes:,} nodes"
        advice = f": label the {which} without {shown(asked.bare.label)}"
    if any((asked.room(level) >= asked.needed).any() for level in range(ROOT_LEVEL, asked.level)):
        instead.append("for a coarser level")
    if most:
        instead.append("for fewer pods at once")
    if instead:
        advice += f"{', or' if advice else ':'} ask {' or '.join(instead)}"
    held = f"more than {most} of its {pods}" if most else some
    return f"{even}, no {asked.named(asked.level)} would hold {held}{advice}."


def _causes(asked: _Asked) -> Iterator[str]:
    """What keeps nodes from it for good, though some of them would be large enough."""
    cluster = asked.run.engine.cluster
    kept: dict[str, list[str]] = {}
    looked_at = 0
    with asked.hypothetical.emptied(pinned=True) as diagnosis:
        refusals = diagnosis.refusals(CycleState(), asked.pod)
    for plugin, slots in refusals:
        if plugin.filter_scope is not Scope.STATIC:
            continue
        for slot in slots.tolist()[: NODES - looked_at]:
            message = plugin.rejection(CycleState(), asked.pod, slot).message
            kept.setdefault(message, []).append(cluster.node_at(slot).name)
        looked_at += len(slots)
    causes = sorted(kept.items(), key=lambda one: -len(one[1]))
    if causes:
        named = [f"{names_text(names)} ({message})" for message, names in causes[:CAUSES]]
        more = " and others" if len(causes) > CAUSES else ""
        yield f"As they are, these nodes take none of its pods: {', '.join(named)}{more}."
    wanted = {resource for resource, _ in asked.pod.spec.requests}
    staying = asked.hypothetical.staying(pinned=True)
    if any(wanted & {one for one, _ in pod.spec.requests} for pod, _ in staying):
        yield "Pods of DaemonSets and static pods hold room that does not get free."
