"""How controllers keep the status of custom resources: they write what differs, and only fields of theirs.

A write of conditions, which other writers share, holds only for the version that was looked at.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.watch.changes import Upserted
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.statuses import Desired
from closeby.kube.writing.writer import LONGEST_MESSAGE, Note, Reference, StatusCondition, Writer
from closeby.objects.bounds import sentences
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition

#: An object among those of all kinds: its kind, and ``namespace/name``.
Key = tuple[Resource, str]

#: The condition that says whether the spec makes sense.
VALID: Final = "Valid"
_KEP_GROUP: Final = "scheduling.sigs.k8s.io"


class _Meta(Struct, frozen=True):
    generation: int | None = None


class _Wire(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class Fields(Mapping[str, object]):
    """A JSON object whose fields are decoded when they are asked for: as values they take more memory."""

    def __init__(self, raw: bytes) -> None:
        """Of a ``raw`` value that is not an object there are no fields."""
        self._raw = raw if raw.lstrip()[:1] == b"{" else b"{}"

    def __getitem__(self, name: str) -> object:
        """The value of one field."""
        return msgspec.json.decode(self._fields()[name])

    def __iter__(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self._fields())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._fields())

    def __eq__(self, other: object) -> bool:
        """Whether both say the same in the same words."""
        return isinstance(other, Fields) and self._raw == other._raw

    def __hash__(self) -> int:
        """Of what it says."""
        return hash(self._raw)

    def _fields(self) -> dict[str, msgspec.Raw]:
        return _read_fields(self._raw)


_read_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class SeenStatus(Struct, frozen=True, kw_only=True):
    """A custom resource as last known."""

    resource: Resource
    #: ``namespace/name``.
    key: str
    uid: str
    version: str
    #: Bytes of the whole object.
    size: int = 0
    #: Counts the changes of the spec; None where it counts those of the status too.
    generation: int | None
    spec: Mapping[str, object]
    status: Mapping[str, object]

    @property
    def is_kep(self) -> bool:
        """Whether an AppGroup or NetworkTopology has the KEP's shape, not the published one."""
        return self.resource.group == _KEP_GROUP

    @property
    def reference(self) -> Reference:
        """What an Event about it names."""
        namespace, _, name = self.key.rpartition("/")
        return Reference(
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            namespace=namespace,
            name=name,
            uid=self.uid,
        )


class WantedStatus(Struct, frozen=True, kw_only=True):
    """What a status should say. Fields and conditions that are not named here belong to other writers."""

    #: None: the field is taken away.
    fields: Mapping[str, object] = {}
    conditions: Sequence[StatusCondition] = ()
    #: Types of the conditions that are ours: those not among ``conditions`` are taken away.
    types: frozenset[str] = frozenset()


def namespace_of(key: Key) -> str:
    """Whose object it is; empty for one of the cluster."""
    return key[1].rpartition("/")[0]


def seen(resource: Resource, change: Upserted) -> SeenStatus:
    """The object in ``change``; what is not a mapping counts as empty.

    Raises:
        msgspec.DecodeError: it is not an object.
    """
    wire = msgspec.json.decode(change.raw, type=_Wire)
    return SeenStatus(
        resource=resource,
        key=change.key,
        uid=change.uid,
        version=change.version,
        size=len(change.raw),
        generation=wire.metadata.generation if resource.status else None,
        spec=Fields(bytes(wire.spec)),
        status=Fields(bytes(wire.status)),
    )


def changes_of(before: Mapping[str, object], wanted: WantedStatus, now: float) -> dict[str, object]:
    """What has to be merged into the status ``before``; nothing if it is as wanted."""
    fields = dict(wanted.fields)
    if wanted.types:
        conditions = _merged(before.get("conditions"), wanted, now)
        fields["conditions"] = conditions or ([] if "conditions" in before else None)
    return {name: value for name, value in fields.items() if before.get(name) != value}


def validity(problems: Sequence[Condition], generation: int | None) -> StatusCondition:
    """The condition ``Valid``, from all that is wrong with an object."""
    text = sentences([one.located() for one in problems], most=LONGEST_MESSAGE)
    return StatusCondition(
        type=VALID,
        status="False" if problems else "True",
        reason=str(problems[0].reason) if problems else "Valid",
        message=text,
        observed_generation=generation,
    )


def desired_status(
    writer: Writer,
    it: SeenStatus,
    wanted: WantedStatus,
    now: float,
    events: Mapping[Hashable, Note] = {},
) -> Desired:
    """What the writer of statuses is to see to; ``now`` is in seconds since the epoch."""
    changes = changes_of(it.status, wanted, now)
    namespace, _, name = it.key.rpartition("/")
    # A list is replaced as a whole, with what others said in it; single fields are ours alone.
    version = it.version if "conditions" in changes else None
    return Desired(
        about=it.reference,
        # Without the times that are made up while comparing.
        content=sha256(msgspec.json.encode((wanted.fields, wanted.conditions))).digest() if changes else None,
        write=lambda: writer.status(it.resource, namespace, name, changes, version),
        stands=not changes,
        size=it.size,
        events=events,
        since=now,
    )


def _merged(before: object, wanted: WantedStatus, now: float) -> list[object]:
    """The conditions with ours in their places; the time of one changes only with its status."""
    listed = before if isinstance(before, list) else []
    ours = {one.type: one for one in wanted.conditions}
    merged: list[object] = []
    for old in listed:
        kind = old.get("type") if isinstance(old, dict) else None
        if kind not in wanted.types:
            merged.append(old)
        elif kind in ours:
            merged.append(_stamped(ours.pop(kind), old, now))
    return merged + [_stamped(one, {}, now) for one in ours.values()]


def _stamped(condition: StatusCondition, old: Mapping[str, object], now: float) -> object:
    time = old.get("lastTransitionTime")
    if old.get("status") != condition.status or not isinstance(time, str) or not time:
        time = utc(now)
    return msgspec.to_builtins(msgspec.structs.replace(condition, last_transition_time=time))
