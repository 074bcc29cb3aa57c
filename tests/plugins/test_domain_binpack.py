"""domain-binpack: of equally full nodes a single pod takes one whose rack and block are in use already."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.plugins.configurations import DEFAULT, NAMED
from closeby.plugins.domain_binpack import BinpackArguments, DomainBinpack
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.plugin_helpers import NATIVE
from tests.applications.calls import app
from tests.plugins.asking import handle_of, scores
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, world

CLUSTER = """
b1 r1 : n1=4 n2=4
b1 r2 : n3=4 n4=4
b2 r3 : n5=4 n6=4
-  -  : n7=4
"""
LEVELS = ("block", "rack")
BY_GPU = {"resources": [{"name": GPU}]}
#: What fills the fullest node.
FULLEST = PluginEntry(
    name="NodeResourcesFit",
    arguments={"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": GPU}]}},
)
BINPACK = PluginEntry(name="domain-binpack", arguments=BY_GPU)
OFF = PluginEntry(name="domain-binpack", enabled=False)


def plugin_on(
    nodes: str | list[Node] = CLUSTER, running: Mapping[str, int] = {}, **arguments: object
) -> DomainBinpack:
    """The plugin on a cluster where so many GPUs of each named node are taken."""
    drawn = draw(nodes, LEVELS) if isinstance(nodes, str) else nodes
    taken = [(pods(None, 1, spec(gpu=gpus), prefix=name)[0], name) for name, gpus in running.items()]
    handle = handle_of(drawn, taken)
    handle.topologies.declare(fabric(*LEVELS))
    return DomainBinpack(msgspec.convert({**BY_GPU, **arguments}, BinpackArguments), handle)


def single(gpus: int = 1) -> Pod:
    return pods(None, 1, spec(gpu=gpus))[0]


class TestTheScore:
    def test_is_how_full_the_rack_is_and_after_it_the_block(self) -> None:
        found = scores(plugin_on(running={"n3": 4}), single())
        # r2 (4 + 1) / 8, the others 1 / 8; b1 (4 + 1) / 16, b2 1 / 8; the block counts 0.8 beside the rack.
        assert found["n3"] == found["n4"] == pytest.approx(100 * (0.625 + 0.8 * 0.3125) / 1.8)
        assert found["n1"] == found["n2"] == pytest.approx(100 * (0.125 + 0.8 * 0.3125) / 1.8)
        assert found["n5"] == found["n6"] == pytest.approx(100 * (0.125 + 0.8 * 0.125) / 1.8)

    def test_is_full_for_a_node_of_no_rack_that_no_gang_wants(self) -> None:
        assert scores(plugin_on(), single())["n7"] == 100

    def test_fades_as_the_argument_says(self) -> None:
        found = scores(plugin_on(running={"n3": 4}, fading=0.5), single())
        assert found["n4"] == pytest.approx(100 * (0.625 + 0.5 * 0.3125) / 1.5)

    def test_follows_pods_nodes_and_labels(self) -> None:
        plugin = plugin_on(running={"n3": 4})
        cluster = plugin.handle.cluster
        cluster.forget_pod("default/n3-0")
        assert scores(plugin, single())["n3"] == pytest.approx(100 * (0.125 + 0.8 * 0.0625) / 1.8)
        cluster.add_node(node("n8", {"block": "b2", "rack": "r3"}, {GPU: 8}))
        assert scores(plugin, single())["n5"] == pytest.approx(100 / 16)
        cluster.add_node(node("n1", {"block": "b2", "rack": "r3"}, {GPU: 4}))
        assert scores(plugin, single())["n1"] == pytest.approx(100 / 20)

    def test_of_a_cpu_pod_is_about_cpus_alone(self) -> None:
        nodes = [
            node("a", {"block": "b", "rack": "r1"}, {GPU: 8, "cpu": 4000}),
            node("b", {"block": "b", "rack": "r2"}, {"cpu": 8000}),
        ]
        plugin = plugin_on(nodes, {"a": 8}, resources=[{"name": GPU}, {"name": "cpu", "weight": 3}])
        found = scores(plugin, pods(None, 1, spec(cpu=1000))[0])
        assert found["a"] == pytest.approx(100 * (1 / 4 + 0.8 / 12) / 1.8)
        assert found["b"] == pytest.approx(100 * (1 / 8 + 0.8 / 12) / 1.8)

    def test_is_not_above_100_where_more_is_taken_than_there_is(self) -> None:
        assert scores(plugin_on(running={"n5": 9}), single())["n6"] == 100

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["b1", "b2", ""]),
                st.sampled_from(["r1", "r2", ""]),
                st.integers(0, 8),
                st.integers(0, 8),
                st.integers(0, 4000),
            ),
            min_size=1,
            max_size=8,
        ),
        st.sampled_from([0.3, 0.8, 1.0]),
        st.integers(0, 2),
    )
    def test_the_score_is_the_formula(
        self, drawn: list[tuple[str, str, int, int, int]], fading: float, gpus: int
    ) -> None:
        nodes = [
            node(f"n{at}", {"block": block, "rack": rack}, {GPU: room, "cpu": cpu})
            for at, (block, rack, room, _, cpu) in enumerate(drawn)
        ]
        running = {f"n{at}": taken for at, (*_, taken, _) in enumerate(drawn) if taken}
        weights = {GPU: 2, "cpu": 1}
        plugin = plugin_on(
            nodes,
            running,
            fading=fading,
            resources=[{"name": name, "weight": weight} for name, weight in weights.items()],
        )
        pod = pods(None, 1, spec(gpu=gpus, cpu=500) if gpus else spec(cpu=500))[0]
        assert plugin.scores(pod)
        found = scores(plugin, pod)
        asked = {GPU: gpus, "cpu": 500}
        for own in nodes:
            expected = 0.0
            for tier, level in enumerate(("rack", "block")):
                path = [own.labels[one] for one in LEVELS[: LEVELS.index(level) + 1]]
                inside = [
                    one
                    for one in nodes
                    if [one.labels[label] for label in LEVELS[: len(path)]] == path and path[-1]
                ]
                if path[-1] and not path[0]:
                    inside = [own]  # a rack of a node without a block is its own
                offered = {name: sum(one.allocatable[name] for one in inside) for name in weights}
                used = {GPU: sum(running.get(one.name, 0) for one in inside), "cpu": 0}
                counted = [name for name in weights if offered[name] and (asked[name] or name in NATIVE)]
                share = sum(
                    weights[name] * min((used[name] + asked[name]) / offered[name], 1) for name in counted
                )
                whole = sum(weights[name] for name in counted)
                expected += fading**tier * (share / whole if whole else 1)
            assert found[own.name] == pytest.approx(100 * expected / (1 + fading)), own.name


class TestWhomItConcerns:
    def test_members_of_gangs_are_for_others_to_place(self) -> None:
        assert not plugin_on().scores(pods("train", 1)[0])

    def test_pods_of_an_application_go_where_talk_is_cheap(self) -> None:
        plugin = plugin_on()
        plugin.handle.applications.declare(app("a > b\nb"))
        [pod] = pods(None, 1, spec(gpu=1), labels={APP_GROUP_LABEL: "A1", WORKLOAD_LABEL: "a"})
        assert plugin.handle.applications.of(pod) is not None
        assert not plugin.scores(pod)

    def test_no_pod_is_scored_where_none_of_its_resources_counts(self) -> None:
        assert not plugin_on().scores(pods(None, 1, spec(disk=1))[0])

    def test_no_pod_is_scored_where_the_topology_is_ambiguous(self) -> None:
        plugin = plugin_on()
        plugin.handle.topologies.declare(fabric("rack", name="other"))
        assert not plugin.scores_any
        assert plugin.conditions() == ()

    def test_the_topology_that_is_named(self) -> None:
        plugin = plugin_on(topology="fabric")
        plugin.handle.topologies.declare(fabric("rack", name="other"))
        assert plugin.scores(single())
        assert plugin.conditions() == ()

    def test_a_topology_that_is_not_there_is_reported(self) -> None:
        plugin = plugin_on(topology="fabrik")
        assert not plugin.scores(single())
        [condition] = plugin.conditions()
        assert condition.reason is Reason.TOPOLOGY_NOT_FOUND
        assert "'fabrik'" in condition.message

    def test_a_topology_without_levels_above_the_node_says_nothing(self) -> None:
        plugin = DomainBinpack(BinpackArguments(), handle_of(draw(CLUSTER, LEVELS)))
        plugin.handle.topologies.declare(fabric("kubernetes.io/hostname"))
        assert not plugin.scores_any

    @pytest.mark.parametrize("resources", [[], [{"name": "cpu"}, {"name": "cpu"}]])
    def test_resources_are_some_and_each_is_named_once(self, resources: list[object]) -> None:
        with pytest.raises(msgspec.ValidationError, match="at least one resource, and none twice"):
            msgspec.convert({"resources": resources}, BinpackArguments)


class TestPlacing:
    def test_a_single_pod_leaves_the_free_rack_to_a_gang(self) -> None:
        nodes = "b r1 : a=4 b=4\nb r2 : c=4 d=4"
        placed = {}
        for name, plugins in (("without", (FULLEST, OFF)), ("with", (FULLEST, BINPACK))):
            drawn = world(nodes, levels=LEVELS, plugins=plugins)
            drawn.run(members=pods(None, 1, spec(gpu=4), prefix="old", on="c"))
            drawn.run(members=pods(None, 1, spec(gpu=4), prefix="single"))
            drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, spec(gpu=4)))
            placed[name] = {pod: at for pod, at in drawn.where.items() if pod != "old-0"}
        assert placed == {
            "without": {"single-0": "a"},
            "with": {"single-0": "d", "train-0": "a", "train-1": "b"},
        }

    def test_a_fuller_node_counts_more_than_a_fuller_rack(self) -> None:
        drawn = world("b r1 : a=8 b=8\nb r2 : c=8 d=8", levels=LEVELS, plugins=(FULLEST, BINPACK))
        drawn.run(
            members=[
                *pods(None, 1, spec(gpu=1), prefix="small", on="a"),
                *pods(None, 1, spec(gpu=8), prefix="large", on="c"),
            ]
        )
        drawn.run(members=pods(None, 1, spec(gpu=1), prefix="single"))
        assert drawn.where["single-0"] == "a"

    @given(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8)), min_size=1, max_size=10),
        st.sampled_from([0.01, 0.04, 1.0, 30.0]),
        st.integers(1, 4),
    )
    def test_no_node_has_a_greater_total_than_the_chosen_one(
        self, drawn: list[tuple[int, int]], weight: float, gpus: int
    ) -> None:
        nodes = [
            node(f"n{at}", {"block": "b", "rack": f"r{rack}"}, {GPU: 8}) for at, (rack, _) in enumerate(drawn)
        ]
        binpack = PluginEntry(name="domain-binpack", arguments=BY_GPU, weight=weight)
        made = world(nodes, fabric(*LEVELS), plugins=(FULLEST, binpack), explain=True)
        running = [(f"n{at}", taken) for at, (_, taken) in enumerate(drawn) if taken]
        made.run(members=[pods(None, 1, spec(gpu=taken), prefix=name, on=name)[0] for name, taken in running])
        made.run(members=pods(None, 1, spec(gpu=gpus), prefix="single"))
        if all(taken + gpus > 8 for _, taken in drawn):
            assert made.where == {}
            return
        [explained] = made.outcome("single-0").explanations
        totals = {name: scores["total"] for name, scores in explained.scores.items()}
        assert totals[made.where["single-0"]] == pytest.approx(max(totals.values()))

    def test_the_default_configuration_does_it(self) -> None:
        engine = Engine(lambda handle: profile_for(NAMED[DEFAULT], handle))
        gpus = {"nvidia.com/gpu": 4, "cpu": 8000, "memory": 1 << 36}
        racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
        nodes = [node(name, {"block": "b", "rack": rack}, gpus) for name, rack in racks.items()]
        drawn = World(engine, nodes, fabric(*LEVELS))
        needs = PodSpec(requests=(("cpu", 1000), ("nvidia.com/gpu", 4)))
        drawn.run(members=pods(None, 1, needs, prefix="old", on="c"))
        drawn.run(members=pods(None, 1, needs, prefix="single"))
        assert drawn.where["single-0"] == "d"


def test_each_resource_has_its_own_offers() -> None:
    """A pod for NICs is scored by NICs, though one for GPUs was asked about a moment ago."""
    offers = {"a": {GPU: 4, "nic": 1}, "b": {GPU: 1, "nic": 4}}
    nodes = [node(name, {"block": name, "rack": name}, offered) for name, offered in offers.items()]
    by_both = plugin_on(nodes, resources=[{"name": GPU}, {"name": "nic"}])
    assert scores(by_both, single()) == pytest.approx({"a": 25, "b": 100})
    assert scores(by_both, pods(None, 1, spec(nic=1))[0]) == pytest.approx({"a": 100, "b": 25})


def test_what_domains_offer_follows_their_nodes() -> None:
    asked = plugin_on("b1 r1 : n1=4")
    assert scores(asked, single()) == pytest.approx({"n1": 25})
    asked.handle.cluster.add_node(node("n1", {"block": "b1", "rack": "r1"}, {GPU: 2}))
    assert scores(asked, single()) == pytest.approx({"n1": 50})


def test_what_domains_offer_follows_the_topology() -> None:
    #   n1 of rack r1 and n2 of rack r2 share the block; then racks alone count.
    asked = plugin_on("b1 r1 : n1=4\nb1 r2 : n2=4", {"n2": 4}, fading=1.0)
    assert scores(asked, single()) == pytest.approx({"n1": 25 / 2 + 62.5 / 2, "n2": 50 + 62.5 / 2})
    asked.handle.topologies.declare(fabric("rack"))
    assert scores(asked, single()) == pytest.approx({"n1": 25, "n2": 100})
