"""Whether this replica leads: of several that run only the one that holds the Lease decides and writes.

The others hear everything meanwhile, so that they can go on at once. A replica that lost the Lease ends: what
it had under way is nobody's knowledge but its own, and a new process begins with what the cluster says.
"""

import asyncio
import time
from contextlib import aclosing
from typing import Final

from closeby.kube.errors import ApiError
from closeby.kube.lease import Elector, LeaseSettings
from closeby.kube.saying import Say
from closeby.kube.transport import Transport

#: Token of the error with which a process ends that does not lead any more.
LEASE_LOST: Final = "LeaseLost"


class Lead:
    """The lead of one replica; without a Lease there is one replica only, and it leads."""

    def __init__(self, transport: Transport, settings: LeaseSettings | None, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._elector = None if settings is None else Elector(transport, settings, time.time)
        #: Set while this replica leads.
        self.held = asyncio.Event()
        if settings is None:
            self.held.set()

    @property
    def certain(self) -> bool:
        """Whether no other replica can lead at this very moment; to be asked before each binding."""
        return self.held.is_set() and (self._elector is None or self._elector.leading)

    async def campaign(self) -> ApiError | None:
        """Tries to lead, and leads; returns why it does so no more. Without a Lease it never returns.

        Cancel it once nothing is under way any more: another replica may begin at that moment.
        """
        if self._elector is None or self._settings is None:
            await asyncio.Event().wait()
            return None
        name = self._settings.name
        async with aclosing(self._elector.standings()) as standings:
            async for standing in standings:
                if standing.leading:
                    self._say("leading", lease=name)
                    self.held.set()
                elif self.held.is_set():
                    self.held.clear()
                    why = standing.error or f"{standing.holder or 'nobody'} leads now"
                    return ApiError(None, LEASE_LOST, f"{name}: {why}")
                else:
                    self._say(
                        "waits for the lead",
                        warning=standing.error is not None,
                        lease=name,
                        holder=standing.holder or None,
                        error=standing.error,
                    )
        return None
