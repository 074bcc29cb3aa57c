"""Writes the status of objects: what each should say goes in, and what differs is written, once.

The scheduler and the controllers use the same writer. Two things must never happen: a write that causes
itself, and two writers that overwrite each other as fast as they can. So nothing is written that stands there
already, and the very same content is written again only after a pause that gets longer each time. A large
object is written less often than a small one, since the API server, etcd and all that watch it handle the
whole object with each write. Content that differs in its words alone is rewritten rarely.

An Event is published once for each transition.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from closeby.kube.client.errors import FAULT, ApiError
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import Key, WorkQueue
from closeby.kube.writing.writer import DONE, Note, Reference, WriteResult, Written
from closeby.objects.process import Contained, Reported, Say, brief, fields_of

#: Between two writes of the very same content, and after refusals (seconds).
INSISTENCE: Final = RequestPace(first=1.0, longest=600.0)
#: Seconds between two writes of one object for each byte of it: 10 s for a megabyte, 10 ms for a kilobyte.
_PAUSE_PER_BYTE: Final = 1e-5
#: Seconds until the next attempt while what is known of the cluster is too old.
_UNINFORMED: Final = 0.25
_TRIED_AGAIN: Final = (WriteResult.CONFLICT, WriteResult.RETRYABLE)


class ReportingSettings(Struct, frozen=True, kw_only=True):
    """How the scheduler reports to users (times in seconds)."""

    #: Whether Events are written.
    events: bool = True
    #: A refusal must have stood so long.
    stands: float = 1.0
    #: The same for a pod that waits for the pod-grouper's word, or for the rest of its gang: both come soon.
    settles: float = 20.0
    #: The same reason in other words is not written again before so long.
    rephrased_after: float = 60.0
    #: And is no new Event before so long.
    retold_after: float = 600.0
    #: Pods whose refusal is written in a second, so that bindings are not held up.
    rate: float = 25.0
    #: Between two writes of the very same content, such as one that the server refused.
    insistence: RequestPace = RequestPace(first=60.0, longest=600.0)
    #: When the process ends statuses get so long, and then Events; what is left is dropped.
    finish_within: float = 5.0


class Desired(Struct, frozen=True, kw_only=True):
    """What the status of one object should say."""

    about: Reference
    #: All that is written but for its times.
    content: object
    write: Callable[[], Awaitable[Written]]
    #: Content of the same gist says the same in other words; None: no content does.
    gist: object = None
    #: Whether the object is known to say so; None: it does if this was written last.
    stands: bool | None = None
    #: Bytes of the whole object.
    size: int = 0
    #: Events, by the transition that each reports.
    events: Mapping[Hashable, Note] = {}
    #: When it came to be so (seconds since the epoch); None: now.
    since: float | None = None


class _Write(NamedTuple):
    """The last write of an object's status; times by the writer's clock."""

    uid: str
    content: object
    gist: object
    #: Whether the server agreed.
    ok: bool
    backoff: Backoff
    #: When it was written, and when the very same may be written again, and anything else.
    at: float
    same_at: float
    other_at: float


class StatusWriter(Generic[Key]):
    """Writes statuses, and puts the keys of objects into ``work`` that have to be looked at again."""

    def __init__(
        self,
        work: WorkQueue[Key],
        events: Events,
        say: Say,
        *,
        clock: Callable[[], float] = time.monotonic,
        insistence: RequestPace = INSISTENCE,
        rephrased_after: float = 0.0,
    ) -> None:
        """``clock`` counts seconds and never goes back; other words wait for ``rephrased_after`` seconds."""
        self.work = work
        self.events = events
        self._say = say
        self._clock = clock
        self._insistence = insistence
        self._rephrased_after = rephrased_after
        self._chance = random.Random()
        self._last: dict[Key, _Write] = {}
        #: By key: the object's uid and the transitions of which Events were published.
        self._published: dict[Key, tuple[str, frozenset[Hashable]]] = {}
        self._refusals: Reported[Key] = Reported()
        #: Objects that are being written and were not forgotten since.
        self._in_flight: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        """Whether the status of the object was written, and the object was not forgotten since."""
        return key in self._last

    def forget(self, key: Key) -> None:
        """The object is gone, or nothing is to be said of it any more."""
        self._last.pop(key, None)
        self._published.pop(key, None)
        self._refusals.over(key)
        self._in_flight.discard(key)
        self.work.forget(key)

    async def keep(self, key: Key, desired: Desired) -> None:
        """Makes the status of an object, whose key a worker has taken, as desired, or sees to it later."""
        pause = self._pause(key, desired)
        if pause is None:
            self.work.done(key)
            self.work.spared()
            self._in_flight.add(key)
            self._publish(key, desired)
            return
        if pause > 0:
            self.work.add(key, after=pause)
            self.work.spared()
            return
        written = await self.write(key, desired)
        if written.verdict in _TRIED_AGAIN:
            self.work.failed(key, written.error.retry_after if written.error else None)
        else:
            self.work.done(key)
        if written.verdict is WriteResult.FATAL and key in self._last:
            self.work.add(key, after=self._last[key].same_at - self._clock())

    async def write(self, key: Key, desired: Desired, *, again: bool = True) -> Written:
        """Writes it at once, and publishes Events unless it is to be tried ``again``."""
        last, uid = self._last.get(key), desired.about.uid
        same = last is not None and (last.uid, last.content) == (uid, desired.content)
        backoff = last.backoff if last is not None and same else Backoff(self._insistence, self._chance)
        self._in_flight.add(key)
        written = await desired.write()
        if written.verdict is WriteResult.GONE or (again and written.verdict in _TRIED_AGAIN):
            if last is not None and key in self._in_flight:
                # It may have been carried out all the same: then what was written before does not stand.
                self._last[key] = last._replace(ok=False, same_at=last.other_at)
            self._in_flight.discard(key)
            return written
        if key in self._in_flight:
            now, rests = self._clock(), desired.size * _PAUSE_PER_BYTE
            same_at = now + max(backoff.next(), rests)
            self._last[key] = _Write(
                uid, desired.content, desired.gist, written.ok, backoff, now, same_at, now + rests
            )
        if written.ok:
            self._refusals.over(key)
        elif self._refusals.changes(key, str(written.error)):
            self._say("status refused", warning=True, object=desired.about, error=written.error)
        self._publish(key, desired)
        return written

    def _pause(self, key: Key, desired: Desired) -> float | None:
        """Seconds until it may be written; None where it stands there already."""
        last = self._last.get(key)
        if desired.stands:
            return None
        if last is None:
            return 0.0
        if last.uid != desired.about.uid:
            return max(0.0, last.other_at - self._clock())
        if last.content == desired.content:
            if last.ok and desired.stands is None:
                return None
            return max(0.0, last.same_at - self._clock())
        rephrased = last.ok and desired.gist is not None and last.gist == desired.gist
        until = last.at + self._rephrased_after if rephrased else 0.0
        return max(0.0, max(until, last.other_at) - self._clock())

    def _publish(self, key: Key, desired: Desired) -> None:
        """The Events of transitions that are new, in the background."""
        uid, before = self._published.get(key, ("", frozenset()))
        if uid != desired.about.uid:
            before = frozenset()
        if key in self._in_flight:
            self._published[key] = desired.about.uid, frozenset(desired.events)
        self._in_flight.discard(key)
        for transition, note in desired.events.items():
            if transition not in before:
                self.events.post(desired.about, note, desired.since)


Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


class StatusSubject(Protocol[Key_contra]):
    """Objects of one kind, and what is to be said of each."""

    @property
    def name(self) -> str:
        """What the log calls the writer of their statuses."""

    def desired(self, key: Key_contra) -> Desired | None:
        """What the status of one object should say now; None where nothing is to be said."""

    def regarding(self, key: Key_contra) -> Reference | None:
        """The object; None where there is none any more."""


class StatusReconciler(StatusWriter[Key]):
    """Writes what a subject desires: for ``Workers``, each key when it is due, or at once."""

    def __init__(
        self,
        subject: StatusSubject[Key],
        work: WorkQueue[Key],
        events: Events,
        say: Say,
        *,
        informed: Callable[[], bool] = lambda: True,
        insistence: RequestPace = INSISTENCE,
        rephrased_after: float = 0.0,
    ) -> None:
        """``informed``: whether what is known of the cluster may be relied upon."""
        super().__init__(work, events, say, insistence=insistence, rephrased_after=rephrased_after)
        self.name = subject.name
        self._subject = subject
        self._informed = informed
        #: One write at a time for each object, so that the last one wins; also where it is forgotten.
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def regarding(self, key: Key) -> Reference | None:
        """The object."""
        return self._subject.regarding(key)

    async def reconcile(self, key: Key) -> None:
        """Writes what is desired now, if that differs."""
        if not self._informed():
            self.work.add(key, after=_UNINFORMED)
            return
        async with self._lock(key):
            desired = self._subject.desired(key)
            if desired is None:
                self.forget(key)
                self.work.spared()
            else:
                await self.keep(key, desired)

    async def write_now(self, key: Key, *, again: bool = True, if_changed: bool = False) -> Written:
        """Writes what is desired now, or only ``if_changed``; a fault of ours counts as a refusal.

        ``again``: where it fails it will be tried again, and is to be reported only then.
        """
        with Contained() as writing:
            async with self._lock(key):
                desired = self._subject.desired(key)
                if desired is None:
                    self.forget(key)
                    return Written(WriteResult.GONE)
                if if_changed and self._pause(key, desired) is None:
                    return DONE
                return await self.write(key, desired, again=again)
        assert writing.error is not None
        about = self._subject.regarding(key) or key
        self._say("status not written", warning=True, object=about, **fields_of(writing.error))
        return Written(WriteResult.FATAL, ApiError(None, FAULT, brief(writing.error)))

    async def quiet(self, key: Key) -> None:
        """Returns when nothing is being written about the object."""
        lock = self._locks.get(key)
        if lock is not None:
            async with lock:
                pass

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


async def nothing() -> Written:
    """Writes nothing: for what is said by Events alone."""
    return DONE
