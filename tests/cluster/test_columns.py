"""The cluster in columns: what pods take, and that taking it back restores every bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.cluster.changes import ChangeLog
from closeby.cluster.columns import EVERYTHING, UNLIMITED, Batch, Cluster
from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, Pod, PodClaim, PodSpec
from tests.worlds import GPU, node, pods, spec


def cluster_of(**gpus: int) -> Cluster:
    cluster = Cluster()
    for name, amount in gpus.items():
        cluster.add_node(node(name, {}, {GPU: amount}))
    return cluster


def free(cluster: Cluster, name: str, resource: str = GPU) -> int:
    return int(cluster.free(cluster.row_of[resource], np.asarray([cluster.slot_of(name)]))[0])


def batch(members: list[Pod], *slots: int) -> Batch:
    return Batch(members[0].spec, tuple(members), np.asarray(slots, dtype=np.intp))


def test_a_node_that_is_not_there_has_no_slot_rather_than_the_first() -> None:
    cluster = cluster_of(n1=8, n2=8)
    cluster.remove_node("n2")

    assert cluster.slot_of("n1") == cluster.slot("n1") == 0
    assert cluster.slot("n2") is None
    with pytest.raises(KeyError):
        cluster.slot_of("n2")


def test_pods_that_are_gone_are_not_remembered_where_pods_are_often_asked_for() -> None:
    cluster = cluster_of(a=4, b=4)
    (stays,) = pods(None, 1, spec(gpu=1), prefix="stays")
    cluster.place_pod(stays, 0)
    for pod in pods(None, 5000, spec(gpu=1)):
        cluster.place_pod(pod, 1)
        assert cluster.pods_at(1) == (pod,)
        cluster.forget_pod(pod.uid)
    assert cluster.pods_at(0) == (stays,)
    assert sum(map(len, (cluster._uids_at or {}).values())) < 2000


def test_a_batch_takes_what_its_pods_ask_for_on_each_slot() -> None:
    cluster = cluster_of(a=4, b=4)
    cluster.assume(batch(pods("train", 3, spec(gpu=2)), 0, 0, 1))
    assert [free(cluster, "a"), free(cluster, "b")] == [0, 2]
    assert cluster.placement("default/train-2") == 1
    assert cluster.placed_count == 3


def test_slots_of_a_batch_may_come_in_any_order() -> None:
    cluster = cluster_of(a=4, b=4)
    cluster.assume(batch(pods("train", 4), 1, 0, 1, 1))
    assert [free(cluster, "a"), free(cluster, "b")] == [3, 1]


def test_an_overcommitted_node_has_nothing_left_rather_than_less() -> None:
    cluster = cluster_of(a=1)
    (greedy,) = pods(None, 1, spec(gpu=5))
    cluster.place_pod(greedy, 0)
    assert free(cluster, "a") == 0


def test_a_node_that_does_not_say_how_many_pods_it_takes_is_not_limited() -> None:
    cluster = cluster_of(a=1)
    assert free(cluster, "a", "pods") == UNLIMITED


def test_a_removed_node_gives_its_slot_and_its_pods_up() -> None:
    cluster = cluster_of(a=4, b=4)
    (pod,) = pods(None, 1)
    cluster.place_pod(pod, 0)
    assert cluster.remove_node("a") == (pod,)
    assert cluster.placement(pod.uid) is None
    assert not cluster.alive[0]
    assert cluster.add_node(node("c", {}, {GPU: 8})) == 0
    assert free(cluster, "c") == 8


def test_a_resource_that_appears_later_gets_its_own_row() -> None:
    cluster = cluster_of(a=4)
    cluster.add_node(Node(name="b", allocatable={"example.com/nic": 2}))
    assert free(cluster, "b", "example.com/nic") == 2
    assert free(cluster, "a", "example.com/nic") == 0
    assert free(cluster, "a") == 4


def test_host_ports_conflict_by_port_protocol_and_address() -> None:
    cluster = cluster_of(a=4)
    taken = PodSpec(host_ports=(HostPort(80, "TCP", "10.0.0.1"),))
    (pod,) = pods(None, 1, taken)
    cluster.place_pod(pod, 0)
    answers = {
        wanted: cluster.ports_and_disks.taken(0, [wanted])
        for wanted in (
            HostPort(80, "TCP", "10.0.0.1"),
            HostPort(80),
            HostPort(80, "TCP", "10.0.0.2"),
            HostPort(80, "UDP", "10.0.0.1"),
            HostPort(81, "TCP", "10.0.0.1"),
        )
    }
    assert list(answers.values()) == [True, True, False, False, False]
    cluster.forget_pod(pod.uid)
    assert not cluster.ports_and_disks.taken(0, [HostPort(80)])


NEEDS = [spec(gpu=1), spec(gpu=3, cpu=1500), spec()]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=8), st.data())
def test_taking_back_restores_every_bit(batches: list[list[int]], data: st.DataObject) -> None:
    cluster = cluster_of(a=3, b=0, c=100, d=2, e=7)
    for needs in NEEDS:
        cluster.demand(needs)  # A resource asked for the first time adds a row.
    way: list[tuple[bytes, int, Batch]] = []
    for number, slots in enumerate(batches):
        placed = batch(pods(f"gang{number}", len(slots), data.draw(st.sampled_from(NEEDS))), *slots)
        way.append((cluster.requested.tobytes(), cluster.placed_count, placed))
        cluster.assume(placed)
    for requested, count, placed in reversed(way):
        cluster.forget(placed)
        assert (cluster.requested.tobytes(), cluster.placed_count) == (requested, count)


def test_amounts_near_64_bits_do_not_wrap_round() -> None:
    """Four times 2**62 is 0 in 64 bits, which would make a full node look empty."""
    cluster = cluster_of(a=1 << 62)
    for pod in pods(None, 4, spec(gpu=1 << 62)):
        cluster.place_pod(pod, 0)
    assert free(cluster, "a") == 0


def test_what_no_node_can_offer_does_not_fit_there() -> None:
    cluster = cluster_of(a=1 << 60)
    assert max(cluster.demand(spec(gpu=1 << 61)).amounts) > free(cluster, "a")


def test_a_pod_capacity_beyond_any_real_number_is_no_limit() -> None:
    cluster = Cluster()
    cluster.add_node(node("a", {}, {"pods": (1 << 63) - 1}))
    assert free(cluster, "a", "pods") == UNLIMITED


WEB = PodSpec(host_ports=(HostPort(80),))


def test_a_batch_takes_the_host_ports_of_its_pods_on_each_slot() -> None:
    cluster = cluster_of(a=4, b=4, c=4)
    placed = batch(pods("web", 2, WEB), 0, 1)
    cluster.assume(placed)
    assert [cluster.ports_and_disks.taken(slot, [HostPort(80)]) for slot in (0, 1, 2)] == [True, True, False]
    cluster.forget(placed)
    assert cluster.ports_and_disks.slots(WEB.host_ports) == []


def test_a_port_that_two_pods_hold_is_taken_until_both_are_gone() -> None:
    cluster = cluster_of(a=4)
    one, other = pods("web", 2, WEB)
    cluster.place_pod(one, 0)
    cluster.place_pod(other, 0)
    cluster.forget_pod(one.uid)
    assert cluster.ports_and_disks.taken(0, [HostPort(80)])
    cluster.forget_pod(other.uid)
    assert not cluster.ports_and_disks.taken(0, [HostPort(80)])


def test_a_resource_that_a_node_no_longer_offers_is_not_there() -> None:
    cluster = cluster_of(a=4)
    cluster.add_node(node("a", {}, {"cpu": 1000}))
    assert (free(cluster, "a"), free(cluster, "a", "cpu")) == (0, 1000)


def test_an_imagined_cluster_holds_the_imagined_pods_alone() -> None:
    cluster = cluster_of(a=4, b=4, c=4)
    on_a, on_b = (replace(pod, spec=replace(WEB, requests=((GPU, 3),))) for pod in pods("web", 2))
    cluster.place_pod(on_a, 0)
    inside = np.asarray([True, True, False])
    with cluster.hypothetical([(on_b, 1)], inside):
        assert [cluster.ports_and_disks.taken(slot, [HostPort(80)]) for slot in (0, 1)] == [False, True]
        assert [free(cluster, name) for name in "ab"] == [4, 1]
        assert cluster.alive[:3].tolist() == [True, True, False]
    assert [cluster.ports_and_disks.taken(slot, [HostPort(80)]) for slot in (0, 1)] == [True, False]
    assert [free(cluster, name) for name in "ab"] == [1, 4]
    assert cluster.alive[:3].all()


def test_a_resource_that_is_first_asked_for_while_imagining_stays_known() -> None:
    cluster = cluster_of(a=4)
    with cluster.hypothetical([], None):
        cluster.demand(spec(nic=1))
    assert cluster.requested.shape == cluster.allocatable.shape
    assert free(cluster, "a", "nic") == 0


def touched(log: ChangeLog, since: int) -> list[int]:
    found = log.since(since)
    assert found is not None
    return sorted(set(found.tolist()))


def test_readers_hear_which_slots_changed_and_how() -> None:
    cluster = cluster_of(a=4, b=4, c=4)
    nodes, usage = cluster.node_changes, cluster.usage_changes
    before = nodes.cursor, usage.cursor
    members = pods("train", 3)
    placed = batch(members, 0, 0, 2)
    cluster.assume(placed)
    assert (touched(nodes, before[0]), touched(usage, before[1])) == ([], [0, 2])
    before = nodes.cursor, usage.cursor
    cluster.forget(placed)
    assert (touched(nodes, before[0]), touched(usage, before[1])) == ([], [0, 2])
    before = nodes.cursor, usage.cursor
    cluster.place_pod(members[0], 1)
    assert (touched(nodes, before[0]), touched(usage, before[1])) == ([], [1])
    before = nodes.cursor, usage.cursor
    cluster.add_node(node("a", {}, {GPU: 8}))
    cluster.remove_node("b")
    assert (touched(nodes, before[0]), touched(usage, before[1])) == ([0, 1], [1])


def test_nothing_is_left_of_a_removed_node() -> None:
    cluster = cluster_of(a=4)
    cluster.add_node(Node(name="b", labels={"rack": "r1"}, allocatable={"example.com/nic": 2}))
    cluster.place_pod(pods(None, 1, WEB)[0], 1)
    cluster.remove_node("b")
    assert cluster.labels.labels(1) == {}
    assert not cluster.allocatable[:, 1].any() and not cluster.requested[:, 1].any()
    assert cluster.ports_and_disks.slots(WEB.host_ports) == []
    assert (cluster.node_count, cluster.placed_count, cluster.names[1]) == (1, 0, None)


def test_many_nodes_keep_what_the_first_ones_hold() -> None:
    cluster = cluster_of(a=4)
    cluster.place_pod(pods(None, 1, spec(gpu=3))[0], 0)
    for number in range(200):
        cluster.add_node(node(f"n{number}", {}, {GPU: number}))
    assert (free(cluster, "a"), free(cluster, "n199"), cluster.capacity) == (1, 199, 201)
    assert cluster.alive[:201].all() and not cluster.alive[201:].any()


def test_asking_for_none_of_a_resource_is_not_asking_for_it() -> None:
    cluster = cluster_of(a=4)
    assert cluster.demand(spec(gpu=0, cpu=0)).rows == (cluster.row_of["pods"],)


def test_specs_that_differ_in_a_claim_alone_share_their_demand() -> None:
    cluster = cluster_of(a=4)
    one, other = (replace(spec(gpu=2), claims=(PodClaim(name),)) for name in ("left", "right"))
    assert cluster.demand(one) is cluster.demand(other)
    assert cluster.demand(one) is not cluster.demand(spec(gpu=1))


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=8),
    st.integers(1, 4),
)
def test_room_without_pods_is_the_room_once_they_are_gone(
    gpus: list[int], running: list[tuple[int, int, bool]], size: int
) -> None:
    cluster = cluster_of(**{f"n{at}": amount for at, amount in enumerate(gpus)}, last=1)
    cluster.remove_node("last")
    held = [
        (pods(None, 1, spec(gpu=amount), prefix=f"p{at}-")[0], slot % len(gpus), goes)
        for at, (slot, amount, goes) in enumerate(running)
    ]
    for pod, slot, _ in held:
        cluster.place_pod(pod, slot)
    demand = cluster.demand(spec(gpu=size))
    gone = [pod for pod, _, goes in held if goes]
    some = np.arange(0, len(gpus), 2)

    without = cluster.room(demand, without=gone).tolist()
    assert cluster.room(demand, some, without=gone).tolist() == without[::2][: len(some)]
    empty = cluster.room(demand, without=EVERYTHING).tolist()
    assert empty == [amount // size for amount in gpus] + [0]
    for pod in gone:
        cluster.forget_pod(pod.uid)
    assert cluster.room(demand).tolist() == without
    assert [cluster.room_at(demand, slot) for slot in range(cluster.capacity)] == without
    left = [
        amount - sum(a for s, a, goes in running if s % len(gpus) == at and not goes)
        for at, amount in enumerate(gpus)
    ]
    assert without == [max(amount, 0) // size for amount in left] + [0]
