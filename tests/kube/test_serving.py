"""The HTTP server beside a long-running command, asked over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics

from closeby.cli.operating.serving import serving
from closeby.cli.options import Metrics
from closeby.cli.reading.inputs import Unusable
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import LOCAL, ListenAddress, Server, read_address
from closeby.kube.watch.reflector import Reflector
from closeby.kube.watch.resources import NODES, PODS
from closeby.objects.reasons import Problem
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import following, through_proxy
from tests.kube.scraping import Scrape, scrape

#: Status, text, content type.
Answer = tuple[int, str, str]
Get = Callable[..., Awaitable[Answer]]


def served(health: Health, meters: Meters, ask: Callable[[Get], Awaitable[None]]) -> None:
    """``ask`` may get paths from the server."""

    async def run() -> None:
        server = Server(ListenAddress("127.0.0.1", 0), health, meters)
        assert await server.open() is None
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

                async def get(path: str, **headers: str) -> Answer:
                    async with session.get(path, headers=headers) as answer:
                        return answer.status, await answer.text(), answer.headers["Content-Type"]

                await ask(get)
        finally:
            await server.close()

    asyncio.run(run())


def test_metrics_are_scraped_as_prometheus_does() -> None:
    meters = Meters()
    requested = meters.requests("10.0.0.1:443")
    for code in (200, 200, 409, None):
        requested("POST", code, 0.05)
    requested("GET", 200, None)
    leading = [False]
    meters.leads("closeby-scheduler", lambda: leading[0])

    async def ask(get: Get) -> None:
        status, text, kind = await get("/metrics")
        assert status == 200 and kind.startswith("text/plain; version=")
        told = Scrape(text)
        host = {"host": "10.0.0.1:443"}
        assert told.value("rest_client_requests_total", code="200", method="POST", **host) == 2
        assert told.value("rest_client_requests_total", code="<error>", method="POST", **host) == 1
        assert told.value("rest_client_requests_total", code="200", method="GET", **host) == 1
        latency = "rest_client_request_duration_seconds"
        assert told.value(f"{latency}_count", verb="POST", **host) == 4
        assert told.value(f"{latency}_bucket", verb="POST", le="0.025", **host) == 0
        assert told.value(f"{latency}_count", verb="GET", **host) is None
        assert told.value("leader_election_master_status", name="closeby-scheduler") == 0
        assert (told.value("process_cpu_seconds_total") or 0) > 0
        assert not [name for name in told.families if name.endswith("_created")]
        leading[0] = True
        told = Scrape((await get("/metrics"))[1])
        assert told.value("leader_election_master_status", name="closeby-scheduler") == 1

    served(Health(), meters, ask)


def test_who_wants_open_metrics_gets_them() -> None:
    async def ask(get: Get) -> None:
        _, text, kind = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert "closeby_build_info" in {one.name for one in open_metrics(text)}

    served(Health(), Meters(), ask)


def test_a_process_that_is_alive_and_not_ready_yet() -> None:
    health = Health()
    trouble: list[str | None] = ["nodes are not listed yet: Forbidden (403)"]
    health.ready("informer-sync", lambda: trouble[0])

    async def ask(get: Get) -> None:
        assert (await get("/livez"))[:2] == (200, "ok")
        assert (await get("/healthz"))[:2] == (200, "ok")
        status, text, _ = await get("/readyz")
        assert status == 500
        assert text.splitlines() == [
            "[+]ping ok",
            "[-]informer-sync failed: nodes are not listed yet: Forbidden (403)",
            "readyz check failed",
        ]
        assert (await get("/readyz/ping"))[:2] == (200, "ok")
        assert (await get("/readyz/informer-sync"))[:2] == (
            500,
            "nodes are not listed yet: Forbidden (403)\n",
        )
        assert (await get("/livez/informer-sync"))[0] == 404
        trouble[0] = None
        assert (await get("/readyz"))[:2] == (200, "ok")
        verbose = (await get("/readyz?verbose"))[1].splitlines()
        assert verbose == ["[+]ping ok", "[+]informer-sync ok", "readyz check passed"]

    served(health, Meters(), ask)


def test_checks_may_be_left_out() -> None:
    health = Health()
    health.alive("leaderElection", lambda: "the Lease was not renewed for 12 s")

    async def ask(get: Get) -> None:
        assert [(await get(f"/{one}"))[0] for one in ("livez", "healthz", "readyz")] == [500, 500, 500]
        assert (await get("/livez?exclude=leaderElection"))[:2] == (200, "ok")
        text = (await get("/livez?verbose&exclude=leaderElection&exclude=unheard"))[1]
        assert "[+]leaderElection excluded: ok" in text and "no matches for unheard" in text

    served(health, Meters(), ask)


def test_what_is_not_there_is_not_found() -> None:
    async def ask(get: Get) -> None:
        assert [(await get(path))[0] for path in ("/", "/debug", "/metrics/x")] == [404, 404, 404]

    served(Health(), Meters(), ask)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10251", ListenAddress("127.0.0.1", 10251)),
        (":8080", ListenAddress("", 8080)),
        ("0.0.0.0:8080", ListenAddress("0.0.0.0", 8080)),
        ("[::1]:0", ListenAddress("::1", 0)),
        ("localhost:80", ListenAddress("localhost", 80)),
    ],
)
def test_addresses(text: str, address: ListenAddress) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "8080", "localhost", "a:b", ":65536", ":" + "9" * 5000, "::1:80", ":-1", "[::1]"]
)
def test_what_is_no_address(text: str) -> None:
    fault = read_address(text)
    assert isinstance(fault, Problem) and "HOST:PORT" in str(fault)


def test_a_port_that_is_taken() -> None:
    """A fault if it was asked for; a warning and no server if it was not."""
    said: list[tuple[str, bool]] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        said.append((message, warning))

    async def run() -> None:
        async with serving(Metrics("127.0.0.1:0"), Health(), Meters(), say) as first:
            assert first is not None
            with pytest.raises(Unusable, match="can't be listened on"):
                async with serving(Metrics(f"127.0.0.1:{first.port}"), Health(), Meters(), say):
                    pass
        with pytest.raises(Unusable, match="--metrics-address"):
            async with serving(Metrics("nonsense"), Health(), Meters(), say):
                pass
        async with serving(Metrics("off"), Health(), Meters(), say) as nothing:
            assert nothing is None
        # Nobody else may hold the port that is the default, so whether we can is left open.
        holder = Server(LOCAL, Health(), Meters())
        await holder.open()
        async with serving(Metrics(None), Health(), Meters(), say) as refused:
            assert refused is None
        await holder.close()

    asyncio.run(run())
    assert said == [("serving metrics", False), ("metrics are not served", True)]


def test_requests_and_watches_of_a_real_server_are_counted(control_plane: ControlPlane) -> None:
    """Through a proxy that refuses the first list of nodes and the first watch."""
    meters = Meters()

    async def run() -> None:
        async with through_proxy(control_plane.access(), on_request=meters.requests("proxy")) as (
            proxy,
            transport,
        ):
            proxy.inject("GET", NODES.collection(), Refuse(429, {"Retry-After": "0"}))
            proxy.inject("WATCH", NODES.collection(), Refuse(500))
            reflector = Reflector(transport, NODES)
            meters.follows(reflector)
            meters.follows(Reflector(transport, PODS))
            async with following(reflector) as follower:
                await follower.until(lambda: follower.resumed > 0)
        told = scrape(meters)
        requests = {
            code: told.value("rest_client_requests_total", code=code, method="GET", host="proxy")
            for code in ("200", "429", "500")
        }
        assert requests == {"200": 2, "429": 1, "500": 1}
        assert told.value("rest_client_request_duration_seconds_count", verb="GET", host="proxy") == 2
        nodes = {"group": "", "kind": "Node"}
        assert told.value("closeby_lists_total", **nodes) == 1
        assert told.value("closeby_watches_total", **nodes) == 2
        assert 0 <= (told.value("closeby_watch_silence_seconds", **nodes) or 0) < 30
        assert told.value("closeby_watched_objects", **nodes) == reflector.objects
        assert told.value("closeby_lists_total", group="", kind="Pod") == 0
        meters.leaves(PODS)
        assert scrape(meters).value("closeby_lists_total", group="", kind="Pod") is None

    asyncio.run(run())
