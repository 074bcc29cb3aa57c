"""Clusters in which not everything finds a place."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import PodGroup, Strategy, SubGroup
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import HostPort, Pod, PodSpec
from closeby.reading.manifests import Manifests
from tests.worlds import GPU, draw, fabric, gang, pods, subgroup

#: Two racks of four GPUs in zone a, one of eight in zone b.
CLUSTER = """
a r1 : n1=2 n2=2
a r2 : n3=2 n4=2
b r3 : n5=4 n6=4
"""


def world(
    groups: Sequence[PodGroup], members: Sequence[Pod], nodes: Sequence[Node] | str = CLUSTER
) -> Manifests:
    return Manifests(
        nodes=tuple(draw(nodes) if isinstance(nodes, str) else nodes),
        pods=tuple(members),
        groups=tuple(groups),
        topologies=(fabric("zone", "rack"),),
        whole=True,
    )


specs = st.builds(
    lambda gpus, port, ssd: PodSpec(
        requests=((GPU, gpus),),
        host_ports=(HostPort(port=80),) if port else (),
        node_selector=(("disk", "ssd"),) if ssd else (),
    ),
    st.integers(1, 3),
    st.integers(0, 3).map(lambda number: number == 3),
    st.integers(0, 3).map(lambda number: number == 3),
)


@st.composite
def worlds(draw_from: st.DrawFn) -> Manifests:
    """A few racks, jobs that run on them, and gangs that wait; some jobs run on more than there is."""
    sizes = draw_from(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4
        )
    )
    lines, names = [], []
    for number, (zone, count, gpus) in enumerate(sizes):
        own = [f"n{number}{index}" for index in range(count)]
        names += own
        lines.append(f"{zone} r{number} : " + " ".join(f"{one}={gpus}" for one in own))
    nodes = [
        replace(one, labels={**one.labels, "disk": "ssd"}) if draw_from(st.integers(0, 2)) else one
        for one in draw("\n".join(lines))
    ]
    nodes = [
        replace(one, taints=(Taint("team", "ml", "NoSchedule"),))
        if draw_from(st.integers(0, 5)) == 5
        else one
        for one in nodes
    ]
    running = [_running(draw_from, number, names) for number in range(draw_from(st.integers(0, 5)))]
    waiting = [_waiting(draw_from, number, names) for number in range(draw_from(st.integers(1, 3)))]
    groups = [group for group, _ in (*running, *waiting) if group is not None]
    return world(groups, [pod for _, members in (*running, *waiting) for pod in members], nodes)


def _running(draw_from: st.DrawFn, number: int, names: Sequence[str]) -> tuple[PodGroup | None, list[Pod]]:
    """A gang or a single pod, with its nodes."""
    alone = draw_from(st.booleans())
    on = draw_from(st.lists(st.sampled_from(names), min_size=1, max_size=1 if alone else 3))
    made = pods(None if alone else f"old-{number}", len(on), draw_from(specs), prefix=f"old-{number}")
    members = [replace(one, node_name=node) for one, node in zip(made, on, strict=True)]
    return (None if alone else gang(f"old-{number}")), members


def _waiting(draw_from: st.DrawFn, number: int, names: Sequence[str]) -> tuple[PodGroup, list[Pod]]:
    """A gang of equal or unequal pods, with two subgroups or none, of which one member may run already."""
    name, mixed = f"new-{number}", draw_from(st.booleans())
    required = draw_from(st.sampled_from(["zone", "rack", "rack", None]))
    strategy = draw_from(st.sampled_from(Strategy))
    parts: list[SubGroup] = []
    if draw_from(st.integers(0, 3)) == 3:
        sizes = [draw_from(st.integers(1, 2)) for _ in "xy"]
        levels = [draw_from(st.sampled_from(["rack", None])) for _ in "xy"]
        parts = [subgroup(*one) for one in zip("xy", sizes, levels, strict=True)]
    count = sum(one.min_member for one in parts) or draw_from(st.integers(1, 4))
    minimum = count if parts else draw_from(st.integers(1, count))
    needs = draw_from(specs)
    members = [
        one for part in parts for one in pods(name, part.min_member, needs, part.name, f"{name}{part.name}")
    ] or pods(name, count, needs)
    if mixed:
        members = [replace(one, spec=draw_from(specs)) for one in members]
    if draw_from(st.integers(0, 4)) == 4:
        members[0] = replace(members[0], node_name=draw_from(st.sampled_from(names)))
    group = gang(name, minimum, required, strategy=strategy, subgroups=parts)
    return replace(group, priority=draw_from(st.sampled_from([None, 0, 5]))), members
