"""The nodes that a part of a gang may go to: domains of one tree, of two trees, and plain sets of nodes.

rack r0 : n0 (feed f0)  n1 (feed f1)  n2 (feed f0)
rack r1 : n3 (feed f1)  n4 (feed f0)
"""

import numpy as np

from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part, SearchedPart, scoped_counts
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.tree import ROOT, Domain, Tree
from tests.worlds import GPU, fabric, gang, node, pods, spec, world

PLACES = (("r0", "f0"), ("r0", "f1"), ("r0", "f0"), ("r1", "f1"), ("r1", "f0"))
DRAWN = world(
    [node(f"n{at}", {"rack": rack, "feed": feed}, {GPU: 2 + at}) for at, (rack, feed) in enumerate(PLACES)],
    fabric("rack"),
    fabric("feed", name="power"),
)
CAPACITY = DRAWN.engine.cluster.capacity


def tree(name: str) -> Tree:
    found = DRAWN.engine.topologies.tree(name)
    assert found is not None
    return found


RACKS, FEEDS = tree("fabric"), tree("power")
ALL = NodeSet()


def rack(number: int) -> Candidate:
    return Candidate(tree=RACKS, domain=Domain(0, number))


def feed(number: int) -> Candidate:
    return Candidate(tree=FEEDS, domain=Domain(0, number))


def plain(*slots: int) -> Candidate:
    return Candidate(slots=np.asarray(slots, dtype=np.intp))


def nodes(*candidates: Candidate) -> list[int] | None:
    """The slots that are left when all nodes are narrowed to each of these in turn; None for all."""
    found = ALL
    for candidate in candidates:
        found = found.narrowed(candidate, CAPACITY)
    allowed = found.allowed(CAPACITY)
    return None if allowed is None else np.flatnonzero(allowed).tolist()


def test_each_candidate_narrows_what_was_allowed_before() -> None:
    assert nodes() is None
    assert nodes(rack(0)) == [0, 1, 2]
    assert nodes(rack(0), feed(0)) == nodes(feed(0), rack(0)) == [0, 2]
    assert nodes(plain(1, 2, 3)) == [1, 2, 3]
    assert nodes(plain(1, 2, 3), rack(0)) == nodes(rack(0), plain(1, 2, 3)) == [1, 2]
    assert nodes(plain(1, 2, 3), plain(2, 3, 4)) == [2, 3]
    assert nodes(plain(0, 1, 3), rack(0), feed(1)) == [1]
    assert nodes(rack(1), feed(1), plain(4)) == []
    assert nodes(Candidate(tree=RACKS, domain=ROOT)) is None


def test_a_finer_domain_of_the_same_tree_takes_the_place_of_the_coarser_one() -> None:
    host = Candidate(tree=RACKS, domain=RACKS.node_domain(1))
    assert nodes(rack(0), host) == [1]
    assert nodes(plain(0, 2), rack(0), host) == []


def test_what_is_a_domain_in_one_tree_is_a_mask_in_another() -> None:
    inside = ALL.narrowed(rack(1), CAPACITY)
    assert (inside.domain_in(RACKS), inside.domain_in(FEEDS)) == (Domain(0, 1), ROOT)
    assert inside.mask_for(RACKS, CAPACITY) is None
    other = inside.mask_for(FEEDS, CAPACITY)
    assert other is not None and np.flatnonzero(other).tolist() == [3, 4]


def table() -> ClassTable:
    return ClassTable(DRAWN.engine.cluster, DRAWN.engine.profile.filters, ())


def test_only_nodes_inside_are_counted() -> None:
    #   Nodes of 2, 3, 4, 5 and 6 GPUs.
    judged = table()
    one = judged.of(pods("train", 1)[0])
    assert scoped_counts(judged, one, RACKS, ALL, CAPACITY).of(0).tolist() == [9, 11]
    inside = ALL.narrowed(feed(0), CAPACITY)
    assert scoped_counts(judged, one, RACKS, inside, CAPACITY).of(0).tolist() == [6, 6]


def room(*kinds: tuple[int, int]) -> list[int]:
    """Room of a part in racks 0 and 1; kinds of pods by how many there are and the GPUs of each."""
    judged = table()
    core = [
        pod
        for number, (count, gpus) in enumerate(kinds)
        for pod in pods("train", count, spec(gpu=gpus), prefix=f"k{number}")
    ]
    part = Part(name="", core=tuple(core))
    view = SearchedPart(gang(), part, ALL, judged.shares(core), judged, CycleState())
    assert (view.needed, view.wanted) == (len(core), len(core))
    found: list[int] = view.room(RACKS, 0).tolist()
    return found


def test_room_for_unequal_pods_is_that_of_the_scarcest_kind() -> None:
    #   Of 1 GPU rack 0 takes 9 and rack 1 takes 11; of 3 GPUs 2 and 3; of 5 none and 2.
    assert room((3, 1)) == [9, 11]
    assert room((3, 3)) == [2, 3]
    #   Two of 1 and two of 3, four pods: the large ones fit once and one and a half times.
    assert room((2, 1), (2, 3)) == [4, 6]
    assert room((1, 1), (1, 5)) == [0, 4]
    assert room() == [0, 0]
