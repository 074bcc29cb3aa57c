"""Fabrics as people build them, at random, with what goes wrong in them: which racks and pods come out."""

import pytest

from tests.discovery.drawing_fabrics import findings
from tests.discovery.random_fabrics import random_fabric, wrong

#: Of the fabrics of a part; what is wrong has three oddities, as a rule.
MOST_WRONG = 1
EACH = 25


@pytest.mark.parametrize("part", range(8))
def test_nearly_all_random_fabrics_come_out_as_they_were_meant(part: int) -> None:
    odd = {}
    for seed in range(part * EACH, (part + 1) * EACH):
        meant = random_fabric(seed)
        problem = wrong(meant, findings(meant.drawing))
        if problem is not None:
            odd[seed] = (meant.oddities, problem)
    assert len(odd) <= MOST_WRONG, odd


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_two_scans_of_a_fabric_are_the_same(seed: int) -> None:
    text = random_fabric(seed).drawing.text()
    header, *records = text.split("\n\n")
    assert findings("\n\n".join((header, *reversed(records)))) == findings(text)
