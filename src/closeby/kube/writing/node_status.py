"""Writes to the status of one node."""

from collections.abc import Mapping, Sequence

import msgspec

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import JSON_PATCH, Request, Transport
from closeby.kube.watch.resources import NODES


async def patch_node_status(
    transport: Transport, name: str, operations: Sequence[Mapping[str, object]]
) -> ApiError | None:
    """A JSON patch (RFC 6902) of the ``status`` subresource; what the server says against it."""
    answer = await transport.send(
        Request(
            method="PATCH",
            path=NODES.item("", name, "status"),
            body=msgspec.json.encode(operations),
            content_type=JSON_PATCH,
        )
    )
    return answer if isinstance(answer, ApiError) else None
