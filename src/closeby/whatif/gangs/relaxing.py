"""What an item could ask for instead, so that it fits now."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from closeby.objects.groups import PodGroup, SubGroup, TopologyConstraint
from closeby.scheduling.fork import Change
from closeby.whatif.choosing_nodes import other_nodes
from closeby.whatif.questions import Question, where_entry, where_text
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import TrialResult

_TOPOLOGY = "topologyConstraint.topology"
_REQUIRED = "topologyConstraint.requiredTopologyLevel"
_PREFERRED = "topologyConstraint.preferredTopologyLevel"


def relaxed(question: Question) -> Iterator[Counterfactual]:
    """The least that it would have to give up, for each thing that it can: levels, members, nodes."""
    if question.group is not None:
        yield from _levels(question, question.group)
        yield from _subgroups(question, question.group)
        yield from _members(question, question.group)
    yield from other_nodes(question)


def _levels(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The next coarser level at which it fits, else whether it does where no level is required."""
    constraint, levels = group.constraint, question.levels
    if constraint is None or constraint.required is None:
        return
    asked = constraint.required
    if levels is not None and levels.required is not None:
        names = levels.tree.level_names
        asked = names[levels.required]
        for level in range(levels.required - 1, -1, -1):
            label = levels.tree.levels[level].node_label
            result = question.tried(
                _constrained(group, replace(constraint, topology=levels.tree.name, required=label))
            )
            if result is not None:
                sentence = f"It fits now if {names[level]} is required instead of {asked}: {_where(result)}"
                named = {} if constraint.topology else {_TOPOLOGY: levels.tree.name}
                yield _fits(sentence, {**named, _REQUIRED: label}, result)
                return
    # To prefer what does not exist would say nothing.
    preferred = constraint.preferred if levels is None else constraint.preferred or constraint.required
    result = question.tried(_constrained(group, replace(constraint, required=None, preferred=preferred)))
    if result is not None:
        how = "is not required" if levels is None else "is preferred, not required"
        change = {_REQUIRED: None} | ({} if levels is None else {_PREFERRED: preferred})
        yield _fits(f"It fits now if {asked} {how}: {_where(result)}", change, result)
    elif not question.trials.spent:
        yield Counterfactual(
            kind=Kind.RELAXED,
            fits=False,
            sentence=f"Dropping the required level {asked} would not help now.",
            change={_REQUIRED: None},
        )


def _subgroups(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """Without what its subgroups require for themselves."""
    if not any(one.constraint is not None and one.constraint.required for one in group.subgroups):
        return
    loose = replace(group, subgroups=tuple(map(_loose, group.subgroups)))
    result = question.tried(Change(groups=(loose,)))
    if result is not None:
        sentence = f"It fits now if its subgroups only prefer their levels: {_where(result)}"
        yield _fits(sentence, {f"subGroups[*].{_REQUIRED}": None}, result)


def _loose(subgroup: SubGroup) -> SubGroup:
    constraint = subgroup.constraint
    if constraint is None or constraint.required is None:
        return subgroup
    wish = replace(constraint, required=None, preferred=constraint.preferred or constraint.required)
    return replace(subgroup, constraint=wish)


def _members(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The most members at once that are found to fit as it is, by halving."""
    state = question.trials.engine.state
    there = len(state.placed(question.key)) + len(state.done(question.key))
    if group.subgroups or question.needed < 2:
        return
    fewest, most = there + 1, group.min_member - 1
    best: tuple[int, TrialResult] | None = None
    while fewest <= most:
        middle = (fewest + most) // 2
        result = question.tried(Change(groups=(replace(group, min_member=middle),)))
        if result is None:
            most = middle - 1
        else:
            best, fewest = (middle, result), middle + 1
    if best is None:
        return
    number, result = best
    sentence = f"{number} of its {group.min_member} members fit now (minMember {number}): {_where(result)}"
    yield _fits(sentence, {"minMember": number}, result)


def _constrained(group: PodGroup, constraint: TopologyConstraint) -> Change:
    return Change(groups=(replace(group, constraint=constraint),))


def _where(result: TrialResult) -> str:
    return f"{where_text(result)}."


def _fits(sentence: str, change: Mapping[str, str | int | None], result: TrialResult) -> Counterfactual:
    return Counterfactual(
        kind=Kind.RELAXED, fits=True, sentence=sentence, change=change, where=where_entry(result)
    )
