"""Integer programs: against all values, where these are few, and within a limit of steps."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.scheduling.solving.program import Program, Verdict

ROWS = st.lists(
    st.tuples(
        st.lists(st.integers(-3, 5), min_size=4, max_size=4),
        st.none() | st.integers(-2, 12),
        st.none() | st.integers(0, 14),
    ),
    max_size=5,
)


def least_cost(
    most: list[int], costs: list[int], rows: list[tuple[list[int], int | None, int | None]]
) -> int | None:
    found = None
    for values in product(*(range(one + 1) for one in most)):
        for factors, low, high in rows:
            total = sum(a * b for a, b in zip(factors, values, strict=False))
            if (low is not None and total < low) or (high is not None and total > high):
                break
        else:
            cost = sum(a * b for a, b in zip(costs, values, strict=False))
            found = cost if found is None else min(found, cost)
    return found


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    ROWS,
)
def test_a_program_finds_the_least_cost_or_proves_that_there_is_none(
    most: list[int], costs: list[int], rows: list[tuple[list[int], int | None, int | None]]
) -> None:
    program = Program()
    for one, cost in zip(most, costs, strict=False):
        program.column(one, cost=cost)
    for factors, low, high in rows:
        program.row(enumerate(factors[: len(most)]), least=low, most=high)
    best = least_cost(most, costs, rows)
    found = program.solve(1_000)
    if best is None:
        assert found.verdict is Verdict.INFEASIBLE
    else:
        assert found.verdict is Verdict.FEASIBLE
        assert found.best
        assert program.holds(found.values)
        assert int(found.values @ np.asarray(costs[: len(most)])) == best


def test_without_enough_steps_a_problem_stays_undecided() -> None:
    """30 sizes that fill 6 knapsacks but for one unit: more than a handful of steps decide."""
    program = Program()
    sizes = [101 + 7 * index for index in range(30)]
    room = -(-sum(sizes) // 6)
    places = [[program.column(1) for _ in range(6)] for _ in sizes]
    for of_size in places:
        program.row(((place, 1) for place in of_size), least=1, most=1)
    for knapsack in range(6):
        terms = ((places[index][knapsack], size) for index, size in enumerate(sizes))
        program.row(terms, most=room)
    assert program.solve(3).verdict is Verdict.UNDECIDED
