"""Resources that pods ask for and no node offers share a column beyond some, until a node has them."""

from collections.abc import Sequence

from closeby.cluster.columns import OWN_ROWS, UNOFFERED, Cluster
from tests.worlds import node, pods, spec


def asking(names: Sequence[str], amount: int = 2) -> dict[str, int]:
    return dict.fromkeys(names, amount)


def odd(count: int) -> list[str]:
    return [f"example.com/odd{number}" for number in range(count)]


def test_the_first_have_columns_of_their_own() -> None:
    cluster = Cluster()
    demand = cluster.demand(spec(**asking(odd(OWN_ROWS))))
    assert UNOFFERED not in cluster.row_of
    assert demand.amounts == (1, *([2] * OWN_ROWS))


def test_all_others_share_one() -> None:
    cluster = Cluster()
    cluster.demand(spec(**asking(odd(OWN_ROWS))))
    more = cluster.demand(spec(**asking(["example.com/more", "example.com/other"]), cpu=3))
    known = len(cluster.row_of)
    assert dict(zip(more.rows, more.amounts, strict=True))[cluster.row_of[UNOFFERED]] == 1
    cluster.demand(spec(**asking([f"example.com/later{number}" for number in range(500)])))
    assert len(cluster.row_of) == known


def test_a_node_that_offers_one_later_gets_what_pods_hold_of_it() -> None:
    """Another scheduler put them there; what they take can be given back."""
    cluster = Cluster()
    slot = cluster.add_node(node("n", {}, {"cpu": 9}))
    cluster.demand(spec(**asking(odd(OWN_ROWS))))
    held, other = "example.com/held", "example.com/other"
    (one,) = pods(None, 1, spec(**{held: 2, other: 5}), prefix="one", on="n")
    cluster.place_pod(one, slot)
    shared = cluster.row_of[UNOFFERED]
    assert int(cluster.requested[shared, slot]) == 1
    cluster.add_node(node("n", {}, {"cpu": 9, held: 3}))
    row = cluster.row_of[held]
    assert int(cluster.free(row, slice(slot, slot + 1))[0]) == 1
    assert int(cluster.requested[shared, slot]) == 1
    cluster.add_node(node("n", {}, {"cpu": 9, held: 3, other: 5}))
    assert int(cluster.requested[shared, slot]) == 0
    cluster.forget_pod(one.uid)
    assert not cluster.requested[:, slot].any()
