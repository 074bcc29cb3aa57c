"""What is known from one source, as answers come and time goes by; ten seconds are too old."""

import pytest

from closeby.measurements.ageing import Known, State
from closeby.scheduling.services import Reading, Source
from tests.golden.fixture import Golden


class Time:
    """Goes on when it is told to; the wall clock is a thousand seconds ahead."""

    def __init__(self) -> None:
        self.seconds = 0.0
        source = Source(name="s", argument="address", read=lambda: "nothing", every=2.0, max_age=10.0)
        self.known = Known(source, clock=lambda: self.seconds, epoch=lambda: self.seconds + 1000.0)

    def at(self, seconds: float) -> Known:
        self.seconds = seconds
        return self.known


def reading(measured: float | None = None, *, empty: bool = False) -> Reading:
    return Reading(values="figures", measured=measured, empty=empty)


def test_a_source_that_was_never_fetched_has_no_age() -> None:
    known = Time().known
    assert (known.state, known.age, known.now().reading) == (State.UNREAD, None, None)


def test_what_was_read_counts_until_it_is_too_old() -> None:
    time = Time()
    good = reading(1000.0)
    assert time.at(0).take(good).reading is good
    assert time.at(4).take("it is gone").reading is good
    assert (time.known.state, time.known.age, time.known.now().trouble) == (State.STALE, 4.0, "it is gone")
    assert time.at(9.9).now().reading is good
    assert time.at(10).now().reading is None
    assert (time.known.state, time.known.age, time.known.now().trouble) == (State.GONE, None, "it is gone")
    again = reading(1011.0)
    assert time.at(11).take(again).reading is again
    assert (time.known.state, time.known.failures, time.known.now().trouble) == (State.GOOD, 1, "")


def test_a_source_that_hangs_is_no_news(golden: Golden) -> None:
    time = Time()
    time.at(0).take(reading())
    golden("measurements", time.at(10).now().trouble)
    assert time.known.state is State.GONE


def test_the_age_counts_from_the_measurement_if_the_source_knows_it() -> None:
    time = Time()
    assert time.at(5).take(reading(measured=1002.0)).age == 3.0
    assert time.at(6).now().age == 4.0
    assert time.at(12).now().reading is None


def test_a_clock_that_is_ahead_makes_nothing_younger_than_now() -> None:
    time = Time()
    assert time.at(5).take(reading(measured=1014.0)).age == 0.0


@pytest.mark.parametrize("measured", [1016.0, 1_005_000.0, 1e300])
def test_what_is_measured_in_the_future_can_not_get_old_and_is_not_taken(
    measured: float, golden: Golden
) -> None:
    """Ahead by more than the greatest age; in milliseconds; absurd."""
    time = Time()
    told = time.at(5).take(reading(measured=measured))
    assert told.reading is None
    golden("measurements", told.trouble)
    assert time.known.state is State.GONE


def test_a_source_whose_own_measurements_are_old_is_not_believed() -> None:
    time = Time()
    now = time.at(100).take(reading(measured=1085.0))
    assert (now.reading, now.trouble) == (None, "what s knows was measured 15 s ago")
    assert (time.known.state, time.known.failures) == (State.GONE, 1)


def test_an_answer_without_any_node_removes_nothing() -> None:
    time = Time()
    nothing, good = reading(1000.0, empty=True), reading(1001.0)
    assert time.at(0).take(nothing).reading is nothing
    time.at(1).take(good)
    now = time.at(2).take(nothing)
    assert (now.reading, now.trouble) == (good, "s knows of no host")
    assert time.at(12).take(nothing).reading is None


def test_what_says_no_time_was_measured_when_it_was_read() -> None:
    time = Time()
    found = time.at(7).take(reading()).reading
    assert found is not None and found.measured == 1007.0
