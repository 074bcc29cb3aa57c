"""Whether a gang that waits could ever start where it wants to: what domains would hold if empty."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Counts
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.words import all_pods, begun, names_text, plural, plural_noun
from closeby.scheduling.extension import Scope
from closeby.scheduling.forked_cycle import ForkedCycle
from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.plugin_view import CycleState
from closeby.simulator.runs import Run
from closeby.topology.tree import ROOT_LEVEL, Tree
from closeby.whatif.records import Counterfactual
from closeby.whatif.relaxing import REQUIRED
from closeby.whatif.room import domain_room, larger_than_any

#: Causes that keep nodes from taking a gang for good that are named, and nodes that are looked at for that.
CAUSES = 3
NODES = 10_000


class Prospect(Struct, frozen=True):
    """What is said of whether a gang could ever fit where it wants to, with the nodes as they are."""

    ever_fits: bool
    sentences: tuple[str, ...]


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
    trial: ForkedCycle

    def room(self, level: int, *, pinned: bool = True, bare: bool = False) -> Counts:
        """Pods that each domain of a level would hold; -1 where the gang may not be.

        ``pinned``: if all but pinned pods were gone, else if all that ends had ended; ``bare``: if these were
        gone too.
        """
        with self.trial.emptied(self.own, pinned=pinned, bare=bare) as diagnosis:
            return self._by_domain(level, diagnosis.room(self.pod))

    def offered(self) -> int:
        """Pods that a domain of its level would hold if all its nodes took them, by their resources."""
        cluster = self.run.engine.cluster
        demand = cluster.demand(self.pod.spec)
        most = 1 if demand.ports_and_disks else np.iinfo(np.int32).max
        with self.trial.emptied(self.own, pinned=True):
            return int(self._by_domain(self.level, np.minimum(cluster.room(demand), most)).max(initial=0))

    def _by_domain(self, level: int, room: Counts) -> Counts:
        return domain_room(self.tree, level, [slot for _, slot in self.own], room)

    def holds(self, room: Counts) -> int:
        """How many domains would hold it."""
        return int((room >= self.needed).sum())


def prospect(
    run: Run,
    group: PodGroup,
    reason: str | None,
    members: Sequence[Pod],
    found: Iterable[Counterfactual] = (),
) -> Prospect | None:
    """The outlook of a gang of equal pods that lacks room; None of all others.

    What was ``found`` to help is not advised again.
    """
    waiting = [pod for pod in members if run.node_of(pod) is None]
    required = None if group.constraint is None else group.constraint.required
    tree = run.tree_of(group) or (run.engine.topologies.flat() if required is None else None)
    known = reason in (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
    if not known or len({pod.spec for pod in waiting}) != 1 or tree is None or group.subgroups:
        return None
    level = ROOT_LEVEL if required is None else tree.level_named(required)
    failed = reason == Reason.TOPOLOGY_PLACEMENT_FAILED
    # What a level that no node carries could hold is no question.
    if level is None or (failed and (level == ROOT_LEVEL or not tree.labelled[level].any())):
        return None
    state = run.engine.state
    placed = [(pod, run.engine.cluster.placement(pod.uid)) for pod in state.placed(group.key)]
    asked = _Asked(
        run=run,
        tree=tree,
        level=level,
        pod=waiting[0],
        needed=min(max(group.min_member - len(placed) - len(state.done(group.key)), 1), len(waiting)),
        own=tuple((pod, slot) for pod, slot in placed if slot is not None),
        trial=run.engine.fork().trial,
    )
    if not asked.trial.knows_all(asked.pod):
        return None
    room = asked.room(level)
    if asked.holds(room):
        return Prospect(True, (_some_day(asked, asked.holds(room)),))
    most = max(int(room.max(initial=0)), 0)
    too_much = "" if most else larger_than_any(run.engine.cluster, asked.pod)
    if too_much:
        who = "each of its pods" if asked.needed > 1 else "its pod"
        return Prospect(False, (f"No node is large enough: {who} asks for {too_much}.",))
    held = int(asked.room(level, bare=True).max(initial=0)) > most
    return Prospect(False, tuple(_never(asked, most, tuple(found), held=held)))


def _some_day(asked: _Asked, holding: int) -> str:
    """It would fit; whether the ends of what runs are enough for that."""
    pods = all_pods(asked.needed)
    ends = bool(asked.holds(asked.room(asked.level, pinned=False)))
    if asked.level == ROOT_LEVEL:
        if ends:
            return "It can start once enough of the cluster is free."
        begin = f"If nothing else ran there, the cluster would hold {pods}"
    else:
        name = asked.tree.level_names[asked.level]
        would = f"{plural(holding, name)} would" if holding > 1 else f"one of the {plural_noun(name)} would"
        stays = asked.trial.staying(pinned=True)
        empty = "If nothing else ran there than what comes back at once" if stays else "If they were empty"
        begin = f"{empty}, {would} hold {pods}"
    if ends:
        return f"{begin}, so it can start once enough is free."
    return (
        f"{begin}, but the end of jobs is not enough for that: long-running pods (of Deployments, "
        "StatefulSets and the like) would have to go."
    )


def _never(asked: _Asked, most: int, found: Sequence[Counterfactual], *, held: bool) -> Iterable[str]:
    """It would not even fit then; which nodes are the reason, and what it could ask for instead.

    ``held``: whether what comes back to its node at once takes room from it.
    """
    pods = plural(asked.needed, "pod") if asked.needed > 1 else "pod"
    some = f"any of its {pods}" if asked.needed > 1 else "its pod"
    even = "even if nothing ran there but what comes back at once" if held else "even if it were empty"
    would = f"the cluster would {f'hold only {most} of its {pods}' if most else f'not hold {some}'}"
    if asked.level != ROOT_LEVEL:
        name = asked.tree.level_names[asked.level]
        would = f"no {name} would hold {f'more than {most} of its {pods}' if most else some}"
    offered = asked.offered()
    causes = _causes(asked) if offered > most else ""
    advice = _advice(asked, most, found)
    if causes:
        yield f"As the nodes are, {would} {even}: {causes}."
        if offered < asked.needed:
            yield f"If these nodes took its pods, it would hold {offered} of them."
        if advice:
            yield f"{begun(advice)}."
    else:
        yield f"{begun(even)}, {would}" + (f": {advice}." if advice else ".")
    if held:
        yield "Pods of DaemonSets and static pods hold room that does not get free."


def _advice(asked: _Asked, most: int, found: Sequence[Counterfactual]) -> str:
    """What it could ask for instead, unless such a change was found to help now."""
    if asked.level == ROOT_LEVEL:
        return ""
    changes = [dict(one.change) for one in found if one.fits and isinstance(one.change, Mapping)]
    levels = any(REQUIRED in change for change in changes)
    members = any(isinstance(value, int) for change in changes for value in change.values())
    coarser = (asked.room(level) for level in range(ROOT_LEVEL, asked.level))
    instead = ["for a coarser level"] if not levels and any(map(asked.holds, coarser)) else []
    instead += ["for fewer pods at once"] if most and not members else []
    return f"ask {' or '.join(instead)}" if instead else ""


def _causes(asked: _Asked) -> str:
    """Which nodes take none of its pods for good, and why; empty if there are none."""
    kept: dict[str, list[str]] = {}
    looked_at = 0
    with asked.trial.emptied(pinned=True) as diagnosis:
        refusals = diagnosis.refusals(CycleState(), asked.pod)
    for plugin, slots in refusals:
        if plugin.filter_scope is not Scope.STATIC:
            continue
        for slot in slots.tolist()[: NODES - looked_at]:
            message = plugin.rejection(CycleState(), asked.pod, slot).message
            kept.setdefault(message, []).append(asked.run.engine.cluster.node_at(slot).name)
        looked_at += len(slots)
    causes = sorted(kept.items(), key=lambda one: -len(one[1]))
    named = ", ".join(f"{names_text(names)} ({message})" for message, names in causes[:CAUSES])
    return f"none fits on {named}" + (" and others" if len(causes) > CAUSES else "") if causes else ""
