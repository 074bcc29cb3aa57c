import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.topology.qos import (
    BANDWIDTH_UNITS,
    LATENCY_UNITS,
    format_bandwidth,
    format_latency,
    parse_bandwidth,
    parse_distance,
    parse_latency,
)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("100ns", 100),
        ("2us", 2_000),
        ("1.5us", 1_500),
        ("500us", 500_000),
        ("1ms", 1_000_000),
        ("0.001us", 1),
        ("3s", 3_000_000_000),
        ("0.1s", 100_000_000),
    ],
)
def test_latency_is_exact_in_nanoseconds(text: str, nanoseconds: int) -> None:
    assert parse_latency(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "bits_per_second"),
    [
        ("64Kbps", 64_000),
        ("100Mbps", 100_000_000),
        ("100Gbps", 100_000_000_000),
        ("2.5Gbps", 2_500_000_000),
        ("1.6Tbps", 1_600_000_000_000),
        ("0.001Kbps", 1),
    ],
)
def test_bandwidth_is_exact_in_bits_per_second(text: str, bits_per_second: int) -> None:
    assert parse_bandwidth(text) == bits_per_second


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (2, "not text with a unit"),
        (True, "not text with a unit"),
        ("", "followed by one of ns, us, ms, s"),
        ("2", "followed by one of"),
        ("2 us", "followed by one of"),
        ("us", "followed by one of"),
        ("-2us", "followed by one of"),
        ("1e3us", "followed by one of"),
        ("2US", "followed by one of"),
        ("2m", "followed by one of"),
        ("2us\n", "followed by one of"),
        ("\u0662us", "followed by one of"),  # an Arabic digit
        ("9" * 5000 + "us", "followed by one of"),
        ("0us", "not above zero"),
        ("0.5ns", "not a whole number of nanoseconds"),
        ("1.2345us", "not a whole number of nanoseconds"),
    ],
)
def test_wrong_latency_says_why(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_latency(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (100, "not text with a unit"),
        ("100gbps", "followed by one of Kbps, Mbps, Gbps, Tbps"),
        ("100GBps", "followed by one of"),
        ("100G", "followed by one of"),
        ("1bps", "followed by one of"),
        ("0Gbps", "not above zero"),
        ("0.0001Kbps", "not a whole number of bits per second"),
    ],
)
def test_wrong_bandwidth_says_why(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_bandwidth(value)


@pytest.mark.parametrize("value", [1, 2.5, 10**30])
def test_distance_is_any_number_above_zero(value: float) -> None:
    assert parse_distance(value) == value


def test_a_whole_distance_is_the_same_however_it_is_written() -> None:
    assert (parse_distance(2.0), type(parse_distance(2.0))) == (2, int)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (True, "not a number"),
        ("1", "not a number"),
        (None, "not a number"),
        (0, "above zero"),
        (-1, "above zero"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
    ],
)
def test_wrong_distance_says_why(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_distance(value)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (1, "1ns"),
        (999, "999ns"),
        (1000, "1us"),
        (1500, "1.5us"),
        (1_000_001, "1.000001ms"),
        (10**12, "1000s"),
    ],
)
def test_latency_is_shown_in_the_largest_unit_that_it_fills(nanoseconds: int, text: str) -> None:
    assert format_latency(nanoseconds) == text


@pytest.mark.parametrize(
    ("bits", "text"), [(1, "0.001Kbps"), (40_000_000_000, "40Gbps"), (1_600_000_000_000, "1.6Tbps")]
)
def test_bandwidth_is_shown_in_the_largest_unit_that_it_fills(bits: int, text: str) -> None:
    assert format_bandwidth(bits) == text


@given(st.integers(min_value=1, max_value=10**24))
def test_what_is_shown_reads_back_the_same(amount: int) -> None:
    assert parse_latency(format_latency(amount)) == amount
    assert parse_bandwidth(format_bandwidth(amount)) == amount


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(sorted(LATENCY_UNITS)))
def test_units_of_latency_are_powers_of_a_thousand(amount: int, unit: str) -> None:
    assert parse_latency(f"{amount}{unit}") == amount * LATENCY_UNITS[unit]


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(sorted(BANDWIDTH_UNITS)))
def test_units_of_bandwidth_are_powers_of_a_thousand(amount: int, unit: str) -> None:
    assert parse_bandwidth(f"{amount}{unit}") == amount * BANDWIDTH_UNITS[unit]
