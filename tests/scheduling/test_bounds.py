"""Sums show that unequal pods don't fit beside each other, and never that pods don't which do."""

from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.cluster.columns import Demand
from closeby.objects.pods import Toleration
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodUpserted
from closeby.scheduling.placing.bounds import Bounds
from tests.worlds import gang, pods, spec, subgroup, world


def needs(*kinds: tuple[tuple[int, ...], int]) -> list[tuple[Demand, int]]:
    """Amounts asked for by a pod of each kind, and the number of pods; a demand has no row for nothing."""
    rows = [[row for row, amount in enumerate(asked) if amount] for asked, _ in kinds]
    return [
        (Demand(tuple(some), tuple(asked[row] for row in some), ()), count)
        for some, (asked, count) in zip(rows, kinds, strict=True)
    ]


def exceeded(kinds: Sequence[tuple[tuple[int, ...], int]], nodes: Sequence[tuple[int, ...]]) -> bool:
    bounds = Bounds(needs(*kinds))
    free = np.asarray(nodes, dtype=np.int64).T[bounds.rows]
    room = [
        [min(have // of for have, of in zip(node, asked, strict=True) if of) for node in nodes]
        for asked, _ in kinds
    ]
    return bounds.exceeded(free, np.asarray(room, dtype=np.int64))


def fits(kinds: Sequence[tuple[tuple[int, ...], int]], nodes: Sequence[tuple[int, ...]]) -> bool:
    """By trying everything."""

    @cache
    def placed(left: tuple[int, ...], free: tuple[tuple[int, ...], ...]) -> bool:
        at = next((index for index, count in enumerate(left) if count), None)
        if at is None:
            return True
        rest = (*left[:at], left[at] - 1, *left[at + 1 :])
        for index, node in enumerate(free):
            after = tuple(have - of for have, of in zip(node, kinds[at][0], strict=True))
            if min(after) >= 0 and (index == 0 or free[index - 1] != node):
                others = tuple(sorted((*free[:index], after, *free[index + 1 :])))
                if placed(rest, others):
                    return True
        return False

    return placed(tuple(count for _, count in kinds), tuple(sorted(nodes)))


@pytest.mark.parametrize("of_each", [48, 50, 51])
def test_a_dozen_sizes_are_ruled_out_that_exceed_the_nodes_by_little(of_each: int) -> None:
    """Pods of 3 and 5 GPUs pair up. By GPUs alone all of them would fit; 47 of each size nearly do."""
    kinds = [((3 + index % 4, 80 * (3 + index % 4) + index), of_each) for index in range(12)]
    nodes = [(8, 720)] * 300 + [(4, 360)] * 100
    assert sum(asked[0] * count for asked, count in kinds) <= sum(have for have, _ in nodes)
    assert exceeded(kinds, nodes)
    assert not exceeded([(asked, 46) for asked, _ in kinds], nodes)


@pytest.mark.parametrize("seed", range(250))
def test_what_is_ruled_out_does_not_fit(seed: int) -> None:
    draw = Random(seed)
    resources = draw.randint(1, 2)
    nodes = [tuple(draw.randint(0, 8) for _ in range(resources)) for _ in range(draw.randint(1, 5))]
    kinds = [
        (tuple(draw.randint(1 if at == 0 else 0, 5) for at in range(resources)), draw.randint(1, 4))
        for _ in range(draw.randint(1, 3))
    ]
    if exceeded(kinds, nodes):
        assert not fits(kinds, nodes), f"seed {seed}: {kinds} on {nodes}"


def test_most_of_what_does_not_fit_is_ruled_out() -> None:
    """On nodes of eight there is little between the sums and the truth."""
    draw = Random(1)
    hopeless = ruled_out = 0
    for _ in range(150):
        nodes = [(draw.choice((4, 8, 8)),) for _ in range(draw.randint(3, 5))]
        kinds = [((amount,), draw.randint(1, 4)) for amount in draw.sample(range(2, 8), 2)]
        if not fits(kinds, nodes):
            hopeless += 1
            ruled_out += exceeded(kinds, nodes)
    assert hopeless > 50
    assert ruled_out >= 0.8 * hopeless


ONE_BESIDE = [((5,), 10), ((3,), 15)]


@pytest.mark.parametrize(
    ("kinds", "nodes"),
    [
        pytest.param([((5,), 2), ((3,), 3)], [(8,), (8,)], id="the sum of one resource"),
        pytest.param([((5,), 3), ((2,), 1)], [(8,), (9,)], id="the number of the large ones"),
        pytest.param([((5,), 10), ((3,), 15)], [(8,)] * 10 + [(4,)] * 4, id="a small one beside a large one"),
        pytest.param([((4, 1), 4), ((1, 4), 5)], [(5, 5)] * 4, id="two resources"),
    ],
)
def test_ruled_out(kinds: list[tuple[tuple[int, ...], int]], nodes: list[tuple[int, ...]]) -> None:
    assert not fits(kinds, nodes)
    assert exceeded(kinds, nodes)


def test_a_resource_that_no_pod_asks_for_rules_nothing_out() -> None:
    assert not exceeded([((1, 0), 1), ((2, 0), 2)], [(6, 0)])


def test_a_resource_that_does_not_limit_pods_is_left_out() -> None:
    room = np.asarray([[3], [3]])  # More than the 4 units would allow, as where the resource is ignored.
    assert not Bounds(needs(((2,), 3), ((3,), 3))).exceeded(np.asarray([[4]]), room)


def test_too_many_mixtures_are_not_judged() -> None:
    kinds = [((size,), 100) for size in (1, 2, 3)]
    assert not exceeded(kinds, [(500,), (100,)])


def test_a_gang_that_is_ruled_out_does_not_fit_and_spends_no_budget() -> None:
    """60 nodes of 8 hold 60 pods of 5 and 60 of 3 beside them, however many sums of GPUs would do."""
    drawn = world("zone-a rack-1 : " + " ".join(f"a{at}=8" for at in range(60)) + " b1=4 b2=4 b3=4 b4=4 b5=4")
    large, small = (
        pods("train", count, spec(gpu=size), prefix=f"m{size}") for size, count in ((5, 58), (3, 68))
    )
    drawn.run(gang(min_member=126), members=[*large, *small])
    assert drawn.where == {}
    assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT


def test_hundreds_of_kinds_are_ruled_out_by_what_they_ask_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of pods fits in each rack by itself, and all together ask for more than all racks have."""

    def unexpected(*_: object) -> None:
        raise AssertionError("a pod was placed on trial")

    monkeypatch.setattr("closeby.scheduling.placing.fill.descend", unexpected)
    drawn = world("a r1 : n1=150 n2=150\na r2 : n3=150 n4=150")
    kinds = [replace(spec(gpu=3), tolerations=(Toleration(key=f"k{i}"),)) for i in range(300)]
    members = [pod for i, kind in enumerate(kinds) for pod in pods("train", 1, kind, prefix=f"m{i}")]
    drawn.run(gang(min_member=300, required="rack"), members=members)
    assert drawn.where == {}
    assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT


def test_what_is_short_on_an_overcommitted_node_is_not_taken_from_others() -> None:
    """n1 runs more than it offers now. n2 has room for the gang."""
    drawn = world("a r1 : n1=8 n2=8")
    drawn.tell(*(PodUpserted(pod) for pod in pods(None, 2, spec(gpu=8), prefix="old", on="n1")))
    members = [*pods("train", 1, spec(gpu=5), prefix="m5"), *pods("train", 1, spec(gpu=3), prefix="m3")]
    drawn.run(gang(min_member=2, required="rack"), members=members)
    assert drawn.used("m") == {"n2": 2}


def test_a_domain_need_not_have_what_subgroups_ask_for_that_may_stay_out() -> None:
    """One of two subgroups is enough. The only rack has room for one of them."""
    drawn = world("a r1 : n1=4")
    either = replace(
        gang(min_member=3, required="rack", subgroups=[subgroup("a", 3), subgroup("b", 3)]), min_subgroups=1
    )
    members = [
        pod
        for name in "ab"
        for size, count in ((2, 1), (1, 2))
        for pod in pods("train", count, spec(gpu=size), subgroup=name, prefix=f"{name}{size}")
    ]
    drawn.run(either, members=members)
    assert len(drawn.where) == 3
