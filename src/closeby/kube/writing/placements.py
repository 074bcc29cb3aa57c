"""Gives pods their nodes on clusters whose own scheduler binds: the other kind of write beside a binding.

One write adds the node to each term of the pod's required node affinity, labels the pod as a binding would,
and removes our scheduling gate. The API server lets the affinity of a gated pod only become narrower: no term
may be added to those that are there, and one that asks for nothing matches no node and stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from closeby.kube.client.errors import UNREADABLE, ApiError, decoded
from closeby.kube.client.transport import MERGE_PATCH, Request, Retry, Transport
from closeby.kube.watch.resources import PODS
from closeby.kube.writing.writer import (
    BINDING_QUERY,
    DONE,
    NO_ANSWER,
    WriteResult,
    Written,
    judge,
    wrong_label,
)
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from closeby.scheduling.outcomes import Binding

#: Times that a write is repeated at once after a conflict.
_CONFLICTS: Final = 10
_CONFLICT: Final = 409
#: The gate is gone, and the pod is not where it was to go.
_TAKEN: Final = "GateRemoved"

_Term = dict[str, Any]


class _Gate(Struct):
    name: str = ""


class _Selector(Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Struct):
    required: _Selector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Spec(Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[_Gate] | None = None
    affinity: _Affinity | None = None


class _Meta(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Found(Struct):
    """A pod as the server has it."""

    metadata: _Meta
    spec: _Spec

    @property
    def gates(self) -> list[str]:
        return [gate.name for gate in self.spec.scheduling_gates or ()]

    @property
    def terms(self) -> list[_Term]:
        affinity = self.spec.affinity and self.spec.affinity.node_affinity
        return (affinity and affinity.required and affinity.required.node_selector_terms) or []


_encode: Final = msgspec.json.Encoder().encode
_read: Final = msgspec.json.Decoder(_Found).decode


class BindingWrites(Protocol):
    """How a pod gets its node: by a binding (``Writer``), or by what another scheduler binds it by."""

    async def bind(self, bind: Binding, wanted: Callable[[], bool] | None = None) -> Written:
        """Makes one attempt; ``wanted`` is asked when it is about to be sent."""

    async def look(self, bind: Binding) -> Written:
        """What became of attempts that got no clear answer; RETRYABLE: no effect, or in doubt."""


class PlacementWriter:
    """Writes placements as ``Writer`` writes bindings: what it returns means the same."""

    def __init__(
        self,
        transport: Transport,
        sending: Callable[[str, str], None],
        not_sent: Callable[[str], None],
    ) -> None:
        """``sending`` gets uid and node before a write that may have an effect; ``not_sent``: it had none."""
        self._transport = transport
        self._sending = sending
        self._not_sent = not_sent

    async def bind(self, bind: Binding, wanted: Callable[[], bool] | None = None) -> Written:
        """Places the pod and removes its gate. ``wanted`` is asked when it is about to be sent.

        OK means that this very pod (by uid) can go to this node alone, and is kept back by no gate of ours.
        """
        if (refused := wrong_label(bind)) is not None:
            return refused
        for _ in range(_CONFLICTS):
            found = await self._now(bind)
            if not isinstance(found, _Found):
                return found
            if (ended := _ended(found, bind, NO_ANSWER)) is not None:
                return ended
            self._sending(bind.pod.uid, bind.node)
            error = await self._send(bind, found, wanted)
            if error is None:
                return DONE
            if error.passing and not error.unsent:
                looked = await self._look(bind, error)
                return replace(looked, in_doubt=looked.verdict is WriteResult.RETRYABLE)
            self._not_sent(bind.pod.uid)
            if error.code != _CONFLICT:
                return judge(error)
        return Written(WriteResult.RETRYABLE, error)

    async def look(self, bind: Binding) -> Written:
        """What became of attempts that got no clear answer.

        RETRYABLE means that they had no effect; or, where it is in doubt, that the pod could not be read.
        """
        found = await self._look(bind, NO_ANSWER)
        unread = found.verdict is WriteResult.RETRYABLE and found.error is not NO_ANSWER
        if not unread and not found.ok:
            self._not_sent(bind.pod.uid)
        return replace(found, in_doubt=unread)

    async def _look(self, bind: Binding, said: ApiError) -> Written:
        found = await self._now(bind)
        if not isinstance(found, _Found):
            return found
        return _ended(found, bind, said) or Written(WriteResult.RETRYABLE, said)

    async def _now(self, bind: Binding) -> _Found | Written:
        body = await self._transport.get(PODS.item(bind.pod.namespace, bind.pod.name))
        if isinstance(body, ApiError):
            return judge(body)
        try:
            return decoded(_read, body)
        except msgspec.DecodeError as error:
            return Written(WriteResult.RETRYABLE, ApiError(None, UNREADABLE, str(error)))

    async def _send(self, bind: Binding, found: _Found, wanted: Callable[[], bool] | None) -> ApiError | None:
        answer = await self._transport.send(
            Request(
                method="PATCH",
                path=PODS.item(bind.pod.namespace, bind.pod.name),
                query=BINDING_QUERY,
                body=_encode(_patch(bind, found)),
                content_type=MERGE_PATCH,
                retry=Retry.NEVER,
                wanted=wanted,
            )
        )
        return answer if isinstance(answer, ApiError) else None


def _ended(found: _Found, bind: Binding, said: ApiError) -> Written | None:
    """What is known without a write; None where the pod waits for one."""
    if found.metadata.uid != bind.pod.uid:
        return Written(WriteResult.GONE, said)
    if PLACEMENT_GATE in found.gates:
        return None
    on, annotated = found.spec.node_name, (found.metadata.annotations or {}).get(PLACED_ON)
    pinned = bool(found.terms) and found.terms == narrowed(found.terms, bind.node)
    if on == bind.node or (not on and annotated == bind.node and pinned):
        return DONE
    message = f"the pod has no gate {PLACEMENT_GATE} any more, and was not placed on {bind.node}"
    return Written(WriteResult.CONFLICT, ApiError(None, _TAKEN, message, unsent=True))


def _patch(bind: Binding, found: _Found) -> Mapping[str, object]:
    left = [{"name": name} for name in found.gates if name != PLACEMENT_GATE]
    terms = {"nodeSelectorTerms": narrowed(found.terms, bind.node)}
    return {
        "metadata": {
            "uid": found.metadata.uid,
            "resourceVersion": found.metadata.resource_version,
            "labels": bind.pod_labels,
            "annotations": {**bind.pod_annotations, PLACED_ON: bind.node},
        },
        "spec": {
            "schedulingGates": left or None,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        },
    }


def narrowed(terms: Sequence[_Term], node: str) -> list[_Term]:
    """The terms so that they hold on this node alone; one of its own where there are none."""
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    if not terms:
        return [{"matchFields": [pin]}]
    narrow = []
    for term in terms:
        fields = term.get("matchFields") or []
        asks = fields or term.get("matchExpressions")
        narrow.append({**term, "matchFields": [*fields, pin]} if asks and pin not in fields else term)
    return narrow
