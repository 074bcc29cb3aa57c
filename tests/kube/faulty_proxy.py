"""A proxy before the real API server: it refuses, cuts and delays what it is told to, and passes the rest."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from tests.control_plane.access import Access

_HOP = ("Host", "Connection", "Transfer-Encoding", "Content-Length", "Keep-Alive")


@dataclass(frozen=True)
class Refuse:
    """Answers with this status; the server never hears of the request."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    reason: str = "Injected"


@dataclass(frozen=True)
class Cut:
    """Breaks the connection: before the server hears of the request, or after it carried it out."""

    carried_out: bool = False


@dataclass(frozen=True)
class Silence:
    """Begins an answer, and says nothing more."""


@dataclass(frozen=True)
class EndAtOnce:
    """Answers with this, which is nothing unless it is given, and ends."""

    body: bytes = b""


Fault = Refuse | Cut | Silence | EndAtOnce
Act = Callable[[], Awaitable[None]]


@dataclass
class _Rule:
    method: str
    part: str
    fault: Fault | Act
    times: int


@dataclass
class Proxy:
    """``seen`` counts requests by method and path; a watch counts as the method WATCH.

    ``refused`` counts the server's own refusals by status, those of watches left out. ``chance`` may give a
    fault for any request (method, path with query) that no other rule is about.
    """

    access: Access
    url: str = ""
    seen: Counter[str] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    chance: Callable[[str, str], "Fault | Act | None"] | None = None
    _rules: list[_Rule] = field(default_factory=list)
    _streams: dict[asyncio.Task[None], web.Request] = field(default_factory=dict)
    #: Set when one begins.
    _begun: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    def inject(self, method: str, part: str, fault: Fault, times: int = 1) -> None:
        """The next ``times`` requests of this method (or WATCH) with ``part`` in path or query meet it."""
        self._rules.append(_Rule(method, part, fault, times))

    def before(self, method: str, part: str, act: Act) -> None:
        """Does this before the next such request is passed on."""
        self._rules.append(_Rule(method, part, act, 1))

    def forgive(self) -> None:
        """No more faults."""
        self._rules.clear()
        self.chance = None

    async def streaming(self, part: str = "", seconds: float = 60.0) -> None:
        """Waits until a watch with ``part`` in its path is under way, which may be cut then: one that is only
        begun is not.
        """
        async with asyncio.timeout(seconds):
            while not any(part in request.path for request in self._streams.values()):
                self._begun.clear()
                await self._begun.wait()

    @property
    def clients(self) -> int:
        """Connections of clients. Without any, nothing comes any more that a process sent before its end."""
        assert self._runner is not None and self._runner.server is not None
        return len(self._runner.server.connections)

    def end_streams(self) -> None:
        """Ends all watches cleanly, as a busy server does."""
        for pump in list(self._streams):
            self._over(pump)

    def cut_streams(self) -> None:
        """Breaks the connections of all watches."""
        for pump, request in list(self._streams.items()):
            _abort(request)
            self._over(pump)

    def count(self, method: str, part: str) -> int:
        """Requests seen."""
        return sum(
            number for key, number in self.seen.items() if key.startswith(f"{method} ") and part in key
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Serves on a port of this machine."""
        connector = aiohttp.TCPConnector(ssl=self.access.tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=1 << 26)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        watching = request.query.get("watch") == "true"
        method = "WATCH" if watching else request.method
        self.seen[f"{method} {request.path}"] += 1
        fault = self._fault(method, request.path_qs)
        if callable(fault):
            await fault()
        match fault:
            case Refuse(status, headers, reason):
                said = {"kind": "Status", "code": status, "reason": reason, "message": "injected by a test"}
                return web.Response(status=status, headers=headers, body=msgspec.json.encode(said))
            case Cut(carried_out=False):
                _abort(request)
                return web.Response()
            case Silence():
                response = web.StreamResponse()
                await response.prepare(request)
                await asyncio.sleep(3600)
                return response
            case EndAtOnce(body):
                return web.Response(body=body)
        passed = CIMultiDict(request.headers)
        for name in _HOP:
            passed.popall(name, None)
        target = f"{self.access.server}{request.raw_path}"
        try:
            async with self._session.request(
                request.method, target, headers=passed, data=await request.read() or None
            ) as answer:
                return await self._passed_on(request, answer, cut=isinstance(fault, Cut))
        except aiohttp.ClientError:
            _abort(request)
            return web.Response()

    async def _passed_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, cut: bool
    ) -> web.StreamResponse:
        kept = {key: answer.headers[key] for key in ("Content-Type", "ETag") if key in answer.headers}
        if request.query.get("watch") == "true":
            return await self._stream(request, answer, kept)
        body = await answer.read()
        if answer.status >= 400:
            self.refused[answer.status] += 1
        if cut:
            _abort(request)
        return web.Response(status=answer.status, headers=kept, body=body)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)

        async def pump() -> None:
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except (aiohttp.ClientError, ConnectionError):
                # One of the two sides is gone, so the other side loses its connection too.
                _abort(request)

        task = asyncio.create_task(pump())
        self._streams[task] = request
        self._begun.set()
        try:
            await asyncio.wait([task])
        finally:
            self._over(task)
            await asyncio.gather(task, return_exceptions=True)
        return response

    def _over(self, pump: asyncio.Task[None]) -> None:
        pump.cancel()
        self._streams.pop(pump, None)

    def _fault(self, method: str, path: str) -> Fault | Act | None:
        for rule in self._rules:
            if rule.method == method and rule.part in path and rule.times > 0:
                rule.times -= 1
                return rule.fault
        return None if self.chance is None else self.chance(method, path)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
