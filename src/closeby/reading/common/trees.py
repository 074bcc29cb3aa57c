"""The tree that a gang's subgroups form: what it needs at least, and whether it makes sense."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.reasons import Condition, few, invalid
from closeby.reading.common.layers import layer_problems, with_least_members
from closeby.reading.decoding.wire import object_id

#: Levels of subgroups below each other.
MOST_LEVELS: Final = 128


def least_members(subgroups: Sequence[SubGroup], min_subgroups: int | None) -> int:
    """The fewest pods with which the tree is satisfied: of each set of children the cheapest that suffice.

    Only for trees without cycles; see ``tree_problems``.
    """
    children = children_of(subgroups)

    def needed(name: str | None, own: int, required: int | None) -> int:
        below = children.get(name, [])
        if not below:
            return max(own, 0)
        costs = sorted(needed(child.name, child.min_member, child.min_subgroups) for child in below)
        return sum(costs if required is None else costs[: max(required, 0)])

    return needed(None, 0, min_subgroups)


def checked(group: PodGroup, *, given_minimum: bool = True) -> PodGroup:
    """``group`` with a blocking condition for all that is wrong with its numbers and its tree.

    Without a given minimum a gang of subgroups needs what its tree needs.
    """
    problems = tree_problems(group)
    if _levels(group.subgroups) > MOST_LEVELS:
        # What goes through the tree goes down all of its levels.
        group = msgspec.structs.replace(group, subgroups=())
    if not problems and not given_minimum:
        if group.subgroups:
            least = least_members(group.subgroups, group.min_subgroups)
            group = msgspec.structs.replace(group, min_member=least)
        elif group.layers:
            group = with_least_members(group)
    problems += layer_problems(group)
    return msgspec.structs.replace(group, conditions=(*group.conditions, *problems))


def _wrong(group: PodGroup, field: str, message: str, remedy: str) -> Condition:
    """A condition that says which field of a gang makes no sense, so that it waits."""
    return invalid(object_id("PodGroup", group.namespace, group.name), field, message, remedy, blocking=True)


def tree_problems(group: PodGroup) -> tuple[Condition, ...]:
    """Everything that is wrong with a gang's minima and subgroups."""
    found = []
    if group.min_member < 0:
        message, remedy = (
            f"minMember {group.min_member} is negative",
            "give the number of pods that must start together",
        )
        found.append(_wrong(group, "spec.minMember", message, remedy))
    children = children_of(group.subgroups)
    found += _minimum_problems(group, "spec", group.min_subgroups, len(children.get(None, [])))
    counts = Counter(subgroup.name for subgroup in group.subgroups)
    for i, subgroup in enumerate(group.subgroups):
        field = f"spec.subGroups[{i}]"
        if not subgroup.name:
            found.append(
                _wrong(group, f"{field}.name", f"subgroup {i} has no name", "give each subgroup a name")
            )
        elif counts[subgroup.name] > 1:
            message = f"{subgroup.name} is the name of {counts[subgroup.name]} subgroups"
            found.append(_wrong(group, f"{field}.name", message, "give each subgroup a name of its own"))
        if subgroup.min_member < 0:
            message = f"minMember {subgroup.min_member} of subgroup {quoted(subgroup.name)} is negative"
            found.append(_wrong(group, f"{field}.minMember", message, "give zero or more"))
        if subgroup.parent is not None and subgroup.parent not in counts:
            message = (
                f"the parent {quoted(subgroup.parent)} of subgroup {quoted(subgroup.name)} is not a subgroup"
            )
            found.append(_wrong(group, f"{field}.parent", message, "name one of the subgroups, or none"))
        found += _minimum_problems(group, field, subgroup.min_subgroups, len(children.get(subgroup.name, [])))
    parents = {subgroup.name: subgroup.parent for subgroup in group.subgroups}
    for cycle in _cycles(parents):
        i = next(i for i, subgroup in enumerate(group.subgroups) if subgroup.name == cycle[0])
        message = f"{some([*cycle, cycle[0]], joint=' -> ')} is a cycle"
        found.append(_wrong(group, f"spec.subGroups[{i}].parent", message, "take one of the parents out"))
    levels = _levels(group.subgroups)
    if levels > MOST_LEVELS:
        message = f"the subgroups have {levels} levels below each other"
        found.append(_wrong(group, "spec.subGroups", message, f"use at most {MOST_LEVELS} levels"))
    return few(found)


def _levels(subgroups: Sequence[SubGroup]) -> int:
    """How many subgroups stand below each other at the most; those of cycles do not count."""
    children, levels = children_of(subgroups), 0
    names: list[str | None] = [None]
    while below := [child.name for name in names for child in children.get(name, ())]:
        levels, names = levels + 1, list(dict.fromkeys(below))
        if levels > len(subgroups):
            break
    return levels


def _minimum_problems(group: PodGroup, field: str, minimum: int | None, children: int) -> list[Condition]:
    if minimum is None or 0 <= minimum <= children:
        return []
    message = f"{minimum} is not between 0 and the {children} subgroups there are"
    return [_wrong(group, f"{field}.minSubGroup", message, "lower it, or leave it out to require all")]


def children_of(subgroups: Sequence[SubGroup]) -> dict[str | None, list[SubGroup]]:
    """The subgroups by the name of their parent (None: the gang itself), in declared order."""
    children: dict[str | None, list[SubGroup]] = {}
    for subgroup in subgroups:
        children.setdefault(subgroup.parent, []).append(subgroup)
    return children


def _cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """Each cycle once, beginning with the first of its names in order."""
    settled: set[str] = set()
    cycles = []
    for start in parents:
        trail: dict[str, int] = {}
        name: str | None = start
        while name is not None and name in parents and name not in settled:
            if name in trail:
                cycle = list(trail)[trail[name] :]
                first = cycle.index(min(cycle))
                cycles.append([*cycle[first:], *cycle[:first]])
                break
            trail[name] = len(trail)
            name = parents[name]
        settled.update(trail)
    return cycles
