"""The HTTP server beside a long-running command, as its options ask for it."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from closeby.cli.options import Metrics
from closeby.cli.reading.inputs import Unusable
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.access import ApiReviewer, Authorizer
from closeby.kube.metrics.certificate import CertificateFiles, FileCertificate, self_signed
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import LOCAL, Server, read_address
from closeby.objects.process import Say
from closeby.objects.reasons import Problem

OFF = "off"


@asynccontextmanager
async def serving(
    asked: Metrics, health: Health, meters: Meters, say: Say, transport: Transport | None = None
) -> AsyncIterator[Server | None]:
    """Serves inside the context; None where nothing is served. ``transport`` asks who may read metrics.

    The default address may be taken, by another closeby for instance: that is only logged.

    Raises:
        Unusable: what was asked for makes no sense, or the address can't be listened on.
    """
    tls, authorizer = _security(asked, say, transport)
    if asked.address == OFF:
        yield None
        return
    address = LOCAL if asked.address is None else read_address(asked.address)
    if isinstance(address, Problem):
        raise Unusable(f"--metrics-address: {address}")
    server = Server(address, health, meters, tls=tls, authorizer=authorizer)
    fault = await server.open()
    if fault is not None:
        if asked.address is not None:
            raise Unusable(str(fault))
        say("metrics are not served", warning=True, error=fault)
        yield None
        return
    say("serving metrics", host=address.host, port=server.port, secure=asked.secure or None)
    try:
        yield server
    finally:
        await server.close()


def _security(
    asked: Metrics, say: Say, transport: Transport | None
) -> tuple[ssl.SSLContext | None, Authorizer | None]:
    """The certificate and the authorizer of ``--metrics-secure``; neither without it."""
    if (asked.tls_cert is None) != (asked.tls_key is None):
        raise Unusable("--metrics-tls-cert and --metrics-tls-key belong together; give both")
    if not asked.secure:
        if asked.tls_cert is not None:
            raise Unusable("--metrics-tls-cert is for secure metrics only; add --metrics-secure")
        return None, None
    if asked.address == OFF:
        return None, None
    if transport is None:
        raise Unusable("--metrics-secure asks the API server who may read metrics, and there is no cluster")
    if asked.tls_cert is None or asked.tls_key is None:
        tls: ssl.SSLContext | Problem = self_signed()
    else:
        tls = FileCertificate(CertificateFiles(asked.tls_cert, asked.tls_key), say).context()
    if isinstance(tls, Problem):
        raise Unusable(f"--metrics-tls-cert: {tls}")
    return tls, Authorizer(ApiReviewer(transport, say))
