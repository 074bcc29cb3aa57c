"""The authorizer before the metrics: what is asked, what is kept, and how much a flood may ask."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from closeby.kube.metrics.access import AccessLimits, AccessResult, Authorizer, ProtectedPath

ALLOWED, FORBIDDEN = AccessResult.ALLOWED, AccessResult.FORBIDDEN
METRICS, STORIES = ProtectedPath.METRICS, ProtectedPath.STORIES
UNAUTHENTICATED, LIMITED, UNANSWERED = (
    AccessResult.UNAUTHENTICATED,
    AccessResult.LIMITED,
    AccessResult.UNANSWERED,
)


class Reviewer:
    """Counts questions. Tokens are answered by their first word; no other is known."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers = {"good": ALLOWED, "tenant": FORBIDDEN}
        #: Those that may get one path alone.
        self.only = {"scraper": METRICS, "operator": STORIES}
        self.at_once = self.most_at_once = 0
        #: Answers are held back until it is set.
        self.open = asyncio.Event()
        self.open.set()

    async def review(self, token: str, path: ProtectedPath) -> AccessResult:
        self.asked[token] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.open.wait()
        self.at_once -= 1
        word = token.partition("-")[0]
        if word in self.only:
            return ALLOWED if path is self.only[word] else FORBIDDEN
        return self.answers.get(word, UNAUTHENTICATED)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Scene = Callable[[Authorizer, Reviewer, Clock], Coroutine[Any, Any, None]]


def play(scene: Scene, limits: AccessLimits | None = None) -> None:
    async def run() -> None:
        reviewer, clock = Reviewer(), Clock()
        authorizer = Authorizer(reviewer, limits, clock)
        await scene(authorizer, reviewer, clock)
        await authorizer.close()

    asyncio.run(run())


def test_a_request_without_a_token_causes_no_review() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        for header in (None, "", "Bearer", "Bearer ", "Basic Z29vZA==", "good"):
            assert await authorizer.authorize(header, "a", METRICS) is UNAUTHENTICATED
        assert not reviewer.asked

    play(scene)


def test_a_token_that_is_not_ascii_is_refused_without_a_review() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        for raw in (b"Bearer \xff\xfe", b"Bearer good\xff", "Bearer gööd".encode()):
            header = raw.decode("utf-8", "surrogateescape")
            assert await authorizer.authorize(header, "a", METRICS) is UNAUTHENTICATED
        assert not reviewer.asked

    play(scene)


def test_answers_are_kept_for_a_while() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        for _ in range(3):
            assert await authorizer.authorize("Bearer good", "a", METRICS) is ALLOWED
            assert await authorizer.authorize("bearer tenant", "b", METRICS) is FORBIDDEN
            assert await authorizer.authorize("Bearer bad", "c", METRICS) is UNAUTHENTICATED
        assert set(reviewer.asked.values()) == {1}
        clock.now += AccessLimits().denied_for
        for token, result in (("good", ALLOWED), ("tenant", FORBIDDEN), ("bad", UNAUTHENTICATED)):
            assert await authorizer.authorize(f"Bearer {token}", "a", METRICS) is result
        assert reviewer.asked == {"good": 1, "tenant": 2, "bad": 2}

    play(scene)


def test_a_permission_for_one_path_is_none_for_the_other() -> None:
    """Also when it was asked about before, and while the API server is away."""

    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        for _ in range(3):
            assert await authorizer.authorize("Bearer scraper", "a", METRICS) is ALLOWED
            assert await authorizer.authorize("Bearer scraper", "a", STORIES) is FORBIDDEN
            assert await authorizer.authorize("Bearer operator", "a", STORIES) is ALLOWED
            assert await authorizer.authorize("Bearer operator", "a", METRICS) is FORBIDDEN
        assert reviewer.asked == {"scraper": 2, "operator": 2}
        reviewer.only = {}
        reviewer.answers = {"scraper": UNANSWERED}
        clock.now += AccessLimits().allowed_for
        assert await authorizer.authorize("Bearer scraper", "a", METRICS) is ALLOWED
        assert await authorizer.authorize("Bearer scraper", "a", STORIES) is UNANSWERED

    play(scene)


def test_requests_for_two_paths_at_once_wait_for_an_answer_each() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        paths = [METRICS, STORIES] * 10
        results = await asyncio.gather(*(authorizer.authorize("Bearer scraper", "a", path) for path in paths))
        assert results == [ALLOWED, FORBIDDEN] * 10
        assert reviewer.asked == {"scraper": 2}

    play(scene)


def test_the_bounds_hold_for_both_paths_together() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        flood = [
            await authorizer.authorize(f"Bearer bad-{i}", "tenant", path)
            for i in range(500)
            for path in (METRICS, STORIES)
        ]
        assert Counter(flood) == {UNAUTHENTICATED: 10, LIMITED: 990}

    play(scene)


def test_a_right_that_is_taken_away_is_gone_when_the_answer_is_old() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        assert await authorizer.authorize("Bearer good", "a", METRICS) is ALLOWED
        reviewer.answers["good"] = FORBIDDEN
        clock.now += AccessLimits().allowed_for
        assert await authorizer.authorize("Bearer good", "a", METRICS) is FORBIDDEN
        clock.now += AccessLimits().denied_for - 1
        assert await authorizer.authorize("Bearer good", "a", METRICS) is FORBIDDEN
        assert reviewer.asked["good"] == 2

    play(scene)


def test_requests_with_one_token_wait_for_one_answer() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        results = await asyncio.gather(
            *(authorizer.authorize("Bearer good", "a", METRICS) for _ in range(50))
        )
        assert set(results) == {ALLOWED}
        assert reviewer.asked == {"good": 1}

    play(scene)


def test_a_flood_from_one_address_costs_a_few_reviews_and_keeps_no_other_out() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        assert await authorizer.authorize("Bearer good-prometheus", "monitoring", METRICS) is ALLOWED
        flood = [await authorizer.authorize(f"Bearer bad-{i}", "tenant", METRICS) for i in range(1000)]
        assert Counter(flood) == {UNAUTHENTICATED: 10, LIMITED: 990}
        clock.now += AccessLimits().allowed_for
        # It may ask a bit more as time goes by, but not as much as it likes.
        flood = [await authorizer.authorize(f"Bearer bad-{i}", "tenant", METRICS) for i in range(1000)]
        assert Counter(flood)[UNAUTHENTICATED] == 10
        # Old and new scrapers get through, also one that scrapes from the attacker's address.
        assert await authorizer.authorize("Bearer good-prometheus", "tenant", METRICS) is ALLOWED
        assert await authorizer.authorize("Bearer good-another", "monitoring", METRICS) is ALLOWED

    play(scene)


def test_a_flood_from_many_addresses_waits_for_few_answers_at_a_time() -> None:
    limits = AccessLimits(at_once=2, waiting=3)

    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        assert await authorizer.authorize("Bearer good", "monitoring", METRICS) is ALLOWED
        clock.now += limits.allowed_for
        reviewer.open.clear()
        flood = [
            asyncio.create_task(authorizer.authorize(f"Bearer bad-{i}", f"address-{i}", METRICS))
            for i in range(100)
        ]
        await asyncio.sleep(0)
        known = asyncio.create_task(authorizer.authorize("Bearer good", "monitoring", METRICS))
        refused = [task for task in flood if task.done()]
        while len(refused) < 95 or reviewer.at_once < 2:
            await asyncio.sleep(0)
            refused = [task for task in flood if task.done()]
        assert {task.result() for task in refused} == {LIMITED}
        reviewer.open.set()
        assert Counter(await asyncio.gather(*flood)) == {UNAUTHENTICATED: 5, LIMITED: 95}
        assert await known is ALLOWED
        assert reviewer.most_at_once == 2

    play(scene, limits)


def test_what_is_kept_is_bounded_and_refusals_take_no_place_from_permissions() -> None:
    limits = AccessLimits(kept=3, addresses=3)

    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        for i in range(3):
            assert await authorizer.authorize(f"Bearer good-{i}", f"address-{i}", METRICS) is ALLOWED
        for i in range(50):
            assert await authorizer.authorize(f"Bearer bad-{i}", f"address-{i}", METRICS) is UNAUTHENTICATED
        reviewer.asked.clear()
        for i in range(3):
            assert await authorizer.authorize(f"Bearer good-{i}", "a", METRICS) is ALLOWED
        assert not reviewer.asked
        assert await authorizer.authorize("Bearer bad-49", "a", METRICS) is UNAUTHENTICATED
        assert not reviewer.asked
        assert await authorizer.authorize("Bearer bad-0", "a", METRICS) is UNAUTHENTICATED
        assert reviewer.asked == {"bad-0": 1}

    play(scene, limits)


def test_while_the_api_server_is_away_only_known_scrapers_are_served_for_a_while() -> None:
    async def scene(authorizer: Authorizer, reviewer: Reviewer, clock: Clock) -> None:
        assert await authorizer.authorize("Bearer good", "a", METRICS) is ALLOWED
        reviewer.answers = {"good": UNANSWERED, "new": UNANSWERED}
        clock.now += AccessLimits().allowed_in_outage - 1
        assert await authorizer.authorize("Bearer good", "a", METRICS) is ALLOWED
        assert await authorizer.authorize("Bearer new", "a", METRICS) is UNANSWERED
        clock.now += 1
        assert await authorizer.authorize("Bearer good", "a", METRICS) is UNANSWERED
        reviewer.answers = {"good": ALLOWED}
        assert await authorizer.authorize("Bearer good", "a", METRICS) is ALLOWED

    play(scene)
