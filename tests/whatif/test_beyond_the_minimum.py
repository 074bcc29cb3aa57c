"""Members beyond a gang's minimum that wait are told what would let them in, and then they get in."""

from typing import Any

from tests.cli.calling import GPU, Manifest, closeby, gang, pod, racks, report, text

#: A rack of two nodes and one of three, in one zone; the gang's rack is the first.
RACKS = {"a/r1": 2, "a/r2": 3}


def asked(name: str, *manifests: Manifest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report("explain", name, "-f", "-", stdin=text(*manifests))[
        "counterfactuals"
    ]
    return found


def nodes_of(*manifests: Manifest) -> dict[str, str | None]:
    pods = report("simulate", "-f", "-", stdin=text(*manifests))["pods"]
    return {one["name"]: one["node"] for one in pods}


def running(minimum: int = 1) -> list[Manifest]:
    """A gang that requires a rack, of which one member runs in r1."""
    return [gang("train", minimum, required="rack"), pod("train-0", 8, gang="train", on="node-1")]


def more(count: int) -> list[Manifest]:
    return [pod(f"train-{number}", 8, gang="train") for number in range(1, count + 1)]


def test_a_coarser_level_lets_those_in_that_its_rack_has_no_room_for() -> None:
    cluster, members = racks(RACKS), [*running(), *more(3)]
    (one, *_) = asked("train", *cluster, *members)
    assert one["change"] == {"topologyConstraint.requiredTopologyLevel": "example.com/zone"}
    assert (one["fits"], one["pods"]) == (True, ["default/train-2", "default/train-3"])
    members[0]["spec"]["topologyConstraint"]["requiredTopologyLevel"] = "zone"
    assert None not in nodes_of(*cluster, *members).values()


def test_a_cordoned_node_of_its_rack_is_offered_with_the_command() -> None:
    cluster = racks(RACKS)
    cluster[2]["spec"] = {"unschedulable": True}
    found = asked("train", *cluster, *running(), *more(1))
    (one,) = (one for one in found if one.get("command"))
    assert (one["pods"], one["command"]) == (["default/train-1"], "kubectl uncordon node-2")
    del cluster[2]["spec"]
    assert nodes_of(*cluster, *running(), *more(1))["train-1"] == "node-2"


def test_a_node_selector_is_named_to_the_member_that_has_it_alone() -> None:
    cluster = racks(RACKS)
    picky = pod("picky-0", 1, gang="train", nodeSelector={"disk": "nvme"})
    other = pod("train-1", 8, gang="train", nodeSelector={"disk": "none"})
    members = [*running(), other, picky]
    (one, *_) = asked("picky-0", *cluster, *members)
    assert (one["pods"], one["fits"]) == (["default/picky-0"], True)
    assert one["change"] == {"nodeSelector": None, "affinity.nodeAffinity": None}
    assert nodes_of(*cluster, *members[:-1], pod("picky-0", 1, gang="train"))["picky-0"] == "node-2"


def test_the_end_of_what_runs_in_its_rack_helps_some_of_them() -> None:
    cluster, old = racks(RACKS), pod("old", 8, on="node-2")
    members = [*running(), *more(2)]
    (one,) = (one for one in asked("train", *cluster, old, *members) if one["kind"] == "ended")
    assert (one["pods"], one["fits"]) == (["default/train-1"], False), "the other one would still wait"
    assert [job["name"] for job in one["jobs"]] == ["pod/default/old"]
    assert nodes_of(*cluster, *members)["train-1"] == "node-2"


def test_who_stands_in_the_way_is_said_of_the_rack_of_the_gang() -> None:
    cluster, old = racks(RACKS), pod("old", 2, on="node-2")
    old["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    ]
    (one,) = (one for one in asked("train", *cluster, old, *running(), *more(1)) if one["kind"] == "short")
    assert (one["fits"], one["short"]["inTheWay"]) == (True, ["default/old"])
    assert (one["short"]["domain"], one["short"]["couldHold"]) == (["a", "r1"], 1)


def test_that_nothing_could_help_is_said_once() -> None:
    manifests = [*racks({"a/r1": 1}), *running(), *more(2)]
    (one,) = asked("train", *manifests)
    assert (one["kind"], one["fits"], one["short"]["couldHold"]) == ("short", False, 0)
    shown = closeby("explain", "train", "-f", "-", stdin=text(*manifests)).stdout
    assert shown.count("could not hold train-1..2") == 1


def test_where_the_minimum_ran_already_the_resource_that_lacks_is_named() -> None:
    manifests = text(*racks(RACKS), pod("old", 4, on="node-2"), *running(), *more(1))
    found = report("explain", "train", "-f", "-", stdin=manifests)
    (waits,) = (one for one in found["pods"] if one["node"] is None)
    assert (waits["reason"], f"{GPU}: 4 free on 1 node, 8 asked" in waits["message"]) == (
        "TopologyPlacementFailed",
        True,
    )
    assert "nothing had to be decided" not in " ".join(found["sentences"])
