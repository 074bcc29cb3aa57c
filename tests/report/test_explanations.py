"""Sentences of explanations: said once, and to the point."""

from tests.cli.calling import pod, racks, report, text, train


def test_a_member_does_not_say_twice_why_its_gang_waits() -> None:
    manifests = text(*racks({"a/r1": 2, "a/r2": 2}), *train(3, 8))
    found = report("explain", "pod/train-0", "-f", "-", stdin=manifests)
    first, *others = found["sentences"]
    assert first == "default/train-0 is a member of gang default/train and waits."
    assert "\n".join(others).count("no rack of topology fabric holds all 3 pods") == 1


def test_the_only_rack_is_called_that() -> None:
    """One rack, of which one node is taken."""
    taken = [*racks({"a/r1": 2}), pod("old", 8, on="node-1")]
    why = report("explain", "train", "-f", "-", stdin=text(*taken, *train(2, 8)))["sentences"]
    assert "The only rack, a/r1, holds 1 of 2 pods (nvidia.com/gpu: 8 free, 16 asked)." in why
