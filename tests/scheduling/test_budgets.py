"""What a search may try: whatever is used up says so, and whether something was left untried by that."""

from collections.abc import Callable

import pytest

from closeby.scheduling.steps import BACKTRACKS, CANDIDATES, GROWTHS, STEPS, Budget


@pytest.mark.parametrize(
    ("take", "count", "left_untried"),
    [
        (Budget.take_candidate, CANDIDATES, True),
        (Budget.take_backtrack, BACKTRACKS, True),
        (Budget.take_growth, GROWTHS, True),
        (Budget.take_step, STEPS, False),
    ],
)
def test_each_is_taken_so_often(take: Callable[[Budget], bool], count: int, left_untried: bool) -> None:
    budget = Budget()
    assert all(take(budget) for _ in range(count))
    assert not budget.spent
    assert not take(budget)
    assert budget.spent == left_untried
