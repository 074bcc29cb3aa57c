"""Keeps the admission checks of Workloads: asks the scheduler for places, and copies what it answers.

It decides nothing itself. For each Workload with a quota whose check is ours there is one PodGroup in
closeby's own namespace; the scheduler places it, holds the places and says so in its status.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.controllers.admission.kueue_objects import (
    KUEUE,
    Check,
    CheckState,
    Flavor,
    Object,
    QueuedWorkload,
    read_check,
    read_flavor,
    read_workload,
)
from closeby.controllers.admission.place_requests import (
    MANAGER,
    PlaceRequest,
    places_for,
    pod_set_updates,
    read_request,
)
from closeby.controllers.admission.verdicts import (
    PENDING,
    READY,
    RETRY,
    AdmissionLimits,
    CheckVerdict,
    verdict_on,
    verdict_without_request,
)
from closeby.controllers.running import News
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import APPLY_PATCH, Request, Transport
from closeby.kube.client.waiting import RequestPace
from closeby.kube.watch.changes import Upserted
from closeby.kube.watch.resources import Resource, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.writer import Reference, StatusCondition, Writer, Written, moment
from closeby.kube.writing.writer import WriteResult as Outcome
from closeby.objects.bounds import clipped
from closeby.objects.labels import PLACEMENT
from closeby.objects.process import Say
from closeby.objects.quantities import utc
from closeby.reading.decoding.keys import MANAGED_BY

#: Kind and ``namespace/name`` of what is to be looked at: a check, or a Workload.
Key = tuple[str, str]

_CHECK: Final = "AdmissionCheck"
_WORKLOAD: Final = "Workload"
_FLAVOR: Final = "ResourceFlavor"
_VERSIONS: Final = ("v1beta2", "v1beta1")
_POD_GROUPS: Final = Resource(
    group="closeby.dev", version="v1alpha1", kind="PodGroup", plural="podgroups", namespaced=True
)
_LONGEST: Final = 1024
_NOT_FOUND: Final = 404
#: Between two attempts at one object (seconds); most fail because Kueue wrote meanwhile.
_PACE: Final = RequestPace(0.1, 10.0)
_encode: Final = msgspec.json.Encoder().encode


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """Whose pods are placed, and where that is asked for."""

    namespace: str
    scheduler_name: str = "closeby"
    #: ``spec.controllerName`` of the AdmissionChecks that are ours.
    controller_name: str = PLACEMENT
    limits: AdmissionLimits = AdmissionLimits()


class AdmissionChecks:
    """A reconciler (see ``running``)."""

    name: Final = "admission-checks"
    followed: Final = (
        Watched(KUEUE, _CHECK, _VERSIONS),
        Watched(KUEUE, _WORKLOAD, _VERSIONS),
        Watched(KUEUE, _FLAVOR, _VERSIONS),
        Watched("closeby.dev", "PodGroup", ("v1alpha1",)),
    )

    def __init__(
        self,
        transport: Transport,
        writer: Writer,
        say: Say,
        settings: AdmissionSettings,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``now`` is in seconds since the epoch."""
        self._transport = transport
        self._writer = writer
        self._say = say
        self._settings = settings
        self._now = now
        self.events = Events(writer, say)
        self.work: WorkQueue[Key] = WorkQueue(time.monotonic, lambda key: key[1].rpartition("/")[0], _PACE)
        self._resources: dict[str, Resource] = {}
        #: By name, those that are ours.
        self._checks: dict[str, Check] = {}
        self._flavors: dict[str, Flavor] = {}
        #: By ``namespace/name``.
        self._workloads: dict[str, QueuedWorkload] = {}
        #: The PodGroups that ask for places, by name; and their names by Workload.
        self._requests: dict[str, PlaceRequest] = {}
        self._requests_of: dict[str, set[str]] = {}

    # What happens

    def observe(self, news: News) -> None:
        """Takes in one change."""
        resource, change = news.resource, news.change
        raw = change.raw if isinstance(change, Upserted) else None
        if resource.group == KUEUE:
            self._resources[resource.kind] = resource
        match resource.group, resource.kind:
            case (str(group), str(kind)) if group == KUEUE and kind == _CHECK:
                self._check(change.key, None if raw is None else read_check(raw))
            case (str(group), str(kind)) if group == KUEUE and kind == _FLAVOR:
                self._flavor(change.key, None if raw is None else read_flavor(raw))
            case (str(group), str(kind)) if group == KUEUE and kind == _WORKLOAD:
                if raw is None:
                    self._workloads.pop(change.key, None)
                else:
                    self._workloads[change.key] = read_workload(raw)
                self.work.add((_WORKLOAD, change.key))
            case "closeby.dev", "PodGroup":
                self._request(change.key, None if raw is None else read_request(raw))

    def _check(self, name: str, check: Check | None) -> None:
        known = name in self._checks
        if check is None or check.spec.controller_name != self._settings.controller_name:
            self._checks.pop(name, None)
        else:
            self._checks[name] = check
            self.work.add((_CHECK, name))
        if known is not (name in self._checks):
            self._requeue_all()

    def _flavor(self, name: str, flavor: Flavor | None) -> None:
        if flavor is None:
            self._flavors.pop(name, None)
        else:
            self._flavors[name] = flavor
        for key, workload in self._workloads.items():
            if name in workload.flavors():
                self.work.add((_WORKLOAD, key))

    def _request(self, key: str, request: PlaceRequest | None) -> None:
        namespace, _, name = key.partition("/")
        if namespace != self._settings.namespace:
            return
        before = self._requests.pop(name, None)
        if request is not None and request.ours:
            self._requests[name] = request
            self._requests_of.setdefault(request.workload, set()).add(name)
            self.work.add((_WORKLOAD, request.workload))
        elif before is not None:
            self._asks_no_more(before, name)
            self.work.add((_WORKLOAD, before.workload))

    def _asks_no_more(self, request: PlaceRequest, name: str) -> None:
        names = self._requests_of.get(request.workload, set())
        names.discard(name)
        if not names:
            self._requests_of.pop(request.workload, None)

    def _requeue_all(self) -> None:
        for key in self._workloads:
            self.work.add((_WORKLOAD, key))

    # What is done about it

    def regarding(self, key: Key) -> Reference | None:
        """The check or the Workload."""
        kind, name = key
        resource = self._resources.get(kind)
        found = self._checks.get(name) if kind == _CHECK else self._workloads.get(name)
        if resource is None or found is None:
            return None
        meta = found.metadata
        return Reference(
            api_version=resource.api_version,
            kind=kind,
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
        )

    async def reconcile(self, key: Key) -> None:
        """Brings one check, or the checks of one Workload, up to date."""
        kind, name = key
        error = await (self._keep_active(name) if kind == _CHECK else self._keep(name))
        if error is None:
            self.work.done(key)
        else:
            self.work.failed(key, error.retry_after)
            if error.code not in (409, _NOT_FOUND):
                self._say("admission check not written", warning=True, object=f"{kind}/{name}", error=error)

    async def _keep_active(self, name: str) -> ApiError | None:
        """Kueue gives no quota by a check that is not active."""
        check, resource = self._checks.get(name), self._resources.get(_CHECK)
        if check is None or resource is None:
            return None
        message = "closeby's admission checks are at work"
        if check.spec.parameters is not None:
            message += "; spec.parameters is not read: remove it, as there is nothing to set"
        for one in check.status.conditions or ():
            if one.type == "Active" and one.status == "True" and one.message == message:
                return None
        condition = StatusCondition(
            type="Active",
            status="True",
            reason="Active",
            message=message,
            last_transition_time=utc(self._now()),
            observed_generation=check.metadata.generation,
        )
        status = {"conditions": [condition]}
        written = await self._writer.apply_status(resource, "", name, check.metadata.uid, status)
        return _error(written)

    async def _keep(self, key: str) -> ApiError | None:
        workload = self._workloads.get(key)
        states = [] if workload is None else workload.checks(self._checks)
        wanted = workload is not None and workload.wants_places and bool(states)
        foreign = workload is not None and workload.schedulers() != {self._settings.scheduler_name}
        asks = wanted and not foreign and not any(one.state == RETRY for one in states)
        for name in tuple(self._requests_of.get(key, ())):
            if (not asks or workload is None or name != workload.request_name) and name in self._requests:
                error = await self._withdraw(name)
                if error is not None:
                    return error
        if workload is None:
            return None
        if not wanted:
            without = workload.condition("QuotaReserved") is None and workload.condition("Finished") is None
            if without and any(one.state == READY for one in states):
                return await self._answer(workload, states, _without_quota)
            return None
        if foreign:
            return await self._answer(workload, states, lambda before: _of_others(before, workload))
        if not asks:
            return None
        waited, limits = self._waited(workload), self._settings.limits
        unknown = sorted(workload.flavors() - self._flavors.keys())
        if unknown:
            # It says where the pods may go; its watch may lag behind that of the Workloads.
            return await self._not_asked(workload, states, f"ResourceFlavor {unknown[0]} is not known yet")
        body = places_for(workload, self._flavors, self._checks)
        request = self._requests.get(workload.request_name)
        if request is None or request.spec.places_for != body:
            # What the scheduler said of it before counts no more.
            refused = await self._ask(workload, body)
            if refused is not None:
                why = f"the PodGroup that asks for places could not be written: {_told(refused)}"
                await self._not_asked(workload, states, why)
            return refused
        answer = request.answer
        error = await self._answer(
            workload, states, lambda before: verdict_on(before, answer, waited, limits)
        )
        if error is None:
            self._look_at_the_deadline(workload, states)
        return error

    async def _not_asked(
        self, workload: QueuedWorkload, states: list[CheckState], why: str
    ) -> ApiError | None:
        """The scheduler can't be asked: the quota comes to an end by its deadline all the same."""
        waited, limits = self._waited(workload), self._settings.limits
        error = await self._answer(
            workload, states, lambda before: verdict_without_request(before, why, waited, limits)
        )
        if error is None:
            self._look_at_the_deadline(workload, states)
        return error

    def _look_at_the_deadline(self, workload: QueuedWorkload, states: list[CheckState]) -> None:
        left = self._settings.limits.deadline - self._waited(workload)
        if left > 0 and any(one.state == PENDING for one in states):
            self.work.add((_WORKLOAD, workload.key), after=left)

    def _waited(self, workload: QueuedWorkload) -> float:
        """Seconds since it has its quota."""
        condition = workload.condition("QuotaReserved")
        since = None if condition is None else moment(condition.last_transition_time)
        return 0.0 if since is None else max(self._now() - since, 0.0)

    async def _answer(
        self, workload: QueuedWorkload, states: list[CheckState], judge: Callable[[str], CheckVerdict | None]
    ) -> ApiError | None:
        """Writes what our checks are to say, where they do not say it."""
        resource = self._resources[_WORKLOAD]
        verdicts = {one.name: judge(one.state) for one in states}
        # From then on pods take their places, and how many are still held is nothing to write each time.
        admitted = workload.condition("Admitted") is not None
        said = []
        news = False
        for one in states:
            verdict = verdicts[one.name]
            if verdict is None:
                return None
            message = clipped(verdict.message, _LONGEST)
            same = one.state == verdict.state
            news = news or not same or (not admitted and one.message != message)
            entry: dict[str, object] = {
                "name": one.name,
                "state": verdict.state,
                "message": message,
                "lastTransitionTime": one.last_transition_time if same else utc(self._now()),
            }
            if verdict.state == READY:
                entry["podSetUpdates"] = pod_set_updates(workload)
            if verdict.requeue_after is not None:
                entry["requeueAfterSeconds"] = verdict.requeue_after
            said.append(entry)
        if not news:
            return None
        meta = workload.metadata
        written = await self._writer.apply_status(
            resource,
            meta.namespace,
            meta.name,
            meta.uid,
            {"admissionChecks": said},
            meta.resource_version,
        )
        if written.ok:
            for entry in said:
                self._say(
                    "admission check",
                    workload=workload.key,
                    check=entry["name"],
                    state=entry["state"],
                    why=entry["message"],
                )
        return _error(written)

    # The PodGroups that ask

    async def _ask(self, workload: QueuedWorkload, body: Object) -> ApiError | None:
        name, namespace = workload.request_name, self._settings.namespace
        made: Mapping[str, object] = {
            "apiVersion": _POD_GROUPS.api_version,
            "kind": _POD_GROUPS.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
            "spec": {"placesFor": body},
        }
        answer = await self._transport.send(
            Request(
                method="PATCH",
                path=_POD_GROUPS.item(namespace, name),
                query={"fieldManager": MANAGER, "force": "true"},
                body=_encode(made),
                content_type=APPLY_PATCH,
            )
        )
        if isinstance(answer, ApiError):
            return answer
        request, known = read_request(answer), self._requests.get(name)
        if known is None or known.metadata.uid != request.metadata.uid or known.older_than(request):
            self._requests[name] = request
        # Else the watch was faster than this answer, and knows what the scheduler said since.
        self._requests_of.setdefault(workload.key, set()).add(name)
        self._say("places asked for", workload=workload.key, group=f"{namespace}/{name}")
        deadline = self._settings.limits.deadline
        self.work.add((_WORKLOAD, workload.key), after=max(deadline - self._waited(workload), 0.0))
        return None

    async def _withdraw(self, name: str) -> ApiError | None:
        path = _POD_GROUPS.item(self._settings.namespace, name)
        answer = await self._transport.send(Request(method="DELETE", path=path))
        if isinstance(answer, ApiError) and answer.code != _NOT_FOUND:
            return answer
        request = self._requests.pop(name, None)
        if request is not None:
            self._asks_no_more(request, name)
            self._say("places given back", workload=request.workload)
        return None


def _without_quota(before: str) -> CheckVerdict | None:
    """Kueue takes some quotas back without an eviction: the next one must not find the check ready."""
    if before not in (PENDING, READY):
        return None
    return CheckVerdict(state=PENDING, message="it has no quota any more, and no places")


def _of_others(before: str, workload: QueuedWorkload) -> CheckVerdict | None:
    """Pods of another scheduler are none of ours to place."""
    if before not in (PENDING, READY):
        return None
    names = ", ".join(sorted(workload.schedulers()))
    return CheckVerdict(state=READY, message=f"closeby holds no places: its pods name the scheduler {names}")


def _error(written: Written) -> ApiError | None:
    if written.ok or written.verdict is Outcome.GONE:
        return None
    return written.error or ApiError(None, "NotWritten", "it was not written")


def _told(error: ApiError) -> str:
    """An error in words; where no such kind is served, the API server does not say so itself."""
    if error.code == _NOT_FOUND and error.reason != "NotFound":
        kind = f"{_POD_GROUPS.kind} of {_POD_GROUPS.api_version}"
        return f"the API server does not serve {kind}: install closeby's definitions (deploy/crds)"
    return str(error)
