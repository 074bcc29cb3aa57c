"""Scores that are kept between decisions, and those that are asked for each time: who counts, and where."""

from collections.abc import Iterable
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.objects.arrays import Scores
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.node_resources_balanced_allocation import (
    BalancedArguments,
    NodeResourcesBalancedAllocation,
)
from closeby.plugins.node_resources_fit import FitArguments, NodeResourcesFit
from closeby.plugins.registry import profile_for
from closeby.plugins.scarce_resource_avoidance import AvoidanceArguments, ScarceResourceAvoidance
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, NodeUpserted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.extension import Scope, Score
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.plugins.among_pods import some_node, some_pod, some_spec
from tests.plugins.asking import handle_of, place
from tests.worlds import GPU, World, draw, gang, pods, spec, world


def plugin(kind: type[Score], weight: float = 1.0) -> PluginEntry:
    return PluginEntry(name=f"{__name__}:{kind.__name__}", weight=weight)


#: No other score that tells nodes apart.
ALONE = PluginEntry(name="NodeResourcesFit", weight=0.0)


class Stars(Score):
    """A node's score stands in its label ``stars``."""

    name: ClassVar[str] = "Stars"

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        labels = [{} if node is None else node.labels for node in nodes]
        return np.asarray([float(one.get("stars", "0")) for one in labels])


class StarsOnceOpen(Stars):
    """The same, once any node is labelled ``open``."""

    name: ClassVar[str] = "StarsOnceOpen"

    def scores(self, pod: Pod) -> bool:
        return any("open" in node.labels for node in self.handle.cluster.nodes if node is not None)


class Moons(Score):
    """Of label ``moons``, asked anew for each pod."""

    name: ClassVar[str] = "Moons"
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        labels = [{} if node is None else node.labels for node in nodes]
        return np.asarray([float(one.get("moons", "0")) for one in labels])


def labelled(drawing: str, **by_node: dict[str, str]) -> list[Node]:
    """The drawing's nodes, some of them with more labels."""
    nodes = draw(drawing)
    return [replace(node, labels={**node.labels, **by_node.get(node.name, {})}) for node in nodes]


def test_a_scorer_that_becomes_active_counts_on_nodes_that_did_not_change() -> None:
    #   40 nodes, so that totals are kept; n30 has stars. Then n39 opens, and nothing else changes.
    drawing = "zone-a rack-1 : " + " ".join(f"n{index}=9" for index in range(40))
    nodes = labelled(drawing, n30={"stars": "100"})
    drawn = world(nodes, plugins=[ALONE, plugin(StarsOnceOpen)])
    drawn.run(members=pods(None, 1, prefix="before"))
    assert drawn.where == {"before-0": "n0"}
    drawn.tell(NodeUpserted(replace(nodes[39], labels={**nodes[39].labels, "open": "yes"})))
    drawn.run(members=pods(None, 1, prefix="after"))
    assert drawn.where["after-0"] == "n30"
    drawn.tell(NodeUpserted(nodes[39])).run(members=pods(None, 1, prefix="closed"))
    assert drawn.where["closed-0"] == "n0"


def kept_and_asked(stars: str, moons: str) -> World:
    """a and b take one pod each; b has stars, which are kept, and a has moons."""
    nodes = labelled("zone-a rack-1 : a=1 b=1", b={"stars": stars}, a={"moons": moons})
    return world(nodes, plugins=[ALONE, plugin(Stars), plugin(Moons)]).run(members=pods(None, 1))


def test_a_score_per_placement_can_make_up_for_what_a_node_lacks() -> None:
    assert kept_and_asked(stars="99", moons="100").where == {"pod-0": "a"}
    assert kept_and_asked(stars="50", moons="49").where == {"pod-0": "b"}


def test_of_equal_totals_the_first_by_name_wins() -> None:
    assert kept_and_asked(stars="100", moons="100").where == {"pod-0": "a"}


def test_equal_racks_are_compared_by_the_nodes_that_have_room() -> None:
    #   rack-1: a1 with 50 stars, and a2 with 100, which is full.     rack-2: b1 with 60, b2 with none, full.
    drawing = "zone-a rack-1 : a1=1 a2=1\nzone-a rack-2 : b1=1 b2=1"
    stars = {"a1": "50", "a2": "100", "b1": "60", "b2": "0"}
    nodes = labelled(drawing, **{name: {"stars": value} for name, value in stars.items()})
    drawn = world(nodes, plugins=[ALONE, plugin(Stars)])
    full = [*pods(None, 1, prefix="x", on="a2"), *pods(None, 1, prefix="y", on="b2")]
    drawn.run(gang(min_member=1, required="zone"), members=[*full, *pods("train", 1)])
    assert drawn.where == {"train-0": "b1"}


def test_totals_follow_what_comes_and_goes_on_a_node() -> None:
    #   Kept totals are brought up to date for the nodes that pods came to or left, and for those alone.
    drawing = "zone-a rack-1 : " + " ".join(f"n{index}=2" for index in range(40))
    needs = spec(gpu=2)
    drawn = world(labelled(drawing, n7={"stars": "9"}, n8={"stars": "5"}), plugins=[ALONE, plugin(Stars)])
    drawn.run(members=pods(None, 3, needs, prefix="p"))
    assert drawn.where == {"p-0": "n7", "p-1": "n8", "p-2": "n0"}
    drawn.tell(PodDeleted("default/p-1")).run(members=pods(None, 1, needs, prefix="q"))
    assert drawn.where["q-0"] == "n8"
    drawn.tell(NodeUpserted(draw("zone-a rack-1 : n1=2")[0]))
    drawn.tell(
        NodeUpserted(replace(drawn.engine.cluster.node_at(20), allocatable={GPU: 2}, labels={"stars": "1"}))
    )
    drawn.run(members=pods(None, 1, needs, prefix="r"))
    assert drawn.where["r-0"] == drawn.engine.cluster.names[20]


def started(nodes: Iterable[Node], bound: Iterable[Pod]) -> Engine:
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    engine.handle(*map(NodeUpserted, nodes), *map(PodUpserted, bound))
    return engine


@pytest.mark.parametrize("seed", range(12))
def test_figures_that_are_kept_equal_those_computed_from_scratch(seed: int) -> None:
    """After each of some random events an engine decides as one that has just heard of everything."""
    dice = Random(seed)
    specs = [
        replace(some_spec(dice), requests=(("cpu", dice.choice([100, 500])), ("memory", 1 << 30)))
        for _ in range(4)
    ]

    def drawn_node(name: str) -> Node:
        offered = {"cpu": dice.choice([2000, 4000]), "memory": 8 << 30, "pods": 20}
        return replace(some_node(dice, name), allocatable=offered)

    nodes = {f"n{at}": drawn_node(f"n{at}") for at in range(70)}
    kept, bound = started(nodes.values(), ()), dict[str, Pod]()
    for step in range(25):
        events: list[Event] = []
        if dice.random() < 0.3:
            name = dice.choice(sorted(nodes))
            nodes[name] = drawn_node(name)
            events.append(NodeUpserted(nodes[name]))
        for uid in dice.sample(sorted(bound), min(len(bound), dice.randint(0, 2))):
            del bound[uid]
            events.append(PodDeleted(uid))
        kept.handle(*events)
        pod = replace(some_pod(dice, f"p{step}", specs), terminating=False)
        placed = [
            [one.node for one in bindings_of(engine.handle(PodUpserted(pod), Tick()))]
            for engine in (kept, started(nodes.values(), bound.values()))
        ]
        assert placed[0] == placed[1], f"seed {seed}, step {step}: {pod.spec}"
        if placed[0]:
            bound[pod.uid] = replace(pod, node_name=placed[0][0], phase="Running")
            kept.handle(PodUpserted(bound[pod.uid]))
        else:
            kept.handle(PodDeleted(pod.uid))
    kept.validate_state()


@pytest.mark.parametrize("seed", range(10))
def test_the_figures_of_one_node_are_those_among_all(seed: int) -> None:
    """Single nodes are judged with plain numbers, many in columns: to the last bit alike."""
    dice = Random(seed)
    offers = [
        {"cpu": dice.randint(1, 9000), "memory": dice.randint(0, 1) * dice.randint(1, 1 << 40), "pods": 9}
        | ({GPU: dice.randint(0, 8)} if dice.random() < 0.5 else {})
        for _ in range(40)
    ]
    handle = handle_of(Node(name=f"n{at}", allocatable=offered) for at, offered in enumerate(offers))
    for at in range(60):
        asked = (("cpu", dice.randint(0, 3000)), ("memory", dice.randint(0, 1 << 36)), (GPU, at % 3))
        one = pods(None, 1, PodSpec(requests=asked), prefix=f"old{at}")[0]
        place(handle.cluster, one, f"n{dice.randrange(40)}")
    fit = NodeResourcesFit(FitArguments(), handle)
    scorers = [
        fit,
        NodeResourcesBalancedAllocation(BalancedArguments(), handle),
        ScarceResourceAvoidance(AvoidanceArguments(), handle),
    ]
    state, every = CycleState(), Nodes(handle.cluster)
    for requests in ((("cpu", 700), ("memory", 1 << 33)), (("cpu", 1), (GPU, 2)), ()):
        pod = pods(None, 1, PodSpec(requests=requests))[0]
        for slot in range(40):
            alone = Nodes(handle.cluster, np.asarray([slot]))
            assert fit.capacity(state, pod, alone)[0] == fit.capacity(state, pod, every)[slot]
            for scorer in (one for one in scorers if one.scores(pod)):
                assert scorer.score(state, pod, alone)[0] == scorer.score(state, pod, every)[slot], (
                    scorer.name
                )
