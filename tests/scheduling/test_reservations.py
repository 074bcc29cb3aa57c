"""A gang that has waited long keeps nodes free, so that small items do not pass it for ever."""

from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import Layer, Strategy
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import HostPort, Pod
from closeby.objects.reasons import Reason
from closeby.objects.recorded import ReservationStatus
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    FlushUnschedulable,
    GroupChanged,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import Decision, Outcome, Output, Released, Reserved, bindings_of
from tests.golden.fixture import Golden
from tests.worlds import GPU, draw, fabric, gang, node, pods, spec, subgroup

AFTER = 600.0

TWO_ZONES = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : a3=2 a4=2
zone-b rack-3 : b1=2 b2=2
"""


class Site:
    """An engine with a clock, and short ways to ask."""

    def __init__(self, drawing: str = TWO_ZONES, after: float = AFTER, budget: float = 1e6) -> None:
        """By default as much may idle as will."""
        configuration = Configuration(reserve_budget=budget)
        self.engine = Engine(
            lambda handle: profile_for(configuration, handle), backoff=False, reserve_after=after
        )
        topology = TopologyChanged(fabric("zone", "rack", HOSTNAME))
        self.engine.handle(*map(NodeUpserted, draw(drawing)), topology)
        self.where: dict[str, str] = {}

    def at(self, now: float, *events: Event, wall: float | None = None) -> list[Output]:
        """What is decided at this second."""
        decisions = self.engine.handle(*events, Tick(now, wall=wall))
        self.where.update({one.pod.name: one.node for one in bindings_of(decisions)})
        self.engine.validate_state()
        return decisions

    def full(self, owner: str = "") -> "Site":
        """With a pod called old-NODE-0 on every node, which leaves no room there."""
        names = [name for name in self.engine.cluster.names if name is not None]
        old = (pods(None, 1, spec(gpu=2), prefix=f"old-{name}", on=name, owner=owner)[0] for name in names)
        self.at(0.0, *map(PodUpserted, old))
        return self

    @property
    def reserved(self) -> str:
        """The nodes that are kept free."""
        return "" if self.engine.reservation is None else " ".join(self.engine.reservation.nodes)

    def outcome(self, name: str) -> Outcome:
        """The newest decision about an item."""
        found = self.engine.outcome(f"default/{name}")
        assert found is not None
        return found


def ends(*nodes: str) -> list[Event]:
    """What filled these nodes comes to its end."""
    return [PodDeleted(f"default/old-{name}-0") for name in nodes]


def job(
    name: str, size: int, required: str | None = None, priority: int = 0, gpus: int = 2, **fields: Any
) -> list[Event]:
    """A gang of equal pods."""
    group = replace(gang(name, min_member=size, required=required), priority=priority)
    return [GroupChanged(group), *map(PodUpserted, pods(name, size, spec(gpu=gpus), **fields))]


def small(name: str, priority: int = 0) -> Event:
    """A plain pod of 2 GPUs."""
    return PodUpserted(pods(None, 1, replace(spec(gpu=2), priority=priority), prefix=name)[0])


class TestWhenAGangHasWaited:
    def test_nodes_are_kept_free_for_it_and_small_ones_go_elsewhere(self, golden: Golden) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER - 1)
        assert site.reserved == ""
        site.at(AFTER, *ends("a1"))
        assert site.reserved == "a1 a2"
        site.at(AFTER + 1, small("s1"), *ends("b1"))
        assert site.where == {"s1-0": "b1"}
        site.at(AFTER + 2, small("s2"))
        refused = site.outcome("s2-0")
        assert refused.reason is Reason.NODE_RESERVED
        golden("refusals", refused.message or "")
        site.at(AFTER + 3, *ends("a2"))
        assert {site.where["big-0"], site.where["big-1"]} == {"a1", "a2"}
        assert site.reserved == ""

    def test_other_namespaces_do_not_learn_which_gang_it_is(self) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER, *ends("a1"))
        foreign = replace(pods(None, 1, spec(gpu=2), prefix="s")[0], namespace="other", uid="other/s-0")
        site.at(AFTER + 1, PodUpserted(foreign))
        refused = site.engine.outcome("other/s-0")
        assert refused is not None and refused.reason is Reason.NODE_RESERVED
        assert refused.message is not None and "big" not in refused.message

    def test_without_it_small_ones_pass_for_ever(self) -> None:
        site = Site(after=0.0).full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER, small("s1"), *ends("a1"))
        assert site.where == {"s1-0": "a1"}

    def test_the_waiting_gang_reports_its_reservation(self) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER, *ends("a1"))
        site.at(AFTER + 5, PodUpserted(pods("big", 1, spec(gpu=2), labels={"new": "label"})[0]))
        told = site.outcome("big")
        assert told.reservation == site.engine.reservation
        assert told.reservation is not None and told.reservation.status == ReservationStatus(
            nodes=2,
            topology="fabric",
            level="rack",
            domain=("zone-a", "rack-1"),
            since="second 600",
            missing=1,
        )
        assert {one.message for one in told.leftover} == {told.full_message}
        assert (told.full_message or "").endswith(told.reservation.sentence())
        story = [entry.what for entry in site.engine.story("default/big")]
        assert told.reservation.sentence() in story

    def test_it_may_start_elsewhere_first(self) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER, *ends("a1"))
        decisions = site.at(AFTER + 1, small("s1"), *ends("b1", "b2"))
        assert {site.where["big-0"], site.where["big-1"]} == {"b1", "b2"}
        assert [type(one) for one in decisions if isinstance(one, Released)] == [Released]
        assert site.where["s1-0"] == "a1", "what was kept free is free in the same tick"

    def test_what_it_does_not_need_of_a_large_domain_is_left_to_others(self) -> None:
        site = Site("zone-a rack-1 : a1=2 a2=2 a3=2\nzone-a rack-2 : b1=2 b2=2 b3=2\n").full()
        site.at(0.0, *job("big", 4, required="zone"))
        site.at(AFTER, *ends("b2"))
        assert site.reserved == "a1 b1 b2 b3", "the rack with the most room as a whole, and one node more"

    @pytest.mark.parametrize(
        ("needs", "nodes"), [(1, "b1 b2"), (2, "a1 a2 a3 a4")], ids=["half nodes", "whole nodes"]
    )
    def test_as_many_nodes_as_its_pods_need(self, needs: int, nodes: str) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 4, required="zone", gpus=needs))
        site.at(AFTER)
        assert site.reserved == nodes

    def test_a_hopeless_gang_keeps_nothing(self) -> None:
        site = Site().full()
        site.at(0.0, *job("hopeless", 3, required="rack"), *job("later", 2, required="rack"))
        site.at(AFTER)
        assert site.engine.reservation is not None
        assert site.engine.reservation.key == "default/later"

    @pytest.mark.parametrize(
        ("kind", "ends"),
        [
            ("DaemonSet", False),
            ("Deployment", False),
            ("Job", True),
            ("Node", False),
            ("RayCluster", True),
            ("ReplicaSet", False),
            ("ReplicationController", False),
            ("StatefulSet", False),
        ],
    )
    def test_what_runs_for_ever_is_not_waited_for(self, kind: str, ends: bool) -> None:
        site = Site().full(owner=f"{kind}/agent")
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert site.reserved == ("a1 a2" if ends else "")

    def test_incomplete_gangs_keep_nothing(self) -> None:
        site = Site().full()
        site.at(0.0, GroupChanged(gang("g", min_member=3)), *map(PodUpserted, pods("g", 2)))
        site.at(10 * AFTER)
        assert site.reserved == ""

    def test_an_anchored_one_waits_beside_its_members(self) -> None:
        site = Site()
        site.at(0.0, *job("big", 2, required="rack"))
        assert {site.where["big-0"], site.where["big-1"]} == {"a1", "a2"}
        site.at(0.0, *(small(f"old-{number}") for number in range(4)))
        site.at(1.0, PodDeleted("default/big-1"), small("thief", priority=9))
        site.at(2.0, PodUpserted(pods("big", 2, spec(gpu=2))[1]))
        assert site.outcome("big").refused
        site.at(2.0 + AFTER)
        assert site.reserved == site.where["thief-0"]

    def test_unequal_pods_and_subgroups_are_rehearsed(self) -> None:
        site = Site().full()
        parts = [subgroup("x", 2, required="rack"), subgroup("y", 2, required="rack")]
        members = [pod for name in "xy" for pod in pods("big", 2, spec(gpu=2), subgroup=name)]
        before = site.engine.cluster.requested.copy()
        site.at(0.0, GroupChanged(gang("big", min_member=4, subgroups=parts)), *map(PodUpserted, members))
        site.at(AFTER)
        assert len(site.reserved.split()) == 4
        assert (site.engine.cluster.requested == before).all()
        assert site.engine.cluster.placed_count == 6


class TestWhichNodes:
    """The gang that waits is of two pods with 4 GPUs each, unless said otherwise."""

    def reserved(self, drawing: str, taken: dict[str, int], size: int = 2, gpus: int = 4, **more: Any) -> str:
        site = Site(drawing)
        others = [
            pods(None, 1, spec(gpu=amount), prefix=f"on-{on}", on=on)[0] for on, amount in taken.items()
        ]
        site.at(0.0, *map(PodUpserted, others), *job("big", size, gpus=gpus, **more))
        assert site.where == {}
        site.at(AFTER)
        return site.reserved

    def test_those_with_the_most_room_now(self) -> None:
        #   a1 takes two of four pods now, for all of whom it is large enough; a2 takes one.
        assert self.reserved("z r : a1=16 a2=4", {"a1": 8}, size=4, required="rack") == "a1"

    def test_else_those_where_the_least_must_end(self) -> None:
        #   Nothing fits now; of a1 all is taken, of a2 three quarters. That a1 is larger comes after that.
        assert self.reserved("z r : a1=16 a2=8", {"a1": 16, "a2": 6}, required="rack") == "a2"

    def test_the_largest_node_is_reserved_where_nothing_smaller_holds_the_gang(self) -> None:
        assert self.reserved("z r : a1=4 a2=4 a3=8", {"a1": 4, "a2": 4, "a3": 8}, required="rack") == "a3"

    def test_the_rack_with_the_least_to_wait_for_though_it_is_larger(self) -> None:
        drawing, taken = "z r1 : a1=4 a2=4\nz r2 : b1=4 b2=4 b3=4", {"a1": 4, "a2": 4, "b1": 4, "b2": 4}
        assert self.reserved(drawing, taken, required="rack") == "b1 b3"

    @pytest.mark.parametrize(("strategy", "nodes"), [(Strategy.BINPACK, "b1 b2"), (Strategy.SPREAD, "a1 a2")])
    def test_else_the_rack_by_the_strategy(self, strategy: Strategy, nodes: str) -> None:
        site = Site("z r1 : a1=4 a2=4 a3=4\nz r2 : b1=4 b2=4")
        full = [
            pods(None, 1, spec(gpu=4), prefix=f"on-{name}", on=name)[0]
            for name in ("a1", "a2", "a3", "b1", "b2")
        ]
        group = replace(gang("big", min_member=2, required="rack"), strategy=strategy)
        site.at(
            0.0, *map(PodUpserted, full), GroupChanged(group), *map(PodUpserted, pods("big", 2, spec(gpu=4)))
        )
        site.at(AFTER)
        assert site.reserved == nodes

    def test_of_racks_with_as_much_room_the_one_where_less_must_end(self) -> None:
        #   Each rack takes one pod now; r2 holds two in all, and two more of r1 do.
        drawing = "z r1 : a1=4 a2=4 a3=4 a4=4\nz r2 : b1=4 b2=4"
        taken = {"a2": 4, "a3": 4, "a4": 4, "b2": 4}
        assert self.reserved(drawing, taken, size=4, required="zone") == "a1 a2 b1 b2"

    def test_the_rack_with_the_most_room_now_before_the_one_where_less_must_end(self) -> None:
        drawing = "z r1 : a1=4 a2=4 a3=4 a4=4\nz r2 : b1=4"
        assert self.reserved(drawing, {"a3": 4, "a4": 4}, size=4, required="zone") == "a1 a2 a3 a4"

    def test_ports_that_others_hold_come_free_with_them(self) -> None:
        site, web = Site("z r1 : a1=2 a2=2\nz r2 : b1=2"), replace(spec(gpu=1), host_ports=(HostPort(80),))
        old = [pods(None, 1, web, prefix=f"on-{name}", on=name)[0] for name in ("a1", "a2", "b1")]
        group = GroupChanged(gang("big", min_member=2, required="rack"))
        site.at(0.0, *map(PodUpserted, old), group, *map(PodUpserted, pods("big", 2, web)))
        site.at(AFTER)
        assert site.reserved == "a1 a2"


class TestWhoKeepsOff:
    def held(self) -> Site:
        """a1 and a2 are kept free for a gang of priority 5, and a1 is free."""
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack", priority=5))
        site.at(AFTER, *ends("a1"))
        assert site.reserved == "a1 a2"
        return site

    @pytest.mark.parametrize(("priority", "goes"), [(0, False), (5, False), (6, True)])
    def test_by_priority(self, priority: int, goes: bool) -> None:
        site = self.held()
        site.at(AFTER + 1, small("s", priority=priority))
        assert ("s-0" in site.where) is goes

    def test_other_gangs_keep_off_reserved_nodes_too(self, golden: Golden) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 4, required="zone"))
        site.at(AFTER, *ends("a1", "a2"))
        site.at(AFTER + 1, *job("later", 2, required="rack", prefix="p"))
        refused = site.outcome("later")
        assert refused.reason is Reason.NODE_RESERVED
        golden("refusals", refused.message or "")
        site.at(AFTER + 2, *ends("b1", "b2"))
        assert site.where == {"p-0": "b1", "p-1": "b2"}

    @pytest.mark.parametrize(("size", "reason"), [(2, Reason.NODE_RESERVED), (3, Reason.GANG_DOES_NOT_FIT)])
    def test_the_reservation_is_blamed_only_where_its_nodes_would_do(self, size: int, reason: Reason) -> None:
        """Two empty nodes are kept free, and no third one is free anywhere."""
        site = Site().full()
        site.at(0.0, *job("big", 4, required="zone", priority=5))
        site.at(AFTER, *ends("a1", "a2"))
        site.at(AFTER + 1, *job("later", size, required="rack", prefix="p"))
        assert site.outcome("later").reason is reason

    def test_a_gang_that_lost_a_member_does_not(self) -> None:
        """It would never come to its end, and what it holds would never be free."""
        site = Site("zone-a rack-1 : a1=2 a2=2\n")
        site.at(0.0, *job("runs", 2))
        # It goes before the member that comes late, which would have to keep off.
        site.at(1.0, *job("big", 2, prefix="b", created=1.0))
        site.at(1.0 + AFTER)
        assert site.reserved == "a1 a2"
        late = replace(pods("runs", 2, spec(gpu=2))[1], created=AFTER)
        site.at(AFTER + 2, PodDeleted("default/runs-1"), PodUpserted(late))
        assert site.where["runs-1"] in ("a1", "a2")
        assert site.outcome("runs").reason is None

    def test_a_gang_of_which_enough_run_or_are_done_keeps_off(self) -> None:
        """Three are needed: one is done, two run, and a fourth one would only come on top."""
        site = Site("zone-a rack-1 : a1=2 a2=2\nzone-b rack-2 : b1=2 b2=2")
        done, *run, more = pods("runs", 4, spec(gpu=2), created=2.0)
        old = pods(None, 2, spec(gpu=2), prefix="old")
        members = [replace(done, phase="Succeeded")]
        members += [
            replace(pod, node_name=on, phase="Running") for pod, on in zip(run, ("b1", "b2"), strict=True)
        ]
        there = [
            replace(pod, node_name=on, phase="Running") for pod, on in zip(old, ("a1", "a2"), strict=True)
        ]
        site.at(0.0, GroupChanged(gang("runs", min_member=3)), *map(PodUpserted, (*members, *there)))
        site.at(1.0, *job("big", 2, prefix="b", created=1.0))
        site.at(1.0 + AFTER, PodDeleted("default/old-0"))
        assert site.reserved == "a1 a2"
        site.at(2.0 + AFTER, PodUpserted(more))
        assert site.where == {}

    def test_one_that_goes_before_takes_over(self) -> None:
        site = self.held()
        site.at(AFTER + 1, *job("urgent", 2, required="rack", priority=9, prefix="u"))
        assert site.reserved == "a1 a2", "it has not waited yet"
        changes = site.at(2 * AFTER + 1)
        assert [type(one) for one in changes] == [Released, Reserved]
        assert site.engine.reservation is not None
        assert site.engine.reservation.key == "default/urgent"


class TestWhatBecomesOfIt:
    def held(self) -> Site:
        """a1 and a2 are kept free."""
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER, *ends("a1"))
        return site

    def test_it_ends_with_the_gang(self) -> None:
        site = self.held()
        site.at(AFTER + 1, small("s"))
        site.at(AFTER + 2, *(PodDeleted(f"default/big-{index}") for index in (0, 1)))
        assert site.reserved == ""
        assert site.where == {"s-0": "a1"}

    def test_it_moves_when_a_node_goes(self) -> None:
        site = self.held()
        changes = site.at(AFTER + 1, NodeDeleted("a2"))
        assert [type(one) for one in changes] == [Released, Reserved]
        assert site.reserved in ("a3 a4", "b1 b2")

    def test_it_changes_when_a_node_goes_though_the_others_would_do(self) -> None:
        site = self.held()
        larger = replace(site.engine.cluster.node_at(1), allocatable={GPU: 4})
        others = pods(None, 2, spec(gpu=1), prefix="more", on="a2")
        site.at(AFTER + 1, NodeUpserted(larger), *map(PodUpserted, others))
        assert site.reserved == "a1 a2"
        changes = site.at(AFTER + 2, NodeDeleted("a1"))
        assert [type(one) for one in changes] == [Released, Reserved]
        assert site.reserved == "a2"

    def test_it_moves_when_a_node_is_cordoned(self) -> None:
        site = self.held()
        site.at(AFTER + 1, NodeUpserted(replace(site.engine.cluster.node_at(1), unschedulable=True)))
        assert site.reserved in ("a3 a4", "b1 b2")

    def test_it_stays_when_other_nodes_change(self) -> None:
        site = self.held()
        assert site.at(AFTER + 1, NodeUpserted(node("c1", {}, {GPU: 2}))) == []
        assert site.reserved == "a1 a2"

    def test_it_moves_to_where_clearly_less_is_to_wait_for(self) -> None:
        site = Site("z r1 : a1=2 a2=2 a3=2 a4=2\nz r2 : b1=2 b2=2 b3=2 b4=2").full()
        site.at(0.0, *job("big", 4, required="rack"))
        site.at(AFTER)
        assert site.reserved == "a1 a2 a3 a4"
        site.at(AFTER + 100, *ends("b1", "b2", "b3"))
        assert site.reserved == "b1 b2 b3 b4"

    def test_half_as_much_to_wait_for_is_not_clearly_less(self) -> None:
        site = Site("z r1 : a1=2 a2=2 a3=2 a4=2\nz r2 : b1=2 b2=2 b3=2 b4=2").full()
        site.at(0.0, *job("big", 4, required="rack"))
        site.at(AFTER)
        assert site.at(AFTER + 100, *ends("b1", "b2")) == []
        assert site.reserved == "a1 a2 a3 a4"

    def test_its_own_members_count_where_its_nodes_are_looked_at_again(self) -> None:
        """One member runs on a1, the other waits for a2. Later less must end on a3, but still one pod."""
        site = Site("z r1 : a1=2 a2=2 a3=2\nz r2 : b1=2")
        running, waiting = pods("big", 2, spec(gpu=2))
        others = [
            *pods(None, 1, spec(gpu=2), prefix="on-a2", on="a2"),
            *pods(None, 2, spec(gpu=1), prefix="on-a3", on="a3"),
        ]
        members = replace(running, node_name="a1", phase="Running"), waiting
        group = GroupChanged(gang("big", min_member=2, required="rack"))
        site.at(0.0, group, *map(PodUpserted, (*others, *members)))
        site.at(AFTER)
        assert site.reserved == "a2"
        site.at(AFTER + 1, PodDeleted("default/on-a3-0"))
        assert site.at(2 * AFTER) == []
        assert site.reserved == "a2"

    def test_what_its_members_leave_of_their_nodes_counts_too(self) -> None:
        """a2 shrinks to one pod of two; the other one has room on a1 beside the member that runs there."""
        site = Site("z r1 : a1=4 a2=4")
        running, *waiting = pods("big", 3, spec(gpu=2))
        others = pods(None, 2, spec(gpu=2), prefix="old")
        old = [replace(pod, node_name=name) for pod, name in zip(others, ("a1", "a2"), strict=True)]
        more = pods(None, 1, spec(gpu=2), prefix="more", on="a2")
        members = replace(running, node_name="a1", phase="Running"), *waiting
        group = GroupChanged(gang("big", min_member=3, required="rack"))
        site.at(0.0, group, *map(PodUpserted, (*old, *more, *members)))
        site.at(AFTER)
        assert site.reserved == "a2"
        smaller = replace(site.engine.cluster.node_at(1), allocatable={GPU: 2})
        assert site.at(AFTER + 1, NodeUpserted(smaller)) == []
        assert site.reserved == "a2"

    def test_who_keeps_off_hears_of_nodes_that_it_leaves(self) -> None:
        site = Site("z r1 : a1=2 a2=2 a3=2 a4=2\nz r2 : b1=2 b2=2 b3=2 b4=2").full()
        site.at(0.0, *job("big", 4, required="rack"))
        only = replace(spec(gpu=2), node_selector=((HOSTNAME, "a1"),))
        site.at(AFTER, PodUpserted(pods(None, 1, only, prefix="s")[0]), *ends("a1"))
        assert site.outcome("s-0").reason is Reason.NODE_RESERVED
        site.at(AFTER + 1, *ends("b1", "b2", "b3"))
        site.at(AFTER + AFTER / 10)
        assert site.reserved == "b1 b2 b3 b4"
        assert site.where == {"s-0": "a1"}

    @pytest.mark.parametrize("waited", [AFTER, AFTER + 1, 2 * AFTER])
    def test_it_ends_when_the_gang_is_deleted_under_its_pods(self, waited: float) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        if waited > AFTER:
            site.at(AFTER)
        site.at(waited, GroupDeleted("default/big"))
        assert site.outcome("big").reason is Reason.GANG_INCOMPLETE
        assert site.reserved == ""

    def test_it_ends_when_the_gang_asks_for_what_the_nodes_are_not(self) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 4, required="zone"))
        site.at(AFTER)
        assert site.reserved == "a1 a2 a3 a4"
        site.at(AFTER + 1, GroupChanged(gang("big", min_member=4, required="rack")))
        assert site.reserved == "", "no rack holds four"
        site.at(AFTER + 2, GroupChanged(gang("big", min_member=2, required="rack")))
        assert site.reserved == "a1 a2"

    def test_it_ends_when_the_topology_changes(self) -> None:
        site = Site().full()
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        site.at(AFTER + 1, TopologyChanged(fabric("zone", HOSTNAME)))
        assert site.outcome("big").reason is Reason.TOPOLOGY_LEVEL_NOT_FOUND
        assert site.reserved == ""

    def test_it_moves_from_nodes_that_a_long_running_pod_keeps(self) -> None:
        site = self.held()
        daemon = pods(None, 1, spec(gpu=2), prefix="daemon", on="a1", owner="DaemonSet/daemon")
        site.at(AFTER + 1, *map(PodUpserted, daemon))
        site.at(2 * AFTER)
        assert site.reserved == "a3 a4"

    def test_those_that_stay_are_asked_after_again(self) -> None:
        site = Site().full(owner="ReplicaSet/service")
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert site.reserved == ""
        others = (pods(None, 1, spec(gpu=2), prefix=f"new-{name}", on=name)[0] for name in ("b1", "b2"))
        site.at(AFTER + 1, *ends("b1", "b2"), *map(PodUpserted, others))
        site.at(2 * AFTER)
        assert site.reserved == "b1 b2"

    def test_a_gang_that_was_passed_over_is_asked_after_again_when_anything_may_have_changed(self) -> None:
        site = Site().full(owner="ReplicaSet/service")
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        others = (pods(None, 1, spec(gpu=2), prefix=f"new-{name}", on=name)[0] for name in ("b1", "b2"))
        site.at(AFTER + 11, *ends("b1", "b2"), *map(PodUpserted, others))
        assert site.reserved == ""
        site.at(AFTER + 12, FlushUnschedulable())
        assert site.reserved == "b1 b2"

    def test_it_stays_where_the_search_finds_the_same_again(self) -> None:
        """Five members of some of the subgroups: among fewer nodes the search finds fewer."""
        site = Site("z1 r1 : a1=3 a2=3\nz1 r2 : a3=1")
        site.at(0.0, *(PodUpserted(one) for name in ("a1", "a2", "a3") for one in filler(name)))
        below = [subgroup("x"), *(subgroup(name, 2, required=HOSTNAME) for name in "yz")]
        group = replace(gang("big", min_member=5, required="zone", subgroups=below), min_subgroups=1)
        sizes = {"x": (2, 1), "y": (3, 0), "z": (2, 3)}
        members = [
            pod
            for name, (count, gpus) in sizes.items()
            for pod in pods("big", count, spec(gpu=gpus), subgroup=name)
        ]
        site.at(0.0, GroupChanged(group), *map(PodUpserted, members))
        site.at(AFTER)
        before = site.reserved
        assert before
        assert [one for look in range(1, 5) for one in site.at(AFTER * (1 + look / 10))] == []
        assert site.reserved == before

    def test_a_hopeless_gang_before_it_does_not_shake_it(self) -> None:
        site = Site().full()
        site.at(0.0, *job("never", 9, required="rack", priority=5, prefix="n"))
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert site.reserved == "a1 a2"
        for number in range(10):
            changes = site.at(AFTER + 20 * number, NodeUpserted(node(f"c{number}", {}, {GPU: 1})))
            assert not [one for one in changes if isinstance(one, Reserved | Released)]

    def test_after_a_restart_the_time_counts_since_its_pods_were_made(self) -> None:
        site = Site().full()
        site.at(7.0, *job("big", 2, required="rack", created=1000.0), wall=1000.0 + AFTER)
        assert site.reserved == "a1 a2"
        assert site.engine.reservation is not None
        assert site.engine.reservation.since == "1970-01-01T00:26:40Z"

    def test_the_time_counts_since_the_oldest_of_its_pods(self) -> None:
        site = Site().full()
        old, young = job("big", 2, required="rack", created=1000.0)[:2], pods("big", 2, spec(gpu=2))[1]
        late = PodUpserted(replace(young, created=1000.0 + AFTER / 2))
        site.at(7.0, *old, late, wall=1000.0 + AFTER)
        assert site.reserved == "a1 a2"

    def test_nothing_is_reserved_without_a_clock(self) -> None:
        site = Site().full()
        site.engine.handle(*job("big", 2, required="rack"))
        for _ in range(3):
            site.engine.handle(Tick())
        assert site.reserved == ""


class TestTheBudget:
    """Of a gang with two pods of 2 GPUs each: a quarter of 4 GPUs for an hour is 3,600 GPU-seconds."""

    def held(self, budget: float = 0.25, **more: Any) -> Site:
        """a1, which is free, and a2, which is not, are kept for the gang."""
        site = Site(budget=budget).full()
        site.at(0.0, *job("big", 2, required="rack", **more))
        site.at(AFTER, *ends("a1"))
        assert site.reserved == "a1 a2"
        return site

    def test_it_lets_go_for_as_long_as_it_lasted(self, golden: Golden) -> None:
        site = self.held()
        site.at(AFTER + 1, small("s"))
        site.at(AFTER + 1800)
        assert (site.reserved, site.where) == ("a1 a2", {})
        (released,) = [one for one in site.at(AFTER + 1801) if isinstance(one, Released)]
        assert released.reservation.reason is Reason.RESERVATION_BUDGET_SPENT
        assert (site.reserved, site.where) == ("", {"s-0": "a1"})
        site.at(AFTER + 3601, PodDeleted("default/s-0"))
        assert site.reserved == ""
        site.at(AFTER + 3602)
        assert site.reserved == "a1 a2"
        golden("refusals", released.why)

    def test_meanwhile_the_gang_says_so(self) -> None:
        site = self.held()
        site.at(AFTER + 1801)
        site.at(AFTER + 1802, PodUpserted(pods("big", 1, spec(gpu=2), labels={"new": "label"})[0]))
        told, kept = site.outcome("big"), site.engine.reservation_of("default/big")
        assert kept is not None and told.reservation == kept
        assert (kept.status.reason, kept.status.resumes) == ("ReservationBudgetSpent", "second 4202")
        assert (told.full_message or "").endswith(kept.sentence())
        assert kept.sentence() in [entry.what for entry in site.engine.story("default/big")]
        site.at(AFTER + 3602)
        kept = site.engine.reservation_of("default/big")
        assert kept is not None and kept.status.reason is None

    def test_its_budget_is_new_each_time(self) -> None:
        site = self.held()
        for begin in (AFTER, AFTER + 3602, AFTER + 7204):
            site.at(begin)
            assert site.reserved == "a1 a2"
            site.at(begin + 1800)
            assert site.reserved == "a1 a2"
            site.at(begin + 1801)
            assert site.reserved == ""

    @pytest.mark.parametrize(("budget", "lasts", "seconds"), [(0.25, 7200.0, 3600), (0.1, None, 720)])
    def test_by_the_factor_and_the_time_that_the_gang_takes(
        self, budget: float, lasts: float | None, seconds: int
    ) -> None:
        site = self.held(budget, lasts=lasts)
        site.at(AFTER + seconds)
        assert site.reserved == "a1 a2"
        site.at(AFTER + seconds + 1)
        assert site.reserved == ""

    def test_what_the_higher_priority_uses_does_not_idle(self) -> None:
        site = self.held()
        site.at(AFTER + 1000, small("urgent", priority=1))
        site.at(AFTER + 9000, PodDeleted("default/urgent-0"))
        site.at(AFTER + 9800)
        assert site.reserved == "a1 a2"
        site.at(AFTER + 9801)
        assert site.reserved == ""

    def test_what_one_gang_spent_counts_after_another_went_before_it(self) -> None:
        site = self.held()
        site.at(AFTER + 1, *job("urgent", 2, required="zone", priority=9, prefix="u"))
        site.at(2 * AFTER + 1)
        assert site.engine.reservation is not None and site.engine.reservation.key == "default/urgent"
        site.at(3 * AFTER, *(PodDeleted(f"default/u-{index}") for index in (0, 1)))
        assert site.engine.reservation.key == "default/big"
        site.at(3 * AFTER + 1199)
        assert site.reserved == "a1 a2"
        site.at(3 * AFTER + 1200)
        assert site.reserved == ""

    def kept(self) -> Site:
        """a1 and a2 are kept; a2 is taken to be free when as much time has passed again."""
        site = Site("z r1 : a1=2 a2=2\nz r2 : b1=2 b2=2", budget=0.25)
        for name in ("a2", "b1", "b2"):
            old = pods(None, 1, spec(gpu=2), prefix=f"old-{name}", on=name, started=0.0)[0]
            site.at(0.0, PodUpserted(old))
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert site.reserved == "a1 a2"
        return site

    def cordoned(self, site: Site, *names: str, on: bool = True) -> list[Event]:
        cluster = site.engine.cluster
        nodes = (cluster.node_at(cluster.slot_of(name)) for name in names)
        return [NodeUpserted(replace(one, unschedulable=on)) for one in nodes]

    def test_what_is_left_counts_as_spent_where_only_a_new_one_would_do(self) -> None:
        """After 1,000 seconds 1,600 GPU-seconds are left, and another 3,320 would idle."""
        site = self.kept()
        (released,) = site.at(AFTER + 1000, *self.cordoned(site, "a1", "b1"))
        assert isinstance(released, Released) and released.reservation.reason is None
        outputs = site.at(AFTER + 1060, *self.cordoned(site, "a1", on=False), small("s"))
        (released,) = [one for one in outputs if isinstance(one, Released)]
        assert released.reservation.nodes == ("a1", "a2")
        assert released.reservation.reason is Reason.RESERVATION_BUDGET_SPENT
        assert released.reservation.resumes == "second 2660"
        assert site.engine.reservation_of("default/big") == released.reservation
        assert site.where == {"s-0": "a1"}, "as the nodes are for others meanwhile"
        fresh = pods(None, 1, spec(gpu=2), prefix="new", on="a2", started=2640.0)[0]
        site.at(2659.0, PodDeleted("default/s-0"), *ends("a2"), PodUpserted(fresh))
        assert site.reserved == ""
        site.at(2660.0)
        assert site.reserved == "a1 a2"
        site.at(2660.0 + 1800)
        assert site.reserved == "a1 a2", "with a new budget"
        site.at(2660.0 + 1801)
        assert site.reserved == ""

    def test_so_it_does_where_other_nodes_take_more_than_is_left(self) -> None:
        site = self.kept()
        outputs = site.at(AFTER + 1000, *self.cordoned(site, "a1"), *ends("b1"))
        (released,) = [one for one in outputs if isinstance(one, Released)]
        assert released.reservation.reason is Reason.RESERVATION_BUDGET_SPENT
        assert released.reservation.resumes == "second 2600"
        assert site.reserved == ""

    def test_so_it_does_after_another_gang_went_before_it(self) -> None:
        """Another 2,600 GPU-seconds would idle, and 2,398 are left."""
        site = self.kept()
        site.at(AFTER + 1, *job("urgent", 2, required="rack", priority=9, prefix="u"))
        site.at(2 * AFTER + 1)
        assert site.engine.reservation is not None and site.engine.reservation.key == "default/urgent"
        outputs = site.at(1300.0, *(PodDeleted(f"default/u-{index}") for index in (0, 1)))
        ended = [one.reservation for one in outputs if isinstance(one, Released)]
        assert [(one.key, one.reason, one.resumes) for one in ended] == [
            ("default/urgent", None, None),
            ("default/big", Reason.RESERVATION_BUDGET_SPENT, "second 1901"),
        ]

    def test_gangs_after_it_let_go_then(self) -> None:
        site = self.kept()
        site.at(AFTER + 1, *job("later", 1, required="rack", prefix="p", gpus=1, lasts=1e5))
        site.at(AFTER + 999)
        site.at(AFTER + 1000, *self.cordoned(site, "a1", "b1"))
        site.at(2 * AFTER + 401)
        assert site.engine.reservation is not None and site.engine.reservation.key == "default/later"
        outputs = site.at(AFTER + 1060, *self.cordoned(site, "a1", on=False), small("s", priority=9))
        ended = [one.reservation.key for one in outputs if isinstance(one, Released)]
        assert (ended, site.reserved) == (["default/later", "default/big"], "")

    def test_gangs_after_it_keep_nothing_while_it_lets_go(self) -> None:
        site = self.held()
        site.at(AFTER + 1, *job("later", 2, required="rack", prefix="p"))
        site.at(AFTER + 1801)
        site.at(AFTER + 2500)
        assert site.reserved == ""
        site.at(AFTER + 2600, *job("urgent", 2, required="rack", priority=9, prefix="u"))
        site.at(2 * AFTER + 2600)
        assert site.engine.reservation is not None, "one before it does"
        assert site.engine.reservation.key == "default/urgent"

    def test_gangs_after_it_take_over_once_it_is_gone(self) -> None:
        site = self.held()
        site.at(AFTER + 1, *job("later", 2, required="rack", prefix="p"))
        site.at(AFTER + 1801)
        site.at(AFTER + 2500, *(PodDeleted(f"default/big-{index}") for index in (0, 1)))
        assert site.engine.reservation is not None
        assert site.engine.reservation.key == "default/later"

    @pytest.mark.parametrize(("end", "keeps"), [(AFTER + 1800, True), (AFTER + 1801, False)])
    def test_nodes_are_kept_only_where_less_will_idle_until_they_are_free(
        self, end: float, keeps: bool
    ) -> None:
        """On a1 two GPUs wait for what runs on a2."""
        site = Site("z r1 : a1=2 a2=2", budget=0.25)
        site.at(0.0, PodUpserted(pods(None, 1, spec(gpu=2), prefix="old", on="a2", ends=end)[0]))
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert (site.reserved == "a1 a2") is keeps
        site.at(AFTER + 1, small("s"))
        assert site.where == ({} if keeps else {"s-0": "a1"})

    @pytest.mark.parametrize(("started", "keeps"), [(-1200.0, True), (-1201.0, False)])
    def test_what_says_no_end_is_taken_to_run_as_long_again(self, started: float, keeps: bool) -> None:
        site = Site("z r1 : a1=2 a2=2", budget=0.25)
        site.at(0.0, PodUpserted(pods(None, 1, spec(gpu=2), prefix="old", on="a2", started=started)[0]))
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(AFTER)
        assert (site.reserved == "a1 a2") is keeps

    def test_so_is_what_was_placed_and_has_not_said_that_it_started(self) -> None:
        site = Site("z r1 : a1=2 a2=2", after=2000.0, budget=0.25)
        site.at(0.0, small("old"))
        site.at(0.0, *job("big", 2, required="rack"))
        site.at(2000.0)
        assert site.reserved == ""
        site.at(2400.0, PodDeleted("default/old-0"), small("new", priority=1))
        assert site.reserved == "a1 a2", "that the other one has just started"

    def test_one_that_would_take_too_much_is_passed_over(self) -> None:
        """Of the first zone the first node is free long before the last, and of one node nothing idles."""
        site = Site(budget=0.25)
        for number, name in enumerate(("a1", "a2", "a3", "a4", "b1", "b2")):
            pod = pods(None, 1, spec(gpu=2), prefix=f"old-{name}", on=name, started=-1000.0 * number)[0]
            site.at(0.0, PodUpserted(pod))
        site.at(0.0, *job("big", 4, required="zone", prefix="b"), *job("little", 1, required="rack"))
        site.at(AFTER)
        assert site.engine.reservation is not None
        assert site.engine.reservation.key == "default/little"
        site.at(AFTER + 100, *ends("a1", "a2", "a3"))
        assert set(site.where) == {"little-0"}

    def test_what_asks_for_no_accelerator_may_let_cpu_idle(self) -> None:
        """A quarter of two cores for an hour; one core idles, and 2 GPUs beside it do not count."""
        site = Site("z r1 : a1=2 a2=2", budget=0.25)
        for name in ("a1", "a2"):
            site.at(0.0, NodeUpserted(node(name, {"zone": "z", "rack": "r1"}, {GPU: 2, "cpu": 1000})))
        site.at(0.0, PodUpserted(pods(None, 1, spec(cpu=1000), prefix="old", on="a2")[0]))
        group = GroupChanged(gang("big", min_member=2, required="rack"))
        site.at(0.0, group, *map(PodUpserted, pods("big", 2, spec(cpu=1000))))
        site.at(AFTER)
        assert site.reserved == "a1 a2"
        site.at(AFTER + 1800)
        assert site.reserved == "a1 a2"
        site.at(AFTER + 1801)
        assert site.reserved == ""


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_idles_for_a_gang_is_never_more_than_its_budget_and_one_tick(seed: int) -> None:
    """Random jobs that end early, late or not at all, and cordons.

    The test counts what is free on reserved nodes.
    """
    dice, site, names = Random(seed), Site(after=20.0, budget=0.25), count()
    sizes, budgets = dict[str, int](), dict[str, float]()
    idled, kept, rests = dict[str, float](), dict[str, float](), dict[str, float]()
    idle, now, spent = 0, 0.0, 0
    for _ in range(60):
        seconds = dice.choice([1.0, 10.0, 30.0])
        now += seconds
        events: list[Event] = []
        for _ in range(dice.randint(0, 2)):
            name, size = f"j{next(names)}", dice.choice([1, 1, 2, 4])
            lasts = float(dice.choice([10, 40, 100, 400]))
            gpus, required = dice.randint(1, 2), "zone" if size == 4 else dice.choice([None, "rack"])
            events += job(name, size, required=required, gpus=gpus, lasts=lasts)
            sizes[name], budgets[f"default/{name}"] = size, 0.25 * size * gpus * lasts
        if sizes and dice.random() < 0.5:
            name = dice.choice(list(sizes))
            events += [PodDeleted(f"default/{name}-{index}") for index in range(sizes.pop(name))]
            events.append(GroupDeleted(f"default/{name}"))
        if dice.random() < 0.1:
            before = site.engine.cluster.node_at(dice.randint(0, 5))
            events.append(NodeUpserted(replace(before, unschedulable=not before.unschedulable)))
        held = site.engine.reservation
        if held is not None:
            idled[held.key] = idled.get(held.key, 0.0) + idle * seconds
            kept[held.key] = kept.get(held.key, 0.0) + seconds
            assert idled[held.key] <= budgets[held.key] + idle * seconds
        for output in site.at(now, *events):
            match output:
                case Reserved(reservation):
                    assert now >= rests.get(reservation.key, 0.0)
                case Released(reservation) if reservation.reason is not None:
                    spent += 1
                    assert idled[reservation.key] > 0, "what idled is in the way"
                    rests[reservation.key] = now + kept[reservation.key]
                    idled[reservation.key] = kept[reservation.key] = 0.0
        held = site.engine.reservation
        assert held is None or idled.get(held.key, 0.0) <= budgets[held.key]
        cluster = site.engine.cluster
        slots = np.asarray(
            [] if held is None else [cluster.slot_of(name) for name in held.nodes], dtype=np.intp
        )
        idle = int(cluster.free(cluster.row_of[GPU], slots).sum())


def stream(site: Site, seconds: int, size: int, required: str | None) -> float | None:
    """An endless stream of small pods, each of which runs 50 seconds; when the gang starts in between."""
    names = (f"s{number}" for number in count())
    waiting: list[str] = []
    running: list[tuple[int, str]] = []
    for now in range(0, seconds, 10):
        events: list[Event] = [PodDeleted(f"default/{name}-0") for end, name in running if end <= now]
        running = [(end, name) for end, name in running if end > now]
        if now == 100:
            events += job("big", size, required=required)
        fresh = [next(names) for _ in range(3)]
        waiting += fresh
        site.at(now, *events, *(PodUpserted(pod) for name in fresh for pod in _one(name)))
        running += [(now + 50, name) for name in waiting if f"{name}-0" in site.where]
        waiting = [name for name in waiting if f"{name}-0" not in site.where]
        if "big-0" in site.where:
            return now
    return None


def filler(name: str) -> list[Pod]:
    """What takes the last GPU of a node."""
    amount = {"a1": 3, "a2": 3, "a3": 1}[name]
    return pods(None, 1, spec(gpu=amount), prefix=f"old-{name}", on=name)


def _one(name: str) -> list[Pod]:
    return pods(None, 1, spec(gpu=2), prefix=name)


class TestStarvation:
    @pytest.mark.parametrize(("size", "required"), [(2, "rack"), (4, "zone"), (6, None), (4, None)])
    def test_a_gang_that_could_fit_starts_in_the_end(self, size: int, required: str | None) -> None:
        started = stream(Site(budget=0.25), 2000, size, required)
        assert started is not None
        assert started <= 100 + AFTER + 100

    @pytest.mark.parametrize(("size", "required"), [(4, "zone"), (6, None)])
    def test_a_large_gang_never_starts_without_reservations(self, size: int, required: str | None) -> None:
        assert stream(Site(after=0.0), 2000, size, required) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_pod_that_must_keep_off_ever_gets_a_reserved_node(seed: int) -> None:
    dice, site, names, priority_of = Random(seed), Site(after=20.0), count(), dict[str, int]()
    sizes: dict[str, int] = {}
    for step in range(40):
        events: list[Event] = []
        for _ in range(dice.randint(0, 2)):
            name = f"j{next(names)}"
            size, required = dice.choice([1, 1, 2, 4]), dice.choice([None, "zone", "rack"])
            priority_of[f"default/{name}"], sizes[name] = dice.choice([0, 0, 0, 1]), size
            events += job(
                name,
                min(size, 2) if required == "rack" else size,
                required=required,
                priority=priority_of[f"default/{name}"],
                gpus=dice.randint(1, 2),
            )
        if sizes and dice.random() < 0.6:
            name = dice.choice(list(sizes))
            events += [PodDeleted(f"default/{name}-{index}") for index in range(sizes.pop(name))]
            events.append(GroupDeleted(f"default/{name}"))
        if dice.random() < 0.1:
            before = site.engine.cluster.node_at(dice.randint(0, 5))
            events.append(NodeUpserted(replace(before, unschedulable=not before.unschedulable)))
        held = site.engine.reservation
        for output in site.at(10.0 * step, *events):
            match output:
                case Reserved(reservation):
                    held = reservation
                case Released():
                    held = None
                case Decision(outcome) if held is not None:
                    if taken := {one.node for one in outcome.bindings} & set(held.nodes):
                        mine = outcome.key
                        earlier = (-priority_of[mine], mine) <= (-priority_of[held.key], held.key)
                        assert earlier, f"{mine} took {taken} of {held.key}"


def test_a_gang_in_segments_keeps_the_nodes_of_whole_segments() -> None:
    site = Site().full()
    asked = replace(gang(min_member=8), layers=(Layer(level="rack", size=4),))
    site.at(1.0, GroupChanged(asked), *map(PodUpserted, pods("train", 8)))
    site.at(1.0 + AFTER)
    (current,) = [one for one in (site.engine.reservation,) if one is not None]
    kept = {name[:2] for name in current.nodes}
    assert len(kept) == 4
    # Two whole racks: a1 and a2, a3 and a4, or b1 and b2.
    racks = {"a1": 1, "a2": 1, "a3": 2, "a4": 2, "b1": 3, "b2": 3}
    assert len({racks[name] for name in kept}) == 2
