"""Follows all objects of one kind: a list in pages, then a watch that is resumed wherever it ends.

A busy server ends watches cleanly and often; that is not a failure, and the watch is resumed at once from the
last version seen. Only when the server has forgotten that version (410) is everything listed again, and what
is gone is found by comparing.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, UNREADABLE_ERRORS, ApiError, read_error
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.watch.changes import (
    Change,
    Deleted,
    Resumed,
    Synced,
    Troubled,
    Upserted,
    WatchEvent,
    read_event,
    read_object,
    read_page,
    upserted,
)
from closeby.kube.watch.resources import Resource
from closeby.objects.process import collector_paused


class Watching(Struct, frozen=True, kw_only=True):
    """How a kind is followed (times in seconds)."""

    #: Objects in a page of the list.
    page: int = 1000
    #: Which objects, as in ``kubectl get --selector`` and ``--field-selector``; empty for all.
    labels: str = ""
    fields: str = ""
    #: Where; empty for everywhere.
    namespace: str = ""
    #: The server is asked to end a watch after a time between these, so that not all watches end at once.
    lifetime: tuple[float, float] = (300.0, 600.0)
    #: A watch on which nothing comes for so long is dead: the server sends a bookmark every minute or so.
    idle: float = 150.0
    pace: RequestPace = RequestPace()


DEFAULT_WATCHING: Final = Watching()
#: A watch that brings nothing and ends within so many seconds counts as a failure.
_SHORT: Final = 1.0
#: Refusals of a watch that a new list does not cure: no rights, no such kind, too many requests.
_NOT_CURED_BY_A_LIST: Final = frozenset({401, 403, 404, 429})


class Reflector:
    """One kind on one server; knows key, uid and version of each object, not the object."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        watching: Watching = DEFAULT_WATCHING,
        chance: random.Random | None = None,
    ) -> None:
        self.resource = resource
        #: When the server last said something of this kind, or gave a sign of life (of ``time.monotonic``).
        self.answered_at = time.monotonic()
        #: Lists and watches that were begun so far.
        self.lists = 0
        self.watches = 0
        self._transport = transport
        self._watching = watching
        self._chance = chance or random.Random()
        self._known: dict[str, tuple[str, str]] = {}
        self._version = ""
        self._troubled = False
        self._path = resource.collection(watching.namespace)
        selectors = (("labelSelector", watching.labels), ("fieldSelector", watching.fields))
        self._selection = {key: value for key, value in selectors if value}

    @property
    def objects(self) -> int:
        """How many are known."""
        return len(self._known)

    def forget(self) -> list[Change]:
        """The deletion of all that is known, for when the kind itself is gone."""
        gone: list[Change] = [Deleted(key, uid) for key, (uid, _) in self._known.items()]
        self._known.clear()
        return gone

    async def changes(self) -> AsyncGenerator[list[Change], None]:
        """Everything that happens, in order, in batches as they come from the server; never ends by itself.

        Close it (``aclosing``). Objects that did not change meanwhile are not yielded again after a new list.
        """
        backoff = Backoff(self._watching.pace, self._chance)
        while True:
            error = None
            async with aclosing(self._list()) as pages:
                async for page in pages:
                    if isinstance(page, ApiError):
                        error = page
                    else:
                        yield page
            if error is None:
                async with aclosing(self._watch()) as batches:
                    async for batch in batches:
                        if isinstance(batch, ApiError):
                            error = batch
                        else:
                            backoff.reset()
                            yield batch
            # Listing again at once would be a storm if the server forgets as fast as it tells.
            wait = backoff.next(error.retry_after if error else None)
            # That a version is forgotten is not a trouble: the list cures it.
            if error is not None and not error.expired:
                yield self._trouble(error, wait)
            await asyncio.sleep(wait)

    async def _list(self) -> AsyncGenerator[list[Change] | ApiError, None]:
        """All objects that are new or changed, what is gone, and ``Synced`` last; or an error last."""
        seen: set[str] = set()
        self.lists += 1
        limit = {"limit": str(self._watching.page)}
        query = self._selection | limit
        while True:
            body = await self._transport.list(self._path, query)
            if isinstance(body, ApiError):
                if body.expired and "continue" in query:
                    # The server has forgotten the version that the pages are of: all at once, then.
                    seen.clear()
                    query = dict(self._selection)
                    continue
                yield body
                return
            self.answered_at = time.monotonic()
            try:
                with collector_paused():
                    page = read_page(body)
                    batch: list[Change] = []
                    for raw in page.items or ():
                        batch += self._told(upserted(raw), seen)
            except UNREADABLE_ERRORS as error:
                yield ApiError(None, UNREADABLE, f"a list of {self.resource.plural} can't be read: {error}")
                return
            del body
            if page.metadata.continuation:
                query = self._selection | limit | {"continue": page.metadata.continuation}
                if batch:
                    yield batch
                continue
            break
        batch += [Deleted(key, self._known.pop(key)[0]) for key in self._known.keys() - seen]
        self._version = page.metadata.resource_version
        self._troubled = False
        yield [*batch, Synced(self._version, len(self._known))]

    async def _watch(self) -> AsyncGenerator[list[Change] | ApiError, None]:
        """What happens from the last version on. It ends, with the reason, when a new list is needed."""
        backoff = Backoff(self._watching.pace, self._chance)
        clock = asyncio.get_running_loop().time
        while True:
            error, answered, began = None, False, clock()
            async with aclosing(self._stream()) as batches:
                async for batch in batches:
                    if isinstance(batch, ApiError):
                        error = batch
                        continue
                    answered = answered or any(not isinstance(change, Resumed) for change in batch)
                    if known := [change for change in batch if change is not None]:
                        yield known
            if error is not None and _needs_list(error):
                yield error
                return
            if answered or clock() - began >= _SHORT:
                backoff.reset()
                if error is None:
                    continue
            wait = backoff.next(error.retry_after if error else None)
            if error is not None:
                yield self._trouble(error, wait)
            await asyncio.sleep(wait)

    async def _stream(self) -> AsyncGenerator[list[Change | None] | ApiError, None]:
        """One watch; None stands for a bookmark. An error comes last, the end of the stream is none."""
        query = self._selection | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(self._chance.uniform(*self._watching.lifetime))),
        }
        splitter = LineSplitter()
        self.watches += 1
        async with aclosing(self._transport.stream(self._path, query, self._watching.idle)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ApiError):
                    yield chunk
                    return
                self.answered_at = time.monotonic()
                if self._troubled:
                    self._troubled = False
                    yield [Resumed()]
                batch: list[Change | None] = []
                for line in splitter.feed(chunk):
                    try:
                        event = read_event(line)
                        if event.type == "ERROR":
                            yield batch
                            yield read_error(None, bytes(event.object))
                            return
                        batch += self._happened(event)
                    except UNREADABLE_ERRORS as error:
                        yield batch
                        yield ApiError(None, UNREADABLE, f"an event of {self.resource.plural}: {error}")
                        return
                yield batch

    def _happened(self, event: WatchEvent) -> list[Change | None]:
        if event.type in ("BOOKMARK", "DELETED"):
            meta = read_object(event.object).metadata
            self._version = meta.resource_version or self._version
            if event.type == "BOOKMARK":
                return [None]
            self._known.pop(meta.key, None)
            return [Deleted(meta.key, meta.uid)]
        change = upserted(event.object)
        self._version = change.version
        return [*self._told(change)]

    def _told(self, change: Upserted, seen: set[str] | None = None) -> list[Upserted | Deleted]:
        """What is new in it: nothing, the object, or first the end of another object of the same name."""
        if seen is not None:
            seen.add(change.key)
        before = self._known.get(change.key)
        if before == (change.uid, change.version):
            return []
        self._known[change.key] = change.uid, change.version
        if before is not None and before[0] != change.uid:
            return [Deleted(change.key, before[0]), change]
        return [change]

    def _trouble(self, error: ApiError, wait: float) -> list[Change]:
        self._troubled = True
        return [Troubled(error, wait)]


def _needs_list(error: ApiError) -> bool:
    """Whether the watch can't go on from where it was."""
    if error.expired or error.ahead or error.reason == UNREADABLE:
        return True
    return error.code is not None and 400 <= error.code < 500 and error.code not in _NOT_CURED_BY_A_LIST


class LineSplitter:
    """Cuts a stream of bytes into lines of any length: keeps what is left of one until the rest comes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without line ends; empty lines are left out."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
        if rest := lines.pop():
            self._parts.append(rest)
        return [line for line in lines if line]
