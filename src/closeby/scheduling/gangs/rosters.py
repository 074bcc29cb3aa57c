"""From a PodGroup and its pods to the tree of parts that the search places, or to what is wrong with it."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.gangs.parts import Part
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
        return any(levels.required is not None for levels in self.levels.values())


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
) -> Roster:
    """Sort members into leaves.

    ``running`` holds the members with a node and their slot, ``done`` the subgroup of each that has done its
    work.
    """
    if not group.subgroups:
        slots = tuple(slot for _, slot in running)
        return Roster(waiting={"": tuple(waiting)}, running={"": slots}, done={"": len(done)})
    leaves = set(leaf_names(group))
    waits: dict[str, list[Pod]] = {}
    runs: dict[str, list[int]] = {}
    for pod in waiting:
        waits.setdefault(_leaf(pod.subgroup, leaves), []).append(pod)
    for pod, slot in running:
        runs.setdefault(_leaf(pod.subgroup, leaves), []).append(slot)
    return Roster(
        waiting={name: tuple(pods) for name, pods in waits.items()},
        running={name: tuple(slots) for name, slots in runs.items()},
        done=Counter(_leaf(subgroup, leaves) for subgroup in done),
    )


def missing(group: PodGroup, members: Roster) -> str | None:
    """What the gang lacks to be complete, as a sentence; None when all required members have appeared."""
    if members.total < group.min_member:
        return f"{members.total} of at least {group.min_member} members have appeared"
    if not group.subgroups:
        return None
    below = _children(group)
    short = _short(below[None], below, members, group.min_subgroups)
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
    if group.constraint is not None or not group.wants_closeness or not close_by_default:
        return Constraints(levels=levels, conditions=tuple(conditions))
    named = {one.tree.name: one.tree for one in levels.values()}
    tree = topologies.only_tree() if not named else next(iter(named.values())) if len(named) == 1 else None
    closeness = None if tree is None else closest(tree, several_nodes=group.members_apart)
    if closeness is not None and all(constraint is None for _, constraint, _ in asked):
        return Constraints(levels={"": closeness}, conditions=tuple(conditions))
    return Constraints(levels=levels, closeness=closeness, conditions=tuple(conditions))


def tree_of(constraints: Constraints) -> Tree | None:
    """The tree in which the gang's closeness is judged: its own, else the only one its subgroups name."""
    own = constraints.levels.get("")
    if own is not None:
        return own.tree
    trees = {levels.tree.name: levels.tree for levels in constraints.levels.values()}
    return next(iter(trees.values())) if len(trees) == 1 else None


def parts(group: PodGroup, members: Roster, constraints: Constraints, everyone: bool) -> Part:
    """The gang as a tree of parts; ``everyone`` takes all members as needed, else only the minimum."""
    if not group.subgroups:
        return _leaf_part("", group.min_member, members, constraints, everyone)
    below = _children(group)
    children = [_part(subgroup, below, members, constraints, everyone) for subgroup in below[None]]
    if UNASSIGNED in members.waiting or UNASSIGNED in members.running:
        children.append(_leaf_part(UNASSIGNED, 0, members, constraints, everyone))
    return _inner_part("", children, None if everyone else group.min_subgroups, constraints)


def _part(
    subgroup: SubGroup, below: "_Children", members: Roster, constraints: Constraints, everyone: bool
) -> Part:
    lack = _lack(subgroup, below, members)
    if subgroup.name not in below:
        part = _leaf_part(subgroup.name, subgroup.min_member, members, constraints, everyone)
        return part if lack is None else replace(part, core=(), extra=(), lack=lack)
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
    return replace(part, core=(), extra=(), children=children, lack=part.lack or lack)


def _leaf_part(name: str, minimum: int, members: Roster, constraints: Constraints, everyone: bool) -> Part:
    waiting = members.waiting.get(name, ())
    anchors = members.running.get(name, ())
    needed = len(waiting) if everyone else min(max(minimum - len(anchors), 0), len(waiting))
    return Part(
        name=name,
        levels=constraints.levels.get(name),
        core=waiting[:needed],
        extra=waiting[needed:],
        anchors=anchors,
    )


#: Subgroups by the name of their parent (None: the gang itself), in declared order.
_Children = Mapping[str | None, Sequence[SubGroup]]


def _children(group: PodGroup) -> _Children:
    children: dict[str | None, list[SubGroup]] = {None: []}
    for subgroup in group.subgroups:
        children.setdefault(subgroup.parent, []).append(subgroup)
    return children


def _leaf(subgroup: str | None, leaves: set[str]) -> str:
    return subgroup if subgroup in leaves else UNASSIGNED


def _lack(subgroup: SubGroup, below: _Children, members: Roster) -> str | None:
    """What a subgroup lacks to be complete, as a sentence."""
    if subgroup.name in below:
        return _short(below[subgroup.name], below, members, subgroup.min_subgroups)
    present = members.present(subgroup.name)
    if present >= subgroup.min_member:
        return None
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
