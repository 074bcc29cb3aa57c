"""Pods that name an AppGroup which is not known yet: they wait until the server was asked about it.

A kind may be installed while the scheduler runs, and watches of two kinds are not in step. So a pod may be
received before the AppGroup that it names, although that was made before it. Placed at once it would be far
from what it talks to, for ever. It goes on with its AppGroup as soon as that is received, and without it once
a look at the server that began after a grace has not found it. No input or output here.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from closeby.applications.registry import app_group_key
from closeby.kube.watch.resources import Resource
from closeby.objects.pods import Pod

#: The kind that is waited for, and the kinds without which it says less than it should.
APP_GROUP: Final = "AppGroup"
KINDS: Final = frozenset({APP_GROUP, "NetworkTopology"})


class _Held(Struct, frozen=True):
    pod: Pod
    #: ``namespace/name`` of the AppGroup.
    key: str
    #: When the pod was first seen so.
    since: float


class UnknownGroups:
    """The owner of what waits for its AppGroup. Times are those of ``clock``, in seconds."""

    def __init__(
        self,
        grace: float,
        listed: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``listed`` says whether all objects of ``KINDS`` are listed that are served."""
        self._grace = grace
        self._listed = listed
        self._clock = clock
        #: Set when something begins to wait.
        self.wanted = asyncio.Event()
        #: By key: the kinds of which an AppGroup of that name is there.
        self._known: dict[str, set[Resource]] = {}
        #: By uid, and the uids by key.
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        #: Keys that are waited for and known, and uids that go on without theirs.
        self._arrived: dict[str, None] = {}
        self._without: dict[str, None] = {}
        #: uids that began to wait since the last call of ``released``: these were not returned before.
        self._fresh: set[str] = set()

    @property
    def waiting(self) -> int:
        """How many pods wait."""
        return len(self._held)

    def holds(self, uid: str) -> bool:
        """Whether a pod waits for its AppGroup."""
        return uid in self._held

    # What is received

    def group_seen(self, resource: Resource, key: str) -> None:
        """An AppGroup is there, be it one that makes no sense."""
        self._known.setdefault(key, set()).add(resource)
        if key in self._waiting:
            self._arrived[key] = None

    def group_gone(self, resource: Resource, key: str) -> None:
        """An AppGroup is deleted; what was let go on because of it does not wait again."""
        kinds = self._known.get(key, set())
        kinds.discard(resource)
        if not kinds:
            self._known.pop(key, None)
            self._arrived.pop(key, None)

    def pod_seen(self, pod: Pod, before: Pod | None) -> None:
        """A pod that looks for a node was seen, first or again (``before``: as it was then)."""
        key = app_group_key(pod)
        held = self._held.get(pod.uid)
        if held is not None and held.key == key:
            self._held[pod.uid] = _Held(pod, key, held.since)
            return
        self.forget(pod.uid)
        # What was let go on once does not wait again, unless it names another AppGroup or was no candidate.
        seen = before is not None and app_group_key(before) == key and not before.spec.scheduling_gates
        if key is None or key in self._known or seen:
            return
        self._held[pod.uid] = _Held(pod, key, self._clock())
        self._waiting.setdefault(key, {})[pod.uid] = None
        self._fresh.add(pod.uid)
        self.wanted.set()

    def forget(self, uid: str) -> None:
        """A pod is gone, or looks for a node no more."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        uids = self._waiting[held.key]
        del uids[uid]
        if not uids:
            del self._waiting[held.key]
            self._arrived.pop(held.key, None)
        self._without.pop(uid, None)

    # What the looks find

    def due(self, began: float) -> Collection[str]:
        """The namespaces in which a look that began then decides about pods."""
        return {
            held.key.partition("/")[0]
            for held in self._held.values()
            if held.since + self._grace <= began and held.key not in self._known
        }

    def looked(self, began: float, there: Mapping[str, Collection[str]]) -> None:
        """A look that began then is over; ``there`` has the names of the AppGroups of each namespace."""
        for uid, held in self._held.items():
            namespace, _, name = held.key.partition("/")
            names = there.get(namespace)
            if names is None or name in names or held.key in self._known:
                continue
            if held.since + self._grace <= began:
                self._without[uid] = None

    def released(self) -> Iterator[Pod]:
        """The pods that wait no more, of those that waited at the last call."""
        listed, now = self._listed(), self._clock()
        ready = [
            uid
            for key in self._arrived
            for uid in self._waiting[key]
            if listed or self._held[uid].since + self._grace <= now
        ]
        for uid in dict.fromkeys((*ready, *self._without)):
            pod = self._held[uid].pod
            self.forget(uid)
            if uid not in self._fresh:
                yield pod
        self._fresh.clear()
