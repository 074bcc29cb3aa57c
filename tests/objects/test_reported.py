"""What was reported is reported once, for as long as it lasts."""

from closeby.objects.process import Reported


def test_the_same_is_reported_once_and_again_after_it_was_over() -> None:
    reported: Reported[str] = Reported()
    assert [reported.changes("a", text) for text in ("x", "x", "y", "x")] == [True, False, True, True]
    assert reported.changes("b", "x")
    assert "a" in reported and set(reported) == {"a", "b"}
    assert (reported.over("a"), reported.over("a")) == (True, False)
    assert "a" not in reported and reported.changes("a", "x")


def test_that_there_is_nothing_to_say_can_be_reported_too() -> None:
    reported: Reported[str] = Reported()
    assert reported.changes("a", None) and not reported.changes("a", None)
    assert reported.over("a")


def test_memory_is_bounded() -> None:
    reported: Reported[int] = Reported()
    for number in range(25_000):
        assert reported.changes(number, "x")
    assert len(set(reported)) <= 10_000
    # What is remembered already does not push others out.
    last = 24_999
    kept = set(reported)
    assert reported.changes(last, "y") and set(reported) == kept
