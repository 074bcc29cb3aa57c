"""Writes to the cluster what was decided: bindings, Events, conditions of pods, status of custom resources.

Every method returns what became of it. A binding can't be undone and must not be guessed about: when no
answer came, or another binding was first, the pod is read back and the answer is what stands there.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from closeby.kube.client.errors import INVALID, LATE, UNREADABLE, ApiError
from closeby.kube.client.transport import APPLY_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request, Retry, Transport
from closeby.kube.watch.resources import EVENTS, PODS, Resource
from closeby.objects.bounds import line
from closeby.objects.labels import is_label
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.scheduling.outcomes import Binding

#: What the API server takes in an Event's note, in bytes.
LONGEST_NOTE: Final = 1024
#: Bytes of a condition's message. Kubernetes takes 32 KiB; an object has several, and there are many.
LONGEST_MESSAGE: Final = 4096
#: Seconds that the server may take for a binding: as long as the answer is waited for.
BINDING_QUERY: Final = {"timeout": "30s"}
#: The namespace of Events about objects without one.
_EVENTS_OF_THE_CLUSTER: Final = "default"


class WriteResult(StrEnum):
    """What became of a write."""

    OK = "ok"
    #: The object is not as it was thought to be: read it again before anything else.
    CONFLICT = "conflict"
    #: The object is not there any more (or another one bears its name).
    GONE = "gone"
    #: It was not carried out, and may be tried again.
    RETRYABLE = "retryable"
    #: It was refused, and would be again.
    FATAL = "fatal"


class Written(Struct, frozen=True):
    """``error`` is what the server said, None if it agreed."""

    verdict: WriteResult
    error: ApiError | None = None
    #: ``resourceVersion`` that a patch led to, and the object's uid; empty where that is not known.
    version: str = ""
    uid: str = ""
    #: Whether it may have been carried out all the same, or be so yet.
    in_doubt: bool = False

    @property
    def ok(self) -> bool:
        """Whether it stands."""
        return self.verdict is WriteResult.OK


DONE: Final = Written(WriteResult.OK)
NO_ANSWER: Final = ApiError(None, LATE, "no attempt got a clear answer")


class Reference(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """As conditions name it."""
        return "/".join(filter(None, (self.kind, self.namespace, self.name)))


def pod_reference(pod: Pod) -> Reference:
    """A pod, as Events name it."""
    return Reference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)


class Note(Struct, frozen=True, kw_only=True):
    """What an Event says: one line that the API server takes."""

    #: What the reader may match on: Scheduled, FailedScheduling, ...
    reason: str
    #: What was tried: Binding, Scheduling, ...
    action: str
    text: str
    warning: bool = False

    def __post_init__(self) -> None:
        """Cuts the text."""
        force_setattr(self, "text", line(self.text, LONGEST_NOTE))


class StatusCondition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An entry of ``status.conditions``: the times are RFC 3339, the message is a line of bounded length."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int | None = None

    def __post_init__(self) -> None:
        """Cuts the message."""
        force_setattr(self, "message", line(self.message, LONGEST_MESSAGE))


class _BindingMeta(Struct, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Target(Struct, rename="camel"):
    name: str
    api_version: str = "v1"
    kind: str = "Node"


class _Binding(Struct, rename="camel"):
    metadata: _BindingMeta
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


class _EventMeta(Struct):
    name: str
    namespace: str


class _Event(Struct, rename="camel"):
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: Reference
    note: str
    type: str
    api_version: str = EVENTS.api_version
    kind: str = EVENTS.kind


class _PodStatus(Struct, rename="camel"):
    conditions: list[StatusCondition]
    nominated_node_name: str | UnsetType | None = UNSET


class _BoundMeta(Struct):
    uid: str = ""


class _BoundSpec(Struct, rename="camel"):
    node_name: str = ""


class _Bound(Struct):
    metadata: _BoundMeta
    spec: _BoundSpec


class _PatchedMeta(Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _Patched(Struct):
    metadata: _PatchedMeta


_encode: Final = msgspec.json.Encoder().encode
_read_patched: Final = msgspec.json.Decoder(_Patched).decode
_read_bound: Final = msgspec.json.Decoder(_Bound).decode


class Writer:
    """Writes in the name of one component (``controller``, such as ``closeby-scheduler``) and its replica."""

    def __init__(self, transport: Transport, controller: str, instance: str) -> None:
        self._transport = transport
        self._controller = controller
        self._instance = instance

    async def bind(self, bind: Binding, wanted: Callable[[], bool] | None = None) -> Written:
        """Puts the pod on its node, with its labels and annotations, in one write.

        OK means that this very pod (by uid) is on this node. ``wanted`` is asked when it is about to be sent.
        """
        pod = bind.pod
        if (refused := wrong_label(bind)) is not None:
            return refused
        body = _Binding(
            _BindingMeta(
                pod.name, pod.namespace, pod.uid, bind.pod_labels or None, bind.pod_annotations or None
            ),
            _Target(bind.node),
        )
        answer = await self._transport.send(
            Request(
                method="POST",
                path=PODS.item(pod.namespace, pod.name, "binding"),
                # The server does not go on with what no client waits for any more.
                query=BINDING_QUERY,
                body=_encode(body),
                # The binder asks before each attempt whether it may still be made.
                retry=Retry.NEVER,
                wanted=wanted,
            )
        )
        if not isinstance(answer, ApiError):
            return DONE
        if answer.passing and not answer.unsent:
            found = await self._read_back(bind, answer)
            return replace(found, in_doubt=found.verdict is WriteResult.RETRYABLE)
        return await self._read_back(bind, answer) if answer.code == 409 else judge(answer)

    async def look(self, bind: Binding) -> Written:
        """What became of attempts to bind that got no clear answer.

        RETRYABLE means that they had no effect; or, where it is in doubt, that the pod could not be read.
        """
        found = await self._read_back(bind, NO_ANSWER)
        unread = found.verdict is WriteResult.RETRYABLE and found.error is not NO_ANSWER
        return replace(found, in_doubt=unread)

    async def event(self, regarding: Reference, note: Note, now: float) -> Written:
        """Tells users what happened; ``now`` is in seconds since the epoch."""
        namespace = regarding.namespace or _EVENTS_OF_THE_CLUSTER
        body = _Event(
            metadata=_EventMeta(f"{regarding.name[:230]}.{secrets.token_hex(8)}", namespace),
            event_time=utc(now, "microseconds"),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=note.action,
            reason=note.reason,
            regarding=regarding,
            note=note.text,
            type="Warning" if note.warning else "Normal",
        )
        answer = await self._transport.send(
            Request(method="POST", path=EVENTS.collection(namespace), body=_encode(body))
        )
        if isinstance(answer, ApiError) and answer.reason != "AlreadyExists":
            return judge(answer)
        # The name is ours alone: where it exists, an earlier attempt was carried out.
        return DONE

    async def pod_conditions(
        self, pod: Pod, conditions: Sequence[StatusCondition], nominated: str | UnsetType | None = UNSET
    ) -> Written:
        """Sets these conditions of a pod, and its nominated node (None: it has none); all else is left."""
        # A merge patch would replace the list as a whole; pods, unlike custom resources, know its keys.
        body = {"metadata": {"uid": pod.uid}, "status": _PodStatus(list(conditions), nominated)}
        return await self._patch(PODS.item(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)

    async def status(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        status: Mapping[str, object],
        version: str | None = None,
    ) -> Written:
        """Merges ``status`` into a custom resource's: lists are replaced, None removes a field.

        With ``version`` (its ``resourceVersion``) only if it did not change since: CONFLICT otherwise.
        """
        body: dict[str, object] = {"status": status}
        if version is not None:
            body["metadata"] = {"resourceVersion": version}
        part = "status" if resource.status else ""
        return await self._patch(resource.item(namespace, name, part), body, MERGE_PATCH)

    async def apply_status(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        status: Mapping[str, object],
        version: str | None = None,
    ) -> Written:
        """Server-side apply: this is all that we say in the status of an object.

        What we said before and say no more is removed; what others said is left alone, also in lists of
        conditions. With ``version`` only if the object did not change since: CONFLICT otherwise. Of custom
        resources the server compares no uid when a status is written: only with a version is it sure to be
        that of this very object, and not of one that was recreated under its name.
        """
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        if version is not None:
            metadata["resourceVersion"] = version
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "status": status,
        }
        query = {"fieldManager": self._controller, "force": "true"}
        return await self._patch(resource.item(namespace, name, "status"), body, APPLY_PATCH, query)

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, object]) -> Written:
        """Makes an object; CONFLICT when there is one of its name, GONE when its kind is not served."""
        answer = await self._transport.send(
            Request(method="POST", path=resource.collection(namespace), body=_encode(body))
        )
        return judge(answer) if isinstance(answer, ApiError) else _patched(answer)

    async def set_metadata(
        self, resource: Resource, namespace: str, name: str, version: str, metadata: Mapping[str, object]
    ) -> Written:
        """Merges ``metadata`` into an object's, if that did not change since ``version``: else CONFLICT."""
        body = {"metadata": {**metadata, "resourceVersion": version}}
        return await self._patch(resource.item(namespace, name), body, MERGE_PATCH)

    async def _patch(
        self, path: str, body: object, content_type: str, query: Mapping[str, str] = {}
    ) -> Written:
        answer = await self._transport.send(
            Request(method="PATCH", path=path, query=query, body=_encode(body), content_type=content_type)
        )
        return judge(answer) if isinstance(answer, ApiError) else _patched(answer)

    async def _read_back(self, bind: Binding, said: ApiError) -> Written:
        """Where the pod is, after a binding that may or may not have been carried out."""
        body = await self._transport.get(PODS.item(bind.pod.namespace, bind.pod.name))
        if isinstance(body, ApiError):
            # It is not known: another attempt gets the answer.
            return judge(body)
        try:
            found = _read_bound(body)
        except msgspec.DecodeError as error:
            return Written(WriteResult.RETRYABLE, ApiError(None, UNREADABLE, str(error)))
        if found.metadata.uid != bind.pod.uid:
            return Written(WriteResult.GONE, said)
        if not found.spec.node_name:
            return Written(WriteResult.RETRYABLE if said.passing else WriteResult.CONFLICT, said)
        return DONE if found.spec.node_name == bind.node else Written(WriteResult.CONFLICT, said)


def wrong_label(bind: Binding) -> Written | None:
    """The server would take it with the binding, and then refuse every later change of the pod."""
    wrong = [key for key, value in bind.labels.items() if not is_label(key, value)]
    if not wrong:
        return None
    message = f"{wrong[0]}={bind.labels[wrong[0]]} is not a label"
    return Written(WriteResult.FATAL, ApiError(None, INVALID, message, unsent=True))


def moment(time: object) -> float | None:
    """A time as Kubernetes writes it, in seconds since the epoch; None when it is none."""
    if not isinstance(time, str):
        return None
    try:
        return datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _patched(answer: bytes) -> Written:
    try:
        found = _read_patched(answer).metadata
    except msgspec.DecodeError:
        return DONE
    return Written(WriteResult.OK, version=found.resource_version, uid=found.uid)


def judge(error: ApiError) -> Written:
    """What an error of a write amounts to."""
    # A patch that names the object's uid meets another object of the same name.
    another = any(cause.field == "metadata.uid" for cause in error.details.causes)
    if error.code == 404 or another:
        return Written(WriteResult.GONE, error)
    if error.code == 409:
        return Written(WriteResult.CONFLICT, error)
    return Written(WriteResult.RETRYABLE if error.passing else WriteResult.FATAL, error)
