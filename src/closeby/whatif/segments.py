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
from closeby.whatif.questions import Fields, Question, farthest
from closeby.whatif.records import Counterfactual, Kind

#: Sizes of segments that are tried: so many, the greatest first.
SIZES: Final = 12


class _Part(NamedTuple):
    """The layers of a gang (``at`` is None), or of a subgroup by its place."""

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


def segments_relaxed(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """Smaller segments, and the least that each part would have to give up of their places."""
    for part in _parts(question, group):
        found = [*_smaller(question, group, part), *_elsewhere(question, group, part)]
        yield from found
        if not found and not question.trials.spent:
            yield from _none(question, group, part)


def whole_segments(group: PodGroup, members: int) -> bool:
    """Whether so many members of a gang are a number of whole segments, where it must be one."""
    return not any(
        one.size and one.remainder is Remainder.FORBID and members % one.size for one in group.layers[:1]
    )


def _parts(question: Question, group: PodGroup) -> Iterator[_Part]:
    layerings = constraints_of(group, question.trials.engine.topologies, False).layerings
    asked = [(None, "", group.layers), *((i, one.name, one.layers) for i, one in enumerate(group.subgroups))]
    for at, name, layers in asked:
        layering = layerings.get(name)
        required = any(one.mode is LayerMode.REQUIRED for one in layers)
        if layering is not None and required and len(layering.layers) == len(layers):
            yield _Part(at, layers, layering, f" of subgroup {name!r}" if name else "")


def _with(group: PodGroup, part: _Part, layers: Sequence[Layer]) -> PodGroup:
    if part.at is None:
        return replace(group, layers=tuple(layers))
    subgroups = list(group.subgroups)
    subgroups[part.at] = replace(subgroups[part.at], layers=tuple(layers))
    return replace(group, subgroups=tuple(subgroups))


def _changed(group: PodGroup, part: _Part, number: int, layer: Layer) -> PodGroup:
    layers = list(part.layers)
    layers[number] = layer
    return _with(group, part, layers)


def _smaller(question: Question, group: PodGroup, part: _Part) -> Iterator[Counterfactual]:
    """The greatest size found with which it fits, of the finest layers that can be smaller."""
    pods = _count(question, group, part)
    for size in sorted({one.size for one in part.layers if one.size > 1}):
        own = [number for number, one in enumerate(part.layers) if one.size == size]
        fields = [_size_field(part, number) for number in own]
        if not all(fields):
            continue
        wishes = (
            (less, _with(group, part, [_sized(one, size, less) for one in part.layers]))
            for less in range(size - 1, 1, -1)
            if pods % less == 0 or part.layers[own[0]].remainder is Remainder.ALLOW
        )
        valid = [(less, wish) for less, wish in wishes if not layer_problems(wish)]
        for less, wish in valid[:SIZES]:
            condition = f"now if segments{part.who} have {less} pods instead of {size}"
            found = tuple(
                question.relaxed(Change(groups=(wish,)), condition, dict.fromkeys(filter(None, fields), less))
            )
            if found:
                yield from found
                return


def _sized(layer: Layer, size: int, less: int) -> Layer:
    return replace(layer, size=less) if layer.size == size else layer


def _size_field(part: _Part, number: int) -> str:
    """Where a layer's size is written; empty: it follows from the workload."""
    written = part.layers[number].written
    return written.size if written.required else part.path(number, "size")


def _count(question: Question, group: PodGroup, part: _Part) -> int:
    """The pods that are divided."""
    state = question.trials.engine.state
    name = None if part.at is None else group.subgroups[part.at].name
    pods = [pod for pod in (*question.waiting, *state.placed(question.key)) if name in (None, pod.subgroup)]
    return len(pods) + (len(state.done(question.key)) if name is None else 0)


def _elsewhere(question: Question, group: PodGroup, part: _Part) -> Iterator[Counterfactual]:
    """More domains, the next coarser level, or a level that is preferred: the first that is enough."""
    for number, layer in reversed(tuple(enumerate(part.layers))):
        if layer.mode is not LayerMode.REQUIRED or _twofold(layer):
            continue
        found = (
            *_more_domains(question, group, part, number),
            *_coarser(question, group, part, number),
        )
        found = found or tuple(_preferred(question, group, part, number))
        if found:
            yield from found
            return


def _twofold(layer: Layer) -> bool:
    """Whether two annotations, each with its level, make up the layer."""
    more = layer.max_domains is not None or layer.exclusive is not Exclusive.NONE
    return more and SEGMENT_LEVEL in layer.written.required


def _more_domains(question: Question, group: PodGroup, part: _Part, number: int) -> Iterator[Counterfactual]:
    layer, tree = part.layers[number], part.layering.tree
    most = layer.max_domains
    if most is None:
        return

    def change(domains: int) -> Change:
        return Change(groups=(_changed(group, part, number, replace(layer, max_domains=domains)),))

    steps = range(tree.count(part.layering.layers[number].level), most, -1)
    best = farthest(steps, lambda domains: question.tried(change(domains)))
    if best is not None:
        condition = f"now if {plural(best[0], part.name(number))} may be used{part.who} instead of {most}"
        fields = _limit(part, number, best[0])
        yield question.answer(Kind.RELAXED, change(best[0]), best[1], condition, fields=fields)


def _limit(part: _Part, number: int, domains: int) -> Fields:
    """A limit of domains as it has to be written: by its field, or ``3@30`` as Slurm does."""
    layer = part.layers[number]
    if not layer.written.required:
        return {part.path(number, "maxDomains"): domains}
    after = layer.relax_after
    time = "" if after is None else f"@{after / 60:g}m" if after % 60 == 0 else f"@{after:g}s"
    return {layer.written.required.replace(SWITCH_LEVEL, SWITCHES): f"{domains}{time}"}


def _coarser(question: Question, group: PodGroup, part: _Part, number: int) -> Iterator[Counterfactual]:
    layer, tree, own = part.layers[number], part.layering.tree, part.layering.layers
    above = own[number - 1].level if number else -1
    for level in range(own[number].level - 1, above, -1):
        label = tree.levels[level].node_label
        wish = _changed(group, part, number, replace(layer, level=label))
        field = layer.written.required or part.path(number, "level")
        coarser, finer = tree.level_names[level], part.name(number)
        condition = f"now if each segment{part.who} may be in one {coarser} instead of one {finer}"
        if layer.max_domains is not None:
            many = plural(layer.max_domains, coarser)
            condition = f"now if {many} may be used{part.who} instead of {plural(layer.max_domains, finer)}"
        found = tuple(question.relaxed(Change(groups=(wish,)), condition, {field: _as_written(label)}))
        if found:
            yield from found
            return


def _as_written(label: str) -> str | int:
    """A level as a dialect names it: a tier of HyperNodes by its number."""
    tier = tier_of(label)
    return label if tier is None else tier


def _preferred(question: Question, group: PodGroup, part: _Part, number: int) -> Iterator[Counterfactual]:
    layer, written = part.layers[number], part.layers[number].written
    fields: Fields = {part.path(number, "mode"): LayerMode.PREFERRED.value}
    if written.required:
        taken = any(one.mode is LayerMode.PREFERRED for one in part.layers)
        if taken or written.preferred in ("", written.required):
            return
        fields = {written.required: None, written.preferred: layer.level}
        if layer.topology == HYPERNODES:
            fields = {written.preferred: "soft"}
    loose = replace(layer, mode=LayerMode.PREFERRED, max_domains=None, relax_after=None)
    if layer.max_domains is not None:
        fields = {**fields, part.path(number, "maxDomains"): None}
    condition = f"now if one {part.name(number)} for each segment{part.who} is preferred, not required"
    yield from question.relaxed(Change(groups=(_changed(group, part, number, loose),)), condition, fields)


def _none(question: Question, group: PodGroup, part: _Part) -> Iterator[Counterfactual]:
    """Whether it fits without segments at all."""
    fields = {
        one.written.required or part.path(number, "level"): None for number, one in enumerate(part.layers)
    }
    if all(not one.written.required for one in part.layers):
        fields = {part.path(0, "")[: -len("[0].")]: None}
    change = Change(groups=(_with(group, part, ()),))
    found = tuple(question.relaxed(change, f"now if its pods{part.who} need not be in segments", fields))
    yield from found
    waits = question.there + len(question.waiting)
    if not found and not question.trials.spent and group.min_member <= waits:
        yield Counterfactual(
            kind=Kind.RELAXED,
            fits=False,
            sentence=f"Dropping the segments{part.who} would not help now.",
            change=fields,
        )
