from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.errors import QuantityError
from closeby.objects.quantities import (
    INT64_MAX,
    LARGEST_AMOUNT,
    NANO,
    QuantityText,
    amount,
    amount_of_nanos,
    format_amount,
    nanos,
)

# resource, text, rounded up, rounded down
AMOUNTS: list[tuple[str, QuantityText, int, int]] = [
    ("cpu", "1500m", 1500, 1500),
    ("cpu", "2", 2000, 2000),
    ("cpu", 2, 2000, 2000),
    ("cpu", "0.1", 100, 100),
    ("cpu", 0.1, 100, 100),
    ("cpu", ".5", 500, 500),
    ("cpu", "1.", 1000, 1000),
    ("cpu", "+1", 1000, 1000),
    ("cpu", "100u", 1, 0),
    ("cpu", "1n", 1, 0),
    ("cpu", "-1500m", -1500, -1500),
    ("cpu", "-100u", 0, -1),
    ("memory", "2Gi", 2 * 1024**3, 2 * 1024**3),
    ("memory", "1.5Gi", 3 * 1024**3 // 2, 3 * 1024**3 // 2),
    ("memory", "128974848000m", 128974848, 128974848),
    ("memory", "129M", 129_000_000, 129_000_000),
    ("memory", "1Ki", 1024, 1024),
    ("memory", "1Mi", 1024**2, 1024**2),
    ("memory", "1Ti", 1024**4, 1024**4),
    ("memory", "1Pi", 1024**5, 1024**5),
    ("memory", "1Ei", 1024**6, 1024**6),
    ("memory", "0.1Ki", 103, 102),
    ("nvidia.com/gpu", "8", 8, 8),
    ("example.com/x", "1e3", 1000, 1000),
    ("example.com/x", "1E3", 1000, 1000),
    ("example.com/x", "1e-3", 1, 0),
    ("example.com/x", "12e+1", 120, 120),
    ("example.com/x", "1k", 1000, 1000),
    ("example.com/x", "1T", 10**12, 10**12),
    ("example.com/x", "1P", 10**15, 10**15),
    ("example.com/x", "1E", 10**18, 10**18),
    ("example.com/x", "0", 0, 0),
    ("example.com/x", "0e999", 0, 0),
    ("example.com/x", str(INT64_MAX), INT64_MAX, INT64_MAX),
]


@pytest.mark.parametrize(("resource", "text", "up", "down"), AMOUNTS)
def test_amounts_are_exact_and_rounded_where_they_fall_between(
    resource: str, text: QuantityText, up: int, down: int
) -> None:
    assert amount(resource, text, "up") == up
    assert amount(resource, text, "down") == down


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a quantity"),
        ("abc", "is not a quantity"),
        (".", "is not a quantity"),
        ("--1", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
        ("1_000", "is not a quantity"),
        ("१", "is not a quantity"),
        (float("nan"), "is not a quantity"),
        (float("inf"), "is not a quantity"),
        ("1" * 101, "is not a quantity"),
        ("1K", "unknown suffix 'K'"),
        ("1MB", "unknown suffix 'MB'"),
        ("1e", "unknown suffix 'e'"),
        ("1x2", "is not a quantity"),
        ("1e999999999", "out of range"),
        ("1e-999999999", "out of range"),
        (str(INT64_MAX + 1), "too large"),
        ("8Ei", "too large"),
        ("-8.1Ei", "too large"),
    ],
)
def test_nonsense_is_refused_in_words(text: QuantityText, said: str) -> None:
    with pytest.raises(QuantityError, match=said):
        amount("memory", text, "up")


@pytest.mark.parametrize(("text", "remedy"), [("1K", "k or Ki"), ("1MB", "M or Mi"), ("5gb", "G or Gi")])
def test_a_wrong_suffix_is_met_with_the_right_one(text: str, remedy: str) -> None:
    with pytest.raises(QuantityError) as caught:
        amount("memory", text, "up")
    assert caught.value.remedy == f"did you mean {remedy}?"


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("cpu", -500, "-500m"),
        ("memory", 0, "0"),
        ("memory", 1000, "1000"),
        ("memory", 1024, "1Ki"),
        ("memory", 2 * 1024**3, "2Gi"),
        ("memory", 3 * 1024**3 // 2, "1.5Gi"),
        ("memory", 7_935_758_336, "7.39Gi"),
        ("memory", -2 * 1024**3, "-2Gi"),
        ("ephemeral-storage", 1024**4, "1Ti"),
        ("hugepages-2Mi", 4 * 1024**2, "4Mi"),
        ("nvidia.com/gpu", 2048, "2048"),
        ("network.aware.com/bandwidth", 10**9, "1000000000"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, value: int, text: str) -> None:
    assert format_amount(resource, value) == text


DECIMALS = st.decimals(min_value=-(10**6), max_value=10**6, places=9).map(lambda value: value.normalize())
SUFFIXES = st.sampled_from(
    [("n", Fraction(1, 10**9)), ("u", Fraction(1, 10**6)), ("m", Fraction(1, 1000)), ("", Fraction(1))]
    + [(suffix, Fraction(1000 ** (i + 1))) for i, suffix in enumerate("kMG")]
    + [(f"{suffix}i", Fraction(1024 ** (i + 1))) for i, suffix in enumerate("KMG")]
)


@given(DECIMALS, SUFFIXES)
def test_rounding_brackets_the_exact_value(number: Decimal, suffix: tuple[str, Fraction]) -> None:
    text = f"{number:f}{suffix[0]}"
    exact = Fraction(number) * suffix[1]
    up, down = amount("memory", text, "up"), amount("memory", text, "down")
    assert down <= exact <= up
    assert up - down == (0 if exact.denominator == 1 else 1)
    assert amount("cpu", text, "down") == exact * 1000 // 1


@given(st.integers(-(10**12), 10**12), st.sampled_from(["cpu", "example.com/x"]))
def test_what_is_shown_of_cpu_and_counts_reads_back_the_same(value: int, resource: str) -> None:
    assert amount(resource, format_amount(resource, value), "up") == value


@given(st.integers(0, 2**40).map(lambda value: value * 1024**2))
def test_what_is_shown_of_bytes_is_right_to_half_a_hundredth_of_its_unit(value: int) -> None:
    shown = amount("memory", format_amount("memory", value), "up")
    assert abs(shown - value) * 200 <= max(value, 1) + 200


@given(st.floats(min_value=0, max_value=1e6, allow_nan=False))
def test_floats_count_as_the_text_that_shows_them(value: float) -> None:
    assert amount("cpu", value, "up") == amount("cpu", repr(value), "up")


@given(st.lists(st.integers(0, 10**6), max_size=8))
def test_a_sum_is_rounded_once(micros: list[int]) -> None:
    total = sum(nanos(f"{value}u") for value in micros)
    assert total == sum(micros) * (NANO // 10**6)
    assert amount_of_nanos("cpu", total) == -(-sum(micros) // 1000)


def test_a_sum_of_which_a_thousand_fit_no_64_bits_is_refused() -> None:
    assert amount_of_nanos("memory", nanos(LARGEST_AMOUNT)) == LARGEST_AMOUNT
    with pytest.raises(QuantityError, match="the sum of memory is too large") as caught:
        amount_of_nanos("memory", nanos("4Pi") + nanos("4Pi"))
    assert caught.value.remedy == "ask for at most 8Pi"
