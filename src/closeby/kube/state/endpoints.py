"""On which nodes the pods behind a Service are ready, where these are, and at which addresses pods answer.

Of all that tells this, EndpointSlices cost the API server least: they change only when pods come, go, or get
ready, tell the zone of each pod's node, and every node's kube-proxy follows them anyway. Nodes report to the
API server all the time, and all nodes that watch all nodes are too many. Zones suffice: by Kubernetes' own
rules no two regions have a zone of the same name.
"""

import ipaddress
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.transport import Transport
from closeby.kube.watch.changes import Deleted, Synced, Troubled, Upserted
from closeby.kube.watch.reflector import Reflector, Watching
from closeby.kube.watch.resources import ENDPOINT_SLICES

#: What says of which Service a slice is.
_SERVICE: Final = "kubernetes.io/service-name"


class EndpointPlace(Struct, frozen=True):
    """A pod that is ready: its node, that node's zone (empty if it has none), and where it answers."""

    node: str
    address: str
    port: int
    zone: str = ""


class _Conditions(Struct):
    ready: bool | None = None


class _Endpoint(Struct, rename="camel"):
    addresses: tuple[str, ...] = ()
    conditions: _Conditions | None = None
    node_name: str | None = None
    zone: str | None = None


class _Port(Struct):
    name: str | None = None
    port: int | None = None


class _Slice(Struct):
    endpoints: tuple[_Endpoint, ...] | None = None
    ports: tuple[_Port, ...] | None = None


_decode: Final = msgspec.json.Decoder(_Slice).decode


class Endpoints:
    """The pods behind one Service, followed; one pod a node, as a DaemonSet has them."""

    def __init__(self, transport: Transport, namespace: str, service: str, port: str) -> None:
        """``port`` is the name of the Service's port."""
        watching = Watching(labels=f"{_SERVICE}={service}", namespace=namespace)
        self.reflector = Reflector(transport, ENDPOINT_SLICES, watching)
        self._port = port
        self._slices: dict[str, tuple[EndpointPlace, ...]] = {}

    async def changes(self) -> AsyncGenerator[tuple[EndpointPlace, ...] | Troubled, None]:
        """The places whenever they may have changed, from when all are known; never ends by itself."""
        known = False
        async with aclosing(self.reflector.changes()) as batches:
            async for batch in batches:
                for change in batch:
                    match change:
                        case Upserted():
                            self._slices[change.key] = places_of(change.raw, self._port)
                        case Deleted():
                            self._slices.pop(change.key, None)
                        case Synced():
                            known = True
                        case Troubled():
                            yield change
                if known:
                    yield joined(self._slices)


def places_of(raw: bytes, port: str) -> tuple[EndpointPlace, ...]:
    """The places in one EndpointSlice; none if it makes no sense, or has no such port."""
    try:
        found = _decode(raw)
    except msgspec.DecodeError:
        return ()
    number = next((one.port for one in found.ports or () if one.name == port), None)
    if number is None:
        return ()
    return tuple(
        EndpointPlace(one.node_name, one.addresses[0], number, one.zone or "")
        for one in found.endpoints or ()
        # Not said means ready.
        if one.node_name and one.addresses and (one.conditions is None or one.conditions.ready is not False)
    )


def joined(slices: Mapping[str, tuple[EndpointPlace, ...]]) -> tuple[EndpointPlace, ...]:
    """One place a node: of several (a pod takes another's place, or has addresses of both kinds) the address
    of IPv4 first, then the lowest; the same whichever slice came first.
    """
    found: dict[str, EndpointPlace] = {}
    for place in (one for places in slices.values() for one in places):
        before = found.get(place.node)
        if before is None or _order(place) < _order(before):
            found[place.node] = place
    return tuple(sorted(found.values(), key=lambda one: one.node))


def _order(place: EndpointPlace) -> tuple[bool, str, int]:
    try:
        later = ipaddress.ip_address(place.address).version != 4
    except ValueError:
        later = True
    return later, place.address, place.port
