"""The layers of a gang: as our own PodGroup writes them, and what makes no sense in any dialect's."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from msgspec.structs import replace

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import (
    MOST_PODS,
    Arrangement,
    Exclusive,
    Layer,
    LayerMode,
    PodGroup,
    Remainder,
    SubGroup,
)
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Condition, few, invalid
from closeby.reading.decoding.wire import Wire, object_id


class LayerWire(Wire, forbid_unknown_fields=True):
    """``layers[]``."""

    level: str = ""
    topology: str | None = None
    size: int | None = None
    counts: list[int] | None = None
    mode: str | None = None
    remainder: str | None = None
    min_segments: int | None = None
    arrangement: str | None = None
    exclusive: str | None = None
    max_domains: int | None = None
    relax_after: str | None = None


#: Digits of a number; no gang has more pods, and no topology more tiers.
_LONGEST: Final = 9
_Choice = TypeVar("_Choice", bound=StrEnum)
#: A field, what is wrong with it, and the edit that cures it.
_Problem = tuple[str, str, str]


def read_layers(
    wires: Sequence[LayerWire] | None, owner: str, field: str
) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
    """The layers, with a blocking condition for each word that is not known."""
    problems: list[Condition] = []

    def chosen(text: str | None, default: _Choice, where: str) -> _Choice:
        if not text:
            return default
        try:
            return type(default)(text)
        except ValueError:
            known = some(list(type(default)), joint=" or ")
            message = f"{quoted(text)} is not one of its values"
            problems.append(invalid(owner, where, message, f"use {known}", blocking=True))
            return default

    def span(text: str | None, where: str) -> float | None:
        seconds = parse_duration(text) if text else None
        if text and not seconds:
            message = f"{quoted(text)} is not a span of time greater than zero"
            problems.append(invalid(owner, where, message, "write one such as 30m or 1h30m", blocking=True))
        return seconds or None

    layers = []
    for i, one in enumerate(wires or ()):
        at = f"{field}[{i}]"
        # A limit of domains alone says nothing of segments: each pod is one.
        alone = one.max_domains is not None and one.size is None and not one.counts
        layer = Layer(
            level=one.level,
            topology=one.topology or None,
            size=int(alone) if one.size is None else one.size,
            counts=tuple(one.counts or ()),
            mode=chosen(one.mode, LayerMode.REQUIRED, f"{at}.mode"),
            remainder=chosen(one.remainder, Remainder.FORBID, f"{at}.remainder"),
            min_segments=one.min_segments,
            arrangement=chosen(one.arrangement, Arrangement.PACK, f"{at}.arrangement"),
            exclusive=chosen(one.exclusive, Exclusive.NONE, f"{at}.exclusive"),
            max_domains=one.max_domains,
            relax_after=span(one.relax_after, f"{at}.relaxAfter"),
        )
        layers.append(layer)
    return tuple(layers), tuple(problems)


#: The remedy for a number of pods that is none.
WHOLE_NUMBER: Final = "give a whole number of at least 1"


def whole_number(text: str) -> int | None:
    """A number in an annotation, in which a tenant may write anything; None where it is none or too long."""
    return int(text) if text.isdecimal() and len(text) <= _LONGEST else None


def size_of(text: str) -> int | None:
    """A number of pods in an annotation; None where it is none."""
    return whole_number(text) or None


def least_of_layers(layers: Sequence[Layer]) -> int:
    """The fewest pods with which layers start where no minimum is given."""
    first = layers[0]
    if first.counts:
        return sum(first.counts[: len(first.counts) if first.min_segments is None else first.min_segments])
    return first.size * (1 if first.min_segments is None else first.min_segments)


def with_least_members(group: PodGroup) -> PodGroup:
    """A gang whose minimum is not given needs what its layers need."""
    return replace(group, min_member=least_of_layers(group.layers)) if group.layers else group


def layer_problems(group: PodGroup) -> tuple[Condition, ...]:
    """Everything that is wrong with the layers of a gang and of its subgroups."""
    owner = object_id("PodGroup", group.namespace, group.name)
    parents = {one.parent for one in group.subgroups}
    asked: list[tuple[PodGroup | SubGroup, str, bool]] = [(group, "spec", bool(group.subgroups))]
    asked += [(one, f"spec.subGroups[{i}]", one.name in parents) for i, one in enumerate(group.subgroups)]
    found = []
    for part, field, inner in asked:
        if not part.layers:
            continue
        source = part.layers[0].written.owner or owner
        problems = list(_problems(part.layers, part.min_member))
        if inner:
            remedy = "give layers to the subgroups that hold pods"
            problems = [("layers", "it has subgroups, and layers divide pods", remedy)]
        found += [
            invalid(source, _field(part.layers, field, where), message, remedy, blocking=True)
            for where, message, remedy in problems
        ]
    return few(found)


def _field(layers: Sequence[Layer], field: str, where: str) -> str:
    """Where the user wrote it: the field of our own PodGroup, or what a dialect says."""
    return layers[0].written.required or f"{field}.{where}"


def _problems(layers: Sequence[Layer], minimum: int) -> Iterator[_Problem]:
    levels = set[str]()
    for i, layer in enumerate(layers):
        at = f"layers[{i}]"
        if not layer.level:
            yield f"{at}.level", f"layer {i} names no level", "name a level of the topology"
        elif layer.level in levels:
            yield f"{at}.level", f"{quoted(layer.level)} is the level of two layers", "keep one of them"
        levels.add(layer.level)
        if bool(layer.size) == bool(layer.counts):
            message = "gives both size and counts" if layer.size else "gives neither size nor counts"
            yield f"{at}.size", message, "give size (pods of each segment), or counts where they are unequal"
        if layer.size < 0 or any(count < 1 for count in layer.counts):
            yield f"{at}.size", "a segment has at least one pod", "give whole numbers of at least 1"
            return
        if max(layer.size, sum(layer.counts)) > MOST_PODS:
            message = f"{max(layer.size, sum(layer.counts))} pods are more than any gang has"
            yield f"{at}.{'counts' if layer.counts else 'size'}", message, f"give at most {MOST_PODS}"
            return
        if layer.min_segments is not None:
            if i:
                message = "only the first layer can have fewer segments"
                yield f"{at}.minSegments", message, "write it in the first layer"
            elif layer.min_segments > MOST_PODS:
                message = f"{layer.min_segments} segments are more than any gang has"
                yield f"{at}.minSegments", message, f"give at most {MOST_PODS}"
            elif layer.min_segments < 1 or (layer.counts and layer.min_segments > len(layer.counts)):
                most = f" and at most {len(layer.counts)}" if layer.counts else ""
                message = f"{layer.min_segments} segments can't be the minimum"
                yield f"{at}.minSegments", message, f"give at least 1{most}"
        yield from _limit_problems(layer, at, first=not i)
    yield from _size_problems(layers)
    yield from _minimum_problems(layers[0], minimum)


def _limit_problems(layer: Layer, at: str, *, first: bool) -> Iterator[_Problem]:
    """How many domains all segments use, and for how long that counts."""
    if layer.max_domains is not None:
        if layer.max_domains < 1:
            yield f"{at}.maxDomains", f"{layer.max_domains} domains hold no pod", WHOLE_NUMBER
        elif not first:
            yield f"{at}.maxDomains", "only the first layer can limit domains", "write it in the first layer"
        elif layer.counts or layer.arrangement is Arrangement.SPREAD:
            other = "counts" if layer.counts else "arrangement: spread"
            yield f"{at}.maxDomains", f"it does not go with {other}", "leave one of them out"
        elif layer.mode is LayerMode.PREFERRED:
            message = "a preferred layer limits nothing, and uses as few domains as can be"
            yield f"{at}.maxDomains", message, "leave it out, or require the layer"
        elif layer.exclusive is Exclusive.KIND:
            yield f"{at}.maxDomains", "segments with a domain each use as many", "leave one of them out"
    if layer.relax_after is not None and layer.mode is LayerMode.PREFERRED:
        yield f"{at}.relaxAfter", "a preferred layer has nothing to relax", "leave it out"


def _size_problems(layers: Sequence[Layer]) -> Iterator[_Problem]:
    """Each segment consists of whole segments of the next layer."""
    for i, (outer, inner) in enumerate(pairwise(layers), start=1):
        at = f"layers[{i}]"
        if inner.counts:
            if outer.counts == inner.counts:
                continue
            if outer.counts:
                remedy = "give the inner layer a size"
                yield f"{at}.counts", "two layers that follow each other have counts", remedy
            elif sum(inner.counts) != outer.size:
                message = (
                    f"{sum(inner.counts)} pods in counts, but a segment of the layer above has {outer.size}"
                )
                yield f"{at}.counts", message, "let the counts sum up to the size above"
            continue
        for size in dict.fromkeys(outer.counts or (outer.size,)):
            if not inner.size or not size:
                continue
            if size < inner.size:
                message = f"size {inner.size} is greater than {size} of the layer above"
                yield f"{at}.size", message, "write layers coarse to fine"
            elif size % inner.size and not (outer.counts and inner.remainder is Remainder.ALLOW):
                message = f"size {inner.size} does not divide {size} of the layer above"
                yield f"{at}.size", message, "give a size that divides it"


def _minimum_problems(first: Layer, minimum: int) -> Iterator[_Problem]:
    """The minimum is a number of whole segments, unless a smaller one is allowed."""
    if first.min_segments is not None or first.remainder is Remainder.ALLOW or minimum <= 1:
        return
    if first.counts:
        if minimum not in accumulate(first.counts):
            message = f"counts {some([str(one) for one in first.counts])} never sum up to minMember {minimum}"
            yield "layers[0].counts", message, "let the first counts sum up to it, or allow a remainder"
    elif first.size and minimum % first.size:
        message = f"minMember {minimum} is not a number of whole segments of {first.size} pods"
        yield "layers[0].size", message, "give a size that divides minMember, or remainder: allow"
