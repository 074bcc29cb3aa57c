"""What certainly ends before a gang with a reservation could start may use its nodes until then."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import Event, GroupChanged, GroupDeleted, PodDeleted, PodUpserted
from closeby.scheduling.outcomes import Decision, Reserved
from closeby.scheduling.preemption.rule import Preemptible
from closeby.scheduling.reserving.backfill import MANY_PODS, PAUSE, PAUSE_PER_POD, Backfill
from closeby.scheduling.rounds.pending import MAX_BACKFILL_TESTS
from tests.scheduling.test_reservations import AFTER, Site, ends, job
from tests.worlds import gang, pods, spec

#: When what runs on a2 ends.
END = AFTER + 1000


def old(node: str, end: float | None, gpu: int = 2, owner: str = "", prefix: str = "old") -> Pod:
    """What runs on a node."""
    return pods(None, 1, spec(gpu=gpu), prefix=f"{prefix}-{node}", on=node, owner=owner, ends=end)[0]


def short(
    name: str, lasts: float | None, priority: int = 0, gpu: int = 2, ends: float | None = None, **more: Any
) -> Event:
    """A plain pod that takes so long at most."""
    needs = replace(spec(gpu=gpu), priority=priority)
    return PodUpserted(pods(None, 1, needs, prefix=name, lasts=lasts, ends=ends, **more)[0])


def held(end: float | None = END, budget: float = 1e6, **gang: Any) -> Site:
    """a1, which is free, and a2, whose pod ends then, are kept for a gang; all other nodes are full."""
    site = Site(budget=budget).full()
    site.at(0.0, PodDeleted("default/old-a2-0"), PodUpserted(old("a2", end)))
    site.at(0.0, *job("big", 2, required="rack", **gang))
    site.at(AFTER, *ends("a1"))
    assert site.reserved == "a1 a2"
    return site


def expected(site: Site) -> str | None:
    assert site.engine.reservation is not None
    return site.engine.reservation.expected


class TestWhoBackfills:
    @pytest.mark.parametrize(("lasts", "goes"), [(999.0, True), (999.5, False), (None, False)])
    def test_a_pod_that_ends_before_the_gang_could_start(self, lasts: float | None, goes: bool) -> None:
        site = held()
        assert expected(site) == "second 1600"
        site.at(AFTER + 1, short("s", lasts))
        assert ("s-0" in site.where) is goes
        assert goes or site.outcome("s-0").reason is Reason.NODE_RESERVED

    def test_no_pod_that_only_says_when_it_ends(self) -> None:
        """Any user may write that annotation, and nothing ends the pod then."""
        site = held()
        site.at(AFTER + 1, short("s", None, ends=END - 1))
        assert site.where == {}
        assert site.outcome("s-0").reason is Reason.NODE_RESERVED

    def test_no_pod_where_the_end_of_a_running_pod_is_not_known(self) -> None:
        site = held(None)
        assert expected(site) is None
        site.at(AFTER + 1, short("s", 1.0))
        assert site.where == {}

    def test_no_pod_once_the_running_pod_should_have_ended(self) -> None:
        site = held()
        site.at(END, short("s", 1.0))
        assert site.where == {}
        assert expected(site) is None

    @pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "ReplicaSet"])
    def test_no_pod_in_whose_place_another_one_comes(self, kind: str) -> None:
        site = held()
        site.at(AFTER + 1, short("s", 1.0, owner=f"{kind}/s"))
        assert site.where == {}

    @pytest.mark.parametrize("lasts", [1e300, 2.0**62, 0.0])
    def test_any_number_of_seconds_can_be_judged(self, lasts: float) -> None:
        site = held()
        site.at(AFTER + 1, short("s", lasts))
        assert ("s-0" in site.where) is (not lasts)

    def test_only_the_first_of_a_long_queue_are_asked(self) -> None:
        site = held()
        site.at(AFTER + 1, short("m", 10.0))
        site.at(AFTER + 2, *(short(f"long-{at}", 5000.0) for at in range(MAX_BACKFILL_TESTS)))
        site.at(AFTER + 3, short("s", 100.0))
        site.at(AFTER + 4, PodDeleted("default/m-0"))
        assert site.where == {"m-0": "a1"}
        site.at(AFTER + 5, PodDeleted("default/long-0-0"), *ends("b1"))
        assert site.where == {"m-0": "a1", "long-1-0": "b1", "s-0": "a1"}

    @pytest.mark.parametrize("changed", [False, True])
    def test_the_next_of_a_long_queue_is_asked_when_one_before_it_is_gone(self, changed: bool) -> None:
        site = held()
        site.at(AFTER + 1, short("m", 10.0))
        site.at(AFTER + 2, *(short(f"long-{at}", 5000.0) for at in range(MAX_BACKFILL_TESTS)))
        site.at(AFTER + 3, short("s", 100.0))
        site.at(AFTER + 4, PodDeleted("default/m-0"))
        gone = short("long-0", 5000.0, gpu=9) if changed else PodDeleted("default/long-0-0")
        site.engine.handle(gone)
        site.engine.validate_state()
        site.at(AFTER + 5)
        assert site.where == {"m-0": "a1", "s-0": "a1"}

    def test_a_pod_that_waits_and_gets_a_deadline(self) -> None:
        site = held()
        site.at(AFTER + 1, short("s", None), short("other", None))
        site.engine.handle(short("s", 10.0))
        site.engine.validate_state()
        site.at(AFTER + 2)
        assert site.where == {"s-0": "a1"}

    def test_a_long_queue_costs_little_when_the_moment_moves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = [0]
        admits = Backfill.admits

        def counted(self: Backfill, waiting: Sequence[Pod]) -> bool:
            asked[0] += 1
            return admits(self, waiting)

        site = held()
        site.at(AFTER + 1, *(short(f"long-{at}", 1e6) for at in range(MAX_BACKFILL_TESTS)))
        site.at(AFTER + 2, *(short(f"s-{at}", 2000.0) for at in range(2 * MAX_BACKFILL_TESTS)))
        monkeypatch.setattr(Backfill, "admits", counted)
        site.at(AFTER + 3, PodUpserted(old("a2", END + 5000)))
        assert site.where == {}
        assert 0 < asked[0] < 10 * MAX_BACKFILL_TESTS

    def test_the_first_that_ends_in_time_though_longer_ones_of_its_kind_wait_before_it(self) -> None:
        site = held()
        site.at(AFTER + 1, *(short(f"l{number}", 5000.0) for number in range(3)), short("m", 10.0))
        assert site.where == {"m-0": "a1"}
        site.at(AFTER + 2, short("n", 20.0), short("k", None))
        site.at(AFTER + 3, PodDeleted("default/m-0"))
        assert site.where == {"m-0": "a1", "n-0": "a1"}

    @pytest.mark.parametrize(("last", "goes"), [(10.0, True), (5000.0, False)])
    def test_a_gang_whose_members_are_all_short(self, last: float, goes: bool) -> None:
        site = Site().full()
        site.at(0.0, *(PodDeleted(f"default/old-{name}-0") for name in ("a3", "a4")))
        site.at(0.0, *(PodUpserted(old(name, END)) for name in ("a3", "a4")))
        site.at(0.0, *job("big", 4, required="zone"))
        site.at(AFTER, *ends("a1", "a2"))
        assert site.reserved == "a1 a2 a3 a4"
        members = pods("few", 2, spec(gpu=2), lasts=10.0)
        members[1] = replace(members[1], lasts=last)
        site.at(AFTER + 1, GroupChanged(gang("few", min_member=2)), *map(PodUpserted, members))
        assert ("few-0" in site.where) is goes
        assert ("few-1" in site.where) is goes

    def test_the_short_rest_of_a_gang_whose_long_members_went_elsewhere(self) -> None:
        site = held()
        members = pods("few", 2, spec(gpu=2))
        members[1] = replace(members[1], lasts=10.0)
        few = GroupChanged(gang("few", min_member=1))
        site.at(AFTER + 1, *ends("b1"), few, *map(PodUpserted, members))
        assert site.where == {"few-0": "b1", "few-1": "a1"}

    def test_what_backfills_does_not_idle(self) -> None:
        """The gang may let 2 GPUs idle for half an hour; a1 is free only after what runs on a2 is late."""
        site = held(budget=0.25)
        site.at(AFTER, short("s", 1000.0))
        assert site.where == {"s-0": "a1"}
        site.at(END, PodDeleted("default/s-0"))
        site.at(END + 1800)
        assert site.reserved == "a1 a2"
        site.at(END + 1801)
        assert site.reserved == ""

    def test_the_gang_starts_when_it_was_expected_to(self) -> None:
        site = held()
        site.at(AFTER + 1, short("s", 999.0))
        assert site.where == {"s-0": "a1"}
        site.at(END, *ends("a2"), PodDeleted("default/s-0"))
        assert {site.where["big-0"], site.where["big-1"]} == {"a1", "a2"}


class TestTheMoment:
    def test_a_pod_that_was_placed_counts_from_then(self) -> None:
        site = held()
        site.at(AFTER + 1, *ends("a2"), short("s", 5000.0, priority=1))
        assert site.where["s-0"] in ("a1", "a2")
        assert expected(site) == "second 5601"
        site.at(AFTER + 2, short("t", 5000.0), short("u", 4999.0))
        assert {site.where["s-0"], site.where["u-0"]} == {"a1", "a2"}
        assert "t-0" not in site.where

    def test_once_it_has_started_its_own_end_counts(self) -> None:
        site = held()
        site.at(AFTER + 1, *ends("a2"), short("s", 5000.0, priority=1))
        pod = site.engine.state.pods["default/s-0"]
        running = replace(
            pod, node_name=site.where["s-0"], phase="Running", started=AFTER + 2, ends=AFTER + 4002
        )
        site.at(AFTER + 3, PodUpserted(running))
        assert expected(site) == "second 4602"

    def test_those_that_had_to_keep_off_are_tried_when_it_moves(self) -> None:
        site = held()
        site.at(AFTER + 1, short("s", 2000.0))
        assert site.where == {}
        site.at(AFTER + 2, PodUpserted(old("a2", END + 5000)))
        assert expected(site) == "second 6600"
        assert site.where == {"s-0": "a1"}

    def test_those_that_had_to_keep_off_are_tried_when_it_becomes_known(self) -> None:
        site = held(None)
        site.at(AFTER + 1, *job("few", 1, prefix="f", lasts=20.0))
        assert site.where == {}
        site.at(AFTER + 2, PodUpserted(old("a2", END)))
        assert site.where == {"f-0": "a1"}

    def test_it_is_when_enough_has_ended_and_not_when_all_has(self) -> None:
        """a1 takes two pods of the gang, which needs room for one more; what else runs on a2 stays longer."""
        site = Site("zone-a rack-1 : a1=4 a2=4")
        there = [old("a2", END, prefix="one"), old("a2", END + 5000, prefix="two")]
        site.at(0.0, *map(PodUpserted, there), *job("big", 3))
        site.at(AFTER)
        assert site.reserved == "a1 a2"
        assert expected(site) == "second 1600"

    def test_a_pod_without_an_end_that_makes_no_difference(self) -> None:
        site = Site("zone-a rack-1 : a1=2 a2=3")
        there = [old("a2", END), old("a2", None, gpu=1, prefix="tiny")]
        site.at(0.0, *map(PodUpserted, there), *job("big", 2))
        site.at(AFTER)
        assert expected(site) == "second 1600"

    def test_a_pod_without_an_end_that_might_make_one(self) -> None:
        site = Site("zone-a rack-1 : a1=2 a2=4")
        there = [old("a2", END), old("a2", None, prefix="other")]
        site.at(0.0, *map(PodUpserted, there), *job("big", 2))
        site.at(AFTER)
        assert expected(site) is None

    def test_a_pod_that_is_being_deleted_ends_with_its_grace(self) -> None:
        site = held()
        leaving = replace(old("a2", END), terminating=True, deleted_by=AFTER + 30)
        site.at(AFTER + 1, PodUpserted(leaving))
        assert expected(site) == "second 630"

    def test_so_does_a_member_of_its_own(self) -> None:
        site = Site("zone-a rack-1 : a1=2 a2=2")
        leaving = replace(old("a2", None), group="big", terminating=True, deleted_by=AFTER + 30)
        site.at(0.0, PodUpserted(leaving), *job("big", 2, required="rack"))
        site.at(AFTER)
        assert (site.reserved, expected(site)) == ("a1 a2", "second 630")

    def test_the_gang_that_waits_says_it(self) -> None:
        site = held()
        site.at(AFTER + 5, PodUpserted(pods("big", 1, spec(gpu=2), labels={"new": "label"})[0]))
        told = site.outcome("big")
        assert told.reservation is not None
        assert told.reservation.status.expected == "second 1600"
        assert "second 1600" in (told.full_message or "")

    def test_who_must_keep_off_learns_it(self) -> None:
        site = held()
        site.at(AFTER + 1, short("s", None))
        assert "second 1600" in (site.outcome("s-0").message or "")

    def test_by_date_where_the_clock_has_one(self) -> None:
        site = Site().full()
        site.at(0.0, PodDeleted("default/old-a2-0"), PodUpserted(old("a2", 2_000_000_000.0)))
        site.at(0.0, *job("big", 2, required="rack"), wall=1_900_000_000.0)
        decided = site.at(AFTER, *ends("a1"), wall=1_900_000_600.0)
        (kept,) = [one.reservation for one in decided if isinstance(one, Reserved)]
        assert kept.expected == "2033-05-18T03:33:20Z"
        site.at(AFTER + 1, short("s", 50_000_000.0), wall=1_900_000_601.0)
        assert site.where == {"s-0": "a1"}

    def test_it_is_worked_out_once_a_second_where_many_pods_run(self) -> None:
        site = Site("zone-a rack-1 : a1=400 a2=400")
        many = pods(None, MANY_PODS + 1, spec(gpu=1), prefix="old", on="a2", ends=END)
        site.at(0.0, *map(PodUpserted, many), *job("big", 2, gpus=400))
        site.at(AFTER)
        assert (site.reserved, expected(site)) == ("a1 a2", "second 1600")
        site.at(AFTER + 0.25, short("urgent", 5000.0, priority=1), short("s", 3000.0))
        assert (set(site.where), expected(site)) == ({"urgent-0"}, "second 1600")
        site.at(AFTER + PAUSE)
        assert (set(site.where), expected(site)) == ({"urgent-0", "s-0"}, "second 5600.25")

    def test_it_is_worked_out_less_often_where_thousands_run(self) -> None:
        count = 3 * round(PAUSE / PAUSE_PER_POD)
        site = Site(f"zone-a rack-1 : a1={count} a2={count}")
        many = pods(None, count, spec(gpu=1), prefix="old", on="a2", ends=END)
        site.at(0.0, *map(PodUpserted, many), *job("big", 2, gpus=count))
        site.at(AFTER)
        site.at(AFTER + 0.25, short("urgent", 5000.0, priority=1))
        site.at(AFTER + 2 * PAUSE)
        assert expected(site) == "second 1600"
        site.at(AFTER + 3 * PAUSE)
        assert expected(site) == "second 5600.25"

    def test_a_gang_moves_to_no_nodes_where_it_would_wait_longer(self) -> None:
        """What backfills takes the room that speaks for the nodes it has."""
        site = Site("z r1 : a1=2 a2=2 a3=2 a4=2\nz r2 : b1=2 b2=2 b3=2 b4=2").full()
        names = [f"{rack}{number}" for rack in "ab" for number in range(1, 5)]
        end = {name: END if name < "b" else END + 5000 for name in names}
        site.at(0.0, *(PodUpserted(old(name, end[name])) for name in names), *job("big", 4, required="rack"))
        site.at(AFTER)
        assert site.reserved == "a1 a2 a3 a4"
        site.at(AFTER + 100, *ends("b1", "b2", "b3"))
        assert site.reserved == "a1 a2 a3 a4"
        assert expected(site) == "second 1600"

    @pytest.mark.parametrize(("there", "nodes"), [(END, "a1 a2 a3 a4"), (END - 1, "b1 b2 b3 b4")])
    def test_a_gang_moves_only_to_where_it_would_start_earlier(self, there: float, nodes: str) -> None:
        site = Site("z r1 : a1=2 a2=2 a3=2 a4=2\nz r2 : b1=2 b2=2 b3=2 b4=2").full()
        names = [f"{rack}{number}" for rack in "ab" for number in range(1, 5)]
        end = {name: END if name < "b" else there for name in names}
        site.at(0.0, *(PodUpserted(old(name, end[name])) for name in names), *job("big", 4, required="rack"))
        site.at(AFTER)
        site.at(AFTER + 100, *ends("b1", "b2", "b3"))
        assert site.reserved == nodes


class Planned(Struct, frozen=True):
    """A job of a random history, which runs for exactly as long as it says."""

    name: str
    arrives: int
    size: int
    gpus: int
    lasts: int
    required: str | None


class Run(Struct):
    """What came of a history."""

    starts: dict[str, int]
    #: Gangs in the order in which they got reservations: when, and by when they were expected to start.
    told: list[tuple[str, int, str | None]]


def run(jobs: Sequence[Planned], backfill: bool, drawing: str) -> Run:
    """Run jobs on a cluster until all have started."""
    site, found, running = Site(drawing, after=5.0), Run({}, []), dict[str, int]()
    arrivals = {one.arrives for one in jobs}
    for now in range(2000):
        # Something happens, or a gang may have waited long enough.
        if now % 5 and now not in arrivals and now not in running.values():
            continue
        events: list[Event] = []
        for name in [name for name, end in running.items() if end == now]:
            del running[name]
            size = next(one.size for one in jobs if one.name == name)
            events += [PodDeleted(f"default/{name}-{index}") for index in range(size)]
            events.append(GroupDeleted(f"default/{name}"))
        for one in jobs:
            if one.arrives == now:
                # Otherwise the same run, in which nobody who has to keep off says when it ends.
                lasts = float(one.lasts) if backfill else None
                events += job(one.name, one.size, one.required, gpus=one.gpus, lasts=lasts, created=now)
        for output in site.at(float(now), *events):
            match output:
                case Reserved(kept):
                    found.told.append((kept.key.removeprefix("default/"), now, kept.expected))
                case Decision(outcome) if outcome.bindings:
                    name = outcome.key.removeprefix("default/")
                    found.starts[name] = now
                    running[name] = now + next(one.lasts for one in jobs if one.name == name)
        if len(found.starts) == len(jobs):
            return found
    raise AssertionError("some jobs never started")


def history(dice: Random, whole: int | None) -> list[Planned]:
    """Short and long jobs of a few sizes; ``whole``: one of them needs all nodes of the cluster."""
    jobs = [
        Planned(
            f"j{number:02}",
            dice.randint(0, 60),
            dice.choice([1, 1, 1, 2, 3]),
            dice.choice([1, 2, 2]),
            dice.choice([3, 8, 20, 50]),
            dice.choice([None, None, "zone"]),
        )
        for number in range(30)
    ]
    if whole is not None:
        jobs.append(Planned("big", 10, whole, 2, 30, None))
    return jobs


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_gang_starts_no_later_than_expected(seed: int) -> None:
    jobs = history(Random(seed), None)
    done = run(jobs, True, "zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : a3=2 a4=2\nzone-b rack-3 : b1=2 b2=2")
    for key, at, told in done.told:
        # Without a moment it starts at once: what it waited for has just ended.
        assert done.starts[key] <= (at if told is None else float(told.removeprefix("second ")))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_gang_that_needs_all_nodes_starts_when_it_would_without_backfill(seed: int) -> None:
    """Up to its start it is first in the queue in both runs, and its reservation is the first."""
    jobs = [one for one in history(Random(seed), 4) if one.size < 3 or one.name == "big"]
    # Whoever comes before it never lacks room for so long that it gets a reservation.
    jobs = [one for one in jobs if one.name == "big" or one.arrives > 10 or one.size == 1]
    drawing = "zone-a rack-1 : a1=2 a2=2\nzone-b rack-2 : b1=2 b2=2"
    filled, kept = run(jobs, True, drawing), run(jobs, False, drawing)
    if kept.told and kept.told[0][0] == "big":
        assert filled.told[0][0] == "big"
        assert filled.starts["big"] <= kept.starts["big"]


@pytest.mark.parametrize(("priority", "plans"), [(3, 0), (6, 1)])
def test_no_pod_is_evicted_from_reserved_nodes_for_what_backfills(priority: int, plans: int) -> None:
    """The gang itself preempts no pod; what runs on all other nodes is of a greater priority."""
    site = Site()
    site.engine.preempt(Preemptible())
    for name in ("a1", "a2", "a3", "a4", "b1", "b2"):
        needs = replace(spec(gpu=2), priority=0 if name in ("a1", "a2") else 9)
        site.at(0.0, PodUpserted(pods(None, 1, needs, prefix=f"old-{name}", on=name, ends=END)[0]))
    needs = replace(spec(gpu=2), priority=5, preemption_policy="Never")
    group = replace(gang("big", min_member=2, required="rack"), priority=5)
    site.at(0.0, GroupChanged(group), *map(PodUpserted, pods("big", 2, needs)))
    site.at(AFTER)
    assert (site.reserved, expected(site)) == ("a1 a2", "second 1600")
    site.at(AFTER + 1, short("s", 10.0, priority=priority))
    assert len(site.outcome("s-0").preemptions) == plans


def test_backfill_starts_short_jobs_earlier_at_no_cost() -> None:
    jobs = [
        Planned("long", 0, 1, 2, 100, None),
        Planned("big", 1, 4, 2, 10, None),
        *(Planned(f"s{number}", 10, 1, 2, 20, None) for number in range(6)),
        Planned("later", 10, 1, 2, 200, None),
    ]
    drawing = "zone-a rack-1 : a1=2 a2=2\nzone-b rack-2 : b1=2 b2=2"
    filled, kept = run(jobs, True, drawing), run(jobs, False, drawing)
    assert filled.starts["big"] == kept.starts["big"] == 100
    assert all(filled.starts[f"s{number}"] <= 30 for number in range(6))
    assert all(kept.starts[f"s{number}"] >= 110 for number in range(6))
    assert filled.starts["later"] >= 100
