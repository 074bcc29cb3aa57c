"""What was decided about one pod or gang, asked over HTTP beside the metrics."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from msgspec.structs import replace

from closeby.kube.metrics.access import Gate
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import ListenAddress, Server
from closeby.kube.metrics.stories import story_json
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodUpserted, Tick
from closeby.simulator.runs import simulate
from tests.crowded import world
from tests.kube.test_metrics_gate import Reviewer
from tests.worlds import gang, pods, spec

HEADERS = {"Authorization": "Bearer good"}


def decided() -> Engine:
    """A gang that has a rack, and one that is too large for one."""
    members = [*pods("fits", 2, needs=spec(gpu=2)), *pods("wide", 3, needs=spec(gpu=2))]
    groups = [gang("fits", 2, required="rack"), gang("wide", 3, required="rack")]
    return simulate(world(groups, members, "a r1 : n1=2 n2=2"), Configuration()).engine


def asked(engine: Engine | None, *paths: str, headers: Mapping[str, str] = HEADERS) -> list[tuple[int, Any]]:
    """Status and document of each answer."""

    async def run() -> list[tuple[int, Any]]:
        server = Server(ListenAddress("127.0.0.1", 0), Health(), Meters(), gate=Gate(Reviewer()))
        if engine is not None:
            server.story = lambda namespace, name: story_json(
                namespace, name, engine.story(f"{namespace}/{name}")
            )
        assert await server.open() is None
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
                return [await one(session, path) for path in paths]
        finally:
            await server.close()

    async def one(session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
        async with session.get(path, headers=headers) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(await answer.read()) if is_json else None

    return asyncio.run(run())


def test_decisions_are_logged_in_fields() -> None:
    (first, placed), (second, refused) = asked(decided(), "/stories/default/fits", "/stories/default/wide")
    assert (first, second) == (200, 200)
    assert (placed["kind"], placed["namespace"], placed["name"]) == ("Story", "default", "fits")
    last = placed["entries"][-1]
    assert (last["placed"], "waiting" in last, "reason" in last) == (2, False, False)
    last = refused["entries"][-1]
    assert (last["reason"], last["waiting"]) == ("GangDoesNotFit", 3)
    assert last["message"]


def test_nothing_is_known() -> None:
    paths = ("/stories/default/none", "/stories/other/fits")
    assert asked(decided(), *paths) == [(404, None), (404, None)]
    assert asked(None, "/stories/default/fits") == [(404, None)]


def test_who_may_read_metrics_may_read_stories() -> None:
    for headers, status in (({}, 401), ({"Authorization": "Bearer tenant"}, 403)):
        assert asked(decided(), "/stories/default/wide", headers=headers) == [(status, None)]


def test_a_long_story_is_bounded() -> None:
    engine = decided()
    (again, *_) = pods("wide", 1, needs=spec(gpu=2))
    for number in range(200):
        engine.handle(PodUpserted(replace(again, labels={"number": f"{number}"})), Tick())
    body = story_json("default", "wide", engine.story("default/wide"))
    assert body is not None and len(body) < 200_000
    assert 1 < len(json.loads(body)["entries"]) <= 64
