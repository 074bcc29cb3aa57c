"""What must hold between the books and the cluster at any time, whatever happened in whatever order."""

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.scheduling.intake.books import Books


def assert_books_and_cluster_agree(books: Books, cluster: Cluster) -> None:
    """Assert every invariant across the two."""
    usage = np.zeros_like(cluster.requested)
    for pod, slot in cluster.placed_pods():
        demand = cluster.demand(pod.spec)
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            usage[row, slot] += amount
        assert cluster.nodes[slot] is not None, f"{pod.key} holds a slot without a node"
        known = books.pods.get(pod.uid)
        assert known is not None, f"{pod.key} is placed but unknown"
        assert not books.is_homeless(pod.uid), f"{pod.key} is placed and homeless"
    assert (usage == cluster.requested).all(), "columns do not equal the sum of the pods on them"
    _assert_pods_wait_or_hold(books, cluster)
    for node_name, lost in books.homeless.items():
        assert cluster.slot(node_name) is None, f"{node_name} is there, but its pods are homeless"
        assert lost.keys() <= books.pods.keys(), f"unknown pods are homeless on {node_name}"
    assert books.staying <= books.pods.keys(), "unknown pods run for ever"


def _assert_pods_wait_or_hold(books: Books, cluster: Cluster) -> None:
    def holds(uid: str) -> bool:
        return cluster.placement(uid) is not None or books.is_homeless(uid)

    for key, members in books.members.items():
        assert not (members.waiting.keys() & members.placed.keys()), f"{key} counts a member twice"
        for uid in members.placed:
            assert holds(uid), f"{uid} of {key} holds nothing"
        for uid in members.waiting:
            assert not holds(uid), f"{uid} of {key} waits and holds a node"
    for key, pod in books.waiting_pods.items():
        assert not holds(pod.uid), f"{key} waits and holds a node"
    for key, pods in books.waiting_apps.items():
        assert pods, f"{key} is kept without a pod"
        for uid, pod in pods.items():
            assert books.item_key(pod) == key, f"{pod.key} waits with {key}, which is not its item"
            assert not holds(uid), f"{uid} of {key} waits and holds a node"
