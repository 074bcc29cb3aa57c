"""Whatever a text holds, what is repeated of it is short, and printable where it must be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.bounds import clipped, line, quoted, sentences, shown, some, whole_number
from closeby.objects.reasons import Condition, Reason, few

TEXTS = st.one_of(
    st.text(), st.text(st.sampled_from("aü😀\x1b\n\ud800")), st.just("x" * 5000), st.just("ü" * 999)
)


def size(text: str) -> int:
    return len(text.encode(errors="replace"))


@given(TEXTS, st.integers(0, 2000))
def test_a_text_is_cut_at_a_whole_character(text: str, most: int) -> None:
    cut = clipped(text, most)
    assert size(cut) <= most
    if size(text) <= most:
        assert cut == text
    elif most > 40:
        kept, _, rest = cut.rpartition("… (and ")
        assert text.encode(errors="replace").decode().startswith(kept)
        assert size(kept) + int(rest.split()[0]) == size(text)


@given(TEXTS, st.integers(0, 2000))
def test_a_line_is_printable(text: str, most: int) -> None:
    told = line(text, most)
    assert size(told) <= most
    assert told.isprintable()


def test_terminals_are_sent_no_commands() -> None:
    assert line("\x1b[31mred\x1b[0m\nnew line\ttab \u202e") == r"\x1b[31mred\x1b[0m new line tab \u202e"


def test_values_are_quoted_as_far_as_they_help() -> None:
    assert quoted("a'b") == '"a\'b"'
    assert quoted("a" * 100) == repr("a" * 100)
    assert quoted("a" * 262144) == f"'{'a' * 100}'… (and 262044 more characters)"
    assert quoted(None) == "None"
    assert shown("a" * 101) == f"{'a' * 100}… (and 1 more characters)"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("016", 16), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("", None)]
    + [(text, None) for text in ("-1", "+1", "1.5", "1_0", " 1", "\u0663")],
)
def test_a_whole_number_has_no_more_digits_than_a_count(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_lists_name_the_first_and_count_the_others() -> None:
    assert some([]) == ""
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert some(["a", "b", "c"], joint=" -> ") == "a -> b -> c"


@given(st.lists(TEXTS, max_size=30))
def test_sentences_stay_in_their_bounds_and_none_is_uncounted(found: list[str]) -> None:
    told = sentences(found, 10, 1000)
    assert size(told) <= 1000
    if len(found) > 10:
        assert told.endswith(" more")
        assert len(found) - 10 <= int(told.split()[-2]) < len(found)


def test_of_many_conditions_the_first_are_kept_and_the_others_counted() -> None:
    def one(i: int, blocking: bool) -> Condition:
        return Condition(
            reason=Reason.INVALID_SPEC, object="PodGroup/a/g", field=f"f{i}", message="x", blocking=blocking
        )

    many = [one(i, blocking=i == 70) for i in range(100)]
    told = few(many, 20)
    assert len(told) == 20
    assert told[:19] == tuple(many[:19])
    assert (told[19].field, told[19].blocking) == ("f70", True)
    assert "81 more" in told[19].message
    assert few(many[:20], 20) == tuple(many[:20])


def test_conditions_cut_what_they_are_made_of() -> None:
    made = Condition(
        reason=Reason.INVALID_SPEC,
        object="PodGroup/a/g",
        field="metadata.annotations" + "x" * 10_000,
        message="\x1b[2J" * 100_000,
        remedy="ü" * 100_000,
    )
    assert all(size(text) <= 1024 and text.isprintable() for text in (made.field, made.message, made.remedy))
