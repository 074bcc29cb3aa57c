"""Events on the scheduler's Lease: what a plugin measures by is lost, or is back.

No pod is to blame, so none is told. The Lease stands for all replicas together, as it does where Kubernetes'
own components tell who leads; the replica that leads tells, the others keep what they would have to.
"""

import asyncio
import contextlib
import time
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import LEASES
from closeby.kube.writing.events import Events
from closeby.kube.writing.leading import Lead
from closeby.kube.writing.lease import LeaseSettings
from closeby.kube.writing.writer import Note, Reference

LOST: Final = "MeasurementsLost"
BACK: Final = "MeasurementsBack"


class _Meta(Struct):
    uid: str = ""


class _Lease(Struct):
    metadata: _Meta


_read: Final = msgspec.json.Decoder(_Lease).decode


class Losses:
    """What was told of each plugin, and what is still to be told."""

    def __init__(self, transport: Transport, events: Events, lead: Lead, lease: LeaseSettings) -> None:
        self._transport = transport
        self._events = events
        self._lead = lead
        self._lease = lease
        #: By plugin: what is to be told, and when it happened (seconds since the epoch).
        self._untold: dict[str, tuple[Note, float]] = {}
        #: Plugins whose loss was told last.
        self._lost: set[str] = set()
        self._news = asyncio.Event()

    def lost(self, plugin: str, why: str) -> None:
        """Nothing is measured any more."""
        self._tell(plugin, Note(reason=LOST, action="Measuring", text=f"{plugin}: {why}", warning=True))

    def back(self, plugin: str, source: str) -> None:
        """It is measured; passed over unless the loss was told."""
        self._untold.pop(plugin, None)
        if plugin in self._lost:
            text = f"{plugin}: {source} is read again"
            self._tell(plugin, Note(reason=BACK, action="Measuring", text=text))

    async def run(self) -> None:
        """Tells, once this replica leads, until it is cancelled."""
        await self._lead.held.wait()
        while True:
            await self._news.wait()
            self._news.clear()
            untold, self._untold = self._untold, {}
            for plugin, (note, _) in untold.items():
                (self._lost.add if note.reason == LOST else self._lost.discard)(plugin)
            about = await self._reference()
            for note, when in untold.values():
                await self._events.post(about, note, when)

    def _tell(self, plugin: str, note: Note) -> None:
        self._untold[plugin] = note, time.time()
        self._news.set()

    async def _reference(self) -> Reference:
        """The Lease; with its uid, by which ``kubectl describe`` finds Events, where that can be read."""
        namespace, name = self._lease.namespace, self._lease.name
        uid = ""
        body = await self._transport.get(LEASES.item(namespace, name))
        if not isinstance(body, ApiError):
            with contextlib.suppress(msgspec.DecodeError):
                uid = _read(body).metadata.uid
        return Reference(
            api_version=LEASES.api_version,
            kind=LEASES.kind,
            namespace=namespace,
            name=name,
            uid=uid,
        )
