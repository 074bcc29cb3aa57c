"""The HTTP server beside a long-running command, as its option asks for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from closeby.cli.reading.inputs import Unusable
from closeby.kube.client.faults import Fault
from closeby.kube.client.saying import Say
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import LOCAL, Server, read_address

OFF = "off"


@asynccontextmanager
async def serving(
    asked: str | None, health: Health, meters: Meters, say: Say
) -> AsyncIterator[Server | None]:
    """Serves inside the context; None where nothing is served.

    An address that nobody asked for may be taken, by another closeby for instance: that is told, and no more.

    Raises:
        Unusable: the address that was asked for makes no sense or can't be listened on.
    """
    if asked == OFF:
        yield None
        return
    address = LOCAL if asked is None else read_address(asked)
    if isinstance(address, Fault):
        raise Unusable(f"--metrics-address: {address}")
    server = Server(address, health, meters)
    fault = await server.open()
    if fault is not None:
        if asked is not None:
            raise Unusable(str(fault))
        say("metrics are not served", warning=True, error=fault)
        yield None
        return
    say("serving metrics", host=address.host, port=server.port)
    try:
        yield server
    finally:
        await server.close()
