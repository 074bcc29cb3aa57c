"""The small HTTP server beside a long-running command: is it alive, is it ready, what has it done.

Plain HTTP without authentication, unlike kube-scheduler's secure port, which asks the API server about
whoever asks: numbers and states are told here, and no names of pods. So it listens on this machine only,
unless an address is given; in a cluster that is the pod's own, and a NetworkPolicy says who may come.
"""

from typing import Final

from aiohttp import web
from msgspec import Struct

from closeby.kube.client.faults import Fault
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters

#: kube-scheduler's port for plain HTTP, when it had one.
DEFAULT_PORT: Final = 10251
_PORTS: Final = range(65_536)
_ALIVE: Final = ("healthz", "livez")
_READY: Final = "readyz"


class Address(Struct, frozen=True):
    """Where to listen. An empty host means all addresses of this machine, port 0 any that is free."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT


#: Reachable from this machine only.
LOCAL: Final = Address()


def read_address(text: str) -> Address | Fault:
    """``HOST:PORT``, ``:PORT`` (all addresses), ``[::1]:PORT``."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    if not colon or not port.isdecimal() or int(port) not in _PORTS or (":" in bare and not bracketed):
        return Fault(
            f"{text!r} is no address to listen on", "give HOST:PORT, such as 127.0.0.1:10251 or :10251"
        )
    return Address(bare, int(port))


class Server:
    """``/healthz``, ``/livez``, ``/readyz`` and ``/metrics`` at one address, from ``open`` to ``close``."""

    def __init__(self, address: Address, health: Health, meters: Meters) -> None:
        self._address = address
        self._health = health
        self._meters = meters
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        for endpoint in (*_ALIVE, _READY):
            app.router.add_get(f"/{endpoint}", self._checks)
            app.router.add_get(f"/{endpoint}/{{check}}", self._one_check)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    @property
    def port(self) -> int:
        """The port it listens on; only while it is open."""
        return int(self._runner.addresses[0][1])

    async def open(self) -> Fault | None:
        """Begins to listen; a fault if that can't be."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host or None, self._address.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self._address.host}:{self._address.port}"
            return Fault(
                f"{where} can't be listened on: {error.strerror or error}",
                "give another one with --metrics-address",
            )
        return None

    async def close(self) -> None:
        """Answers what was asked, and listens no more."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        content, kind = self._meters.exposition(request.headers.get("Accept", ""))
        # aiohttp's own argument for the type takes no parameters, and Prometheus' version is one.
        return web.Response(body=content, headers={"Content-Type": kind})

    async def _checks(self, request: web.Request) -> web.Response:
        endpoint = request.path.strip("/")
        verdict = self._health.verdict(ready=endpoint == _READY, exclude=request.query.getall("exclude", []))
        if verdict.ok and "verbose" not in request.query:
            return web.Response(text="ok")
        return web.Response(text=verdict.text(endpoint), status=200 if verdict.ok else 500)

    async def _one_check(self, request: web.Request) -> web.Response:
        endpoint = request.path.split("/")[1]
        name = request.match_info["check"]
        check = self._health.checks(ready=endpoint == _READY).get(name)
        if check is None:
            return web.Response(text=f"there is no check {name!r}\n", status=404)
        why = check()
        return web.Response(text="ok") if why is None else web.Response(text=f"{why}\n", status=500)
