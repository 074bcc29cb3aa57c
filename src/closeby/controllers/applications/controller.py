"""Keeps the status of every AppGroup: its order, its pods and what is wrong with it.

The network-aware scheduling KEP's AppGroup controller, for the KEP's objects and the published ones. Only
status is written. Nothing else in closeby needs it, for the scheduler works all of this out for itself: it is
there for people and for other tools.
"""

import time
from collections.abc import Hashable
from typing import Final

from msgspec.structs import replace

from closeby.applications.networks import Choice
from closeby.applications.registry import app_group_key
from closeby.controllers.applications.networks import KnownNetworks
from closeby.controllers.applications.status import (
    Calculation,
    Member,
    app_group_status,
    calculated,
    member,
    problems_of,
)
from closeby.controllers.counting import COSTS_KNOWN, Counting, costs_condition, costs_problem
from closeby.controllers.running import News
from closeby.controllers.statuses import Key, SeenStatus, desired_status, namespace_of, seen, validity
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.changes import Deleted
from closeby.kube.watch.resources import PODS, Resource, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import StatusWriter
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.writer import Note, Reference, Writer
from closeby.objects.applications import AppGroup
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.objects.reasons import Condition

#: Pods come and go together: their changes are gathered so long (seconds).
_GATHERED: Final = 0.5


class AppGroupController:
    """A reconciler (see ``running``)."""

    name: Final = "app-groups"
    followed: Final = (
        Watched("scheduling.sigs.k8s.io", "AppGroup", ("v1alpha1",)),
        Watched("appgroup.diktyo.x-k8s.io", "AppGroup", ("v1alpha1",)),
        # What their calls cost stands there.
        Watched("scheduling.sigs.k8s.io", "NetworkTopology", ("v1alpha1",)),
        Watched("networktopology.diktyo.x-k8s.io", "NetworkTopology", ("v1alpha1",)),
    )

    def __init__(
        self,
        writer: Writer,
        say: Say,
        *,
        counting: Counting | None = None,
    ) -> None:
        """``counting``: which costs the scheduler goes by; None: it is unknown whether costs are known."""
        self._wish = None if counting is None else counting.wish
        self._networks = None if counting is None else KnownNetworks(counting)
        self.events = Events(writer, say)
        self.work: WorkQueue[Key] = WorkQueue(time.monotonic, namespace_of)
        self._writer = writer
        self._statuses = StatusWriter(self.work, self.events, say)
        self._groups: dict[Key, tuple[SeenStatus, AppGroup | Condition]] = {}
        #: The kinds that were listed.
        self._resources: set[Resource] = set()
        self._orders: dict[Key, Calculation] = {}
        #: By ``namespace/name`` of the group they name: pods by uid.
        self._members: dict[str, dict[str, Member]] = {}
        #: Which group a pod names, by its uid.
        self._names: dict[str, str] = {}

    def observe(self, news: News) -> None:
        """Takes in one change."""
        if news.resource == PODS:
            self._pod(news)
        elif news.resource.kind == "AppGroup":
            self._group(news.resource, news)
        elif news.resource.kind == "NetworkTopology" and self._networks is not None:
            self._network(self._networks.observe(news), news.change.key)

    async def reconcile(self, key: Key) -> None:
        """Brings the status of one AppGroup up to date."""
        found = self._groups.get(key)
        if found is None:
            return
        it, group = found
        now = time.time()
        calculation = self._calculation(key, group, now)
        members = self._members.get(it.key, {}).values()
        wanted = app_group_status(it, group, calculation, members)
        choice = self._choice(it, group)
        if it.is_kep and self._networks is not None:
            known = () if choice is None else (costs_condition(choice),)
            conditions, types = (*wanted.conditions, *known), wanted.types | {COSTS_KNOWN}
            wanted = replace(wanted, conditions=conditions, types=types)
        problem = None if choice is None or it.is_kep else costs_problem(it.key, choice)
        problems = (*problems_of(group, calculation, members), *([problem] if problem else ()))
        events: dict[Hashable, Note] = {}
        if problems and not it.is_kep:
            # The published shape has no conditions.
            text = validity(problems, None).message
            events[text] = Note(reason=str(problems[0].reason), action="Reconciling", text=text, warning=True)
        await self._statuses.keep(key, desired_status(self._writer, it, wanted, now, events))

    def regarding(self, key: Key) -> Reference | None:
        """The AppGroup."""
        found = self._groups.get(key)
        return None if found is None else found[0].reference

    def _group(self, resource: Resource, news: News) -> None:
        key = resource, news.change.key
        if isinstance(news.change, Deleted):
            for known in (self._groups, self._orders):
                known.pop(key, None)
            self._statuses.forget(key)
            return
        group = _read(news)
        if group is not None:
            self._resources.add(resource)
            self._groups[key] = seen(resource, news.change), group
            self.work.add(key)

    def _pod(self, news: News) -> None:
        uid = news.change.uid
        name: str | None = None
        now: Member | None = None
        match news.read:
            case Decoded(record=Pod() as pod):
                name, now = app_group_key(pod), member(pod)
            case Condition():
                # It is as it was, as far as is known.
                return
        before = self._names.get(uid)
        if before is None and name is None:
            return
        if before is not None and before != name:
            del self._names[uid]
            self._members[before].pop(uid)
            if not self._members[before]:
                del self._members[before]
            self._changed(before)
        if name is not None and now is not None:
            self._names[uid] = name
            pods = self._members.setdefault(name, {})
            if pods.get(uid) != now:
                pods[uid] = now
                self._changed(name)

    def _network(self, everywhere: bool | None, key: str) -> None:
        """Another NetworkTopology counts, for all AppGroups or for those beside it."""
        if everywhere is None:
            return
        namespace = key.partition("/")[0]
        for one in self._groups:
            if everywhere or namespace_of(one) == namespace:
                self.work.add(one, after=_GATHERED)

    def _choice(self, it: SeenStatus, group: AppGroup | Condition) -> Choice | None:
        """By which costs an application is placed; None where it has no calls, or no plugin goes by costs."""
        if self._networks is None or self._wish is None or not isinstance(group, AppGroup):
            return None
        if not any(one.dependencies for one in group.workloads):
            return None
        return self._networks.choice(it.key.partition("/")[0], self._wish)

    def _changed(self, name: str) -> None:
        for resource in self._resources:
            if (resource, name) in self._groups:
                self.work.add((resource, name), after=_GATHERED)

    def _calculation(self, key: Key, group: AppGroup | Condition, now: float) -> Calculation | None:
        found = None
        if isinstance(group, AppGroup):
            found = calculated(group, self._orders.get(key), now)
        if found is None:
            self._orders.pop(key, None)
        else:
            self._orders[key] = found
        return found


def _read(news: News) -> AppGroup | Condition | None:
    match news.read:
        case Decoded(record=AppGroup() as group):
            return group
        case Condition() as problem:
            return problem
    return None
