"""Looking at all moves and swaps at once finds what looking at one pod after another finds."""

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from closeby.scheduling.moving.layout import Sites
from closeby.scheduling.moving.local_search import Neighbourhood
from closeby.scheduling.services import Traffic
from tests.scheduling.test_local_search import laid_out, layouts


@given(layouts())
def test_the_best_step_is_the_best_of_all_moves_and_swaps(case: tuple[Traffic, Sites, list[int]]) -> None:
    """Limits, unknown costs, pods that talk to their own kind, two sizes of pods."""
    traffic, sites, at = case
    layout = laid_out(*case)
    pods = range(len(at))
    best = min(min(layout.best_move(pod)[0], layout.best_swap(pod)[0]) for pod in pods)

    step = Neighbourhood(traffic, sites, layout).best()

    # Talk beside a broken limit is lost in the rounding of the penalty.
    precision = 1e-6 if not layout.broken.any() else layout.penalty * 1e-12
    if step is None:
        assert best >= -precision
    else:
        assert step.change == pytest.approx(best, rel=1e-9, abs=precision)
        before = layout.cost()
        step.take(layout)
        assert layout.cost() - before == pytest.approx(step.change, rel=1e-9, abs=precision)
        assert (layout.left >= 0).all()


@given(layouts())
def test_pinned_pods_stay_and_no_pod_goes_where_it_may_not(case: tuple[Traffic, Sites, list[int]]) -> None:
    traffic, sites, at = case
    pinned = np.arange(len(at)) % 2 == 0
    closed = replace(sites, pinned=pinned, allowed=np.arange(len(sites.slots))[None] != 0)
    layout = laid_out(traffic, closed, at)
    neighbourhood = Neighbourhood(traffic, closed, layout)

    for _ in range(50):
        step = neighbourhood.best()
        if step is None:
            break
        step.take(layout)

    moved = layout.at != at
    assert not moved[pinned].any()
    assert not (layout.at[moved] == 0).any()
