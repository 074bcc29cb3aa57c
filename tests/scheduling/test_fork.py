"""A fork decides as the engine would, and leaves nothing behind when it is closed."""

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.applications import AppGroup
from closeby.objects.groups import Exclusive, Layer
from closeby.plugins.network_min_cost import NetworkMinCost
from closeby.plugins.network_topology import NetworkTopology
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.manifests import Manifests
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import FlushUnschedulable, PodDeleted, Tick
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import outcomes_of
from closeby.simulator.runs import simulate
from tests.crowded import world, worlds
from tests.talking import talking_worlds
from tests.worlds import GPU, gang, node, pods, spec
from tests.worlds import world as drawn_world

#: With a plugin that remembers the order in which members were placed.
REMEMBERING = Configuration(
    plugins=(PluginEntry(name="network-topology", arguments={"network-topology.keys": "rack,zone"}),)
)


def everything(engine: Engine) -> object:
    """All that decisions depend on."""
    engine.validate_state()
    cluster, state = engine.cluster, engine.state
    notes = [
        deepcopy(one._replicas if isinstance(one, NetworkMinCost) else one._members)
        for one in engine.profile.reserves
        if isinstance(one, NetworkMinCost | NetworkTopology)
    ]
    return (
        cluster.requested.tolist(),
        cluster.allocatable.tolist(),
        {pod.uid: (pod, slot) for pod, slot in cluster.placed_pods()},
        deepcopy(cluster.ports_and_disks._there),
        [node for node in cluster.nodes if node is not None],
        dict(state.pods),
        dict(state.groups),
        {
            key: (list(one.placed.items()), dict(one.waiting), dict(one.ranks), one.in_order())
            for key, one in state.members.items()
        },
        dict(state.waiting_pods),
        {key: dict(pods) for key, pods in state.waiting_apps.items()},
        dict(state.gated),
        dict(state.on_unknown_nodes),
        set(state.long_running),
        {one.key: one.group for one in state.applications},
        notes,
    )


def any_change(data: st.DataObject, manifests: Manifests, engine: Engine) -> Change:
    there = sorted(engine.state.pods.values(), key=lambda pod: pod.uid)
    gone = data.draw(st.lists(st.sampled_from(there), unique_by=lambda pod: pod.uid)) if there else []
    again = [replace(pod, node_name=None, spec=spec(gpu=1)) for pod in there if data.draw(st.booleans())]
    more = [node("one-more", {"zone": "a"}, {GPU: 4})] if data.draw(st.booleans()) else []
    closed = [replace(one, ready=False) for one in manifests.nodes if data.draw(st.booleans())]
    groups = [
        replace(one, constraint=None, min_member=1) for one in manifests.groups if data.draw(st.booleans())
    ]
    applications = [_without_limits(one) for one in manifests.app_groups if data.draw(st.booleans())]
    return Change(
        gone=tuple(gone),
        waiting=tuple(again),
        nodes=(*more, *closed),
        groups=tuple(groups),
        applications=tuple(applications),
    )


def _without_limits(group: AppGroup) -> AppGroup:
    return replace(group, workloads=tuple(replace(one, dependencies=()) for one in group.workloads))


@settings(max_examples=60, deadline=None)
@given(st.one_of(worlds(), talking_worlds()), st.sampled_from([Configuration(), REMEMBERING]), st.data())
def test_closing_undoes_everything(
    manifests: Manifests, configuration: Configuration, data: st.DataObject
) -> None:
    engine = simulate(manifests, configuration).engine
    before = everything(engine)
    with engine.fork() as fork:
        fork.decide()
        for _ in range(3):
            mark = fork.mark()
            fork.apply(any_change(data, manifests, engine))
            fork.decide()
            engine.state.validate(engine.cluster)
            if data.draw(st.booleans()):
                fork.undo(mark)
    assert everything(engine) == before


@settings(max_examples=60, deadline=None)
@given(worlds(), st.data())
def test_it_decides_as_the_engine_does_when_it_comes_true(manifests: Manifests, data: st.DataObject) -> None:
    """Pods are deleted for good; the fork has said before what the engine decides then."""
    engine = simulate(manifests, Configuration()).engine
    there = sorted(engine.state.pods.values(), key=lambda pod: pod.uid)
    gone = data.draw(st.lists(st.sampled_from(there), unique_by=lambda pod: pod.uid))
    with engine.fork() as fork:
        fork.apply(Change(gone=tuple(gone)))
        tried = [one for one in fork.decide() if one.bindings]
    decided = []
    engine.handle(*(PodDeleted(pod.uid) for pod in gone), FlushUnschedulable())
    while found := [one for one in outcomes_of(engine.handle(Tick())) if one.bindings]:
        decided += found
    assert [(one.key, one.place) for one in tried] == [(one.key, one.place) for one in decided]
    assert [[(each.pod.uid, each.node, each.rank) for each in one.bindings] for one in tried] == [
        [(each.pod.uid, each.node, each.rank) for each in one.bindings] for one in decided
    ]


def test_a_node_that_is_added_takes_what_waits_and_is_gone_again() -> None:
    run = simulate(world([gang("train", 2)], pods("train", 2, spec(gpu=8))), Configuration())
    with run.engine.fork() as fork:
        fork.apply(Change(nodes=(node("big", {"zone": "a", "rack": "r1"}, {GPU: 16}),)))
        (outcome,) = fork.decide()
        assert {one.node for one in outcome.bindings} == {"big"}
    assert run.engine.cluster.slot("big") is None
    assert run.engine.state.waits("default/train")


def test_a_fork_tells_no_story() -> None:
    run = simulate(world([gang("train", 2)], pods("train", 2, spec(gpu=8))), Configuration())
    before = run.engine.story("default/train")
    with run.engine.fork() as fork:
        fork.decide()
    assert run.engine.story("default/train") == before


def test_a_fork_and_the_engine_mean_the_same_nodes_that_others_have_for_themselves() -> None:
    site = drawn_world("a r1 : n1=2\na r2 : n2=2", levels=("block", "rack"))
    alone = (Layer(level="rack", size=1, exclusive=Exclusive.ALL),)
    for name, node_name in (("one", "n1"), ("two", "n2")):
        site.run(replace(gang(name), layers=alone), members=pods(name, 1, on=node_name))
    site.run(members=pods(None, 1, prefix="plain"))
    assert site.where == {}
    with site.engine.fork() as fork:
        fork.apply(Change(gone=tuple(pods("one", 1))))
        placed = [one for outcome in fork.decide() for one in outcome.bindings]
    assert [(one.pod.name, one.node) for one in placed] == [("plain-0", "n1")]
