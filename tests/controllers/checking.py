"""`closeby controllers --only admission-checks` at work, for tests with Kueue and without."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.client.transport import Transport
from closeby.kube.writing.writer import Writer
from closeby.objects.process import Say


@contextlib.asynccontextmanager
async def checking(
    transport: Transport,
    say: Say,
    settings: AdmissionSettings,
    kind: type[AdmissionChecks] = AdmissionChecks,
) -> AsyncIterator[None]:
    """It is at work inside the context."""
    checks = kind(transport, Writer(transport, "closeby-controllers", "a-test"), say, settings)
    runner = ControllerRunner(transport, [checks], Running(discover_every=0.5), say)
    stop = asyncio.Event()
    work = asyncio.create_task(runner.run(stop))
    try:
        async with asyncio.timeout(60):
            await runner.ready.wait()
        yield
    finally:
        stop.set()
        async with asyncio.timeout(60):
            assert await work is None
