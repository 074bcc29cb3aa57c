"""The solver's optimum against trying every placement, and what it declines."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.scheduling.moving.layout import Sites
from closeby.scheduling.services import Traffic
from closeby.simulator import optimum
from closeby.simulator.optimum import least_cost

Matrix = NDArray[np.float64]


def symmetric(size: int, upper: Sequence[float], diagonal: Sequence[float] | None = None) -> Matrix:
    """A symmetric matrix of the entries above the diagonal, row by row."""
    found = np.zeros((size, size))
    found[np.triu_indices(size, 1)] = upper
    found += found.T
    np.fill_diagonal(found, 0.0 if diagonal is None else diagonal)
    return found


def chain(pods: int, costs: Matrix) -> Traffic:
    """Pods of one kind each; each talks to the next one. Every slot is a location of its own."""
    weights = np.zeros((pods, pods))
    weights[range(pods - 1), range(1, pods)] = weights[range(1, pods), range(pods - 1)] = 1.0
    return Traffic(
        kinds=np.arange(pods),
        locations=np.arange(len(costs)),
        between=costs,
        weights=weights,
        limits=np.full((pods, pods), np.inf),
        unknown=np.zeros(costs.shape, dtype=np.bool_),
        standing=np.zeros((pods, len(costs))),
    )


def room(pods: int, free: Sequence[int]) -> Sites:
    """Sites with room for so many pods that need one unit each."""
    return Sites(
        slots=np.arange(len(free)),
        free=np.asarray([free]),
        needs=np.ones((pods, 1), dtype=np.int64),
        allowed=np.ones((1, len(free)), dtype=np.bool_),
        class_of=np.zeros(pods, dtype=np.intp),
        pinned=np.zeros(pods, dtype=np.bool_),
    )


def by_trying_all(traffic: Traffic, sites: Sites) -> float | None:
    """The definition of what is asked, one placement after another."""
    best: float | None = None
    pods, slots = range(len(sites.needs)), sites.slots
    for at in itertools.product(range(len(slots)), repeat=len(pods)):
        used = np.zeros_like(sites.free)
        for pod, site in enumerate(at):
            used[:, site] += sites.needs[pod]
        if (used > sites.free).any() or not all(sites.allowed[sites.class_of[p], at[p]] for p in pods):
            continue
        cost = sum(float(traffic.standing[traffic.kinds[pod], slots[at[pod]]]) for pod in pods)
        for one, two in itertools.combinations(pods, 2):
            if at[one] == at[two]:
                continue
            kinds = traffic.kinds[one], traffic.kinds[two]
            places = traffic.locations[slots[at[one]]], traffic.locations[slots[at[two]]]
            limit = traffic.limits[kinds]
            if np.isfinite(limit) and (traffic.unknown[places] or traffic.between[places] > limit):
                cost = np.inf
            cost += float(traffic.weights[kinds] * traffic.between[places])
        if np.isfinite(cost) and (best is None or cost < best):
            best = cost
    return best


@st.composite
def problems(draw: st.DrawFn) -> tuple[Traffic, Sites]:
    """Up to 4 pods of 3 kinds on up to 4 sites in 3 locations."""
    pods, sites = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    kinds, places, classes = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))

    def several(values: st.SearchStrategy[float], *shape: int) -> NDArray[np.float64]:
        size = int(np.prod(shape))
        return np.asarray(draw(st.lists(values, min_size=size, max_size=size))).reshape(shape)

    def matrix(size: int, values: st.SearchStrategy[float]) -> Matrix:
        return symmetric(
            size, several(values, size * (size - 1) // 2).tolist(), several(values, size).tolist()
        )

    amounts = st.integers(0, 9).map(float)
    seldom = st.sampled_from([0.0, 0.0, 0.0, 1.0])
    slots = sites + 2
    traffic = Traffic(
        kinds=several(st.integers(0, kinds - 1), pods).astype(np.intp),
        locations=several(st.integers(0, places - 1), slots).astype(np.intp),
        between=matrix(places, amounts),
        weights=matrix(kinds, st.sampled_from([0.0, 1.0, 2.5])),
        limits=matrix(kinds, st.sampled_from([np.inf, np.inf, 4.0])),
        unknown=matrix(places, seldom) > 0,
        standing=several(st.sampled_from([0.0, 0.0, 3.0, np.inf]), kinds, slots),
    )
    return traffic, Sites(
        slots=np.asarray(draw(st.permutations(range(slots)))[:sites]),
        free=several(st.integers(0, 5), 2, sites).astype(np.int64) * (1 << 30) + 7,
        needs=several(st.integers(0, 2), pods, 2).astype(np.int64) << 30,
        allowed=several(seldom, classes, sites) == 0,
        class_of=several(st.integers(0, classes - 1), pods).astype(np.intp),
        pinned=np.zeros(pods, dtype=np.bool_),
    )


@settings(max_examples=150, deadline=None)
@given(problems())
def test_it_finds_what_trying_every_placement_finds(problem: tuple[Traffic, Sites]) -> None:
    """Kinds that talk to themselves, standing costs, limits, unknown costs, two resources."""
    found, expected = least_cost(*problem), by_trying_all(*problem)

    assert found == (None if expected is None else pytest.approx(expected))


def test_six_equal_pods_that_all_talk_on_five_sites_of_two_zones() -> None:
    """Two a site: three sites are needed. Zone a has three, so that each of the 12 split pairs costs 1."""
    traffic = Traffic(
        kinds=np.zeros(6, dtype=np.intp),
        locations=np.asarray([0, 0, 0, 1, 1]),
        between=np.asarray([[1.0, 7.0], [7.0, 1.0]]),
        weights=np.ones((1, 1)),
        limits=np.full((1, 1), np.inf),
        unknown=np.zeros((2, 2), dtype=np.bool_),
        standing=np.zeros((1, 5)),
    )

    assert least_cost(traffic, room(6, [2] * 5)) == 12.0


def test_a_program_that_presolve_calls_infeasible_is_solved() -> None:
    """Two pods may share a node or lie in different zones; no node has room for both."""
    traffic = Traffic(
        kinds=np.asarray([1, 1, 0, 0]),
        locations=np.asarray([0, 1, 1, 0]),
        between=np.zeros((2, 2)),
        weights=np.zeros((2, 2)),
        limits=np.asarray([[np.inf, np.inf], [np.inf, 4.0]]),
        unknown=np.asarray([[False, False], [False, True]]),
        standing=np.zeros((2, 4)),
    )
    sites = replace(room(4, [0, 0, 3, 2]), needs=np.asarray([[2], [2], [0], [1]]))

    assert least_cost(traffic, sites) == 0.0


def test_twelve_pods_on_sixteen_sites_are_solved() -> None:
    """A chain on a line, two a site: the five links between six neighbouring sites cost 1 each."""
    line = np.abs(np.subtract.outer(np.arange(16.0), np.arange(16.0)))

    assert least_cost(chain(12, line), room(12, [2] * 16)) == 5.0


def test_what_is_declined() -> None:
    """Too many pods, sites or talking pairs, no pods, host ports, no room: the cost is not known."""
    line = np.abs(np.subtract.outer(np.arange(17.0), np.arange(17.0)))
    ports = replace(room(2, [2, 2]), pinned=np.asarray([True, False]))

    assert least_cost(chain(13, line), room(13, [2] * 16)) is None
    assert least_cost(chain(12, line), room(12, [2] * 17)) is None
    everyone = replace(chain(12, line), weights=1.0 - np.eye(12))
    assert least_cost(everyone, room(12, [2] * 16)) is None
    assert least_cost(chain(2, line), room(0, [2])) is None
    assert least_cost(chain(2, line), ports) is None
    assert least_cost(chain(3, line), room(3, [1, 1])) is None


def test_without_a_proof_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of one node of the search tree is too small for this one."""
    draw = np.random.default_rng(3)
    traffic = chain(7, symmetric(7, draw.integers(1, 20, 21).tolist()))
    talk = symmetric(7, draw.integers(0, 5, 21).tolist())
    problem = replace(traffic, weights=talk), room(7, [2] * 7)

    assert least_cost(*problem) is not None
    monkeypatch.setattr(optimum, "TREE_NODES", 1)
    assert least_cost(*problem) is None
