"""Sentences of explanations: said once, and to the point."""

from tests.cli.calling import racks, report, text, train


def test_a_member_does_not_say_twice_why_its_gang_waits() -> None:
    manifests = text(*racks({"a/r1": 2, "a/r2": 2}), *train(3, 8))
    found = report("explain", "pod/train-0", "-f", "-", stdin=manifests)
    first, *others = found["sentences"]
    assert first == "default/train-0 is a member of gang default/train and waits."
    assert "\n".join(others).count("no rack of topology fabric holds all 3 pods") == 1
