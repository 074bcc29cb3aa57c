"""What must always be true of the scheduling state and the cluster together; tests assert it."""

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.scheduling.intake.scheduling_state import SchedulingState


def assert_state_and_cluster_agree(state: SchedulingState, cluster: Cluster) -> None:
    """Assert every invariant across the two."""
    usage = np.zeros_like(cluster.requested)
    for pod, slot in cluster.placed_pods():
        demand = cluster.demand(pod.spec)
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            usage[row, slot] += amount
        assert cluster.nodes[slot] is not None, f"{pod.key} holds a slot without a node"
        known = state.pods.get(pod.uid)
        assert known is not None, f"{pod.key} is placed but unknown"
        assert not state.is_on_unknown_node(pod.uid), f"{pod.key} is placed, but on an unknown node"
    assert (usage == cluster.requested).all(), "columns do not equal the sum of the pods on them"
    cluster.volumes.validate(cluster.placed_pods())
    _assert_pods_wait_or_hold(state, cluster)
    for node_name, lost in state.on_unknown_nodes.items():
        assert cluster.slot(node_name) is None, (
            f"{node_name} is known, but pods wait for it as an unknown node"
        )
        assert lost.keys() <= state.pods.keys(), f"unknown pods are on the unknown node {node_name}"
    assert state.long_running <= state.pods.keys(), "unknown pods are long-running"


def _assert_pods_wait_or_hold(state: SchedulingState, cluster: Cluster) -> None:
    def holds(uid: str) -> bool:
        return cluster.placement(uid) is not None or state.is_on_unknown_node(uid)

    for key, members in state.members.items():
        assert not (members.waiting.keys() & members.placed.keys()), f"{key} counts a member twice"
        for uid in members.placed:
            assert holds(uid), f"{uid} of {key} holds nothing"
        for uid in members.waiting:
            assert not holds(uid), f"{uid} of {key} waits and holds a node"
    for key, pod in state.waiting_pods.items():
        assert not holds(pod.uid), f"{key} waits and holds a node"
    for key, pods in state.waiting_apps.items():
        assert pods, f"{key} is kept without a pod"
        for uid, pod in pods.items():
            assert state.item_key(pod) == key, f"{pod.key} waits with {key}, which is not its item"
            assert not holds(uid), f"{uid} of {key} waits and holds a node"
