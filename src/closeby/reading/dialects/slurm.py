"""What Slurm's options say about places, in annotations of ours: ``--segment``, ``--exclusive=topo`` and
``--switches``. Slurm counts nodes; here pods are counted.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from closeby.objects.bounds import quoted
from closeby.objects.groups import (
    Arrangement,
    ConstraintSource,
    Exclusive,
    Layer,
    TopologyConstraint,
)
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Condition, invalid
from closeby.reading.common.layers import WHOLE_NUMBER, size_of
from closeby.reading.common.podgroups import PlacementAsk
from closeby.reading.decoding.keys import (
    EXCLUSIVE_LEVEL,
    SEGMENT_ARRANGEMENT,
    SEGMENT_LEVEL,
    SEGMENT_SIZE,
    SWITCH_LEVEL,
    SWITCHES,
)

_KEYS: Final = frozenset(
    {SEGMENT_SIZE, SEGMENT_LEVEL, SEGMENT_ARRANGEMENT, EXCLUSIVE_LEVEL, SWITCHES, SWITCH_LEVEL}
)
#: Slurm's spans of time, of short numbers: minutes, minutes:seconds, hours:minutes:seconds, days-hours, ...
_SPAN: Final = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_COUNT: Final = 'write the number of domains, such as "1", or "1@30m"'


class _Reading:
    """The annotations of one object, and what is wrong with them."""

    def __init__(self, annotations: Mapping[str, str], owner: str, part: str) -> None:
        self.given = {key: annotations[key] for key in _KEYS if annotations.get(key)}
        self.problems: list[Condition] = []
        self._owner, self._part = owner, part

    def refuse(self, key: str, message: str, remedy: str) -> None:
        self.problems.append(invalid(self._owner, self.field(key), message, remedy, blocking=True))

    def field(self, key: str) -> str:
        return f'{self._part}["{key}"]'

    def written(self, key: str) -> ConstraintSource:
        field = self.field(key)
        size = self.field(SEGMENT_SIZE) if SEGMENT_SIZE in self.given else ""
        return ConstraintSource(owner=self._owner, required=field, preferred=field, size=size)

    def both(self, key: str, other: str) -> bool:
        """Whether two keys are there that need one another."""
        for one, lacking in ((key, other), (other, key)):
            if one in self.given and lacking not in self.given:
                self.refuse(one, f"needs {lacking}", f"add {lacking}, or take it out")
        return key in self.given and other in self.given


def ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What the annotations ask for; ``owner`` and ``part`` name object and field in conditions."""
    if _KEYS.isdisjoint(annotations):
        return PlacementAsk()
    found = _Reading(annotations, owner, part)
    segment = _segment(found)
    switches = _switches(found, segment)
    constraint = switches if isinstance(switches, TopologyConstraint) else None
    layers = _layers(found, segment, switches if isinstance(switches, Layer) else None)
    return PlacementAsk(constraint=constraint, layers=layers, conditions=tuple(found.problems))


def _layers(found: _Reading, segment: Layer | None, limit: Layer | None) -> tuple[Layer, ...]:
    """Segments of one size, in few domains; exclusive domains hold no pods of others."""
    level = found.given.get(EXCLUSIVE_LEVEL)
    alone = None
    if level is not None:
        size = 1 if segment is None else segment.size
        alone = Layer(level=level, size=size, exclusive=Exclusive.ALL, written=found.written(EXCLUSIVE_LEVEL))
    layers: dict[str, Layer] = {}
    for one in (limit, alone, segment):
        if one is None:
            continue
        before = layers.get(one.level)
        layers[one.level] = one if before is None else _both(before, one)
    return tuple(layers.values())


def _both(one: Layer, other: Layer) -> Layer:
    """Two wishes about one level as one layer: the later one is the finer."""
    return replace(
        other,
        max_domains=one.max_domains,
        relax_after=one.relax_after,
        exclusive=other.exclusive if one.exclusive is Exclusive.NONE else one.exclusive,
    )


def _segment(found: _Reading) -> Layer | None:
    text = found.given.get(SEGMENT_ARRANGEMENT, str(Arrangement.PACK))
    if text not in set(Arrangement):
        found.refuse(SEGMENT_ARRANGEMENT, f"{quoted(text)} is not one of its values", "use pack or spread")
        return None
    if SEGMENT_ARRANGEMENT in found.given and SEGMENT_SIZE not in found.given:
        found.refuse(SEGMENT_ARRANGEMENT, f"needs {SEGMENT_SIZE}", f"add {SEGMENT_SIZE}, or take it out")
    if not found.both(SEGMENT_SIZE, SEGMENT_LEVEL):
        return None
    size = size_of(found.given[SEGMENT_SIZE])
    if size is None:
        found.refuse(
            SEGMENT_SIZE, f"{quoted(found.given[SEGMENT_SIZE])} is not a number of pods", WHOLE_NUMBER
        )
        return None
    return Layer(
        level=found.given[SEGMENT_LEVEL],
        size=size,
        arrangement=Arrangement(text),
        written=found.written(SEGMENT_LEVEL),
    )


def _switches(found: _Reading, segment: Layer | None) -> TopologyConstraint | Layer | None:
    """At most so many domains of a level; with a time only until the gang has waited so long."""
    if not found.both(SWITCHES, SWITCH_LEVEL):
        return None
    text, level = found.given[SWITCHES], found.given[SWITCH_LEVEL]
    number, at, time = text.partition("@")
    count, after = size_of(number), span_of(time)
    if count is None or (at and not after):
        found.refuse(SWITCHES, f"{quoted(text)} is not a number, nor a number and a span of time", _COUNT)
        return None
    written = found.written(SWITCH_LEVEL)
    if count == 1 and not at:
        return TopologyConstraint(required=level, written=written)
    return Layer(
        level=level,
        size=1 if segment is None else segment.size,
        max_domains=count,
        relax_after=after,
        written=written,
    )


def span_of(text: str) -> float | None:
    """Seconds of a span of time as Slurm writes it (``30`` are minutes), or as ``30m``; None for others."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return parse_duration(text) if text else None
    days, *rest = match.groups()
    first, second, third = (int(one or 0) for one in rest)
    if days is not None:
        return float(((int(days) * 24 + first) * 60 + second) * 60 + third)
    if rest[2] is not None:
        return float((first * 60 + second) * 60 + third)
    return float(first * 60 + second)
