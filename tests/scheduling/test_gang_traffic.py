"""A gang whose roles tell how much they talk is moved to where that costs least, inside its domain.

zone-a rack-1 : a1=2 a2=2        the nodes of a rack are 2 edges apart,
zone-a rack-2 : b1=2 b2=2        those of two racks 4
"""

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.reading.decoding.keys import TASK_TRAFFIC
from tests.worlds import World, draw, fabric, gang, pods, spec, subgroup, world

RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=2 b2=2
"""


def told(traffic: str, required: str | None = None, minimum: int = 6) -> PodGroup:
    return replace(gang(min_member=minimum, required=required), annotations={TASK_TRAFFIC: traffic})


def members(**roles: int) -> list[Pod]:
    found = []
    for role, count in roles.items():
        found += [replace(pod, role=role) for pod in pods("train", count, spec(gpu=1), prefix=role)]
    return found


def placed(group: PodGroup, *members: Pod, drawing: str = RACKS) -> World:
    return world(draw(drawing), fabric("zone", "rack")).run(group, members=members)


def test_pairs_that_talk_share_a_node() -> None:
    """Three pairs of a server and its two friends: whoever says 10 to each other comes together."""
    drawn = placed(
        told("ps-chief=10,worker-evaluator=10", minimum=4), *members(ps=1, worker=1, chief=1, evaluator=1)
    )
    where = drawn.where
    assert where["ps-0"] == where["chief-0"]
    assert where["worker-0"] == where["evaluator-0"]
    improvement = drawn.outcome("train").improvement
    assert improvement is not None
    assert improvement.final == 0 <= improvement.greedy


def test_the_required_domain_is_kept() -> None:
    drawn = placed(told("ps-worker=10", required="rack", minimum=4), *members(ps=2, worker=2))
    racks = {name[0] for name in drawn.where.values()}
    assert len(racks) == 1
    improvement = drawn.outcome("train").improvement
    assert improvement is not None
    # Two servers and two workers on two nodes of two: each pair shares one node, the two cross pairs cost 2.
    assert improvement.final == 2 * 10 * 2


def test_all_members_stay_placed_and_nothing_is_overcommitted() -> None:
    drawn = placed(told("ps-worker=3,worker-worker=1", minimum=8), *members(ps=2, worker=6))
    assert drawn.used("") == {"a1": 2, "a2": 2, "b1": 2, "b2": 2}
    drawn.engine.validate_state()


def test_talk_with_members_that_run_counts() -> None:
    """The server runs on b2; its worker goes there, though a1 is as empty."""
    [server] = members(ps=1)
    drawn = placed(told("ps-worker=10", minimum=1), replace(server, node_name="b2"), *members(worker=1))
    assert drawn.where["worker-0"] == "b2"


def test_a_member_beyond_the_minimum_that_finds_no_place_just_waits() -> None:
    """The server runs and is all the gang needs; its worker has no room, so there is nothing to move."""
    [server] = members(ps=1)
    running = replace(server, node_name="a1", phase="Running")
    waits = pods("train", 1, spec(gpu=9), prefix="worker")[0]
    drawn = placed(told("ps-worker=10", minimum=1), running, replace(waits, role="worker"))
    assert set(drawn.left("train")) == {"worker-0"}
    assert drawn.outcome("train").improvement is None


def test_a_member_beyond_the_minimum_stays_where_its_subgroup_must_lie() -> None:
    """Two servers in rack-1, their workers in rack-2: the second server would be better beside a worker."""
    servers = [replace(pod, subgroup="servers") for pod in members(ps=2)]
    workers = [replace(pod, subgroup="workers") for pod in members(worker=1)]
    fixed = [replace(pod, spec=replace(pod.spec, node_selector=(("rack", "rack-2"),))) for pod in workers]
    first = replace(servers[0], spec=replace(servers[0].spec, node_selector=(("rack", "rack-1"),)))
    groups = [subgroup("servers", 1, required="rack"), subgroup("workers", 1, required="rack")]
    group = replace(gang(min_member=2, subgroups=groups), annotations={TASK_TRAFFIC: "ps-worker=10"})
    drawn = placed(group, first, servers[1], *fixed)
    assert len(drawn.where) == 3
    assert {drawn.where[name][0] for name in ("ps-0", "ps-1")} == {"a"}


def test_a_member_may_join_those_that_run_in_another_rack_than_its_first_place() -> None:
    """Most members run in rack-1, where the search begins; the worker says 10 to the server in rack-2."""
    running = [replace(pod, node_name="a1") for pod in members(chief=2)]
    running += [replace(pod, node_name="b1") for pod in members(ps=1)]
    group = told("ps-worker=10", required="zone", minimum=4)
    drawn = placed(group, *running, *members(worker=1))
    assert drawn.where == {"worker-0": "b1"}
