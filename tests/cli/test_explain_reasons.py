"""`closeby explain`: what lacks by name, which labels are missing, and the true reason of each pod."""

from typing import Any

from tests.cli.calling import GPU, Manifest, gang, node, pod, racks, report, text, train

ZONE, RACK = "example.com/zone", "example.com/rack"


def explained(name: str, *manifests: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = report("explain", name, "-f", "-", stdin=text(*manifests))
    return found


def changed(manifests: list[Manifest], *names: str, **spec: object) -> list[Manifest]:
    """The same with fields of the spec of some of the objects."""
    return [{**one, "spec": spec} if one["metadata"]["name"] in names else one for one in manifests]


def bare(*names: str) -> list[Manifest]:
    """Nodes without labels of any level."""
    return [node(name, {}) for name in names]


class TestLackingResources:
    def test_a_gang_learns_which_resource_lacks_and_how_much_is_free_on_how_many_nodes(self) -> None:
        full = [pod(f"old-{number}", 8, on=f"node-{number}") for number in (1, 2)]
        found = explained("train", *racks({"a/r1": 4}), *full, *train(4, 8, required=None))
        assert found["reason"] == "GangDoesNotFit"
        (lack,) = found["lacks"]
        assert (lack["resource"], lack["asked"], lack["free"], lack["nodes"]) == (GPU, 32, 16, 2)
        assert f"{GPU}: 16 free on 2 nodes, 32 asked" in found["gang"]["message"]

    def test_what_is_free_on_nodes_that_may_not_be_used_is_said_too(self) -> None:
        cluster = changed(racks({"a/r1": 2}), "node-1", unschedulable=True)
        full = pod("old", 8, on="node-2")
        for name, waiting in {"train": train(2, 4, required=None), "solo": [pod("solo", 4)]}.items():
            (lack,) = explained(name, *cluster, full, *waiting)["lacks"]
            assert (lack["free"], lack["barred"], lack["barredNodes"]) == (0, 8, 1)

    def test_a_resource_that_no_node_offers_is_called_that_with_the_nearest_name(self) -> None:
        wrong = pod("solo", 0)
        wrong["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpus": "1"}}
        member = {**wrong, "metadata": pod("train-0", gang="train")["metadata"]}
        manifests = (*racks({"a/r1": 1}), wrong, gang("train", 1), member)
        for name in ("solo", "train"):
            found = explained(name, *manifests)
            (lack,) = found["lacks"]
            assert (lack["offered"], lack["known"][0]) == (False, GPU)
            assert "no node offers nvidia.com/gpus" in found["sentences"][0]

    def test_pieces_too_small_for_one_pod_are_not_the_same_as_too_little(self) -> None:
        """Twice five of eight GPUs are free, and one pod asks for six."""
        running = [pod(f"old-{number}", 3, on=f"node-{number}") for number in (1, 2)]
        (lack,) = explained("solo", *racks({"a/r1": 2}), *running, pod("solo", 6))["lacks"]
        assert (lack["each"], lack["free"], lack["largest"]) == (6, 10, 5)

    def test_cores_are_given_in_cores(self) -> None:
        (lack,) = explained("solo", *racks({"a/r1": 1}), pod("solo", 0, cpu=40))["lacks"]
        assert (lack["resource"], lack["asked"], lack["free"]) == ("cpu", 40, 32)


class TestMissingLabels:
    def test_nodes_without_the_label_of_a_required_level_are_counted_with_the_command(self) -> None:
        found = explained("train", *racks({"a/r1": 2}), *bare("x", "y"), *train(4, 8))
        assert found["reason"] == "TopologyPlacementFailed"
        assert (found["unlabelled"]["label"], found["unlabelled"]["nodes"]) == (RACK, 2)
        assert f"kubectl label nodes x y {RACK}=VALUE" in found["unlabelled"]["remedy"]
        assert found["unlabelled"]["remedy"] in found["gang"]["message"]
        assert f"label the 2 nodes without {RACK}" in " ".join(found["sentences"])

    def test_nodes_that_could_hold_no_member_anyway_are_left_out(self) -> None:
        found = explained("train", *racks({"a/r1": 2}), node("cores", {}, 0), *train(4, 8))
        assert found["unlabelled"] is None

    def test_a_level_that_no_node_carries(self) -> None:
        found = explained("train", racks({})[0], *bare("x", "y"), *train(2, 8))
        assert (found["unlabelled"]["label"], found["unlabelled"]["nodes"]) == (RACK, 2)
        assert f"no node carries label {RACK}" in found["gang"]["message"]
        assert not any("Even if" in one for one in found["sentences"]), "a coarser level is no remedy"

    def test_the_label_of_a_node_selector(self) -> None:
        found = explained("solo", *racks({"a/r1": 2}), pod("solo", nodeSelector={"disk": "nvme"}))
        assert found["reason"] == "NodeAffinityMismatch"
        assert found["unlabelled"]["label"] == "disk"
        assert "kubectl label nodes NODE disk=nvme" in found["pods"][0]["message"]


class TestMembersBeyondTheMinimum:
    def test_the_reason_is_that_of_the_members_own_filters(self) -> None:
        picky = pod("train-x", 1, gang="train", nodeSelector={"disk": "nvme"})
        found = explained("train-x", *racks({"a/r1": 4}), *train(2, 8), picky)
        assert found["reason"] == "NodeAffinityMismatch"
        rejected = {one["reason"] for one in found["rejected"].values()}
        assert rejected == {found["reason"]}, "the head says what the table says"
        assert all("NodeAffinityMismatch" in one["lack"] for one in found["domains"])

    def test_what_keeps_it_from_the_domain_of_the_gang_is_said_of_that_domain(self) -> None:
        """It fits on the one node of the other rack alone, where the gang is not."""
        fast = {ZONE: "a", RACK: "r2", "disk": "nvme"}
        picky = pod("train-x", 1, gang="train", nodeSelector={"disk": "nvme"})
        found = explained("train-x", *racks({"a/r1": 2}), node("fast", fast), *train(2, 8), picky)
        assert found["reason"] == "TopologyPlacementFailed"
        assert "2 NodeAffinityMismatch" in found["pods"][0]["message"]
