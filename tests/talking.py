"""Clusters in which applications wait or are badly placed: limits, room that is taken, replicas far apart."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod
from closeby.reading.manifests import Manifests
from tests.applications.networks import network, replicas
from tests.worlds import GPU, gang, node, pods, spec

#: Two pairs of near nodes, far from each other.
PAIRS = "a1 a2 1\nb1 b2 1\na1 b1 50\na2 b2 50"


def rooms(**gpus: int) -> list[Node]:
    """Nodes of so many GPUs."""
    return [node(name, allocatable={GPU: amount}) for name, amount in gpus.items()]


def talking(
    nodes: Sequence[Node], groups: Sequence[AppGroup], members: Sequence[Pod], net: str = PAIRS
) -> Manifests:
    """Applications in a network; ``net`` empty for none."""
    return Manifests(
        nodes=tuple(nodes),
        pods=tuple(members),
        app_groups=tuple(groups),
        network_topologies=(network(net),) if net else (),
        whole=True,
    )


@st.composite
def talking_worlds(draw: st.DrawFn) -> Manifests:
    """One or two applications on a few nodes, some pods of which run, with jobs and gangs beside them."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    nodes = [_node(draw, name) for name in names]
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    known = [pair for pair in pairs if draw(st.integers(0, 3))]
    net = "\n".join(f"{one} {other} {draw(st.sampled_from([1, 2, 5, 20, 50]))}" for one, other in known)
    groups, members = [], []
    for name in draw(st.sampled_from([("A1",), ("A1", "A2")])):
        workloads = "abc"[: draw(st.integers(1, 3))]
        groups.append(_app(draw, name, workloads))
        members += [pod for one in workloads for pod in _replicas(draw, name, one, names)]
    alone = [
        replace(one, node_name=draw(st.sampled_from([*names, None])))
        for number in range(draw(st.integers(0, 4)))
        for one in pods(None, 1, spec(gpu=draw(st.integers(1, 3))), prefix=f"x{number}")
    ]
    whole = pods("old", draw(st.integers(0, 3)))
    old = [replace(one, node_name=draw(st.sampled_from(names))) for one in whole]
    found = talking(nodes, groups, [*members, *alone, *old], net if draw(st.integers(0, 5)) else "")
    return replace(found, groups=(gang("old"),) if old else ())


def _node(draw: st.DrawFn, name: str) -> Node:
    found = node(name, {"disk": "ssd"} if draw(st.booleans()) else {}, {GPU: draw(st.integers(0, 4))})
    tainted = draw(st.integers(0, 5)) == 5
    return replace(found, taints=(Taint("team", "ml", "NoSchedule"),)) if tainted else found


def _app(draw: st.DrawFn, name: str, workloads: str) -> AppGroup:
    made = []
    for place, one in enumerate(workloads):
        needs = [other for other in workloads[place:] if draw(st.booleans())]
        limits = [draw(st.sampled_from([None, None, 1, 4, 20])) for _ in needs]
        made.append(
            AppWorkload(
                name=one,
                dependencies=tuple(
                    Dependency(workload=other, max_network_cost=limit)
                    for other, limit in zip(needs, limits, strict=True)
                ),
            )
        )
    return AppGroup(namespace="default", name=name, workloads=tuple(made))


def _replicas(draw: st.DrawFn, app: str, workload: str, names: Sequence[str]) -> list[Pod]:
    count, gpus = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    found = replicas(workload, count, app=app, prefix=f"{app}-{workload}".lower(), gpus=gpus)
    if draw(st.integers(0, 3)) == 3:
        found = [replace(one, spec=replace(one.spec, node_selector=(("disk", "ssd"),))) for one in found]
    return [replace(one, node_name=draw(st.sampled_from([None, *names]))) for one in found]
