"""What a gang could ask for instead of its segments: smaller ones, coarser levels, more domains, or none."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, LayerMode, PodGroup, Remainder
from closeby.objects.topologies import HYPERNODES, tier_of
from closeby.objects.words import plural
from closeby.reading.common.layers import layer_problems
from closeby.reading.decoding.keys import SEGMENT_LEVEL, SWITCH_LEVEL, SWITCHES
from closeby.scheduling.fork import Change
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.gangs.segments import Layering
from closeby.whatif.records import Counterfactual, Fields, Kind
from closeby.whatif.trials import LesserRequest, Question, largest_feasible

#: Sizes of segments that are tried: so many, the greatest first.
SIZES: Final = 12


class _Part(NamedTuple):
    """The layers of a gang (``at`` is None), or of a subgroup by its place."""

    group: PodGroup
    at: int | None
    layers: tuple[Layer, ...]
    layering: Layering
    #: `` of subgroup 'workers'``.
    who: str

    def path(self, number: int, field: str) -> str:
        """A field of a layer of a PodGroup of ours."""
        above = "" if self.at is None else f"subGroups[{self.at}]."
        return f"{above}layers[{number}].{field}"

    def name(self, number: int) -> str:
        """The short name of a layer's level."""
        return self.layering.tree.level_names[self.layering.layers[number].level]

    def with_layers(self, layers: Sequence[Layer]) -> PodGroup:
        """The gang with other layers here."""
        if self.at is None:
            return replace(self.group, layers=tuple(layers))
        subgroups = list(self.group.subgroups)
        subgroups[self.at] = replace(subgroups[self.at], layers=tuple(layers))
        return replace(self.group, subgroups=tuple(subgroups))

    def change(self, number: int, **changed: object) -> Change:
        """One layer as it would be."""
        layers = list(self.layers)
        layers[number] = replace(layers[number], **changed)
        return Change(groups=(self.with_layers(layers),))


def segments_relaxed(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """Smaller segments, and the least that each part would have to give up of their places."""
    layerings = constraints_of(group, question.trials.engine.topologies, False).layerings
    asked = [(None, "", group.layers), *((i, one.name, one.layers) for i, one in enumerate(group.subgroups))]
    for at, name, layers in asked:
        layering = layerings.get(name)
        required = any(one.mode is LayerMode.REQUIRED for one in layers)
        if layering is None or not required or len(layering.layers) != len(layers):
            continue
        part = _Part(group, at, layers, layering, f" of subgroup {name!r}" if name else "")
        found = [*_smaller(question, part), *_elsewhere(question, part)]
        yield from found
        if not found and not question.trials.spent:
            yield from _none(question, part)


def whole_segments(group: PodGroup, members: int) -> bool:
    """Whether so many members of a gang are a number of whole segments, where it must be one."""
    return not any(
        one.size and one.remainder is Remainder.FORBID and members % one.size for one in group.layers[:1]
    )


def _smaller(question: Question, part: _Part) -> Iterator[Counterfactual]:
    """The greatest size found with which it fits, of the finest layers that can be smaller."""
    state = question.trials.engine.state
    name = None if part.at is None else part.group.subgroups[part.at].name
    members = (*question.waiting, *state.placed(question.key))
    pods = sum(name in (None, pod.subgroup) for pod in members)
    pods += len(state.done(question.key)) if name is None else 0
    for size in sorted({one.size for one in part.layers if one.size > 1}):
        own = [number for number, one in enumerate(part.layers) if one.size == size]
        fields = [_size_field(part, number) for number in own]
        if not all(fields):
            continue
        wishes = []
        for less in range(size - 1, 1, -1):
            if pods % less == 0 or part.layers[own[0]].remainder is Remainder.ALLOW:
                layers = [replace(one, size=less) if one.size == size else one for one in part.layers]
                changed = part.with_layers(layers)
                if not layer_problems(changed):
                    condition = f"now if segments{part.who} have {less} pods instead of {size}"
                    wishes.append(
                        LesserRequest(Change(groups=(changed,)), condition, dict.fromkeys(fields, less))
                    )
        found = question.first(*wishes[:SIZES])
        if found:
            yield from found
            return


def _size_field(part: _Part, number: int) -> str:
    """Where a layer's size is written; empty: it follows from the workload."""
    written = part.layers[number].written
    return written.size if written.required else part.path(number, "size")


def _elsewhere(question: Question, part: _Part) -> Iterator[Counterfactual]:
    """More domains, the next coarser level, or a level that is preferred: the first that is enough."""
    for number, layer in reversed(tuple(enumerate(part.layers))):
        # Of two annotations, each with its level, that make up one layer, neither alone can be changed.
        twofold = layer.max_domains is not None or layer.exclusive is not Exclusive.NONE
        if layer.mode is not LayerMode.REQUIRED or (twofold and SEGMENT_LEVEL in layer.written.required):
            continue
        found = (
            *_more_domains(question, part, number),
            *question.first(*_coarser(part, number)),
        )
        found = found or question.first(*_preferred(part, number))
        if found:
            yield from found
            return


def _more_domains(question: Question, part: _Part, number: int) -> Iterator[Counterfactual]:
    most = part.layers[number].max_domains
    if most is None:
        return
    steps = range(part.layering.tree.count(part.layering.layers[number].level), most, -1)
    best = largest_feasible(steps, lambda domains: question.tried(part.change(number, max_domains=domains)))
    if best is not None:
        condition = f"now if {plural(best[0], part.name(number))} may be used{part.who} instead of {most}"
        change, fields = part.change(number, max_domains=best[0]), _limit(part, number, best[0])
        yield question.answer(Kind.RELAXED, change, best[1], condition, fields=fields)


def _limit(part: _Part, number: int, domains: int) -> Fields:
    """A limit of domains as it has to be written: by its field, or ``3@30`` as Slurm does."""
    layer = part.layers[number]
    if not layer.written.required:
        return {part.path(number, "maxDomains"): domains}
    after = layer.relax_after
    time = "" if after is None else f"@{after / 60:g}m" if after % 60 == 0 else f"@{after:g}s"
    return {layer.written.required.replace(SWITCH_LEVEL, SWITCHES): f"{domains}{time}"}


def _coarser(part: _Part, number: int) -> Iterator[LesserRequest]:
    layer, tree, own = part.layers[number], part.layering.tree, part.layering.layers
    above = own[number - 1].level if number else -1
    for level in range(own[number].level - 1, above, -1):
        label, tier = tree.levels[level].node_label, tier_of(tree.levels[level].node_label)
        # A tier of HyperNodes is called by its number.
        fields = {layer.written.required or part.path(number, "level"): label if tier is None else tier}
        coarser, finer = tree.level_names[level], part.name(number)
        condition = f"now if each segment{part.who} may be in one {coarser} instead of one {finer}"
        if layer.max_domains is not None:
            many = plural(layer.max_domains, coarser)
            condition = f"now if {many} may be used{part.who} instead of {plural(layer.max_domains, finer)}"
        yield LesserRequest(part.change(number, level=label), condition, fields)


def _preferred(part: _Part, number: int) -> Iterator[LesserRequest]:
    layer, written = part.layers[number], part.layers[number].written
    fields: Fields = {part.path(number, "mode"): LayerMode.PREFERRED.value}
    if written.required:
        taken = any(one.mode is LayerMode.PREFERRED for one in part.layers)
        if taken or written.preferred in ("", written.required):
            return
        fields = {written.required: None, written.preferred: layer.level}
        if layer.topology == HYPERNODES:
            fields = {written.preferred: "soft"}
    change = part.change(number, mode=LayerMode.PREFERRED, max_domains=None, relax_after=None)
    if layer.max_domains is not None:
        fields = {**fields, part.path(number, "maxDomains"): None}
    condition = f"now if one {part.name(number)} for each segment{part.who} is preferred, not required"
    yield LesserRequest(change, condition, fields)


def _none(question: Question, part: _Part) -> Iterator[Counterfactual]:
    """Whether it fits without segments at all."""
    fields = {
        one.written.required or part.path(number, "level"): None for number, one in enumerate(part.layers)
    }
    if all(not one.written.required for one in part.layers):
        fields = {part.path(0, "")[: -len("[0].")]: None}
    change = Change(groups=(part.with_layers(()),))
    found = question.first(
        LesserRequest(change, f"now if its pods{part.who} need not be in segments", fields)
    )
    yield from found
    if not found and question.complete:
        yield Counterfactual(
            kind=Kind.RELAXED,
            fits=False,
            sentence=f"Dropping the segments{part.who} would not help now.",
            change=fields,
        )
