"""What was decided about one pod or gang, asked over HTTP beside the metrics."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import aiohttp
from msgspec.structs import replace

from closeby.kube.metrics.access import Authorizer
from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import FORWARDED_TOKEN, ListenAddress, Server
from closeby.kube.metrics.stories import story_json
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import ItemKind
from closeby.simulator.runs import Asked, simulate
from tests.crowded import world
from tests.kube.test_authorizer import Reviewer
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
        server = Server(ListenAddress("127.0.0.1", 0), Health(), Meters(), authorizer=Authorizer(Reviewer()))
        if engine is not None:
            server.story = partial(story_json, engine, "closeby")
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


def test_stories_take_a_right_of_their_own() -> None:
    """Metrics name no pod; a story does."""
    paths = ("/stories/default/wide", "/stories/default/none", "/metrics")
    for token, statuses in (
        ("bad", [401, 401, 401]),
        ("tenant", [403, 403, 403]),
        ("scraper", [403, 403, 200]),
        ("operator", [200, 404, 403]),
    ):
        found = asked(decided(), *paths, headers={"Authorization": f"Bearer {token}"})
        assert [status for status, _ in found] == statuses
    assert asked(decided(), "/stories/default/wide", headers={}) == [(401, None)]


def test_a_token_that_comes_through_the_api_server() -> None:
    """Its proxy removes the header Authorization, so the token has a header of its own."""
    for token, status in (("good", 200), ("tenant", 403)):
        ((found, _),) = asked(
            decided(), "/stories/default/wide", headers={FORWARDED_TOKEN: f"Bearer {token}"}
        )
        assert found == status


def test_the_newest_decision_and_its_pods() -> None:
    (_, placed), (_, refused) = asked(decided(), "/stories/default/fits", "/stories/default/wide")
    assert (placed["scheduler"], placed["lastDecision"]["time"]) == ("closeby", "")
    assert {(one["name"], "reason" in one) for one in placed["pods"]} == {
        ("fits-0", False),
        ("fits-1", False),
    }
    assert {one["node"] for one in placed["pods"]} == {"n1", "n2"}
    assert refused["lastDecision"]["reason"] == "GangDoesNotFit"
    assert [(one["reason"], "message" in one, "node" in one) for one in refused["pods"]] == [
        ("GangDoesNotFit", False, False)
    ] * 3
    assert all(one["uid"] for one in (*placed["pods"], *refused["pods"]))


def test_decisions_carry_the_time_of_their_tick() -> None:
    engine = decided()
    (again, *_) = pods("wide", 1, needs=spec(gpu=2))
    engine.handle(PodUpserted(replace(again, labels={"more": "yes"})), Tick(wall=60.0))
    engine.handle(PodDeleted(again.uid), Tick())
    body = story_json(engine, "closeby", "default", "wide")
    assert body is not None
    found = json.loads(body)
    times = [one.get("time") for one in found["entries"] if one["what"] == "decided"]
    assert "1970-01-01T00:01:00Z" in times
    (event,) = [one for one in found["entries"] if one["what"].endswith("deleted")]
    assert "time" not in event


def test_only_one_kind_of_item() -> None:
    """An application and a pod may have the gang's name; and a story may have nothing to say."""
    paths = (
        "/stories/default/wide?item=gang",
        "/stories/default/wide?item=pod",
        "/stories/default/wide?item=x",
    )
    (_, whole), (status, none), (wrong, _) = asked(decided(), *paths)
    assert len(whole["entries"]) == 1
    assert (status, none["scheduler"], "entries" in none, wrong) == (200, "closeby", False, 400)


def test_a_reservation_is_part_of_the_story() -> None:
    members = pods("big", 2, needs=spec(gpu=2), created=1_000.0)
    full = pods("old", 1, on="n1", needs=spec(gpu=1))
    given = world([gang("big", 2, required="rack"), gang("old")], [*members, *full], "a r1 : n1=2 n2=2")
    engine = simulate(given, Configuration(reserve_after=60.0), Asked(wall=5_000.0)).engine
    body = story_json(engine, "closeby", "default", "big", ItemKind.GANG)
    assert body is not None
    kept = json.loads(body)["reservation"]
    assert (kept["nodes"], kept["domain"]) == (2, ["a", "r1"])


def test_of_a_large_gang_some_pods_are_listed() -> None:
    members = pods("wide", 500, needs=spec(gpu=2))
    engine = simulate(world([gang("wide", 500)], members, "a r1 : n1=2 n2=2"), Configuration()).engine
    body = story_json(engine, "closeby", "default", "wide")
    assert body is not None
    assert len(json.loads(body)["pods"]) == 200


def test_a_long_story_is_bounded() -> None:
    engine = decided()
    (again, *_) = pods("wide", 1, needs=spec(gpu=2))
    for number in range(200):
        engine.handle(PodUpserted(replace(again, labels={"number": f"{number}"})), Tick())
    body = story_json(engine, "closeby", "default", "wide")
    assert body is not None and len(body) < 200_000
    assert 1 < len(json.loads(body)["entries"]) <= 64
