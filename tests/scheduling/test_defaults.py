"""What the default configuration does: racks of accelerators stay whole, other pods stay away from them.

A GPU pod goes to the fullest node of the fullest rack. A pod without GPUs goes to a node that has none free,
and among such nodes where kube-scheduler would put it. No configuration changes which nodes may be used.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.cli.reading.inputs import read_configuration_file
from closeby.cli.simulating.given import policy_of
from closeby.lab.replay.driver import Policy
from closeby.objects.nodes import Node, is_accelerator
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.configurations import CLOSEBY, DEFAULT, KUBE_SCHEDULER, NAMED
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, read_configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.simulator.synthetic import fabric_topology
from tests.lab.replay.small import jobs, leaves, places, run
from tests.worlds import World, fabric, gang, node, pods

GPU = "nvidia.com/gpu"
VOLCANO = """
- plugins:
   - name: network-topology
     arguments:
       network-topology.type: static
       network-topology.keys: rack,block
       network-topology.weight: 10
"""
LEVELS = ("block", "rack")


def cluster(drawing: str, gpus: int = 8, cpu: int = 8000, resource: str = GPU) -> list[Node]:
    """``block rack : a b`` draws nodes with accelerators, ``block rack : a! b!`` nodes without any."""
    nodes = []
    for line in drawing.strip().splitlines():
        path, _, names = line.partition(":")
        labels = dict(zip(LEVELS, path.split(), strict=True))
        for name in names.split():
            offered = {"cpu": cpu, "memory": 64 << 30, "pods": 110}
            if not name.endswith("!"):
                offered[resource] = gpus
            nodes.append(node(name.rstrip("!"), labels, offered))
    return nodes


def wants(gpus: int = 0, cpu: int = 500, resource: str = GPU) -> PodSpec:
    asked = {"cpu": cpu, "memory": 1 << 30} | ({resource: gpus} if gpus else {})
    return PodSpec(requests=tuple(sorted(asked.items())))


def running(taken: Mapping[str, int], resource: str = GPU) -> list[Pod]:
    """One pod on each named node that takes so many of its GPUs."""
    return [
        pods(None, 1, wants(gpus, 100, resource), prefix=f"old-{at}", on=at)[0] for at, gpus in taken.items()
    ]


def world(nodes: list[Node], configuration: str = DEFAULT, *, explain: bool = False) -> World:
    chosen = NAMED[configuration]
    return World(Engine(lambda handle: profile_for(chosen, handle), explain=explain), nodes, fabric(*LEVELS))


def place(drawn: World, spec: PodSpec, count: int = 1) -> list[str]:
    """Where new single pods go, one after another."""
    drawn.run(members=pods(None, count, spec, prefix="new"))
    return [drawn.where[f"new-{at}"] for at in range(count)]


class TestPodsThatAskForAccelerators:
    RACKS = """
    b1 r1 : a1 a2
    b1 r2 : a3 a4
    b1 r3 : a5 a6
    """

    def test_go_to_the_fullest_node_that_holds_them(self) -> None:
        drawn = world(cluster(self.RACKS)).run(members=running({"a2": 3, "a4": 6, "a5": 7}))
        assert place(drawn, wants(gpus=2)) == ["a4"]

    def test_go_to_the_fullest_rack_where_nodes_are_equally_full(self) -> None:
        #   a1, a3, a5 and a6 are empty; r2 holds the fullest other node.
        drawn = world(cluster(self.RACKS)).run(members=running({"a2": 2, "a4": 6}))
        assert place(drawn, wants(gpus=8)) == ["a3"]

    def test_go_to_the_fullest_block_where_racks_are_equally_full(self) -> None:
        racks = "b1 r1 : a1\nb1 r4 : a4\nb2 r2 : a2\nb2 r3 : a3"
        drawn = world(cluster(racks)).run(members=running({"a3": 8}))
        assert place(drawn, wants(gpus=8)) == ["a2"]

    def test_fill_one_node_after_another_so_that_a_rack_stays_whole_for_a_gang(self) -> None:
        drawn = world(cluster(self.RACKS))
        assert place(drawn, wants(gpus=4), 4) == ["a1", "a1", "a2", "a2"]
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, wants(gpus=8)))
        assert drawn.used("train", by="rack") == {"r2": 2}

    def test_may_ask_for_the_device_of_any_vendor(self) -> None:
        for resource in ("google.com/tpu", "habana.ai/gaudi", "amd.com/gpu", "example.com/chip"):
            drawn = world(cluster(self.RACKS, resource=resource)).run(
                members=running({"a2": 3, "a4": 6}, resource)
            )
            assert place(drawn, wants(2, resource=resource)) == ["a4"], resource

    def test_go_by_accelerators_and_not_by_how_busy_the_cpu_is(self) -> None:
        drawn = world(cluster("b r : a b")).run(members=running({"b": 4}))
        drawn.run(members=pods(None, 1, wants(cpu=7000), prefix="web", on="a"))
        assert place(drawn, wants(gpus=1)) == ["b"]


class TestPodsThatAskForNone:
    def test_go_to_a_node_without_gpus(self) -> None:
        #   The CPU node is busier than any other.
        drawn = world(cluster("b r1 : a1 a2\nb r2 : c1!"))
        drawn.run(members=pods(None, 1, wants(cpu=6000), prefix="web", on="c1"))
        assert place(drawn, wants()) == ["c1"]

    def test_go_where_no_gpu_is_free_if_all_nodes_have_gpus(self) -> None:
        drawn = world(cluster("b r1 : a1 a2 a3")).run(members=running({"a1": 7, "a2": 8}))
        assert place(drawn, wants()) == ["a2"]

    def test_go_where_fewest_gpus_are_free_if_some_are_free_everywhere(self) -> None:
        drawn = world(cluster("b r1 : a1 a2 a3")).run(members=running({"a2": 7, "a3": 3}))
        assert place(drawn, wants()) == ["a2"]

    def test_take_a_node_with_free_gpus_rather_than_wait(self) -> None:
        drawn = world(cluster("b r1 : a1\nb r2 : c1!", cpu=1000))
        assert sorted(place(drawn, wants(), 3)) == ["a1", "c1", "c1"]

    def test_spread_over_the_nodes_without_free_gpus(self) -> None:
        drawn = world(cluster("b r1 : a1 a2\nb r2 : c1! c2! c3!"))
        assert sorted(place(drawn, wants(), 6)) == ["c1", "c1", "c2", "c2", "c3", "c3"]

    def test_spread_as_with_kube_schedulers_profile_where_there_are_no_gpus(self) -> None:
        nodes = cluster("b r1 : c1! c2!\nb r2 : c3! c4!")
        busy = pods(None, 1, wants(cpu=3000), prefix="web", on="c2")
        placed = [
            place(world(nodes, name).run(members=busy), wants(cpu=1000), 7)
            for name in (DEFAULT, KUBE_SCHEDULER)
        ]
        assert placed[0] == placed[1]
        assert placed[0].count("c2") == 0
        assert {placed[0].count(name) for name in ("c1", "c3", "c4")} == {2, 3}

    def test_are_scored_as_with_kube_schedulers_profile_where_there_are_no_gpus(self) -> None:
        nodes = cluster("b r1 : c1! c2!\nb r2 : c3! c4!")
        found = []
        for name in (DEFAULT, KUBE_SCHEDULER):
            drawn = world(nodes, name, explain=True)
            place(drawn, wants())
            found.append(drawn.outcome("new-0").explanations[0].scores)
        assert found[0] == found[1]
        assert set(found[0]["c1"]) == {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "total"}


class TestKubeScheduler:
    def test_spreads_gpu_pods_too(self) -> None:
        drawn = world(cluster("b r1 : a1 a2\nb r2 : a3 a4"), KUBE_SCHEDULER)
        assert sorted(place(drawn, wants(gpus=1, cpu=2000), 4)) == ["a1", "a2", "a3", "a4"]

    def test_spreads_the_members_of_a_gang_that_asks_for_no_level(self) -> None:
        drawn = world(cluster("b r1 : a1 a2\nb r2 : a3 a4"), KUBE_SCHEDULER)
        drawn.run(gang(min_member=4), members=pods("train", 4, wants(gpus=1, cpu=2000)))
        assert drawn.used("train") == {"a1": 1, "a2": 1, "a3": 1, "a4": 1}

    def test_keeps_a_level_that_is_required(self) -> None:
        drawn = world(cluster("b r1 : a1 a2\nb r2 : a3 a4"), KUBE_SCHEDULER)
        drawn.run(gang(min_member=4, required="rack"), members=pods("train", 4, wants(gpus=1, cpu=2000)))
        assert len(drawn.used("train", by="rack")) == 1
        assert sorted(drawn.used("train").values()) == [2, 2]


def test_files_runs_over_time_and_comparisons_have_one_default() -> None:
    assert read_configuration_file(None) == policy_of(None).configuration == NAMED[DEFAULT]
    assert policy_of(None).name == DEFAULT
    assert Policy(name="any").configuration.plugins == NAMED[DEFAULT].plugins


def test_files_and_runs_over_time_place_single_pods_alike() -> None:
    """Jobs of one pod come one after another; h1 and h2 share a leaf, h3 has its own."""
    gpus = (5, 4, 2, 8, 4, 1)
    made_up = leaves(2, 1)
    drawn = World(
        Engine(lambda handle: profile_for(NAMED[DEFAULT], handle)), made_up.nodes, fabric_topology()
    )
    for at, asked in enumerate(gpus):
        drawn.run(members=pods(None, 1, PodSpec(requests=((GPU, asked),)), prefix=f"job{at}"))
    over_time = places(
        run(jobs(*((f"job{at}", at, 1000, 1, asked) for at, asked in enumerate(gpus))), made_up)
    )
    assert over_time == {name.removesuffix("-0"): [at] for name, at in drawn.where.items()}
    assert drawn.where["job2-0"] != drawn.where["job3-0"]


def test_closeby_is_another_name_of_the_default() -> None:
    assert NAMED[CLOSEBY].plugins == NAMED[DEFAULT].plugins == Configuration().plugins


ACCELERATORS = """
    nvidia.com/gpu nvidia.com/mig-1g.5gb nvidia.com/GP102GL_Tesla_P40 amd.com/gpu
    google.com/tpu cloud-tpus.google.com/v3 aws.amazon.com/neuron aws.amazon.com/neuroncore
    habana.ai/gaudi huawei.com/Ascend910 huawei.com/npu-core gpu.intel.com/i915
    gpu.intel.com/xe cambricon.com/mlu hygon.com/dcu kunlunxin.com/xpu qualcomm.com/qaic
    furiosa.ai/rngd rebellions.ai/ATOM xilinx.com/fpga-xilinx_u250 volcano.sh/vgpu-number
    aliyun.com/gpu-mem example.com/chip
"""
OTHERS = """
    cpu memory pods hugepages-1Gi ephemeral-storage gpu rdma/hca_shared_devices_a
    vpc.amazonaws.com/efa vpc.amazonaws.com/pod-eni devices.kubevirt.io/kvm
    network.aware.com/bandwidth gpu.intel.com/i915_monitoring smarter-devices/fuse
    intel.com/sriov_netdevice kubernetes.io/batch-cpu example.com/licence sgx.intel.com/epc
"""


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8),
    st.sampled_from([0, 1, 3, 8]),
    st.sampled_from([100, 4000, 9000]),
    st.sampled_from(sorted(NAMED)),
)
def test_a_configuration_changes_scores_and_never_which_nodes_may_be_used(
    drawn: list[tuple[int, int, int]], gpus: int, cpu: int, configuration: str
) -> None:
    nodes = [
        node(
            f"n{at}",
            {"block": "b", "rack": f"r{rack}"},
            {"cpu": 8000, "memory": 64 << 30, "pods": 3} | ({GPU: offered} if offered else {}),
        )
        for at, (rack, offered, _) in enumerate(drawn)
    ]
    taken = {f"n{at}": used for at, (_, _, used) in enumerate(drawn) if used}
    fitting = []
    for name in (DEFAULT, configuration):
        made = world(nodes, name)
        made.run(members=running(taken))
        [pod] = pods(None, 1, wants(gpus, cpu), prefix="asked")
        fits = np.ones(len(nodes), dtype=np.bool_)
        for plugin in made.engine.profile.filters:
            if plugin.concerns(pod):
                fits &= plugin.filter(CycleState(), pod, Nodes(made.engine.cluster))
        fitting.append(fits.tolist())
        made.run(members=[pod])
        assert ("asked-0" in made.where) is bool(fits.any())
    assert fitting[0] == fitting[1]


@pytest.mark.parametrize(
    "resource",
    ACCELERATORS.split(),
)
def test_accelerators_are_extended_resources_of_devices_that_compute(resource: str) -> None:
    assert is_accelerator(resource)


@pytest.mark.parametrize(
    "resource",
    OTHERS.split(),
)
def test_other_resources_are_none(resource: str) -> None:
    assert not is_accelerator(resource)


class TestMembersOfGangs:
    """A member is drawn to the others first; how full a node is decides among places that are as close."""

    def test_a_member_joins_its_rack_rather_than_a_fuller_node(self) -> None:
        # r2 has room for two, the fuller node a1 in r1 for one.
        nodes = cluster("b1 r1 : a1 a2\nb1 r2 : a3 a4")
        configuration = read_configuration(VOLCANO)
        engine = Engine(lambda handle: profile_for(configuration, handle))
        drawn = World(engine, nodes).run(members=running({"a1": 7}))
        first = pods("train", 1, wants(gpus=7), prefix="first", on="a3")
        drawn.run(gang(min_member=1, topology=None), members=[*first, *pods("train", 2, wants(gpus=1))])
        assert drawn.used("train", by="rack") == {"r2": 2}

    def test_of_equally_tight_nodes_a_member_takes_the_one_in_use(self) -> None:
        drawn = world(cluster("b1 r1 : a1 a2 a3")).run(members=running({"a3": 1}))
        drawn.run(gang(required="rack"), members=pods("train", 1, wants(gpus=6)))
        assert drawn.used("train") == {"a3": 1}


class TestGangsThatAskForNoAccelerator:
    #: r1 has GPUs and is the tighter one for a gang of 4 x 2 CPUs; r2 has none.
    RACKS = "b1 r1 : a1\nb1 r2 : c1! c2!"

    def test_go_to_nodes_without_free_accelerators(self) -> None:
        for required in ("rack", None):
            drawn = world(cluster(self.RACKS))
            drawn.run(gang("web", min_member=4, required=required), members=pods("web", 4, wants(cpu=2000)))
            assert drawn.used("web", by="rack") == {"r2": 4}

    def test_go_where_accelerators_are_all_in_use(self) -> None:
        drawn = world(cluster("b1 r1 : a1\nb1 r2 : a2 a3")).run(members=running({"a2": 8, "a3": 8}))
        drawn.run(gang("web", min_member=3), members=pods("web", 3, wants(cpu=2000)))
        assert drawn.used("web", by="rack") == {"r2": 3}

    def test_take_free_accelerators_nodes_rather_than_wait(self) -> None:
        drawn = world(cluster(self.RACKS))
        drawn.run(gang("web", min_member=10), members=pods("web", 10, wants(cpu=2000)))
        assert len(drawn.used("web", by="rack")) == 2

    def test_a_level_that_is_preferred_comes_before_that(self) -> None:
        """c1 and c2 are in two racks; r1 holds all four, though on a node with free GPUs."""
        drawn = world(cluster("b1 r1 : a1\nb1 r2 : c1!\nb1 r3 : c2!"))
        drawn.run(members=pods(None, 1, wants(cpu=4000), prefix="busy", on="c1"))
        drawn.run(members=pods(None, 1, wants(cpu=4000), prefix="also", on="c2"))
        drawn.run(gang("web", min_member=4, preferred="rack"), members=pods("web", 4, wants(cpu=2000)))
        assert drawn.used("web", by="rack") == {"r1": 4}

    def test_one_member_that_asks_for_accelerators_keeps_the_gang_together(self) -> None:
        drawn = world(cluster(self.RACKS))
        members = [*pods("train", 1, wants(gpus=1)), *pods("train", 1, wants(cpu=1000), prefix="ps")]
        drawn.run(gang(min_member=2), members=members)
        assert drawn.used(by="rack") == {"r1": 2}

    def test_members_beyond_the_minimum_may_go_further(self) -> None:
        drawn = world(cluster(self.RACKS))
        drawn.run(gang("web", min_member=2), members=pods("web", 12, wants(cpu=2000)))
        assert drawn.used("web", by="rack") == {"r1": 4, "r2": 8}
