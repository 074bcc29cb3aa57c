"""Writes one taint of a node, and leaves all others as they are."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import MERGE_PATCH, Request, Transport
from closeby.kube.watch.resources import NODES
from closeby.objects.nodes import Taint

_CONFLICT, _GONE = 409, 404
#: Attempts in which others may have written the node first.
_ATTEMPTS: Final = 5


class _Meta(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Spec(Struct):
    #: As they are, with fields that only others know.
    taints: list[dict[str, object]] | None = None


class _Node(Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_read: Final = msgspec.json.Decoder(_Node).decode


async def set_taint(transport: Transport, name: str, taint: Taint, *, present: bool) -> ApiError | None:
    """The node has the taint from now on, or has it no more; what the server says against it.

    The list of taints is written as a whole, and only if the node did not change since it was read. A node
    that is gone is no error.
    """
    answer: ApiError | None = None
    for _ in range(_ATTEMPTS):
        body = await transport.get(NODES.item("", name))
        if isinstance(body, ApiError):
            return None if body.code == _GONE else body
        try:
            node = _read(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return ApiError(None, UNREADABLE, f"node {name}: {error}")
        taints = _with(node.spec.taints or [], taint, present=present)
        if taints is None:
            return None
        answer = await _write(transport, name, node.metadata, taints)
        if answer is None or answer.code == _GONE:
            return None
        if answer.code != _CONFLICT:
            return answer
    return answer


def _with(
    taints: Sequence[dict[str, object]], taint: Taint, *, present: bool
) -> list[Mapping[str, object]] | None:
    """The list as it should be; None where it is so already."""
    ours = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    others: list[Mapping[str, object]] = [one for one in taints if not ours.items() <= one.items()]
    if present == (len(others) < len(taints)):
        return None
    return [*others, ours] if present else others


async def _write(
    transport: Transport, name: str, meta: _Meta, taints: Sequence[Mapping[str, object]]
) -> ApiError | None:
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": {"taints": taints or None},
    }
    answer = await transport.send(
        Request(
            method="PATCH",
            path=NODES.item("", name),
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH,
        )
    )
    return answer if isinstance(answer, ApiError) else None
