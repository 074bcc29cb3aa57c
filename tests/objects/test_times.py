"""Moments as text."""

from datetime import datetime

import pytest

from closeby.objects.quantities import utc


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2030-01-31T13:00:00+01:00", "2030-01-31T12:00:00Z"),
        # A tenant may write these, and no date in UTC is later or earlier.
        ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z"),
        ("0001-01-01T00:00:00+12:00", "0001-01-01T00:00:00Z"),
    ],
)
def test_every_moment_that_can_be_written_can_be_shown(written: str, text: str) -> None:
    assert utc(datetime.fromisoformat(written).timestamp()) == text


@pytest.mark.parametrize(("seconds", "year"), [(1e300, "9999"), (-1e300, "0001")])
def test_moments_beyond_all_dates_are_shown_as_the_last_and_the_first(seconds: float, year: str) -> None:
    assert utc(seconds).startswith(year)
