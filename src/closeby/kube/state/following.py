"""Follows all kinds that a scheduler needs, also those whose definition arrives later."""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import aclosing
from typing import Final

from closeby.kube.client.errors import NO_CREDENTIALS, ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.metrics.meters import Meters
from closeby.kube.watch.changes import Change, Resumed, Synced, Troubled
from closeby.kube.watch.reflector import DEFAULT_WATCHING, Reflector, Watching
from closeby.kube.watch.resources import (
    ABOUT_OWNERS,
    ABOUT_VOLUMES,
    NODES,
    PODS,
    STORAGE,
    WATCHED,
    Arrived,
    Discovery,
    Resource,
    Watched,
)
from closeby.objects.process import Say

#: Only pods that Kueue has admitted wait for a scheduler, and those carry what their flavor asks for.
_ADMISSION: Final = frozenset({"ResourceFlavor", "ClusterQueue", "LocalQueue"})
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
#: Between two attempts to find out which kinds there are.
_UNTIL_IT_ANSWERS: Final = RequestPace(1.0, 10.0)
#: Kinds without whose present objects nothing may be decided.
_INDISPENSABLE: Final = frozenset({NODES.kind, PODS.kind, "PodGroup", "CompositePodGroup"})
#: Kinds that are followed together, from the first pod on that needs them.
_LATER: Final = (ABOUT_VOLUMES, ABOUT_OWNERS)
FOLLOWED: Final = (*(one for one in WATCHED if one.kind not in _ADMISSION), *STORAGE)


class Following:
    """Gathers the changes of all kinds, in the order they came, until they are taken."""

    def __init__(
        self,
        transport: Transport,
        say: Say,
        *,
        followed: Iterable[Watched] = FOLLOWED,
        core: Iterable[Resource] = (),
        watching: Watching = DEFAULT_WATCHING,
        discover_every: float = 10.0,
        meters: Meters | None = None,
    ) -> None:
        """``core``: kinds of the core group besides nodes and pods.

        Those about volumes, or owners, are followed from the first call of ``follow`` on.
        """
        self._meters = meters or Meters()
        self._meters.follows_anew()
        self._transport = transport
        self._say = say
        self._watching = watching
        self._discover_every = discover_every
        self._discovery = Discovery(transport, followed)
        #: Of the core group, which every server has.
        self._core = tuple(core)
        #: What is not followed yet, and the kinds of it that are served.
        self._unasked = {*_LATER}
        self._later: dict[Resource, None] = {}
        self._first: tuple[Resource, ...] = ()
        #: Of the first kinds, those whose list is not complete.
        self._incomplete: set[Resource] = set()
        #: Of all kinds that are followed, those that were never listed.
        self._unlisted: set[Resource] = set()
        #: Those that are to be listed again, and whose new list has not begun.
        self._distrusted: set[Resource] = set()
        #: Those that closeby may not see, of kinds without which nothing may be decided.
        self._denied: dict[Resource, ApiError] = {}
        self._changes: list[tuple[Resource, Change]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._followed: dict[Resource, tuple[Reflector, asyncio.Task[None]]] = {}
        self.news = asyncio.Event()

    async def look(self) -> ApiError | None:
        """Asks which kinds there are, until the server says so; an error means that it never will.

        A server that starts may refuse what it grants once it has read who has which rights.
        """
        attempts = Backoff(_UNTIL_IT_ANSWERS)
        while isinstance(served := await self._discovery.served(), ApiError):
            if served.reason == NO_CREDENTIALS or not (served.passing or served.code == _FORBIDDEN):
                return served
            wait = attempts.next(served.retry_after)
            self._say("waiting for the API server", warning=True, error=served, retry_in=f"{wait:.1f}s")
            await asyncio.sleep(wait)
        kinds = (NODES, PODS, *self._core, *served)
        self._first = tuple(one for one in kinds if not self._is_for_later(one))
        self._incomplete = set(self._first)
        return None

    async def look_again(self) -> tuple[Resource, ...] | ApiError:
        """Asks at once which kinds there are, and follows those that are new; one that is missing may be back
        soon, so that ``run`` alone says when it has left.
        """
        served = await self._discovery.served()
        if not isinstance(served, ApiError):
            for resource in served:
                self._arrived(resource)
        return served

    def follow(self, kinds: frozenset[str]) -> None:
        """Follows these kinds from now on; before all others are complete, as some of them."""
        if kinds not in self._unasked:
            return
        self._unasked.remove(kinds)
        begun = [one for one in self._later if one.kind in kinds]
        for resource in begun:
            del self._later[resource]
        if not self.complete:
            self._incomplete.update(begun)
        for resource in begun:
            self._arrived(resource)

    def follows_all(self, kinds: frozenset[str]) -> bool:
        """Whether such kinds are followed and listed, as far as that is allowed."""
        return kinds not in self._unasked and self.listed(kinds)

    def _is_for_later(self, resource: Resource) -> bool:
        if not any(resource.kind in kinds for kinds in self._unasked):
            return False
        self._later[resource] = None
        return True

    def listed(self, kinds: Collection[str]) -> bool:
        """Whether all objects of these kinds are listed that were there when the kinds were found."""
        return not any(one.kind in kinds for one in self._unlisted)

    @property
    def complete(self) -> bool:
        """Whether everything was listed that was there when following began."""
        return bool(self._first) and not self._incomplete

    @property
    def unready(self) -> str | None:
        """Which kinds' lists are not complete yet, or which may not be seen, in words; None when all are."""
        if self.complete:
            return None
        if self._denied:
            return ", ".join(f"may not see {one.plural}: {error}" for one, error in self._denied.items())
        kinds = sorted({one.plural for one in self._incomplete})
        return f"not listed yet: {', '.join(kinds) or 'which kinds there are'}"

    def follows(self, group: str, kind: str) -> bool:
        """Whether the server has this kind, as far as is known."""
        return any((one.group, one.kind) == (group, kind) for one in self._followed or self._first)

    def take(self) -> list[tuple[Resource, Change]]:
        """What came since the last call."""
        taken, self._changes = self._changes, []
        self.news.clear()
        return taken

    @property
    def pending(self) -> bool:
        """Whether something came that was not taken."""
        return bool(self._changes)

    def distrust(self) -> None:
        """Nothing may be decided by what is known so far: it is incomplete until ``refresh`` has listed it.

        A kind that a decision can do without keeps its objects where the server fails to list it again.
        """
        self._incomplete.update(self._followed)
        self._distrusted.update(self._followed)

    async def refresh(self) -> None:
        """Lists everything again: what a watch brings may be late, or come no more. Incomplete until then."""
        followed = dict(self._followed)
        self.distrust()
        for _, task in followed.values():
            task.cancel()
        if followed:
            await asyncio.wait([task for _, task in followed.values()])
        for resource, (reflector, task) in followed.items():
            if self._followed.get(resource) == (reflector, task):  # Else it has left meanwhile.
                self._restart(reflector)

    async def run(self) -> None:
        """Follows until it is cancelled; call ``look`` first."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for resource in self._first:
                self._begin(resource)
            async with aclosing(self._discovery.changes(self._discover_every)) as changes:
                async for change in changes:
                    if isinstance(change, ApiError):
                        self._say("API discovery failed", warning=True, error=change)
                    elif isinstance(change, Arrived):
                        self._arrived(change.resource)
                    else:
                        await self._end(change.resource)

    def _arrived(self, resource: Resource) -> None:
        if self._tasks is not None and resource not in self._followed and not self._is_for_later(resource):
            self._say("kind added", kind=resource.kind, api=resource.group)
            self._begin(resource)

    def _begin(self, resource: Resource) -> None:
        self._unlisted.add(resource)
        reflector = Reflector(self._transport, resource, self._watching)
        self._meters.follows(reflector)
        self._restart(reflector)

    def _restart(self, reflector: Reflector) -> None:
        if self._tasks is not None:
            self._distrusted.discard(reflector.resource)
            task = self._tasks.create_task(self._follow(reflector))
            self._followed[reflector.resource] = reflector, task

    async def _end(self, resource: Resource) -> None:
        if self._later.pop(resource, True) is None:
            return
        reflector, task = self._followed.pop(resource)
        self._meters.leaves(resource)
        task.cancel()
        await asyncio.wait([task])
        self._say("kind removed", kind=resource.kind, api=resource.group)
        self._incomplete.discard(resource)
        self._unlisted.discard(resource)
        self._distrusted.discard(resource)
        self._denied.pop(resource, None)
        self._add(resource, reflector.forget())

    def _can_do_without(self, resource: Resource, error: ApiError) -> bool:
        """Whether others may be decided about, as the server has failed to list it.

        Its objects count as they were listed last. Of the kinds that pods wait for there need be none.
        """
        if error.code is None or error.code < 500:
            return False
        known = resource not in self._unlisted and resource not in self._distrusted
        return _is_late(resource) or (known and resource.kind not in _INDISPENSABLE)

    async def _follow(self, reflector: Reflector) -> None:
        resource = reflector.resource
        async with aclosing(reflector.changes()) as batches:
            async for batch in batches:
                self._add(resource, batch)

    def _tell_rights(self, resource: Resource, change: Change) -> None:
        """Pods with claims, say, wait while closeby may not see a kind about volumes."""
        if _is_late(resource):
            self._changes.append((resource, change))

    def _add(self, resource: Resource, batch: Iterable[Change]) -> None:
        for change in batch:
            match change:
                case Synced(_, objects):
                    self._tell_rights(resource, change)
                    self._incomplete.discard(resource)
                    self._unlisted.discard(resource)
                    self._denied.pop(resource, None)
                    self._say("listed", kind=resource.kind, api=resource.group, objects=objects)
                case Troubled(error, wait):
                    if error.code in (_UNAUTHORIZED, _FORBIDDEN) and resource.kind in _INDISPENSABLE:
                        # What is known is not kept up to date: nothing is decided by it.
                        self._denied[resource] = error
                        self._incomplete.add(resource)
                    elif error.code == _FORBIDDEN:
                        # Who may not see these has none, until the right to is granted.
                        self._tell_rights(resource, change)
                        self._incomplete.discard(resource)
                        self._unlisted.discard(resource)
                    self._say(
                        "watch failed", warning=True, kind=resource.kind, error=error, retry_in=f"{wait:.1f}s"
                    )
                    if resource in self._incomplete and self._can_do_without(resource, error):
                        self._incomplete.discard(resource)
                        without = resource in self._unlisted
                        message = "going on without a list" if without else "keeping the last list"
                        self._say(message, warning=True, kind=resource.kind, api=resource.group)
                case Resumed():
                    self._tell_rights(resource, change)
                    if self._denied.pop(resource, None) is not None:
                        self._incomplete.discard(resource)
                    self._say("watch recovered", kind=resource.kind)
                case _:
                    self._changes.append((resource, change))
        self.news.set()


def _is_late(resource: Resource) -> bool:
    """Whether it is followed from the first pod on that needs it. Such pods wait until it is listed."""
    return any(resource.kind in kinds for kinds in _LATER)
