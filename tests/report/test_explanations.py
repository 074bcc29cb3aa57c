"""Sentences of explanations: said once, and to the point."""

from tests.cli.calling import gang, pod, racks, report, text, train
from tests.golden.fixture import Golden


def test_a_member_does_not_say_twice_why_its_gang_waits(golden: Golden) -> None:
    manifests = text(*racks({"a/r1": 2, "a/r2": 2}), *train(3, 8))
    found = report("explain", "pod/train-0", "-f", "-", stdin=manifests)
    first, *others = found["sentences"]
    golden("explain", first)
    assert "\n".join(others).count("no rack of topology fabric holds all 3 pods") == 1


def test_the_only_rack_is_called_that(golden: Golden) -> None:
    """One rack, of which one node is taken."""
    taken = [*racks({"a/r1": 2}), pod("old", 8, on="node-1")]
    why = report("explain", "train", "-f", "-", stdin=text(*taken, *train(2, 8)))["sentences"]
    golden("explain", why)


def test_members_that_run_decide_and_not_the_tightest_rack(golden: Golden) -> None:
    """r2 is tighter for one more pod, but a member runs in r1."""
    runs = [*racks({"a/r1": 2, "a/r2": 1}), *train(2, 8)]
    runs[-1]["spec"]["nodeName"] = "node-1"
    runs[-1]["status"] = {"phase": "Running"}
    why = report("explain", "train", "-f", "-", stdin=text(*runs))["sentences"]
    golden("explain", why[1])


def test_unequal_pods_of_which_each_fits_alone(golden: Golden) -> None:
    """Either of two pods fits the one node, but not both."""
    group = [gang("mixed", 2, required="rack"), *(pod(f"m-{n}", 4 + n, gang="mixed") for n in range(2))]
    why = report("explain", "mixed", "-f", "-", stdin=text(*racks({"a/r1": 1}), *group))["sentences"]
    golden("explain", why)
