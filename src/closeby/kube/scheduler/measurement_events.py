"""Events on the scheduler's Lease: what a plugin measures by is lost, or is back.

No pod is to blame, so the Events are on none. The Lease stands for all replicas together, as it does where
Kubernetes' own components say who leads; the replica that leads publishes them, and the others keep what they
would have to.
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
from closeby.kube.writing.statuses import Desired, StatusReconciler, nothing
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import Note, Reference
from closeby.objects.process import Say

LOST: Final = "MeasurementsLost"
BACK: Final = "MeasurementsBack"


class _Meta(Struct):
    uid: str = ""


class _Lease(Struct):
    metadata: _Meta


_read: Final = msgspec.json.Decoder(_Lease).decode


class MeasurementEvents:
    """Plugins that have lost their measurements, or have them back."""

    name: Final = "measurement-events"

    def __init__(
        self, transport: Transport, events: Events, lead: Lead, lease: LeaseSettings, say: Say
    ) -> None:
        self._transport = transport
        self._lead = lead
        self._about = Reference(
            api_version=LEASES.api_version, kind=LEASES.kind, namespace=lease.namespace, name=lease.name
        )
        #: By plugin: what is so, and since when (seconds since the epoch).
        self._standing: dict[str, tuple[Note, float]] = {}
        work: WorkQueue[str] = WorkQueue(time.monotonic, lambda plugin: "")
        self._statuses = StatusReconciler(self, work, events, say)
        self._workers = Workers(self._statuses, say)

    def lost(self, plugin: str, why: str) -> None:
        """Nothing is measured any more."""
        self._changed(plugin, Note(reason=LOST, action="Measuring", text=f"{plugin}: {why}", warning=True))

    def back(self, plugin: str, source: str) -> None:
        """It is measured; passed over unless the loss was published."""
        text = f"{plugin}: {source} is read again"
        self._changed(plugin, Note(reason=BACK, action="Measuring", text=text))

    async def run(self, stopping: asyncio.Event) -> None:
        """Publishes, once this replica leads, until it is cancelled or ``stopping`` is set."""
        await self._lead.held.wait()
        self._about = msgspec.structs.replace(self._about, uid=await self._uid())
        await self._workers.run(stopping)

    def regarding(self, key: str) -> Reference:
        """The Lease."""
        return self._about

    def desired(self, key: str) -> Desired | None:
        """The last transition of a plugin's measurements."""
        note, since = self._standing[key]
        if note.reason == BACK and key not in self._statuses:
            return None
        return Desired(
            about=self._about, content=note.reason, write=nothing, events={note.reason: note}, since=since
        )

    def _changed(self, plugin: str, note: Note) -> None:
        self._standing[plugin] = note, time.time()
        self._statuses.work.add(plugin)

    async def _uid(self) -> str:
        """Of the Lease, by which ``kubectl describe`` finds Events; empty where it can't be read."""
        body = await self._transport.get(LEASES.item(self._about.namespace, self._about.name))
        if not isinstance(body, ApiError):
            with contextlib.suppress(msgspec.DecodeError):
                return _read(body).metadata.uid
        return ""
