"""Kueue's slices of a pod set: one layer in two annotations, or up to three in one of JSON."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import ConstraintSource, Layer, Remainder
from closeby.objects.labels import is_label_key
from closeby.objects.reasons import Condition, few, invalid
from closeby.reading.common.layers import WHOLE_NUMBER, size_of
from closeby.reading.decoding.keys import KUEUE_GROUP, KUEUE_SLICE, KUEUE_SLICE_SIZE, KUEUE_SLICES
from closeby.reading.decoding.wire import Wire

#: Layers of slices that Kueue has.
MOST_LAYERS: Final = 3
_JSON: Final = 'write [{"topology": LABEL, "size": PODS}, ...] with 1 to 3 entries, coarse to fine'
#: Where the topology stands that Kueue's words leave to the queue.
OF_FLAVOR: Final = "spec.topologyName of the ResourceFlavor of its queue"
_LABEL: Final = "name the nodeLabel of a topology's level"


class SliceWire(Wire, gc=False):
    """An entry of ``podset-slice-required-topology-constraints``."""

    topology: str = ""
    size: int = 0


_decode: Final = msgspec.json.Decoder(list[SliceWire]).decode


class Wording(Struct, frozen=True):
    """Where Kueue's words stand: in the annotations ``part`` of an object (``owner``), or in its fields."""

    owner: str
    part: str
    #: The fields of ``part`` that say the same as annotations.
    fields: Mapping[str, str] = {}

    def at(self, key: str) -> str:
        """The path of an annotation, or of the field that is written instead."""
        return f"{self.part}.{self.fields[key]}" if key in self.fields else f'{self.part}["{key}"]'

    def called(self, key: str) -> str:
        """Its name."""
        return self.fields.get(key, key)


def read_slices(
    annotations: Mapping[str, str], written: Wording
) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
    """The layers, or what is wrong with them."""
    owner, called = written.owner, written.called
    given = [key for key in (KUEUE_SLICE, KUEUE_SLICE_SIZE, KUEUE_SLICES) if key in annotations]
    if not given:
        return (), ()

    def refused(key: str, message: str, remedy: str) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
        return (), (invalid(owner, written.at(key), message, remedy, blocking=True),)

    if KUEUE_SLICES in given:
        if len(given) > 1:
            return refused(given[0], f"excludes {called(KUEUE_SLICES)}", "keep one of them")
        try:
            wires = _decode(annotations[KUEUE_SLICES])
        except (msgspec.MsgspecError, RecursionError) as error:
            return refused(KUEUE_SLICES, f"can't be read: {error}", _JSON)
        return _layers(wires, owner, written.at(KUEUE_SLICES))
    if len(given) == 1:
        missing = called(KUEUE_SLICE_SIZE if given[0] == KUEUE_SLICE else KUEUE_SLICE)
        return refused(given[0], f"needs {missing}", f"add {missing}, or take it out")
    level, text = annotations[KUEUE_SLICE], annotations[KUEUE_SLICE_SIZE]
    size = size_of(text)
    if not is_label_key(level):
        return refused(KUEUE_SLICE, f"{quoted(level)} is not a label key", _LABEL)
    if size is None:
        return refused(KUEUE_SLICE_SIZE, f"{quoted(text)} is not a number of pods", WHOLE_NUMBER)
    layer = _layer(level, size, owner, written.at(KUEUE_SLICE), written.at(KUEUE_SLICE_SIZE))
    return _alone((layer,)), ()


def _layers(
    wires: Sequence[SliceWire], owner: str, field: str
) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
    if not 0 < len(wires) <= MOST_LAYERS:
        message = f"{len(wires)} layers are not 1 to {MOST_LAYERS}"
        return (), (invalid(owner, field, message, _JSON, blocking=True),)
    problems = []
    for i, one in enumerate(wires):
        at = f"{field}[{i}]"
        if not is_label_key(one.topology):
            problems.append((f"{at}.topology", f"{quoted(one.topology)} is not a label key", _LABEL))
        elif any(one.topology == other.topology for other in wires[:i]):
            problems.append((f"{at}.topology", f"{quoted(one.topology)} is named twice", "keep one of them"))
        above = wires[i - 1].size if i else 0
        if one.size < 1:
            problems.append((f"{at}.size", f"{one.size} is not a number of pods", WHOLE_NUMBER))
        elif above > 0 and above % one.size:
            remedy = f"give a size that divides {above}"
            problems.append(
                (f"{at}.size", f"{one.size} does not divide the {above} of the layer above", remedy)
            )
    if problems:
        return (), few(invalid(owner, *problem, blocking=True) for problem in problems)
    layers = tuple(
        _layer(one.topology, one.size, owner, f"{field}[{i}].topology", f"{field}[{i}].size")
        for i, one in enumerate(wires)
    )
    return _alone(layers), ()


def _alone(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The last slice may be a smaller one where there is one layer only (TASPartialSlices, Kueue 0.19.4)."""
    if len(layers) > 1:
        return layers
    return tuple(msgspec.structs.replace(one, remainder=Remainder.ALLOW) for one in layers)


def _layer(level: str, size: int, owner: str, field: str, size_field: str) -> Layer:
    source = ConstraintSource(
        owner=owner,
        required=field,
        topology=OF_FLAVOR,
        size=size_field,
    )
    return Layer(level=level, size=size, written=source)


def group_problem(annotations: Mapping[str, str], *, placed: bool) -> tuple[str, str] | None:
    """What Kueue refuses of the name of a group of pod sets: message and remedy.

    ``placed``: the pod set has a required or preferred level.
    """
    name = annotations[KUEUE_GROUP]
    if name.isdecimal():
        return f"{quoted(name)} is a number", "give the group a name"
    if any(key in annotations for key in (KUEUE_SLICE, KUEUE_SLICE_SIZE, KUEUE_SLICES)):
        return "pod sets of a group can't have slices", "take out the group or the slices"
    if not placed:
        return "needs a required or preferred topology", "add one to both pod sets of the group"
    return None
