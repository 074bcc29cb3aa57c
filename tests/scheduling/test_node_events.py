"""Nodes that come, leave and change: what follows them equals what is worked out from nothing."""

from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import bindings_of
from closeby.topology.tree import Domain
from tests.worlds import GPU, fabric, gang, node, pods, spec

#: By node: room, whether it is ruled out for good, score. By path of a domain: room.
Figures = dict[str, tuple[int, bool, float]]
Rooms = dict[tuple[str | None, ...], int]

ZONED = replace(spec(gpu=1), node_selector=(("zone", "z1"),))


def engine() -> Engine:
    made = Engine(lambda handle: profile_for(Configuration(), handle))
    made.handle(TopologyChanged(fabric("zone", "rack", HOSTNAME)))
    return made


def drawn_node(draw: Random, name: str) -> Node:
    labels = {"zone": f"z{draw.randint(0, 2)}", "rack": f"r{draw.randint(0, 11)}"}
    for key in ("zone", "rack"):
        if draw.random() < 0.05:
            del labels[key]
    return node(
        name,
        labels,
        {GPU: draw.randint(0, 4), "cpu": 8_000},
        [Taint("gpu", "x", "NoSchedule")] if draw.random() < 0.1 else [],
        draw.random() < 0.1,
    )


def figures(of: Engine, needs: PodSpec) -> tuple[Figures, Rooms]:
    """Room and score by node, and room by domain."""
    table = of._tools.table
    pod_class = table.of(Pod(namespace="default", name="p", uid="p", spec=needs))
    ranked = table.ranked(pod_class)
    tree = of.topologies.tree("fabric")
    assert tree is not None
    counts = table.counts(pod_class, tree)
    by_node = {
        name: (int(pod_class.fits[slot]), bool(pod_class.static[slot]), float(ranked[slot]))
        for slot, name in enumerate(of.cluster.names)
        if name is not None
    }
    assert pod_class.total == sum(room for room, _, _ in by_node.values())
    # A node that left stays in the tree, without any room, until the tree changes.
    by_domain = {
        tree.path(Domain(level, index)): room
        for level in range(tree.node_level)
        for index, room in enumerate(counts.of(level).tolist())
        if room and tree.labelled[level][index]
    }
    return by_node, by_domain


@pytest.mark.parametrize("seed", range(12))
def test_a_random_history_of_nodes(seed: int) -> None:
    draw = Random(seed)
    followed = engine()
    there: dict[str, Node] = {}
    running: dict[str, Pod] = {}
    #: More nodes than one change in fifty, so that trees are followed and not built again.
    first = [drawn_node(draw, f"n{number}") for number in range(160)]
    there.update({one.name: one for one in first})
    followed.handle(*map(NodeUpserted, first), Tick())
    for step in range(25):
        events: list[Event] = []
        for _ in range(draw.choice((1, 1, 2, 3))):
            name = f"n{draw.randint(0, 220)}"
            if name in there and draw.random() < 0.5:
                del there[name]
                events.append(NodeDeleted(name))
                for pod in [one for one in running.values() if one.node_name == name]:
                    events.append(PodDeleted(pod.uid))
                    del running[pod.uid]
            else:
                there[name] = drawn_node(draw, name)
                events.append(NodeUpserted(there[name]))
        (bound,) = pods(None, 1, spec(gpu=1), prefix=f"b{step}", on=draw.choice(sorted(there)))
        running[bound.uid] = bound
        followed.handle(*events, PodUpserted(bound))
        followed.validate_state()

        fresh = engine()
        fresh.handle(*map(NodeUpserted, there.values()), *map(PodUpserted, running.values()))
        for needs in (spec(gpu=1), spec(gpu=2, cpu=1_000), ZONED):
            assert figures(followed, needs) == figures(fresh, needs), f"seed {seed}, step {step}"
        flat = [followed.cluster.names[slot] for slot in followed.topologies.flat().slot_at.tolist()]
        expected = [fresh.cluster.names[slot] for slot in fresh.topologies.flat().slot_at.tolist()]
        assert [name for name in flat if name is not None] == expected
        wanted = gang(f"g{step}", min_member=3, required="rack")
        members = pods(wanted.name, 3, spec(gpu=1))
        arrival: list[Event] = [GroupChanged(wanted), *map(PodUpserted, members), Tick()]
        placed = [
            {one.pod.name: one.node for one in bindings_of(which.handle(*arrival))}
            for which in (followed, fresh)
        ]
        assert placed[0] == placed[1], f"seed {seed}, step {step}"
        followed.handle(*(PodDeleted(pod.uid) for pod in members))


def test_pods_of_a_node_that_leaves_are_found() -> None:
    draw = Random(3)
    made = engine()
    made.handle(*(NodeUpserted(node(f"n{at}", {}, {GPU: 4})) for at in range(6)))
    where: dict[str, str] = {}
    for step in range(200):
        name = f"n{draw.randint(0, 5)}"
        if draw.random() < 0.15:
            slot = made.cluster.slot(name)
            if slot is not None:
                expected = {uid for uid, on in where.items() if on == name}
                assert {pod.uid for pod in made.cluster.pods_at(slot)} == expected
                made.handle(NodeDeleted(name))
            else:
                made.handle(NodeUpserted(node(name, {}, {GPU: 4})))
        elif draw.random() < 0.6 or not where:
            (pod,) = pods(None, 1, prefix=f"p{step % 40}", on=name)
            made.handle(PodUpserted(pod))
            where[pod.uid] = name
        else:
            uid = draw.choice(sorted(where))
            del where[uid]
            made.handle(PodDeleted(uid))
        made.validate_state()
    assert np.count_nonzero(made.cluster.requested) > 0
