"""What happens to the objects of one kind, read just far enough to know which object is meant."""

from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import ApiError


class Upserted(Struct, frozen=True, gc=False):
    """An object appeared or changed."""

    #: ``namespace/name``, or the name alone.
    key: str
    uid: str
    #: Its ``resourceVersion``.
    version: str
    #: The object as JSON, a copy of its own.
    raw: bytes


class Deleted(Struct, frozen=True, gc=False):
    """An object is gone."""

    key: str
    uid: str


class Synced(Struct, frozen=True):
    """All that the server had at ``version`` has been reported, and what was gone by then."""

    version: str
    #: Objects there are.
    objects: int


class Troubled(Struct, frozen=True):
    """The watch brings nothing for now; what it brought may be out of date."""

    error: ApiError
    #: Seconds until the next attempt.
    wait: float


class Resumed(Struct, frozen=True):
    """The watch brings changes again."""


Change = Upserted | Deleted | Synced | Troubled | Resumed


class ObjectMeta(Struct, rename="camel"):
    """``metadata``, as far as it says who an object is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(Struct):
    metadata: ObjectMeta


class ListMeta(Struct, rename="camel"):
    """``metadata`` of a list."""

    resource_version: str = ""
    continuation: str | None = msgspec.field(name="continue", default=None)


class Page(Struct):
    """One page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


#: Decoders of the above; each raises one of ``UNREADABLE_ERRORS``.
read_object: Final = msgspec.json.Decoder(_Object).decode
read_page: Final = msgspec.json.Decoder(Page).decode
read_event: Final = msgspec.json.Decoder(WatchEvent).decode


def upserted(raw: msgspec.Raw) -> Upserted:
    """The object in ``raw``.

    Raises:
        msgspec.DecodeError: it is none.
    """
    meta = read_object(raw).metadata
    # A Raw keeps the whole answer alive in which it came.
    return Upserted(meta.key, meta.uid, meta.resource_version, bytes(raw))
