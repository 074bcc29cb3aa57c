"""The annotation with the quality of a node's switches (Topograph label standard), read from all nodes.

It is a JSON object of switches: ``{"sw-a": {"distance": 1, "latency": "100ns", "bandwidth": "40Gbps"}}``.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import natural_key
from closeby.topology.families import QOS_ANNOTATION, NodeGroup, and_more, listed, type_of

#: Nanoseconds per unit of latency (Topograph label standard).
LATENCY_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
#: Bits per second per unit of bandwidth (Topograph label standard); decimal, as network speeds are.
BANDWIDTH_UNITS = {"Kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9, "Tbps": 10**12}

# The limit keeps a hostile text from becoming an expensive number.
_MOST_CABLES = 10**6
_AMOUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([A-Za-z]+)")


class Quality(Struct, frozen=True, kw_only=True):
    """What is known about the links of one switch; None means unknown."""

    #: Nanoseconds.
    latency: int | None = None
    #: Bits per second.
    bandwidth: int | None = None
    #: Greater is farther; says how layers are ordered, not how many edges are between two nodes.
    distance: int | float | None = None
    #: Cables to the next coarser switches that are up.
    uplinks: int | None = None


#: A switch about which nothing was said.
UNKNOWN = Quality()


def parse_latency(value: object) -> int:
    """Nanoseconds of a text such as ``2us`` or ``1.5ms``.

    Raises ValueError when it is not a positive whole number of nanoseconds with a unit of ``LATENCY_UNITS``.
    """
    return _parse(value, LATENCY_UNITS, "latency", "2us", "nanoseconds")


def parse_bandwidth(value: object) -> int:
    """Bits per second of a text such as ``100Gbps`` or ``2.5Gbps``.

    Raises ValueError when it is not a positive whole number of bits per second with a unit of
    ``BANDWIDTH_UNITS``.
    """
    return _parse(value, BANDWIDTH_UNITS, "bandwidth", "100Gbps", "bits per second")


def parse_distance(value: object) -> int | float:
    """A distance as JSON gives it: a finite number above zero. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"distance {quoted(value)} is not a number")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"distance {quoted(value)} is not a finite number above zero")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_count(value: object) -> int:
    """A whole number above zero. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_CABLES:
        raise ValueError(f"{quoted(value)} is not a whole number of cables above zero")
    return value


def format_latency(nanoseconds: int) -> str:
    """The latency in the largest unit that it fills, exact: 1500 is ``1.5us``."""
    return _format(nanoseconds, LATENCY_UNITS)


def format_bandwidth(bits_per_second: int) -> str:
    """The bandwidth in the largest unit that it fills, exact: 2500000000 is ``2.5Gbps``."""
    return _format(bits_per_second, BANDWIDTH_UNITS)


def _parse(value: object, units: dict[str, int], what: str, example: str, whole: str) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{what} {quoted(value)} is not text with a unit such as "{example}"')
    match = _AMOUNT.fullmatch(value)
    unit = match.group(2) if match else None
    if match is None or unit not in units:
        known = ", ".join(units)
        raise ValueError(f'{what} "{value}" is not a number followed by one of {known}, such as "{example}"')
    amount = Fraction(match.group(1)) * units[unit]
    if amount <= 0:
        raise ValueError(f'{what} "{value}" is not above zero')
    if amount.denominator != 1:
        raise ValueError(f'{what} "{value}" is not a whole number of {whole}')
    return int(amount)


def _format(amount: int, units: dict[str, int]) -> str:
    unit, scale = next(iter(units.items()))
    for name, size in units.items():
        if amount >= size:
            unit, scale = name, size
    whole, rest = divmod(amount, scale)
    # Each scale is a power of ten, so its zeros are the digits behind the point.
    digits = f"{rest:0{len(str(scale)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}{unit}" if digits else f"{whole}{unit}"


ANNOTATION_FIELD = f"metadata.annotations[{QOS_ANNOTATION}]"
EXAMPLE = '{"sw-a": {"distance": 1, "latency": "100ns", "bandwidth": "40Gbps"}}'

_READERS: Mapping[str, Callable[[object], int | float]] = {
    "distance": parse_distance,
    "latency": parse_latency,
    "bandwidth": parse_bandwidth,
    # Not in the label standard, which lets every tool add to it.
    "uplinks": parse_count,
}


class AnnotationProblem(NamedTuple):
    """Something wrong in one annotation's text; ``path`` is where, below the annotation."""

    path: str
    message: str
    remedy: str


class ParsedAnnotation(NamedTuple):
    """The readable part of one annotation, and what was wrong with the rest."""

    switches: Mapping[str, Mapping[str, int | float]]
    problems: tuple[AnnotationProblem, ...]


class _Stated(NamedTuple):
    value: int | float
    node: str


#: Quality per switch, named by its node label and its name.
Qualities = dict[tuple[str, str], Quality]


def parse_annotation(text: str) -> ParsedAnnotation:
    """Read one annotation's text. A wrong switch or value is left out alone; unknown metrics are skipped."""
    try:
        content = json.loads(text, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        problem = AnnotationProblem(
            "", f"the annotation is not valid JSON: {why}", f"write JSON text such as {EXAMPLE}"
        )
        return ParsedAnnotation({}, (problem,))
    if not isinstance(content, dict):
        problem = AnnotationProblem("", "the annotation is not a JSON object of switches", f"write {EXAMPLE}")
        return ParsedAnnotation({}, (problem,))
    switches: dict[str, Mapping[str, int | float]] = {}
    problems: list[AnnotationProblem] = []
    for name, metrics in content.items():
        path = f"[{json.dumps(name)}]"
        if not isinstance(metrics, dict):
            problems.append(
                AnnotationProblem(
                    path, f"switch {name} is not described by a JSON object", f"write {EXAMPLE}"
                )
            )
            continue
        read: dict[str, int | float] = {}
        for metric, parse in _READERS.items():
            if metrics.get(metric) is None:
                continue
            try:
                read[metric] = parse(metrics[metric])
            except ValueError as error:
                message = f"switch {name}: {error}"
                problems.append(
                    AnnotationProblem(f"{path}.{metric}", message, "correct it, or leave it out when unknown")
                )
        switches[name] = read
    return ParsedAnnotation(switches, tuple(problems))


def read_quality(groups: Sequence[NodeGroup]) -> tuple[Qualities, tuple[Condition, ...]]:
    """The quality of every switch that some node describes, keyed by (label, switch name).

    A metric with two values on different nodes is dropped, because nothing says which one is right. A name
    that two labels of one node share could mean either, so what is said about it does not count on that node.
    """
    parsed = {text: parse_annotation(text) for group in groups if (text := group.annotation) is not None}
    conditions = list(_text_conditions(groups, parsed))
    stated: dict[tuple[str, str], dict[str, list[_Stated]]] = {}
    for group in groups:
        if group.annotation is None:
            continue
        for name, metrics in parsed[group.annotation].switches.items():
            labels = [label for label, switch in group.switches.items() if switch == name]
            if len(labels) != 1:
                continue
            known = stated.setdefault((labels[0], name), {})
            for metric, value in metrics.items():
                values = known.setdefault(metric, [])
                if all(one.value != value for one in values):
                    values.append(_Stated(value, group.nodes[0]))
    qualities: Qualities = {}
    for key in sorted(stated):
        agreed = {metric: values[0].value for metric, values in stated[key].items() if len(values) == 1}
        qualities[key] = _quality(agreed)
        for metric in _READERS:
            values = stated[key].get(metric, [])
            if len(values) > 1:
                conditions.append(_conflict(key, metric, values))
    return qualities, tuple(conditions)


def _text_conditions(
    groups: Sequence[NodeGroup], parsed: Mapping[str, ParsedAnnotation]
) -> Iterator[Condition]:
    """What is wrong in each text, and with its switch names on the nodes that carry it; once per text."""
    carriers: dict[str, list[NodeGroup]] = {}
    for group in groups:
        if group.annotation is not None:
            carriers.setdefault(group.annotation, []).append(group)
    for text, holders in carriers.items():
        nodes = _nodes(holders)
        for problem in parsed[text].problems:
            suffix = "" if len(nodes) == 1 else f" (the same text on {len(nodes) - 1} more)"
            yield _condition(nodes, problem.path, problem.message + suffix, problem.remedy)
        names = parsed[text].switches
        others = [group for group in holders if set(names) - set(group.switches.values())]
        if others:
            missing = listed(set(names) - set(others[0].switches.values()))
            message = f"it describes {missing}, which no network label of {and_more(_nodes(others))} names"
            yield _condition(
                _nodes(others), "", message, "describe only switches that the node's network labels name"
            )
        for name in sorted(names):
            doubled = [group for group in holders if list(group.switches.values()).count(name) > 1]
            if doubled:
                labels = sorted(label for label, switch in doubled[0].switches.items() if switch == name)
                yield _condition(
                    _nodes(doubled),
                    f"[{json.dumps(name)}]",
                    f"{name} is the name of {some([type_of(label) for label in labels], joint=' and ')} on "
                    f"{and_more(_nodes(doubled))}, so what it describes is unknown",
                    "give each switch a name of its own",
                )


def _conflict(key: tuple[str, str], metric: str, values: Sequence[_Stated]) -> Condition:
    shown = " and ".join(f"{_shown(metric, one.value)} on {one.node}" for one in values[:3])
    return _condition(
        [values[0].node],
        f"[{json.dumps(key[1])}].{metric}",
        f"{type_of(key[0])} {key[1]} has {metric} {shown}, so its {metric} is taken as unknown",
        "write the same value on all nodes",
    )


def _condition(nodes: Sequence[str], path: str, message: str, remedy: str) -> Condition:
    return invalid(f"Node/{nodes[0]}", ANNOTATION_FIELD + path, message, remedy)


def _nodes(groups: Sequence[NodeGroup]) -> list[str]:
    return sorted((node for group in groups for node in group.nodes), key=natural_key)


def _quality(metrics: Mapping[str, int | float]) -> Quality:
    latency, bandwidth, uplinks = metrics.get("latency"), metrics.get("bandwidth"), metrics.get("uplinks")
    return Quality(
        latency=None if latency is None else int(latency),
        bandwidth=None if bandwidth is None else int(bandwidth),
        distance=metrics.get("distance"),
        uplinks=None if uplinks is None else int(uplinks),
    )


def _shown(metric: str, value: int | float) -> str:
    if metric == "latency":
        return format_latency(int(value))
    return format_bandwidth(int(value)) if metric == "bandwidth" else str(value)


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f'"{key}" stands there twice')
        found[key] = value
    return found
