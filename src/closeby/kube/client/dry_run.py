"""A client whose writes are checked by the server and not kept (``dryRun=All``)."""

from typing import Final

import msgspec

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Answer, Request, Transport

_READS: Final = frozenset({"GET", "HEAD"})


class DryTransport(Transport):
    """Answers as if everything had been written: rights, validation and admission are as in earnest."""

    async def exchange(self, request: Request) -> Answer | ApiError:
        """As the request, but without effect."""
        if request.method not in _READS:
            request = msgspec.structs.replace(request, query={**request.query, "dryRun": "All"})
        return await super().exchange(request)
