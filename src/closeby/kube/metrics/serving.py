"""The small HTTP server beside a long-running command: is it alive, is it ready, what has it done.

By default that is plain HTTP without authentication, on this machine only. With an authorizer and a
certificate it is what kube-scheduler's secure port is: TLS, and metrics only for users whom the API server
lets read them. Stories take a right of their own. Health is served to all, since the kubelet's probes bring
no token.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from msgspec import Struct

from closeby.kube.metrics.access import AccessResult, Authorizer, ProtectedPath
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.objects.bounds import quoted, whole_number
from closeby.objects.reasons import Problem
from closeby.scheduling.outcomes import ItemKind

#: kube-scheduler's port for plain HTTP, when it had one.
DEFAULT_PORT: Final = 10251
_PORTS: Final = range(65_536)
_ITEMS: Final = tuple(one.value for one in ItemKind)
_ALIVE: Final = ("healthz", "livez")
_READY: Final = "readyz"
#: Holds ``Bearer TOKEN`` for the authorizer where a request comes through the API server's proxy, which
#: removes the header Authorization.
FORWARDED_TOKEN: Final = "Closeby-Authorization"
#: Status and text of what is not allowed.
_REFUSALS: Final[Mapping[AccessResult, tuple[int, str]]] = {
    AccessResult.UNAUTHENTICATED: (401, "show a bearer token that the API server knows"),
    AccessResult.FORBIDDEN: (403, "the API server does not let you get the nonResourceURL {path}"),
    AccessResult.LIMITED: (429, "too many tokens that are not known; try again later"),
    AccessResult.UNANSWERED: (503, "the API server could not be asked who you are"),
}


class ListenAddress(Struct, frozen=True):
    """Where to listen. An empty host means all addresses of this machine, port 0 any that is free."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT


#: Reachable from this machine only.
LOCAL: Final = ListenAddress()


def read_address(text: str) -> ListenAddress | Problem:
    """``HOST:PORT``, ``:PORT`` (all addresses), ``[::1]:PORT``."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    number = whole_number(port)
    if not colon or number is None or number not in _PORTS or (":" in bare and not bracketed):
        return Problem(
            f"{quoted(text)} is not an address to listen on",
            "give HOST:PORT, such as 127.0.0.1:10251 or :10251",
        )
    return ListenAddress(bare, number)


class Server:
    """Health, ``/metrics`` and ``/stories`` at one address, from ``open`` to ``close``."""

    def __init__(
        self,
        address: ListenAddress,
        health: Health,
        meters: Meters,
        *,
        tls: ssl.SSLContext | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """Without ``authorizer`` all clients may read metrics and stories; without ``tls`` it is HTTP."""
        self._tls = tls
        self._authorizer = authorizer
        self._address = address
        self._health = health
        self._meters = meters
        #: The JSON of what was decided about a namespace's name, of all kinds of items or of one, once a
        #: scheduler decides.
        self.story: Callable[[str, str, ItemKind | None], bytes | None] | None = None
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/stories/{namespace}/{name}", self._stories)
        for endpoint in (*_ALIVE, _READY):
            app.router.add_get(f"/{endpoint}", self._checks)
            app.router.add_get(f"/{endpoint}/{{check}}", self._one_check)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    @property
    def port(self) -> int:
        """The port it listens on; only while it is open."""
        return int(self._runner.addresses[0][1])

    async def open(self) -> Problem | None:
        """Begins to listen; a fault if that can't be."""
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._address.host or None,
            self._address.port,
            reuse_address=True,
            ssl_context=self._tls,
        )
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self._address.host}:{self._address.port}"
            return Problem(
                f"{where} can't be listened on: {error.strerror or error}",
                "give another one with --metrics-address",
            )
        return None

    async def close(self) -> None:
        """Answers what was asked, and listens no more."""
        if self._authorizer is not None:
            await self._authorizer.close()
        await self._runner.cleanup()

    async def _refusal(self, request: web.Request, path: ProtectedPath) -> web.Response | None:
        """The answer to a client that may not read ``path``; None for all others."""
        if self._authorizer is None:
            return None
        header = request.headers.get("Authorization") or request.headers.get(FORWARDED_TOKEN)
        result = await self._authorizer.authorize(header, request.remote or "", path)
        self._meters.authorized(result)
        if result is AccessResult.ALLOWED:
            return None
        status, text = _REFUSALS[result]
        more = {"WWW-Authenticate": "Bearer"} if result is AccessResult.UNAUTHENTICATED else None
        return web.Response(text=f"{text.format(path=path.value)}\n", status=status, headers=more)

    async def _stories(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request, ProtectedPath.STORIES)
        if refusal is not None:
            return refusal
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        kind = request.query.get("item")
        if kind is not None and kind not in _ITEMS:
            return web.Response(text=f"an item is one of {', '.join(_ITEMS)}\n", status=400)
        item = None if kind is None else ItemKind(kind)
        found = None if self.story is None else self.story(namespace, name, item)
        if found is None:
            return web.Response(text="nothing is known of that name\n", status=404)
        return web.Response(body=found, content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request, ProtectedPath.METRICS)
        if refusal is not None:
            return refusal
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
