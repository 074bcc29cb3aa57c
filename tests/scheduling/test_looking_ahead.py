"""No pod of an application goes where another that waits would be left without a node for ever."""

from collections.abc import Iterable
from itertools import product

from hypothesis import given
from msgspec.structs import replace

from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import NodeUpserted, PodDeleted
from tests.applications.calls import app
from tests.applications.networks import EIGHT_NODES, in_zones, network, replicas
from tests.golden.fixture import Golden
from tests.scheduling.test_applications import Case, cases, place
from tests.worlds import GPU, World, pods

#: Two regions of two zones, each with two nodes: n-1 … n-4 in the west, n-5 … n-8 in the east.
REGIONS = network(zones="Z1 Z2 5\nZ3 Z4 5", regions="west east 20")


def one_gpu_each() -> list[Node]:
    return in_zones(EIGHT_NODES, gpus=1)


def where_free(free: str, drawing: str, *running: Pod, nodes: Iterable[Node] = ()) -> World:
    """A pod of each workload, and nodes of which all but the free ones are held by others."""
    given = list(nodes) or one_gpu_each()
    taken = {pod.node_name for pod in running}
    others = [
        pod
        for one in given
        if one.name not in taken and one.name not in free.split()
        for pod in pods(None, 1, prefix=f"on-{one.name}", on=one.name)
    ]
    new = [pod for line in drawing.splitlines() for pod in replicas(line.split()[0])]
    return place(given, app(drawing), REGIONS, members=[*others, *running, *new])


def west(drawn: World) -> World:
    """All others in the west leave."""
    return drawn.tell(*(PodDeleted(f"default/on-n-{number}-0") for number in (1, 2, 3, 4))).run()


def messages(drawn: World) -> dict[str, str]:
    return {one.pod.name: one.message for one in drawn.outcome("A1").left}


def test_callers_of_a_store_wait_rather_than_lie_in_both_regions() -> None:
    """One node is free in each region; with a caller on both, no node would ever be near enough for s."""
    drawn = where_free("n-4 n-8", "a > s<=5\nb > s<=5\ns")
    [(first, name)] = drawn.where.items()
    assert first in ("a-0", "b-0") and name == "n-4"
    assert len(west(drawn).where) == 3
    assert set(drawn.where.values()) <= {"n-1", "n-2", "n-3", "n-4"}


def test_who_waits_so_says_whom_it_would_leave_without_a_node(golden: Golden) -> None:
    """s fits no node but n-1 at all, and that is held; the east is free."""
    [large, *small] = one_gpu_each()
    nodes = [replace(large, allocatable={GPU: 2}), *small]
    drawing = "a > s<=5\ns"
    others = [*pods(None, 2, prefix="large", on="n-1")]
    others += [pod for name in ("n-2", "n-3", "n-4") for pod in pods(None, 1, prefix=f"on-{name}", on=name)]
    members = [*others, *replicas("a"), *replicas("s", gpus=2)]
    drawn = place(nodes, app(drawing), REGIONS, members=members)
    assert drawn.where == {}
    assert drawn.left("A1")["a-0"] is Reason.NETWORK_COST_TOO_HIGH
    golden("refusals", messages(drawn)["a-0"])
    drawn.tell(PodDeleted("default/on-n-2-0"), *(PodDeleted(f"default/large-{one}") for one in (0, 1))).run()
    assert drawn.where == {"a-0": "n-2", "s-0": "n-1"}


def test_what_lies_beyond_the_next_workload_is_looked_at_too() -> None:
    """s is near the caller that runs in the west, so t must be too: else x, which needs both, is left out."""
    drawing = "a > s<=5\nx > s<=5 t<=5\ns\nt > u<=5\nu"
    [a] = replicas("a", prefix="running", on="n-1")
    drawn = where_free("n-8", "s\nt\nu\nx", a, nodes=one_gpu_each())
    assert drawn.where  # Without limits somebody takes n-8.
    drawn = place(
        one_gpu_each(),
        app(drawing),
        REGIONS,
        members=[
            a,
            *(pod for n in range(2, 8) for pod in pods(None, 1, prefix=f"on-n-{n}", on=f"n-{n}")),
            *(pod for name in "stux" for pod in replicas(name)),
        ],
    )
    assert drawn.where == {}


def test_a_workload_that_fits_no_node_delays_no_other() -> None:
    members = [*replicas("a"), *replicas("b"), *replicas("s", gpus=9)]
    drawn = place(one_gpu_each(), app("a > s<=5\nb > s<=5\ns"), REGIONS, members=members)
    assert set(drawn.where) == {"a-0", "b-0"}


def test_where_one_is_left_out_already_the_others_are_placed() -> None:
    """The callers that run are in both regions: nothing can help s, so c waits for nothing."""
    running = [*replicas("a", prefix="west", on="n-1"), *replicas("a", prefix="east", on="n-5")]
    drawn = place(
        one_gpu_each(),
        app("a > s<=5\nc > s<=5\ns"),
        REGIONS,
        members=[*running, *replicas("c"), *replicas("s")],
    )
    assert set(drawn.where) == {"c-0"}
    assert drawn.left("A1") == {"s-0": Reason.NETWORK_COST_TOO_HIGH}


@given(cases(most=4))
def test_a_waiting_pod_has_a_node_near_enough_if_all_had_one_at_first(case: Case) -> None:
    """Were all nodes empty but for what runs: each limit can be kept, whatever room others take now."""
    usable = [one.name for one in case.nodes if one.allocatable[GPU]]
    names = [pod.name for pod in case.new]
    layouts = (dict(zip(names, slots, strict=True)) for slots in product(usable, repeat=len(names)))
    if not any(not case.broken(where) for where in layouts):
        return
    drawn = case.place()
    for name in drawn.left("A1"):
        assert any(not case.broken({**drawn.where, name: slot}) for slot in usable)


def test_a_node_that_comes_lets_those_go_on_that_waited() -> None:
    drawn = where_free("n-4 n-8", "a > s<=5\nb > s<=5\ns")
    more = in_zones("east Z3 n-9 n-10", gpus=1)
    drawn.tell(*map(NodeUpserted, more)).run()
    assert len(drawn.where) == 1
    more = in_zones("west Z1 n-11 n-12", gpus=1)
    drawn.tell(*map(NodeUpserted, more)).run()
    assert len(drawn.where) == 3
