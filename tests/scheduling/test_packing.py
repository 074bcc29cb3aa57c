"""Unequal segments are packed into domains by a search whose steps are bounded."""

import numpy as np
import pytest

from closeby.scheduling.placing.packing import pack


@pytest.mark.parametrize("spread", [False, True])
def test_domains_that_take_no_segment_cost_no_steps(spread: bool) -> None:
    """A spread gang is to have as many domains as can be, of those that take a segment at all."""
    items, rooms = [5, 4, 4, 3], [9, 8, 4]
    alone = pack(items, np.asarray(rooms), spread=spread, alone=False)
    among = pack(items, np.asarray([*rooms, *[2] * 40]), spread=spread, alone=False)
    assert among == alone and among.bins is not None
