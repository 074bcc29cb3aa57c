"""What happens while a search is suspended: it begins again only where what it goes by has changed.

A small application of three workloads on eight nodes in eight zones, suspended every few steps. A limit keeps
two of its workloads near each other.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.applications.networks import NetworkScope
from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.groups import Exclusive, Layer, Strategy
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.pods import Pod
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, PodOwner, selector_of
from closeby.objects.volumes import CSINode, NodeDriver, VolumeAttachment
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    GroupChanged,
    NetworkScopeChanged,
    NetworkTopologyChanged,
    NodeUpserted,
    PodUpserted,
    SelectionChanged,
    StorageChanged,
    StorageDeleted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.gangs.parts import EVERYWHERE
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.outcomes import Suspended, bindings_of
from closeby.scheduling.pace import Budget, Pace
from closeby.scheduling.placing.mutual import Mutual, _Options, _Search
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.reserving.hypothetical import STEPS
from tests.applications.networks import network
from tests.attacks.crowds import ZONES, cluster, complete, engine, in_namespace
from tests.scheduling.histories import engine as resting_engine
from tests.worlds import GPU, fabric, gang, node, pods, spec, subgroup, world

LIMIT = 30


def application() -> list[Event]:
    """w0 must be near w1; both talk to w2."""
    workloads = (
        AppWorkload(
            name="w0",
            dependencies=(Dependency(workload="w1", max_network_cost=LIMIT), Dependency(workload="w2")),
        ),
        AppWorkload(name="w1", dependencies=(Dependency(workload="w2"),)),
        AppWorkload(name="w2"),
    )
    events: list[Event] = [AppGroupChanged(AppGroup(namespace="t", name="app", workloads=workloads))]
    for number, name in enumerate(("w0", "w1", "w2")):
        labels = {"appgroup.diktyo.x-k8s.io": "app", "appgroup.diktyo.x-k8s.io.workload": name}
        needs = spec(gpu=1, cpu=1 + number)
        events += (
            PodUpserted(in_namespace(one, "t")) for one in pods(None, 1, needs, prefix=name, labels=labels)
        )
    return events


def dearer() -> Event:
    """All zones are ten times as far from each other."""
    costs = (f"z{a} z{b} {10 * (5 + 3 * (b - a))}" for b in range(ZONES) for a in range(b))
    return NetworkTopologyChanged(network(zones="\n".join(costs)))


def drive(one: Engine, steps: int, meanwhile: Callable[[int], list[Event]]) -> tuple[int, dict[str, str]]:
    """Decides in turns; ``meanwhile`` happens whenever a search is suspended.

    Returns how often that was, and on which node each pod is.
    """
    suspended, where = 0, {}
    while decisions := one.handle(Tick(limit=1, steps=steps)):
        one.validate_state()
        where.update({bind.pod.name: bind.node for bind in bindings_of(decisions)})
        if any(isinstance(decision, Suspended) for decision in decisions):
            suspended += 1
            one.handle(*meanwhile(suspended))
    return suspended, where


def rises(at: int, suspended: int) -> list[Event]:
    return [dearer()] if suspended == at else []


def scene() -> Engine:
    one = engine()
    one.handle(*cluster(nodes=8, taken=7), *application())
    return one


def test_costs_that_rise_while_a_search_is_suspended_break_no_limit() -> None:
    last, _ = drive(scene(), 10, lambda suspended: [])
    for moment in range(last - 8, last + 1):
        one = scene()
        _, where = drive(one, 10, partial(rises, moment))
        assert not {"w0-0", "w1-0"} <= where.keys() or where["w0-0"] == where["w1-0"]


def test_a_search_goes_on_while_nodes_change_what_they_offer() -> None:
    one = scene()

    def meanwhile(suspended: int) -> list[Event]:
        labels = {ZONE: "z0", REGION: "r"}
        return [NodeUpserted(node("n0", labels, {GPU: 8, "cpu": 8000 + suspended % 2}))]

    suspended, where = drive(one, 50, meanwhile)
    assert suspended > 10 and len(where) == 3


def test_an_application_of_another_namespace_wakes_and_restarts_no_item() -> None:
    one = scene()
    one.handle(*complete("huge", 2, "t"))  # Its pods fit nowhere: one GPU is left on each node.
    suspended, where = drive(
        one, 50, lambda suspended: [AppGroupChanged(AppGroup(namespace="other", name="a"))]
    )
    assert suspended > 10 and len(where) >= 3
    waiting = one.unschedulable
    one.handle(AppGroupChanged(AppGroup(namespace="other", name="b")))
    assert one.handle(Tick(limit=1)) == [] and one.unschedulable == waiting


def test_a_service_of_another_namespace_restarts_no_search() -> None:
    apart = PodAffinity(forbidden=(PodAffinityTerm(HOSTNAME, selector_of({"app": "a"})),))
    running = pods(None, 1, replace(spec(gpu=0), pod_affinity=apart), on="n0")[0]
    with_terms = replace(running, namespace="other")

    def selects(suspended: int) -> list[Event]:
        selector = selector_of({"app": f"a{suspended % 2}"})
        return [SelectionChanged(PodOwner(kind="Service", namespace="other", name="s", selector=selector))]

    def driven(until: int) -> tuple[int, dict[str, str]]:
        one = scene()
        one.handle(PodUpserted(with_terms))
        return drive(one, 50, lambda suspended: selects(suspended) if suspended < until else [])

    found = driven(until=200)
    assert found == driven(until=0) and len(found[1]) == 3


def test_costs_that_count_in_another_namespace_alone_restart_no_search() -> None:
    one = scene()
    one.handle(NetworkScopeChanged(NetworkScope(frozenset({"default"}), beside=True)))

    def meanwhile(suspended: int) -> list[Event]:
        if suspended > 200:
            return []
        costs = network(zones=f"z0 z1 {suspended % 2 + 1}")
        return [NetworkTopologyChanged(replace(costs, namespace="other"))]

    assert drive(one, 50, meanwhile) == drive(scene(), 50, lambda suspended: [])


def test_a_volume_that_is_detached_restarts_no_search() -> None:
    there = VolumeAttachment(name="at", driver="d", node="n0", volume="v")

    def turns(suspended: int) -> list[Event]:
        return [StorageChanged(there) if suspended % 2 else StorageDeleted(VolumeAttachment, "at")]

    def driven(until: int) -> tuple[int, dict[str, str]]:
        one = scene()
        one.handle(StorageChanged(CSINode(name="n0", drivers=(NodeDriver("d", 1),))))
        return drive(one, 50, lambda suspended: turns(suspended) if suspended < until else [])

    found = driven(until=200)
    assert found == driven(until=0) and len(found[1]) == 3


def test_a_node_is_offered_although_a_tighter_one_was_filled_while_a_search_was_suspended() -> None:
    """The search by terms keeps which kinds of nodes were in vain, and not how many."""
    drawn = world("z r0 : a1=1 b1=2 c1=3")
    cluster, profile = drawn.engine.cluster, drawn.engine.profile
    table = ClassTable(cluster, profile.filters, ())
    mutual = Mutual(
        cluster=cluster,
        table=table,
        statement=Statement(cluster, [], CycleState(), Pace(), lambda state, pod, slot: True),
        demand=table.shares(pods("train", 2)),
        inside=EVERYWHERE,
        tree=drawn.engine.topologies.flat(),
        strategy=Strategy.BINPACK,
    )
    search, options = _Search(mutual, np.arange(cluster.capacity), Budget()), _Options()

    def offered() -> str | None:
        step = search._next(options)
        return None if step is None else cluster.names[step[1]]

    assert offered() == "a1"
    (other,) = pods(None, 1, prefix="other")
    cluster.place_pod(other, cluster.slot_of("a1"))
    assert [offered(), offered(), offered()] == ["b1", "c1", None]


def test_segments_go_elsewhere_where_others_take_what_was_counted_before_a_suspension() -> None:
    """A member comes again; the node that is the tightest for it gets a pod of another scheduler."""

    def lost() -> Engine:
        one = resting_engine()
        one.handle(TopologyChanged(fabric("rack", HOSTNAME)))
        one.handle(*(NodeUpserted(node(f"n{i}", {"rack": "r"}, {GPU: 4 + i})) for i in range(2)))
        running, again = pods("g", 2, spec(gpu=1), on="n0"), pods("g", 3, spec(gpu=1))[2]
        layer = Layer(level=HOSTNAME, size=1)
        one.handle(GroupChanged(replace(gang("g", 3), layers=(layer,))))
        one.handle(*(PodUpserted(replace(pod, index=i)) for i, pod in enumerate([*running, again])))
        return one

    last, undisturbed = drive(lost(), 1, lambda suspended: [])
    assert last > 1 and undisturbed == {"g-2": "n0"}
    (other,) = pods(None, 1, spec(gpu=2), prefix="other", on="n0")
    for moment in range(1, last + 1):
        _, where = drive(lost(), 1, partial(_comes, other, moment))
        assert where == {"g-2": "n1"}, f"it came at suspension {moment}"


def test_a_domain_that_others_enter_while_a_search_is_suspended_is_no_gangs_own() -> None:
    """The node that an unequal gang would have for itself gets a pod of another scheduler."""

    def alone() -> Engine:
        one = resting_engine()
        layer = Layer(level=HOSTNAME, size=2, exclusive=Exclusive.ALL)
        one.handle(TopologyChanged(fabric("rack", HOSTNAME)))
        one.handle(*(NodeUpserted(node(f"n{i}", {"rack": "r"}, {GPU: 4})) for i in range(3)))
        members = [
            replace(one, index=i) for i in (0, 1) for one in pods("g", 1, spec(gpu=1 + i), prefix=f"g{i}")
        ]
        one.handle(GroupChanged(replace(gang("g", 2), layers=(layer,))), *map(PodUpserted, members))
        return one

    last, undisturbed = drive(alone(), 1, lambda suspended: [])
    chosen = undisturbed["g0-0"]
    (other,) = pods(None, 1, prefix="other", on=chosen)
    assert last > 2
    for moment in range(1, last + 1):
        _, where = drive(alone(), 1, partial(_comes, other, moment))
        assert len(where) == 2 and chosen not in where.values(), f"it came at suspension {moment}"


def _comes(pod: Pod, at: int, suspended: int) -> list[Event]:
    return [PodUpserted(pod)] if suspended == at else []


@pytest.mark.slow
def test_rehearsals_for_a_reservation_are_bounded() -> None:
    """Nine unequal subgroups that fit into no zone, not even an empty one: to find that out takes seconds."""
    one = resting_engine(backoff=True, reserve_after=600.0)
    one.handle(TopologyChanged(fabric("zone", "rack")))
    for zone in range(4):
        for number in range(32):
            rack = f"z{zone}r{number // 4}"
            one.handle(NodeUpserted(node(f"n{zone}-{number}", {"zone": f"z{zone}", "rack": rack}, {GPU: 8})))
    parts = [subgroup(f"s{part}", 6, required="rack") for part in range(9)]
    members = [
        pod
        for part in range(9)
        for number, need in enumerate((3, 4, 5, 3, 4, 5))
        for pod in pods("g", 1, spec(gpu=need), subgroup=f"s{part}", prefix=f"s{part}-{number}", created=0.0)
    ]
    one.handle(GroupChanged(gang("g", 54, required="zone", subgroups=parts)), *map(PodUpserted, members))
    hypothetical = one._pending.reservations._chooser._hypothetical
    now, ended = 0.0, False
    while now < 2000.0:
        one.handle(Tick(now, limit=1, steps=STEPS, wall=now))
        ended |= now > 0.0 and hypothetical.left == 0
        now += 50.0
    assert ended, "no trial was cut short"
    one.validate_state()
    assert (one.cluster.requested == 0).all(), "a trial left something behind"
