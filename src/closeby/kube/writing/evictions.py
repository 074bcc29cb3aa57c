"""Asks the API server to evict pods, as far as their disruption budgets allow unless these are overruled."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Retry, Transport
from closeby.kube.watch.resources import PODS
from closeby.objects.pods import Pod

#: Cause of a 429 that a PodDisruptionBudget gives.
_BUDGET: Final = "DisruptionBudget"
_CONFLICT, _THROTTLED, _GONE = 409, 429, 404
#: Refusals that would be the same the next time: by rights, by a policy, of what is asked for itself.
_NEVER: Final = (400, 403, 405, 422)

_encode: Final = msgspec.json.Encoder().encode


class EvictionVerdict(Enum):
    """What became of an eviction."""

    #: The pod ends.
    AGREED = "agreed"
    #: The pod is not there any more, or another one has its name.
    GONE = "gone"
    #: A PodDisruptionBudget does not allow it now.
    BUDGET = "budget"
    #: It may succeed later. It may also have been carried out.
    LATER = "later"
    #: It was refused, and would be again.
    NEVER = "never"


class Evicted(NamedTuple):
    """What became of an eviction; ``error`` is what the server said, None if it agreed."""

    verdict: EvictionVerdict
    error: ApiError | None = None

    @property
    def agreed(self) -> bool:
        """Whether the pod ends."""
        return self.verdict is EvictionVerdict.AGREED


async def evict(
    transport: Transport,
    pod: Pod,
    *,
    only_ask: bool = False,
    overrule: bool = False,
    wanted: Callable[[], bool] | None = None,
) -> Evicted:
    """Asks once that this very pod (by uid) ends. With ``only_ask`` it does not end.

    With ``overrule`` it is deleted, whatever budgets say. ``wanted`` is asked at the moment of sending; False
    holds the request back, which is LATER.
    """
    this, named = {"preconditions": {"uid": pod.uid}}, {"name": pod.name, "namespace": pod.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named, "deleteOptions": this}
    deletion = {"apiVersion": "v1", "kind": "DeleteOptions", **this}
    answer = await transport.send(
        Request(
            method="DELETE" if overrule else "POST",
            path=PODS.item(pod.namespace, pod.name, "" if overrule else "eviction"),
            query={"dryRun": "All"} if only_ask else {},
            body=_encode(deletion if overrule else eviction),
            retry=Retry.NEVER,
            wanted=wanted,
        )
    )
    if not isinstance(answer, ApiError):
        return Evicted(EvictionVerdict.AGREED)
    if answer.code == _CONFLICT:
        return Evicted(await _after_conflict(transport, pod), answer)
    return Evicted(_verdict(answer), answer)


def _verdict(error: ApiError) -> EvictionVerdict:
    if error.code == _GONE:
        return EvictionVerdict.GONE
    if error.code == _THROTTLED and any(cause.reason == _BUDGET for cause in error.details.causes):
        return EvictionVerdict.BUDGET
    return EvictionVerdict.NEVER if error.code in _NEVER else EvictionVerdict.LATER


class _Meta(msgspec.Struct):
    uid: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta


_read: Final = msgspec.json.Decoder(_Pod).decode


async def _after_conflict(transport: Transport, pod: Pod) -> EvictionVerdict:
    """A conflict is another pod of that name, or another writer who was first."""
    return EvictionVerdict.GONE if await is_there(transport, pod) is False else EvictionVerdict.LATER


async def is_there(transport: Transport, pod: Pod) -> bool | None:
    """Whether the server still has the pod; None if it gives no answer that says so."""
    body = await transport.get(PODS.item(pod.namespace, pod.name))
    if isinstance(body, ApiError):
        return False if body.code == _GONE else None
    try:
        return _read(body).metadata.uid == pod.uid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
