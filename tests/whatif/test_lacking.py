"""How short the closest domain is, by which resource, and the least that stands in the way there."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, Pod
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.records import Counterfactual, Kind, ShortEntry
from tests.crowded import world
from tests.golden.fixture import Golden
from tests.worlds import draw, gang, pods, spec


def short_of(
    members: Sequence[Pod], nodes: str | Sequence[Node], group: PodGroup | None = None, key: str = ""
) -> Counterfactual:
    """What is said of a gang ``train`` that requires a rack."""
    group = group or gang(min_member=sum(one.group == "train" for one in members), required="rack")
    run = simulate(world([group], members, nodes), Configuration())
    (short,) = (one for one in counterfactuals(run)[key or "default/train"] if one.kind is Kind.SHORT)
    return short


def resources(short: Counterfactual) -> dict[str, float]:
    assert isinstance(short.short, ShortEntry)
    return dict(short.short.resources)


def on(node: str, *gpus: int, **fields: object) -> list[Pod]:
    """Pods on a node, called by what they hold."""
    return [
        replace(one, **fields)
        for number, amount in enumerate(gpus)
        for one in pods(None, 1, prefix=f"{node}-{number}-has-{amount}", on=node, needs=spec(gpu=amount))
    ]


def test_what_lacks_is_what_is_asked_for_beyond_what_is_free(golden: Golden) -> None:
    """Three of four GPUs are free on each node, four are asked for on each: two lack, not eight."""
    short = short_of([*pods("train", 2, spec(gpu=4)), *on("n1", 1), *on("n2", 1)], "a r1 : n1=4 n2=4")
    golden("what-if", short.sentence)
    assert resources(short) == {"example.com/gpu": 2}


def test_cores_are_named_where_they_lack_although_there_are_devices(golden: Golden) -> None:
    """54 of 64 cores are free on each node, 60 are asked for, and 16 GPUs are there for two."""
    nodes = [replace(one, allocatable={**one.allocatable, "cpu": 64_000}) for one in draw("a r1 : n1=8 n2=8")]
    hogs = [
        *pods(None, 1, spec(cpu=10_000), prefix="hog", on="n1"),
        *pods(None, 1, spec(cpu=10_000), prefix="pig", on="n2"),
    ]
    short = short_of([*pods("train", 2, spec(cpu=60_000, gpu=1)), *hogs], nodes)
    golden("what-if", short.sentence)
    assert resources(short) == {"cpu": 12.0}


def test_what_is_enough_in_sum_but_split_up(golden: Golden) -> None:
    """Two GPUs are left on each of three nodes, and each of two pods wants three."""
    running = [*on("n1", 2), *on("n2", 2), *on("n3", 2)]
    short = short_of([*pods("train", 2, spec(gpu=3)), *running], "a r1 : n1=4 n2=4 n3=4")
    golden("what-if", short.sentence)
    assert resources(short) == {}


def test_nodes_of_which_each_lacks_something_else(golden: Golden) -> None:
    """One node has the cores, the other the GPUs."""
    first, second = draw("a r1 : n1=4 n2=4")
    nodes = [
        replace(first, allocatable={**first.allocatable, "cpu": 8000}),
        replace(second, allocatable={**second.allocatable, "cpu": 8000}),
    ]
    running = [*on("n1", 4), *pods(None, 1, spec(cpu=8000), prefix="cores", on="n2")]
    short = short_of([*pods("train", 1, spec(cpu=4000, gpu=2)), *running], nodes)
    golden("what-if", short.sentence)


def test_a_node_that_may_not_be_used_has_nothing_to_offer(golden: Golden) -> None:
    """Eight GPUs are free and eight asked for, but four of them are on a cordoned node."""
    one, other = draw("a r1 : n1=4 n2=4")
    short = short_of(pods("train", 2, spec(gpu=4)), [one, replace(other, unschedulable=True)])
    golden("what-if", short.sentence)
    assert resources(short) == {"example.com/gpu": 4}


def test_not_resources_but_a_port_that_each_node_has_once(golden: Golden) -> None:
    """Nodes have room for more, but no second pod gets port 80 there."""
    web = replace(spec(gpu=1), host_ports=(HostPort(port=80),))
    holder = pods(None, 1, web, prefix="web", on="n2")
    short = short_of([*pods("train", 2, web), *holder], "a r1 : n1=4 n2=4")
    golden("what-if", short.sentence)


@pytest.mark.parametrize(("big", "small"), [("a", "b"), ("b", "a")])
def test_the_smallest_pod_that_is_enough_stands_in_the_way_whatever_its_name(big: str, small: str) -> None:
    """One GPU lacks: who holds three need not go where one is held by somebody else."""
    running = [
        *pods(None, 1, spec(gpu=3), prefix=big, on="n1"),
        *pods(None, 1, spec(gpu=1), prefix=small, on="n1"),
    ]
    short = short_of([*pods("train", 5), *running], "a r1 : n1=4 n2=4")
    assert short.sentence.endswith(f"(1 example.com/gpu). It would fit there without pod default/{small}-0.")


def test_a_small_pod_on_another_node_is_less_than_a_large_one(golden: Golden) -> None:
    short = short_of([*pods("train", 1, spec(gpu=4)), *on("n1", 4), *on("n2", 1)], "a r1 : n1=4 n2=4")
    golden("what-if", short.sentence)


def test_few_pods_stand_in_the_way_where_they_hold_as_much(golden: Golden) -> None:
    """Three GPUs lack: one pod holds three, three others hold one each."""
    short = short_of([*pods("train", 1, spec(gpu=3)), *on("n1", 1, 1, 1), *on("n2", 3)], "a r1 : n1=3 n2=3")
    golden("what-if", short.sentence)


@pytest.mark.parametrize(("full", "freed"), [("n1", "n3"), ("n3", "n1")])
def test_of_racks_that_come_equally_close_the_one_with_the_least_in_the_way(full: str, freed: str) -> None:
    """Each rack takes one of two pods now; of one a pod has all of a node, of the other a quarter."""
    nodes = "a r1 : n1=4 n2=4\na r2 : n3=4 n4=4"
    short = short_of([*pods("train", 2, spec(gpu=4)), *on(full, 4), *on(freed, 1)], nodes)
    rack = "a/r1" if freed == "n1" else "a/r2"
    assert short.sentence == (
        f"Of 2 racks that could hold all 2 pods {rack} comes closest and takes 1, 1 pod or 1 node short "
        f"(1 example.com/gpu). It would fit there without pod default/{freed}-0-has-1-0."
    )


@pytest.mark.parametrize("owner", ["DaemonSet/agent", "Node/n1"])
def test_a_rack_with_a_daemon_on_it_could_not_hold_what_asks_for_all_of_it(
    owner: str, golden: Golden
) -> None:
    short = short_of([*pods("train", 2, spec(gpu=4)), *on("n1", 1, owner=owner)], "a r1 : n1=4 n2=4")
    golden("what-if", short.sentence)
    assert not short.fits


def test_daemons_leave_room_beside_them(golden: Golden) -> None:
    """A daemon and a job: the job stands in the way, the daemon not."""
    running = [*on("n1", 1, owner="DaemonSet/agent"), *on("n2", 2)]
    short = short_of([*pods("train", 2, spec(gpu=3)), *running], "a r1 : n1=4 n2=4")
    golden("what-if", short.sentence)
    assert short.short is not None


def test_only_the_rack_of_members_that_run_could_hold_the_others(golden: Golden) -> None:
    """r2 is roomier when empty, but one member runs in r1."""
    nodes = "a r1 : n1=4 n2=4\na r2 : n3=4 n4=4 n5=4"
    first, *others = pods("train", 2, spec(gpu=4))
    members = [replace(first, node_name="n1", phase="Running"), *others]
    short = short_of([*members, *on("n2", 1), *on("n3", 1), *on("n4", 1), *on("n5", 1)], nodes)
    golden("what-if", short.sentence)


def test_what_a_plain_pod_lacks_is_shown_for_the_node_in_its_way(golden: Golden) -> None:
    waiting = pods(None, 1, spec(gpu=4), prefix="lone")
    short = short_of([*waiting, *on("n1", 4), *on("n2", 1)], "a r1 : n1=4 n2=4", key="pod:default/lone-0")
    golden("what-if", short.sentence)
    assert resources(short) == {"example.com/gpu": 1}


def test_more_pods_of_different_sizes_on_a_node_than_are_tried_in_every_choice() -> None:
    """Twelve pods hold 1 to 12 GPUs of 78; ten lack, and none of those named could stay."""
    short = short_of([*pods("train", 1, spec(gpu=10)), *on("n1", *range(1, 13))], "a r1 : n1=78")
    assert isinstance(short.short, ShortEntry)
    sizes = [int(one.split("-")[3]) for one in short.short.in_the_way]
    assert sum(sizes) >= 10
    assert sum(sizes) - min(sizes) < 10


def test_a_large_rack_of_which_little_must_go() -> None:
    """Too many nodes and pods for the exact search: the pods of 62 of 64 nodes go, and no more."""
    names = [f"n{number}" for number in range(64)]
    running = [pod for name in names for pod in on(name, *[2] * 4)]
    short = short_of([*pods("train", 496), *running], "a r1 : " + " ".join(f"{one}=8" for one in names))
    assert isinstance(short.short, ShortEntry)
    assert short.fits
    assert len(short.short.in_the_way) == 62 * 4
