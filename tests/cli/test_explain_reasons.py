"""`closeby explain`: what lacks by name, which labels are missing, and the true reason of each pod."""

from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from closeby.cli.main import cli
from tests.cli.calling import GPU, Manifest, closeby, gang, node, pod, racks, report, text, train

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
        assert " ".join(found["sentences"]).count("label") == found["sentences"][0].count("label")

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


JOB: Manifest = {"parallelism": 2, "template": {"spec": pod("", 8)["spec"]}}
WORKLOADS: dict[str, Manifest] = {
    "job": {"apiVersion": "batch/v1", "kind": "Job", "spec": JOB},
    "jobset": {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": JOB}}]},
    },
    "pytorchjob": {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": JOB["template"]}}},
    },
    "leaderworkerset": {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": JOB["template"]}},
    },
}


def workload(kind: str, name: str = "work") -> Manifest:
    return {**WORKLOADS[kind], "metadata": {"name": name, "namespace": "default"}}


class TestWorkloads:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("jobset/work", "jobset"),
            ("jobsets/default/work", "jobset"),
            ("jobset.jobset.x-k8s.io/work", "jobset"),
            ("pytorchjob/work", "pytorchjob"),
            ("PyTorchJobs/work", "pytorchjob"),
            ("leaderworkerset/work", "leaderworkerset"),
            ("lws/work", "leaderworkerset"),
        ],
    )
    def test_a_workload_means_its_gang(self, name: str, kind: str) -> None:
        found = explained(name, *racks({"a/r1": 2}), workload(kind))
        assert found["subject"].startswith("podgroup/default/work")
        assert len(found["pods"]) == 2

    @pytest.mark.parametrize("name", ["work", "job/work", "jobs/work", "job.batch/default/work"])
    def test_of_several_pods_the_first_that_waits_is_explained(self, name: str) -> None:
        found = explained(name, *racks({"a/r1": 1}), workload("job"))
        assert (found["subject"], found["reason"]) == ("pod/default/work-1", "InsufficientResources")
        assert found["chosen"] == {"workload": "job/default/work", "items": 2, "waiting": 1, "what": "pods"}

    def test_explain_says_how_the_pods_of_a_job_become_a_gang(self) -> None:
        """A Job is no gang by nature; other workloads without a gang may well mean it so."""
        manifests = (*racks({"a/r1": 2}), workload("job"))
        assert (
            'closeby.dev/gang: "true"' in closeby("explain", "work", "-f", "-", stdin=text(*manifests)).stdout
        )
        alone = closeby("explain", "pod/work-0", "-f", "-", stdin=text(*manifests)).stdout
        assert "closeby.dev/gang" not in alone

    def test_a_pod_whose_owner_was_not_read_is_found_by_what_it_says_of_it(self) -> None:
        """As in a cluster: the pods of a JobSet belong to Jobs, and a label names the JobSet."""
        member = pod("work-workers-0-0-abcde")
        member["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "work"}
        owner = {"kind": "Job", "name": "work-workers-0", "controller": True}
        member["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "uid": "u", **owner}]
        for name in ("jobset/work", "job/work-workers-0"):
            found = explained(name, *racks({"a/r1": 1}), member)
            assert found["subject"] == "pod/default/work-workers-0-0-abcde"

    def test_an_unknown_workload_is_answered_with_names_like_it(self) -> None:
        manifests = text(*racks({"a/r1": 2}), workload("jobset", "training"))
        for name in ("jobset/trainin", "train"):
            answer = closeby("explain", name, "-f", "-", stdin=manifests)
            assert answer.exit_code == 2
            assert "podgroup/default/training" in answer.stderr

    def test_a_shell_is_offered_workloads(self, tmp_path: Path) -> None:
        path = tmp_path / "work.json"
        path.write_text(text(workload("job")))
        completions = ShellComplete(cli, {}, "closeby", "_CLOSEBY_COMPLETE")
        found = [one.value for one in completions.get_completions(["explain", "-f", str(path)], "jo")]
        assert found == ["job/work"]
        kinds = [one.value for one in completions.get_completions(["explain"], "jobs")]
        assert kinds == ["jobset/"]


class TestNotices:
    def test_an_unknown_field_of_a_pod_is_shown(self) -> None:
        found = explained("solo", *racks({"a/r1": 1}), pod("solo", nodeSelectr={"disk": "nvme"}))
        (condition,) = found["conditions"]
        assert (condition["object"], condition["field"]) == ("Pod/default/solo", "spec.nodeSelectr")
        assert "nodeSelector" in condition["remedy"]

    def test_a_slip_that_many_objects_share_is_shown_for_each_of_them(self) -> None:
        """The report names one of them and counts the others."""
        slips = [pod(name, nodeSelectr={"disk": "nvme"}) for name in ("one", "two")]
        for name in ("one", "two"):
            conditions = explained(name, *racks({"a/r1": 1}), *slips)["conditions"]
            assert [one["object"] for one in conditions] == [f"Pod/default/{name}"]

    def test_those_of_a_gang_its_members_and_its_workload(self) -> None:
        group = gang("train", 1)
        group["spec"]["minMembers"] = 4
        group["apiVersion"] = "scheduling.x-k8s.io/v1alpha1"
        members = [pod(f"train-{number}", gang="train", nodeSelectr={}) for number in (0, 1)]
        other = pod("other", tolerationz=[])
        found = explained("train", *racks({"a/r1": 1}), group, *members, other)
        fields = {one["field"]: one["message"] for one in found["conditions"]}
        assert set(fields) == {"spec.minMembers", "spec.nodeSelectr"}
        assert "(2 objects)" in fields["spec.nodeSelectr"]
        job = workload("job")
        job["spec"] = {**job["spec"], "paralelism": 4}
        (condition,) = explained("job/work", *racks({"a/r1": 2}), job)["conditions"]
        assert (condition["object"], condition["field"]) == ("Job/default/work", "spec.paralelism")


def counterfactual(found: dict[str, Any], kind: str) -> dict[str, Any]:
    (one,) = (one for one in found["counterfactuals"] if one["kind"] == kind)
    return dict(one)


class TestWhoGoesBefore:
    def test_a_pod_learns_who_was_placed_before_it_because_of_priority(self) -> None:
        small, big = pod("small", 1, priority=1), pod("big", 8, priority=100)
        found = explained("small", *racks({"a/r1": 1}), small, big)
        (ahead,) = counterfactual(found, "behind")["ahead"]
        assert (ahead["name"], ahead["priority"], ahead["waits"]) == ("pod/default/big", 100, False)
        assert ahead["nodes"] == ["node-1"]

    def test_and_which_class_gives_that_priority(self) -> None:
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        }
        big = pod("big", 8, priorityClassName="high")
        behind = counterfactual(explained("small", *racks({"a/r1": 1}), high, pod("small", 1), big), "behind")
        assert [(one["priority"], one["priorityClass"]) for one in behind["ahead"]] == [(100, "high")]

    def test_or_because_of_age(self) -> None:
        young, old = pod("a-young", 5), train(1, 8, name="old", required=None)
        young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
        old[1]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        behind = counterfactual(explained("a-young", *racks({"a/r1": 1}), young, *old), "behind")
        assert [one["name"] for one in behind["ahead"]] == ["podgroup/default/old"]
        assert "(older)" in behind["sentence"]

    def test_who_comes_later_in_the_queue_and_fits_is_not_blamed_for_that(self) -> None:
        """Big is before small, and does not fit; small took a place that big could use."""
        found = explained("big", *racks({"a/r1": 1}), pod("small", 1, priority=1), pod("big", 8, priority=9))
        assert all(one["kind"] != "behind" for one in found["counterfactuals"])

    def test_a_pod_behind_one_that_waits_is_not_shown_two_pods_in_its_way(self) -> None:
        """Whatever ends first, the larger pod before it takes all that becomes free."""
        running = [pod(f"run-{number}", 8, on=f"node-{number}", priority=100) for number in (1, 2)]
        waiting = pod("small", 1, priority=1), pod("big", 8, priority=100)
        found = explained("small", *racks({"a/r1": 2}), *running, *waiting)
        (ahead,) = counterfactual(found, "behind")["ahead"]
        assert (ahead["name"], ahead["priority"], ahead["waits"]) == ("pod/default/big", 100, True)
        short = counterfactual(found, "short")
        assert (short["fits"], short["short"]["inTheWay"]) == (False, ["default/run-1"])

    def test_who_waits_before_it_and_takes_nothing_is_left_out(self) -> None:
        waiting = pod("small", 1, priority=1), pod("huge", 9, priority=100)
        run = pod("run", 8, on="node-1", priority=100)
        found = explained("small", *racks({"a/r1": 1}), run, *waiting)
        assert all(one["kind"] != "behind" for one in found["counterfactuals"])
        assert counterfactual(found, "short")["fits"]


class TestClosedNodes:
    def test_cordoned_nodes_are_offered_with_the_command(self) -> None:
        cluster = changed(racks({"a/r1": 3}), "node-1", "node-2", unschedulable=True)
        found = explained("train", *cluster, pod("run", 8, on="node-3"), *train(2, 8))
        (open_,) = (one for one in found["counterfactuals"] if "command" in one)
        assert open_["command"] == "kubectl uncordon node-1 node-2"
        assert (open_["fits"], open_["where"]["nodes"]) == (True, ["node-1", "node-2"])

    def test_tainted_nodes_too(self) -> None:
        taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
        cluster = changed(racks({"a/r1": 1}), "node-1", taints=[taint])
        (open_,) = (one for one in explained("x", *cluster, pod("x"))["counterfactuals"] if "command" in one)
        assert open_["command"] == "kubectl taint nodes node-1 team=blue:NoSchedule-"

    def test_a_taint_of_kubernetes_itself_is_not_removed_by_hand(self) -> None:
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
        cluster = changed(racks({"a/r1": 1}), "node-1", taints=[taint])
        assert not any("command" in one for one in explained("x", *cluster, pod("x"))["counterfactuals"])


class TestEachFactOnce:
    def test_of_a_gang_too_large_for_each_rack_only_the_decision_the_reason_and_what_helps(self) -> None:
        manifests = text(*racks({"a/r1": 2, "a/r2": 2}), *train(9, 8))
        found = report("explain", "train", "-f", "-", stdin=manifests)
        assert (found["reason"], found["everFits"]) == ("GangDoesNotFit", False)
        assert len(found["sentences"]) == 2
        assert {one["kind"] for one in found["counterfactuals"]} == {"relaxed", "short"}
        assert counterfactual(found, "short")["short"]["couldHold"] == 0
        shown = closeby("explain", "train", "-f", "-", stdin=manifests).stdout
        assert shown.count("✓") == shown.count("members fit now") == 1
        assert [mark for mark in "✗·" if mark in shown] == [], "what could not help is said above"

    def test_what_room_would_do_is_said_where_room_is_what_lacks(self) -> None:
        running = [pod(f"old-{number}", 8, on=f"node-{number}") for number in (1, 3)]
        manifests = text(*racks({"a/r1": 2, "a/r2": 2}), *running, *train(2, 8))
        found = report("explain", "train", "-f", "-", stdin=manifests)
        assert (found["everFits"], counterfactual(found, "short")["short"]["couldHold"]) == (True, 2)
        assert "Of 2 racks that could hold" in closeby("explain", "train", "-f", "-", stdin=manifests).stdout

    @pytest.mark.parametrize("name", ["train", "solo"])
    def test_closed_nodes_do_not_contradict_what_helps(self, name: str) -> None:
        taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
        cluster = changed(racks({"a/r1": 2}), "node-1", "node-2", taints=[taint])
        manifests = text(*cluster, *(train(2, 8) if name == "train" else [pod("solo", 8)]))
        shown = closeby("explain", name, "-f", "-", stdin=manifests).stdout
        assert "fits now if it tolerates taints (team)" in shown
        assert "even if nothing" not in shown and "Even if" not in shown

    def test_a_pod_larger_than_any_node_learns_the_largest(self) -> None:
        taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
        cluster = changed(racks({"a/r1": 2}), "node-1", "node-2", taints=[taint])
        found = explained("solo", *cluster, pod("solo", 16))
        (only,) = found["counterfactuals"]
        assert (only["kind"], only["fits"]) == ("short", False)
        assert f"16 {GPU}, and the largest node has 8" in only["sentence"]

    def test_a_reason_is_not_repeated_in_the_table_of_pods_and_as_a_notice(self) -> None:
        lws = workload("leaderworkerset")
        lws["metadata"]["annotations"] = {"closeby.dev/switches": "many", "closeby.dev/switch-level": RACK}
        shown = closeby("explain", "lws/work", "-f", "-", stdin=text(*racks({"a/r1": 2}), lws)).stdout
        assert shown.count("InvalidSpec") == shown.count("'many'") == 1

    def test_of_a_gang_of_unequal_pods_those_that_fit_nowhere_are_named(self) -> None:
        manifests = [*racks({"a/r1": 2}), *train(2, 1), pod("head", 0, gang="train", cpu=40)]
        manifests[-4]["spec"]["minMember"] = 3
        found = explained("train", *manifests)
        assert "(head)" in found["gang"]["message"]
        assert found["lacks"][0]["resource"] == "cpu"
        assert len(found["sentences"]) == 1, "the lack is said once"

    def test_where_members_are_missing_no_level_is_blamed(self) -> None:
        wrong = gang("train", 4, required="rack")
        wrong["spec"]["topologyConstraint"]["topology"] = "fabrik"
        found = explained("train", *racks({"a/r1": 2}), wrong, pod("train-0", 8, gang="train"))
        assert (found["reason"], found["counterfactuals"]) == ("TopologyNotFound", [])


class TestValuesOfLabels:
    @pytest.mark.parametrize(("value", "said"), [("R1", "the nearest is r1"), ("blue", "nodes have r1, r2")])
    @pytest.mark.parametrize("name", ["solo", "train"])
    def test_a_value_that_no_node_has_is_met_with_what_nodes_have(
        self, name: str, value: str, said: str
    ) -> None:
        waiting = pod("solo", nodeSelector={RACK: value})
        if name == "train":
            waiting["metadata"]["labels"] = {"closeby.dev/pod-group": "train"}
        found = explained(name, *racks({"a/r1": 1, "a/r2": 1}), waiting, gang("train", 1))
        assert f"no node has {RACK}={value}; {said}" in found["sentences"][0]

    def test_the_same_of_required_affinity(self) -> None:
        term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r8", "r9"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        waiting = pod("solo", affinity={"nodeAffinity": required})
        found = explained("solo", *racks({"a/r1": 1}), waiting)
        assert f"no node has {RACK}=r8 or r9" in found["sentences"][0]

    def test_cores_that_look_like_thousandths_are_called_that(self) -> None:
        found = explained("solo", *racks({"a/r1": 1}), pod("solo", 0, cpu=4000))
        assert "did you mean 4000m?" in counterfactual(found, "short")["sentence"]

    @pytest.mark.parametrize("required", ["rack", None])
    def test_pods_of_a_gang_that_are_larger_than_any_node(self, required: str | None) -> None:
        found = explained("train", *racks({"a/r1": 2, "a/r2": 2}), *train(2, 16, required=required))
        assert not found["everFits"]
        assert any("16 nvidia.com/gpu, and the largest node has 8" in one for one in found["sentences"])
