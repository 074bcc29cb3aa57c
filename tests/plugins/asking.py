"""Asks one plugin about one pod on a small cluster, and gives the answers by node name."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Rejection
from closeby.scheduling.extension import Capacity, Filter, Handle, NormalizeScore, Score
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.registry import Topologies

STATE = CycleState()
GPU = "nvidia.com/gpu"


def handle_of(nodes: Iterable[Node], running: Iterable[tuple[Pod, str]] = ()) -> Handle:
    """A cluster of these nodes, with pods that run on the named ones."""
    cluster = Cluster()
    for node in nodes:
        cluster.add_node(node)
    for pod, name in running:
        place(cluster, pod, name)
    return Handle(cluster, Topologies(cluster.labels, cluster.names), lambda pod: None)


def place(cluster: Cluster, pod: Pod, name: str) -> None:
    """Let a pod run on a node."""
    slot = cluster.slot(name)
    assert slot is not None
    cluster.place_pod(pod, slot)


def pod_of(spec: PodSpec | None = None, name: str = "p", node_name: str | None = None) -> Pod:
    """A pod of the default namespace."""
    return Pod(
        namespace="default",
        name=name,
        uid=f"default/{name}",
        spec=PodSpec() if spec is None else spec,
        node_name=node_name,
    )


def asking(name: str = "p", /, **requests: int) -> Pod:
    """A pod that requests these amounts; ``gpu`` stands for the GPU."""
    named = {GPU if key == "gpu" else key: amount for key, amount in requests.items()}
    return pod_of(PodSpec(requests=tuple(sorted(named.items()))), name)


def allowed(plugin: Filter, pod: Pod) -> str:
    """Names of the nodes that the filter lets the pod go to, in order; asked as a whole and one by one."""
    cluster = plugin.handle.cluster
    whole = plugin.filter(STATE, pod, Nodes(cluster))
    assert whole.dtype == np.bool_
    assert _one_by_one(cluster, lambda nodes: plugin.filter(STATE, pod, nodes)) == whole.tolist()
    if not plugin.concerns(pod):
        assert whole[cluster.alive[: cluster.capacity]].all()
    return " ".join(name for name, yes in zip(cluster.names, whole.tolist(), strict=True) if name and yes)


def room(plugin: Capacity, pod: Pod) -> dict[str, int]:
    """How many such pods fit, by node name; asked as a whole and one by one."""
    cluster = plugin.handle.cluster
    whole = plugin.capacity(STATE, pod, Nodes(cluster))
    assert whole.dtype == np.int64
    assert _one_by_one(cluster, lambda nodes: plugin.capacity(STATE, pod, nodes)) == whole.tolist()
    return {name: int(count) for name, count in zip(cluster.names, whole, strict=True) if name}


def scores(plugin: Score, pod: Pod, feasible: Sequence[str] | None = None) -> dict[str, float]:
    """Scores of the feasible nodes (all of them when not given), normalised, by node name."""
    cluster = plugin.handle.cluster
    names = [name for name in cluster.names if name and (feasible is None or name in feasible)]
    slots = np.asarray([cluster.slot(name) for name in names], dtype=np.intp)
    values = plugin.score(STATE, pod, Nodes(cluster, slots))
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, plugin.score(STATE, pod, Nodes(cluster))[slots])
    if isinstance(plugin, NormalizeScore):
        values = plugin.normalize(STATE, pod, values)
    return dict(zip(names, values.tolist(), strict=True))


def why_not(plugin: Filter, pod: Pod, name: str) -> Rejection:
    """The filter's reason for refusing a node."""
    slot = plugin.handle.cluster.slot(name)
    assert slot is not None
    assert not plugin.filter(STATE, pod, Nodes(plugin.handle.cluster, np.asarray([slot]))).any()
    return plugin.rejection(STATE, pod, slot)


def _one_by_one(
    cluster: Cluster, ask: Callable[[Nodes], NDArray[np.bool_] | NDArray[np.int64]]
) -> list[bool | int]:
    answers = [ask(Nodes(cluster, np.asarray([slot]))) for slot in range(cluster.capacity)]
    return [answer.tolist()[0] for answer in answers]
