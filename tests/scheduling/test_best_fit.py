"""Unequal pods beside each other: placed where they fit, and proven not to fit where they don't."""

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
from closeby.scheduling.solving.best_fit import Rule, UnequalPods
from closeby.scheduling.solving.program import Verdict
from closeby.scheduling.steps import Budget
from tests.worlds import gang, pods, spec, subgroup, world


def needs(*kinds: tuple[tuple[int, ...], int]) -> list[tuple[Demand, int]]:
    """Amounts asked for by a pod of each kind, and the number of pods; a demand has no row for nothing."""
    rows = [[row for row, amount in enumerate(asked) if amount] for asked, _ in kinds]
    return [
        (Demand(tuple(some), tuple(asked[row] for row in some), ()), count)
        for some, (asked, count) in zip(rows, kinds, strict=True)
    ]


def decided(
    kinds: Sequence[tuple[tuple[int, ...], int]],
    nodes: Sequence[tuple[int, ...]],
    rules: Sequence[Rule] = (),
) -> Verdict:
    """The verdict; what is placed keeps to the amounts."""
    asked_for = UnequalPods(needs(*kinds))
    free = np.asarray(nodes, dtype=np.int64).T[asked_for.rows]
    room = [
        [min(have // of for have, of in zip(node, asked, strict=True) if of) for node in nodes]
        for asked, _ in kinds
    ]
    fit = asked_for.decide(free, np.asarray(room, dtype=np.int64), Budget(), rules)
    if fit.placed is not None:
        asked = np.asarray([asked for asked, _ in kinds])[:, asked_for.rows]
        assert (asked.T @ fit.placed <= free).all()
        assert fit.placed.sum(axis=1).tolist() == [count for _, count in kinds]
    return fit.verdict


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
    assert decided(kinds, nodes) is Verdict.INFEASIBLE
    assert decided([(asked, 46) for asked, _ in kinds], nodes) is Verdict.FEASIBLE


@pytest.mark.parametrize("seed", range(250))
def test_pods_are_placed_exactly_when_they_fit(seed: int) -> None:
    draw = Random(seed)
    resources = draw.randint(1, 2)
    nodes = [tuple(draw.randint(0, 8) for _ in range(resources)) for _ in range(draw.randint(1, 5))]
    kinds = [
        (tuple(draw.randint(1 if at == 0 else 0, 5) for at in range(resources)), draw.randint(1, 4))
        for _ in range(draw.randint(1, 3))
    ]
    expected = Verdict.FEASIBLE if fits(kinds, nodes) else Verdict.INFEASIBLE
    assert decided(kinds, nodes) is expected, f"seed {seed}: {kinds} on {nodes}"


def test_one_more_free_gpu_never_leaves_a_gang_undecided() -> None:
    """12 sizes that fill 60 nodes nearly, whatever of them is in use."""
    kinds = [((3 + index % 4, 100 * index), 4 + (index < 8)) for index in range(12)]
    for used in range(30):
        nodes = [(8 - (index < used), 9_000) for index in range(60)]
        assert decided(kinds, nodes) is not Verdict.UNDECIDED, used


def test_pods_that_fill_nodes_exactly_in_two_resources_are_placed() -> None:
    """Each node was cut into a few pods, all of different sizes: so many mixtures that nodes are rows."""
    draw = Random(5)
    kinds: list[tuple[tuple[int, ...], int]] = []
    for _ in range(8):
        cores, gpus = 64, 8
        while gpus > 1:
            part, share = draw.randint(1, min(5, gpus)), draw.randint(0, cores // 2)
            kinds.append(((part, share), 1))
            gpus, cores = gpus - part, cores - share
        if gpus:
            kinds.append(((gpus, cores), 1))
    assert decided(kinds, [(8, 64)] * 8) is Verdict.FEASIBLE


def spread(codes: Sequence[int], kinds: tuple[int, ...], placed: Sequence[int] = (), skew: int = 1) -> Rule:
    counts = np.asarray([0, *placed] if placed else [0] * (max(codes) + 1))
    eligible = np.arange(len(counts)) > 0
    return Rule(
        kinds=kinds,
        counted=kinds,
        codes=np.asarray(codes),
        counts=counts,
        eligible=eligible,
        max_skew=skew,
    )


@pytest.mark.parametrize(
    ("nodes", "rules", "fit"),
    [
        pytest.param([4, 4, 1], [spread([1, 1, 2], (0, 1))], True, id="two in one zone, one in the other"),
        pytest.param([4, 4, 0], [spread([1, 1, 2], (0, 1))], False, id="the other zone has no room"),
        pytest.param([4, 4, 4], [spread([1, 1, 2], (0, 1), [0, 3])], True, id="placed pods count"),
        pytest.param([4, 1], [spread([1, 2], (0, 1), [5, 0])], False, id="a zone that has too many"),
        pytest.param([8, 8], [Rule(kinds=(0, 1), codes=np.asarray([1, 2]), counts=np.zeros(0, int))], False,
            id="one to a node"),
        pytest.param([8, 8, 8], [Rule(kinds=(0, 1), codes=np.asarray([1, 2, 2]), counts=np.zeros(0, int))],
            False, id="one to a rack"),
        pytest.param([8, 8, 8], [Rule(kinds=(1,), codes=np.asarray([1, 2, 2]), counts=np.zeros(0, int))],
            True, id="one kind of them to a rack"),
    ],
)  # fmt: skip
def test_rules_of_domains_hold_for_three_pods(nodes: list[int], rules: list[Rule], fit: bool) -> None:
    kinds = [((1,), 1), ((2,), 2)] if len(nodes) > 2 or nodes[0] == 8 else [((1,), 2), ((1,), 1)]
    expected = Verdict.FEASIBLE if fit else Verdict.INFEASIBLE
    assert decided(kinds, [(one,) for one in nodes], rules) is expected


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
    assert decided(kinds, nodes) is Verdict.INFEASIBLE


def test_a_resource_that_no_pod_asks_for_rules_nothing_out() -> None:
    assert decided([((1, 0), 1), ((2, 0), 2)], [(6, 0)]) is Verdict.FEASIBLE


def test_a_resource_that_does_not_limit_pods_is_left_out() -> None:
    room = np.asarray([[3], [3]])  # More than the 4 units would allow, as where the resource is ignored.
    asked_for = UnequalPods(needs(((2,), 3), ((3,), 3)))
    free = asked_for.binding(np.asarray([[4]]), room)
    assert asked_for.decide(free, room, Budget()).verdict is Verdict.FEASIBLE


def test_kinds_that_each_go_once_to_a_node_may_share_it() -> None:
    """Two kinds ask for the same, and each keeps off its own pods alone: one of each goes to a node."""
    asked_for = UnequalPods(needs(((3,), 2), ((3,), 2), ((2,), 1)))
    room = np.asarray([[1, 1], [1, 1], [4, 4]])
    assert asked_for.decide(np.asarray([[8, 8]]), room, Budget()).verdict is Verdict.FEASIBLE
    rules = [spread([1, 2], (2,))]
    assert asked_for.decide(np.asarray([[8, 8]]), room, Budget(), rules).verdict is Verdict.FEASIBLE


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
