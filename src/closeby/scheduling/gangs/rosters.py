"""From a PodGroup and its pods to the tree of parts that the search places, or to what is wrong with it."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import Layer, PodGroup, SubGroup, TopologyConstraint
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.reading.common.trees import children_of
from closeby.scheduling.gangs.parts import NO_NUMBERS, Part
from closeby.scheduling.gangs.segments import (
    Layering,
    Order,
    SegmentNumbers,
    first_index,
    layering_of,
    numbered,
)
from closeby.topology.constraints import Levels, closest, resolve
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree

#: Pods of a gang with subgroups that name none of its leaves; they are beyond every minimum.
UNASSIGNED = "(no subgroup)"


class Roster(Struct, frozen=True, kw_only=True):
    """A gang's members by leaf name (empty for a gang without subgroups), in the order of their index."""

    waiting: Mapping[str, tuple[Pod, ...]]
    #: Slots of the members that already run.
    running: Mapping[str, tuple[int, ...]]
    #: Members that have done their work: they have appeared, and hold no place.
    done: Mapping[str, int] = {}
    #: Of leaves with layers: to which segments the members belong.
    segments: Mapping[str, SegmentNumbers] = {}

    def present(self, leaf: str) -> int:
        """Members of a leaf that wait, run or have done their work."""
        return len(self.waiting.get(leaf, ())) + len(self.running.get(leaf, ())) + self.done.get(leaf, 0)

    @property
    def total(self) -> int:
        """All members."""
        return sum(map(len, self.waiting.values())) + self.total_running + self.total_done

    @property
    def total_done(self) -> int:
        """Members that have done their work."""
        return sum(self.done.values())

    @property
    def total_running(self) -> int:
        """Members that already run."""
        return sum(map(len, self.running.values()))

    @property
    def anchors(self) -> tuple[int, ...]:
        """Slots of all members that already run, leaf by leaf."""
        return tuple(slot for slots in self.running.values() for slot in slots)


class Constraints(Struct, frozen=True, kw_only=True, eq=False):
    """The resolved constraint of the gang (key "") and of each subgroup that has one."""

    levels: Mapping[str, Levels]
    #: Of each leaf that has layers.
    layerings: Mapping[str, Layering] = {}
    #: The preference of a gang without a constraint of its own for the tightest domain, where its subgroups
    #: have constraints: those come first.
    closeness: Levels | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def blocking(self) -> Condition | None:
        """The first condition that keeps the gang waiting."""
        return next((condition for condition in self.conditions if condition.blocking), None)

    @property
    def required(self) -> bool:
        """Whether any part asks for a level that must not be broken."""
        asked = any(levels.required is not None for levels in self.levels.values())
        return asked or any(layer.required for one in self.layerings.values() for layer in one.layers)


def leaf_names(group: PodGroup) -> tuple[str, ...]:
    """Names of the subgroups that hold pods; one empty name for a gang without subgroups."""
    if not group.subgroups:
        return ("",)
    parents = {subgroup.parent for subgroup in group.subgroups}
    return tuple(subgroup.name for subgroup in group.subgroups if subgroup.name not in parents)


def roster(
    group: PodGroup,
    waiting: Sequence[Pod],
    running: Sequence[tuple[Pod, int]],
    done: Sequence[str | None] = (),
    layerings: Mapping[str, Layering] = {},
    order: Order | None = None,
    ranks: Mapping[str, int] = {},
) -> Roster:
    """Sort members into leaves.

    ``running`` holds the members with a node and their slot, ``done`` the subgroup of each that has done its
    work. ``order`` is that of members' index, for leaves with layers; ``ranks`` are those of members by uid.
    """
    if not group.subgroups:
        slots = tuple(slot for _, slot in running)
        found = Roster(waiting={"": tuple(waiting)}, running={"": slots}, done={"": len(done)})
        return _with_segments(found, {"": running}, layerings, order, ranks)
    leaves = set(leaf_names(group))
    waits: dict[str, list[Pod]] = {}
    runs: dict[str, list[tuple[Pod, int]]] = {}
    for pod in waiting:
        waits.setdefault(_leaf(pod.subgroup, leaves), []).append(pod)
    for pod, slot in running:
        runs.setdefault(_leaf(pod.subgroup, leaves), []).append((pod, slot))
    found = Roster(
        waiting={name: tuple(pods) for name, pods in waits.items()},
        running={name: tuple(slot for _, slot in members) for name, members in runs.items()},
        done=Counter(_leaf(subgroup, leaves) for subgroup in done),
    )
    # Ranks run through all subgroups, and do not say which number a member has in its own.
    return _with_segments(found, runs, layerings, order, {})


def _with_segments(
    members: Roster,
    running: Mapping[str, Sequence[tuple[Pod, int]]],
    layerings: Mapping[str, Layering],
    order: Order | None,
    ranks: Mapping[str, int],
) -> Roster:
    if not layerings or order is None:
        return members
    segments = {
        name: numbered(
            layering,
            members.waiting.get(name, ()),
            running.get(name, ()),
            members.done.get(name, 0),
            order,
            ranks,
            first_index(*_by_leaf(name, members.waiting, running)) if name and running else 0,
        )
        for name, layering in layerings.items()
    }
    return replace(members, segments=segments)


def _by_leaf(
    leaf: str, waiting: Mapping[str, Sequence[Pod]], running: Mapping[str, Sequence[tuple[Pod, int]]]
) -> tuple[list[Pod], list[Pod]]:
    """The members of a leaf, and those of all others."""
    own: list[Pod] = []
    others: list[Pod] = []
    for name in {*waiting, *running}:
        found = own if name == leaf else others
        found += [*waiting.get(name, ()), *(pod for pod, _ in running.get(name, ()))]
    return own, others


def missing(group: PodGroup, members: Roster) -> str | None:
    """What the gang lacks to be complete, as a sentence; None when all required members have appeared."""
    if members.total < group.min_member:
        return f"{members.total} of at least {group.min_member} members have appeared"
    if not group.subgroups:
        return _short_of_segments("", group.min_member, members)
    below = children_of(group.subgroups)
    short = _short(below.get(None, ()), below, members, group.min_subgroups)
    return None if short is None else f"{short} (minimum of each subgroup counts)"


def constraints_of(group: PodGroup, topologies: Topologies, close_by_default: bool) -> Constraints:
    """Resolve the constraint of the gang and of each subgroup."""
    levels: dict[str, Levels] = {}
    conditions: list[Condition] = []
    owner = f"PodGroup/{group.key}"
    asked = [("", group.constraint, "spec.topologyConstraint")]
    asked += [
        (subgroup.name, subgroup.constraint, f"spec.subGroups[{index}].topologyConstraint")
        for index, subgroup in enumerate(group.subgroups)
    ]
    for name, constraint, field in asked:
        if constraint is None:
            continue
        resolution = resolve(constraint, topologies, owner, field)
        conditions.extend(resolution.conditions)
        if resolution.levels is not None:
            levels[name] = resolution.levels
    layerings, problems = _layerings(group, topologies, owner)
    conditions += problems
    apart = any(layer.spread for one in layerings.values() for layer in one.layers)
    if group.constraint is not None or not group.wants_closeness or not close_by_default or apart:
        return Constraints(levels=levels, layerings=layerings, conditions=tuple(conditions))
    named = {one.tree.name: one.tree for one in levels.values()}
    named |= {one.tree.name: one.tree for one in layerings.values()}
    tree = topologies.only_tree() if not named else next(iter(named.values())) if len(named) == 1 else None
    closeness = None if tree is None else closest(tree, several_nodes=group.members_apart)
    if closeness is not None and all(constraint is None for _, constraint, _ in asked):
        return Constraints(levels={"": closeness}, layerings=layerings, conditions=tuple(conditions))
    return Constraints(levels=levels, layerings=layerings, closeness=closeness, conditions=tuple(conditions))


def _layerings(
    group: PodGroup, topologies: Topologies, owner: str
) -> tuple[dict[str, Layering], tuple[Condition, ...]]:
    """The layers of the gang (key "") and of each subgroup, as levels of a tree."""
    if not group.layers and not any(one.layers for one in group.subgroups):
        return {}, ()
    asked: list[tuple[str, Sequence[Layer], Sequence[TopologyConstraint | None], str]] = [
        ("", group.layers, (group.constraint,), "spec.layers")
    ]
    asked += [
        (one.name, one.layers, (one.constraint, group.constraint), f"spec.subGroups[{index}].layers")
        for index, one in enumerate(group.subgroups)
    ]
    found: dict[str, Layering] = {}
    conditions: tuple[Condition, ...] = ()
    for name, layers, constraints, field in asked:
        if not layers or not all(layer.size or layer.counts for layer in layers):
            continue  # Nonsense is said by its reader.
        layering, problems = layering_of(layers, constraints, topologies, owner, field)
        conditions += problems
        if layering is not None:
            found[name] = layering
    return found, conditions


def tree_of(constraints: Constraints) -> Tree | None:
    """The tree in which the gang's closeness is judged: its own, else the only one its subgroups name."""
    own = constraints.levels.get("")
    if own is not None:
        return own.tree
    trees = {levels.tree.name: levels.tree for levels in constraints.levels.values()}
    trees |= {layering.tree.name: layering.tree for layering in constraints.layerings.values()}
    return next(iter(trees.values())) if len(trees) == 1 else None


def parts(group: PodGroup, members: Roster, constraints: Constraints, everyone: bool) -> Part:
    """The gang as a tree of parts; ``everyone`` takes all members as needed, else only the minimum."""
    if not group.subgroups:
        return _leaf_part("", group.min_member, members, constraints, everyone)
    below = children_of(group.subgroups)
    children = [_part(subgroup, below, members, constraints, everyone) for subgroup in below.get(None, ())]
    if UNASSIGNED in members.waiting or UNASSIGNED in members.running:
        children.append(_leaf_part(UNASSIGNED, 0, members, constraints, everyone))
    return _inner_part("", children, None if everyone else group.min_subgroups, constraints)


def _part(
    subgroup: SubGroup, below: "_Children", members: Roster, constraints: Constraints, everyone: bool
) -> Part:
    lack = _lack(subgroup, below, members)
    if subgroup.name not in below:
        part = _leaf_part(subgroup.name, subgroup.min_member, members, constraints, everyone)
        return part if lack is None else _without_pods(part, lack)
    children = [_part(child, below, members, constraints, everyone) for child in below[subgroup.name]]
    if lack is not None:
        children = [_without_pods(child, lack) for child in children]
    part = _inner_part(subgroup.name, children, None if everyone else subgroup.min_subgroups, constraints)
    return part if lack is None else replace(part, lack=lack)


def _inner_part(
    name: str, children: Sequence[Part], min_subgroups: int | None, constraints: Constraints
) -> Part:
    # Children that ask for nothing are always satisfied, but they are not what the minimum counts.
    idle = sum(1 for child in children if child.lack is not None or child.name == UNASSIGNED)
    required = len(children) if min_subgroups is None else min(min_subgroups + idle, len(children))
    return Part(
        name=name, levels=constraints.levels.get(name), children=tuple(children), min_children=required
    )


def _without_pods(part: Part, lack: str) -> Part:
    children = tuple(_without_pods(child, lack) for child in part.children)
    return replace(part, core=(), extra=(), numbers=NO_NUMBERS, children=children, lack=part.lack or lack)


def _leaf_part(name: str, minimum: int, members: Roster, constraints: Constraints, everyone: bool) -> Part:
    waiting = members.waiting.get(name, ())
    anchors = members.running.get(name, ())
    segments = members.segments.get(name)
    if segments is not None:
        part = Part(name=name, levels=constraints.levels.get(name), anchors=anchors, segments=segments)
        return _segmented(part, waiting, minimum, everyone)
    needed = len(waiting) if everyone else min(max(minimum - len(anchors), 0), len(waiting))
    return Part(
        name=name,
        levels=constraints.levels.get(name),
        core=waiting[:needed],
        extra=waiting[needed:],
        anchors=anchors,
    )


def _segmented(part: Part, waiting: Sequence[Pod], minimum: int, everyone: bool) -> Part:
    """A leaf with layers: what must be placed is whole segments, in the order of their numbers."""
    segments = part.segments
    if segments is None or not waiting:
        return part
    ready, short, complete = segments.ready()
    needed = len(ready) if everyone else max(segments.layering.segments_for(minimum) - complete, 0)
    numbers = segments.waiting
    unlimited = not segments.layering.layers[0].counts
    if unlimited and not short and needed >= len(ready) and bool((numbers[1:] > numbers[:-1]).all()):
        return replace(part, core=tuple(waiting), numbers=numbers)
    ids = segments.layering.ids(numbers, 1)[0]
    in_order = np.argsort(numbers, kind="stable")
    split = [
        in_order[np.isin(ids[in_order], chosen)] for chosen in (ready[:needed], ready[needed:], [*short, -1])
    ]
    core, extra, left = (tuple([waiting[at] for at in one.tolist()]) for one in split)
    if len(core) == len(waiting) and list(core) == list(waiting):
        core = tuple(waiting)
    return replace(part, core=core, extra=extra, short=left, numbers=numbers[np.concatenate(split[:2])])


def _short_of_segments(name: str, minimum: int, members: Roster) -> str | None:
    """What a leaf with layers lacks to be complete, as a sentence."""
    segments = members.segments.get(name)
    if segments is None:
        return None
    ready, _, complete = segments.ready()
    needed, there = segments.layering.segments_for(minimum), len(ready) + complete
    if there >= needed:
        return None
    return f"{there} of at least {needed} segments have all their members"


#: Subgroups by the name of their parent, as of ``children_of``.
_Children = Mapping[str | None, Sequence[SubGroup]]


def _leaf(subgroup: str | None, leaves: set[str]) -> str:
    return subgroup if subgroup in leaves else UNASSIGNED


def _lack(subgroup: SubGroup, below: _Children, members: Roster) -> str | None:
    """What a subgroup lacks to be complete, as a sentence."""
    if subgroup.name in below:
        return _short(below[subgroup.name], below, members, subgroup.min_subgroups)
    present = members.present(subgroup.name)
    if present >= subgroup.min_member:
        lack = _short_of_segments(subgroup.name, subgroup.min_member, members)
        return None if lack is None else f"subgroup {quoted(subgroup.name)}: {lack}"
    return f"subgroup {quoted(subgroup.name)} has {present} of {subgroup.min_member} members"


def _short(
    children: Sequence[SubGroup], below: _Children, members: Roster, min_subgroups: int | None
) -> str | None:
    lacks = [_lack(child, below, members) for child in children]
    lacking = [lack for lack in lacks if lack is not None]
    required = len(children) if min_subgroups is None else min_subgroups
    return some(lacking) if len(children) - len(lacking) < required else None


def unassigned(group: PodGroup, waiting: Sequence[Pod]) -> tuple[Condition, ...]:
    """A condition for members that name no leaf of a gang with subgroups."""
    if not group.subgroups:
        return ()
    leaves = set(leaf_names(group))
    lost = [pod.name for pod in waiting if pod.subgroup not in leaves]
    if not lost:
        return ()
    return (
        Condition(
            reason=Reason.INVALID_SPEC,
            object=f"PodGroup/{group.key}",
            field="spec.subGroups",
            message=f"pods without a leaf subgroup: {some(lost, 3)}",
            remedy=f"label them closeby.dev/subgroup with one of {some(sorted(leaves))}"
            if leaves
            else "fix its subgroups: none of them can hold pods",
        ),
    )
