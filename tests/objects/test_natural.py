"""Natural order: numbers in names are read as numbers, and ids are not."""

import random

import pytest

from closeby.objects.words import NaturalRanks, natural_key


@pytest.mark.parametrize(
    "ordered",
    [
        ["rack-2", "rack-10", "rack-10a"],
        ["rack-01", "rack-1", "rack-2"],
        ["node2", "node10", "node10-a", "node10-b"],
        ["cafe9", "cafe12"],
        ["9ab", "12ab"],
        ["b1s2", "b1s10", "b2s1"],
        # Ids of one length, as clouds give them: 1e3 is no number, and neither is 10 before ffaa.
        ["nn-10ffaa00", "nn-1e3a0b77", "nn-20ab3c99", "nn-9f02cd11", "nn-abcdef12"],
        ["i-00ffaa1122", "i-0a1b2c3d4e", "i-9e0000000a"],
        ["n-0a1b2c/rack-2", "n-0a1b2c/rack-10", "n-9a1b2c/rack-1"],
        ["x-1e3a0b", "x-20a1f3"],
    ],
)
def test_names_in_natural_order(ordered: list[str]) -> None:
    shuffled = random.sample(ordered, len(ordered))
    assert sorted(shuffled, key=natural_key) == ordered
    ranks = NaturalRanks().of(shuffled).tolist()
    assert [one for _, one in sorted(zip(ranks, shuffled, strict=True))] == ordered
