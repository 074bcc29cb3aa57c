"""Host lists: what they stand for, their bounds, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.discovery.hostlists import ExpansionLimit, compact, expand
from closeby.errors import HostlistError

NAMES = st.from_regex(r"[a-z]{0,3}-?[0-9]{0,4}[a-z]{0,2}[0-9]{0,3}", fullmatch=True).filter(bool)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,07-12,a]", "n1 n2 n3 n07 n08 n09 n10 n11 n12 na"),
        ("tux[0-1],login", "tux0 tux1 login"),
        ("r[1-2]n[01-02]x", "r1n01x r1n02x r2n01x r2n02x"),
        ("a, b\tc,,", "a b c"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("", ""),
    ],
)
def test_lists(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    "text",
    ["n[", "n]", "n[1-2]]", "n[[1-2]]", "n[]", "n[1,]", "n[2-1]", "n[1-]", "n[-1]", "n[1-2-3]", "n[1 2]"],
)
def test_no_lists(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[1-999999999]",
        "n[1-99999999999999999999999999]",
        "a[1-1000]b[1-1000]",
        ",".join(["n[1-400000]", "m[1-400000]"]),
        "a" * 300,
        "".join("[1-2]" for _ in range(40)),
    ],
)
def test_lists_without_bounds_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


def test_room_is_shared() -> None:
    room = ExpansionLimit(5)
    assert len(expand("n[1-3]", room)) == 3
    with pytest.raises(HostlistError):
        expand("n[4-6]", room)


def test_compact_keeps_zeros_apart() -> None:
    assert compact(["n1", "n2", "n01", "n3", "n10", "login"]) in (
        "login,n[01,1-3,10]",
        "login,n[1,01,2-3,10]",
    )
    assert compact(["n08", "n09", "n10"]) == "n[08-10]"


def test_names_that_can_not_stand_in_a_list_are_refused() -> None:
    for name in ("a,b", "a b", "a[1]", "a#b", ""):
        with pytest.raises(HostlistError):
            compact([name])


@given(st.sets(NAMES, max_size=30))
def test_what_is_written_stands_for_the_same_names(names: set[str]) -> None:
    assert sorted(expand(compact(names))) == sorted(names)


@given(st.text(alphabet="n019[]-, a", max_size=40))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        names = expand(text, ExpansionLimit(10_000))
    except HostlistError:
        return
    assert all(name and not set(name) & set("[], ") for name in names)
