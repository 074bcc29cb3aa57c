"""What is drawn for a pod and a node depends on nothing else."""

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.scheduling.plugin_helpers import lots
from closeby.scheduling.plugin_view import Nodes
from tests.worlds import node, pods


def cluster(size: int) -> Cluster:
    made = Cluster()
    for index in range(size):
        made.add_node(node(f"n{index}"))
    return made


def test_a_pod_draws_the_same_for_a_node_whichever_others_are_asked_about() -> None:
    made = cluster(20)
    one, other = pods(None, 2)
    whole = lots(1, one, Nodes(made))
    some = lots(1, one, Nodes(made, np.array([3, 17, 4])))
    assert some.tolist() == whole[[3, 17, 4]].tolist()
    assert (lots(1, one, Nodes(made)) == whole).all()
    assert (lots(1, other, Nodes(made)) != whole).any()
    assert (lots(2, one, Nodes(made)) != whole).any()


def test_what_is_drawn_is_even() -> None:
    made = cluster(50)
    drawn = np.concatenate([lots(0, pod, Nodes(made)) for pod in pods(None, 200)])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert np.histogram(drawn, bins=4, range=(0, 1))[0].min() > 2_300, "of 10,000"


def test_no_nodes_no_lots() -> None:
    assert len(lots(0, pods(None, 1)[0], Nodes(cluster(3), np.zeros(0, dtype=np.intp)))) == 0
