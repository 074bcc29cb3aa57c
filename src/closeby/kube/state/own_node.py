"""One node, followed: the resources that its status has."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from msgspec import Struct

from closeby.kube.client.transport import Transport
from closeby.kube.watch.changes import Deleted, Synced, Troubled, Upserted
from closeby.kube.watch.reflector import Reflector, Watching
from closeby.kube.watch.resources import NODES


class NodeResources(Struct, frozen=True):
    """Quantities as they stand there; None where the map is not there at all."""

    uid: str
    capacity: Mapping[str, str] | None
    allocatable: Mapping[str, str] | None


class _Status(Struct):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class _Node(Struct):
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Node).decode


class OwnNode:
    """The node of a name."""

    def __init__(self, transport: Transport, name: str) -> None:
        watching = Watching(fields=f"metadata.name={name}")
        self.reflector = Reflector(transport, NODES, watching)

    async def changes(self) -> AsyncGenerator[NodeResources | Troubled | None, None]:
        """The node with every change, None while there is none; never ends by itself."""
        found: NodeResources | None = None
        async with aclosing(self.reflector.changes()) as batches:
            async for batch in batches:
                for change in batch:
                    match change:
                        case Upserted():
                            found = resources_of(change)
                            yield found
                        case Deleted():
                            found = None
                            yield None
                        case Synced() if found is None:
                            yield None
                        case Troubled():
                            yield change


def resources_of(change: Upserted) -> NodeResources | None:
    """Those of a node; None if it makes no sense."""
    try:
        status = _decode(change.raw).status or _Status()
    except msgspec.DecodeError:
        return None
    return NodeResources(change.uid, status.capacity, status.allocatable)
