"""`closeby explain`: why pending, why here, and which names it understands."""

import json
from pathlib import Path

import pytest

from tests.cli.calling import GPU, closeby, gang, node, pod, racks, report, text, train
from tests.golden.fixture import Golden

# Room for 16, 16 and 8 GPUs.
CLUSTER = racks({"a/r1": 2, "a/r2": 2, "b/r1": 1})


def sentences(*arguments: str, stdin: str) -> str:
    return " ".join(report("explain", *arguments, "-f", "-", stdin=stdin)["sentences"])


def test_why_a_gang_lies_where_it_lies_and_what_the_runner_up_was(golden: Golden) -> None:
    """r2 has a pod on it already, so it is the tighter one of the two that hold the gang."""
    found = report(
        "explain", "train", "-f", "-", stdin=text(*CLUSTER, pod("old", 4, on="node-4"), *train(6, 2))
    )
    assert found["subject"] == "podgroup/default/train"
    assert [
        ("/".join(one["domain"]), one["fits"], one["wanted"], one["taken"]) for one in found["domains"]
    ] == [("a/r2", 6, 6, 6), ("a/r1", 8, 6, 0), ("b/r1", 4, 6, 0)]
    why = " ".join(found["sentences"])
    assert "are in a/r2 (rack)" in why
    golden("explain", why)
    assert found["domains"][2]["lack"] == f"{GPU}: 8 free, 12 asked"


def test_the_only_domain_that_holds_a_gang(golden: Golden) -> None:
    manifests = text(*CLUSTER, pod("old", 1, on="node-1"), *train(2, 8))
    golden("explain", sentences("train", stdin=manifests))


def test_why_a_gang_waits_by_domain() -> None:
    """What fits, what blocks and by how much; and that it could never fit."""
    found = report("explain", "podgroup/train", "-f", "-", stdin=text(*CLUSTER, *train(3, 8)))
    assert found["reason"] == "TopologyPlacementFailed"
    assert [("/".join(one["domain"]), one["fits"], one["lack"]) for one in found["domains"]] == [
        ("a/r1", 2, f"{GPU}: 16 free, 24 asked"),
        ("a/r2", 2, f"{GPU}: 16 free, 24 asked"),
        ("b/r1", 1, f"{GPU}: 8 free, 24 asked"),
    ]
    assert "Even if it were empty, no rack would hold more than 2 of its 3 pods" in " ".join(
        found["sentences"]
    )


def test_a_gang_that_could_start_if_something_were_freed(golden: Golden) -> None:
    manifests = text(*CLUSTER, pod("x", 1, on="node-1"), pod("y", 1, on="node-3"), *train(2, 8))
    golden("explain", sentences("train", stdin=manifests))


def test_a_gang_over_several_domains_says_what_each_took(golden: Golden) -> None:
    wide = [gang("wide", 3, preferred="rack"), *(pod(f"wide-{n}", 8, gang="wide") for n in range(3))]
    why = sentences("wide", stdin=text(*CLUSTER, *wide))
    golden("explain", why)


def test_a_single_pod_by_node_with_the_runner_up() -> None:
    """The fewer GPUs are free, the higher the score; node-5 is too full."""
    taken = {"node-1": 2, "node-2": 1, "node-3": 3, "node-4": 1}
    running = [pod(f"on-{name}", gpus, on=name) for name, gpus in taken.items()]
    found = report(
        "explain",
        "pod/solo",
        "-f",
        "-",
        stdin=text(*CLUSTER, *running, pod("e", 8, on="node-5"), pod("solo")),
    )
    assert found["pods"][0]["node"] == found["nodes"][0]["node"] == "node-3"
    assert [one["node"] for one in found["nodes"]][:2] == ["node-3", "node-1"]
    assert found["rejected"]["node-5"]["reason"] == "InsufficientResources"
    assert "the runner-up node-1 scores" in found["sentences"][1]


def test_scores_times_their_weights_add_up_to_the_total() -> None:
    """A pod that asks for no accelerator stays away from free ones, which counts twice."""
    manifests = text(*CLUSTER, pod("old", 8, on="node-5"), pod("web", 0))
    found = report("explain", "pod/web", "-f", "-", stdin=manifests)
    assert any(weight != 1 for weight in found["weights"].values())
    for line in found["nodes"]:
        assert line["scores"].keys() == found["weights"].keys()
        whole = sum(score * found["weights"][name] for name, score in line["scores"].items())
        assert line["total"] == pytest.approx(whole)
    shown = closeby("explain", "pod/web", "-f", "-", stdin=manifests).stdout
    for name, weight in found["weights"].items():
        assert (f"{name} ×{weight:g}" in shown) == (weight != 1)


def test_fewer_members_are_asked_for_in_a_field_of_the_workload() -> None:
    big = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "big", "annotations": {"closeby.dev/gang": "true"}},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {"spec": {"restartPolicy": "Never", **pod("x", 8)["spec"]}},
        },
    }
    found = report("explain", "big", "-f", "-", stdin=text(*racks({"a/r1": 2}), big))
    assert {"parallelism": 2} in [one.get("change") for one in found["counterfactuals"]]


def test_a_single_pod_that_fits_nowhere() -> None:
    found = report("explain", "huge", "-f", "-", stdin=text(*CLUSTER, pod("huge", 9)))
    assert (found["reason"], found["nodes"], len(found["rejected"])) == ("InsufficientResources", [], 5)


def test_a_member_of_a_gang_tells_its_node_and_the_gangs_reasons(golden: Golden) -> None:
    why = sentences("train-1", stdin=text(*CLUSTER, *train(2, 8)))
    golden("explain", why)
    assert "are in a/r1 (rack)" in why


def test_what_came_with_a_node_needed_no_decision(golden: Golden) -> None:
    manifests = text(*CLUSTER, gang("old", 1), pod("old-0", gang="old", on="node-1"), pod("p", on="node-2"))
    golden("explain", sentences("old", stdin=manifests))
    golden("explain", sentences("p", stdin=manifests))


@pytest.mark.parametrize("name", ["cronjob/nightly", "cj/nightly", "nightly"])
def test_what_was_read_and_has_no_pods_is_explained_by_what_was_said_of_it(name: str) -> None:
    nightly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": {}}
    result = closeby("explain", name, "-f", "-", stdin=text(*CLUSTER, nightly))
    assert result.exit_code == 2
    assert "CronJob/nightly was read, but is not decided: CronJob is a template" in result.stderr


def test_what_was_skipped_says_why() -> None:
    broken = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t4"}, "spec": {"containers": 3}}
    result = closeby("explain", "pod/t4", "--keep-going", "-f", "-", stdin=text(*CLUSTER, broken))
    assert result.exit_code == 2
    assert "Pod/t4 was read, but is not decided: spec.containers" in result.stderr


def test_what_is_wrong_with_the_node_of_a_pod() -> None:
    manifests = text(*CLUSTER, pod("p", on="nosuchnode"), pod("q", on="node-1"))
    (condition,) = report("explain", "p", "-f", "-", stdin=manifests)["conditions"]
    assert (condition["object"], condition["reason"]) == ("Node/nosuchnode", "InvalidSpec")
    assert report("explain", "q", "-f", "-", stdin=manifests)["conditions"] == []


def test_subgroups_and_where_each_lies() -> None:
    """Two subgroups that each need a rack of their own."""
    group = gang("serve", 4)
    constraint = {"topology": "fabric", "requiredTopologyLevel": "rack"}
    group["spec"]["subGroups"] = [
        {"name": name, "minMember": 2, "topologyConstraint": constraint} for name in ("prefill", "decode")
    ]
    members = [pod(f"{name}-{n}", 8, gang="serve") for name in ("prefill", "decode") for n in range(2)]
    for one in members:
        one["metadata"]["labels"]["closeby.dev/subgroup"] = one["metadata"]["name"].rsplit("-", 1)[0]
    found = report("explain", "serve", "-f", "-", stdin=text(*CLUSTER, group, *members))
    assert [(one["name"], one["placed"], one["topology"]) for one in found["subgroups"]] == [
        ("prefill", 2, "fabric"),
        ("decode", 2, "fabric"),
    ]
    assert {"/".join(one["domain"]) for one in found["subgroups"]} == {"a/r1", "a/r2"}


@pytest.mark.parametrize("name", ["solo", "default/solo", "pod/solo", "pods/default/solo", "po/solo"])
def test_names_of_pods(name: str) -> None:
    assert (
        report("explain", name, "-f", "-", stdin=text(*CLUSTER, pod("solo")))["subject"] == "pod/default/solo"
    )


@pytest.mark.parametrize("name", ["train", "default/train", "podgroup/train", "pg/default/train"])
def test_names_of_gangs(name: str) -> None:
    found = report("explain", name, "-f", "-", stdin=text(*CLUSTER, *train(2, 1)))
    assert found["subject"] == "podgroup/default/train"


def test_the_name_of_a_replica_is_that_of_its_gang_and_not_of_its_leader() -> None:
    worker = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    sets = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": worker}},
    }
    given = text(*racks({"a/1": 2}), sets)
    for name, subject in (("serve-1", "podgroup"), ("pod/serve-1", "pod"), ("default/serve-1", "podgroup")):
        assert closeby("explain", name, "-f", "-", stdin=given).stdout.startswith(
            f"{subject}/default/serve-1"
        )


def test_an_ambiguous_name_asks_which_one() -> None:
    """A pod is called like a gang that it is not in."""
    given = text(*CLUSTER, *train(1, 1, "train"), pod("train"))
    result = closeby("explain", "train", "-f", "-", stdin=given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "podgroup/default/train or pod/default/train" in result.stderr


def test_an_unknown_name_offers_what_is_near() -> None:
    result = closeby("explain", "trian", "-f", "-", stdin=text(*CLUSTER, *train(2, 1)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "podgroup/default/train" in result.stderr
    assert closeby("explain", "zzz", "-f", "-", stdin=text(*CLUSTER)).exit_code == 2


def test_the_table_fits_80_columns(golden: Golden) -> None:
    manifests = text(*CLUSTER, node("stray", {}), *train(3, 8))
    result = closeby("explain", "train", "-f", "-", stdin=manifests, environment={"COLUMNS": "80"})
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    golden("explain", result.stdout)
    assert json.loads(closeby("explain", "train", "-f", "-", "-o", "json", stdin=manifests).stdout)


def test_a_node_that_takes_none_of_the_pods_counts_once() -> None:
    """Whatever the number of kinds of pods: b/r1 has one node, and it is full."""
    kinds = [gang("train", 3, required="rack"), *(pod(f"t-{n}", n + 1, gang="train") for n in range(3))]
    found = report("explain", "train", "-f", "-", stdin=text(*CLUSTER, pod("old", 8, on="node-5"), *kinds))
    by_domain = {"/".join(one["domain"]): one for one in found["domains"]}
    assert by_domain["b/r1"]["nodes"] == 1
    assert by_domain["b/r1"]["blockedBy"] == {"InsufficientResources": 1}


def test_the_first_by_name_is_only_named_as_the_rule_where_it_was() -> None:
    """Of three kinds each rack holds all, but r1 only just: binpack prefers that to the others."""
    kinds = [gang("train", 3, required="rack"), *(pod(f"t-{n}", n + 1, gang="train") for n in range(3))]
    why = sentences("train", stdin=text(*CLUSTER, *kinds))
    assert "are in b/r1" in why
    assert "first by name" not in why


def test_a_namespace_says_which_of_equal_names_is_meant() -> None:
    other = pod("solo")
    other["metadata"]["namespace"] = "other"
    manifests = text(*CLUSTER, pod("solo"), other)
    assert closeby("explain", "solo", "-f", "-", stdin=manifests).exit_code == 2
    found = report("explain", "solo", "-n", "other", "-f", "-", stdin=manifests)
    assert found["subject"] == "pod/other/solo"
    missing = closeby("explain", "solo", "-n", "none", "-f", "-", stdin=manifests)
    assert (missing.exit_code, "called 'solo' in namespace none" in missing.stderr) == (2, True)


def test_only_the_pods_of_the_named_scheduler_are_decided(golden: Golden) -> None:
    manifests = text(*CLUSTER, pod("solo", schedulerName="mine"))
    assert "went to" in sentences("solo", "--scheduler-name", "mine", stdin=manifests)
    golden("explain", sentences("solo", "--scheduler-name", "other", stdin=manifests))


@pytest.mark.parametrize("command", [("explain", "solo"), ("topology",)])
def test_files_and_a_cluster_at_once(command: tuple[str, ...]) -> None:
    result = closeby(*command, "-f", "-", "--context", "c", stdin=text(*CLUSTER))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of them" in result.stderr


def test_nothing_in_files_waits_for_a_pod_grouper(golden: Golden) -> None:
    done = closeby("explain", "train", "-f", "-", "--pod-grouper", stdin=text(*CLUSTER, *train(2, 8)))
    assert done.exit_code == 2
    golden("command-errors", done.stderr)


@pytest.mark.parametrize("command", [("explain", "solo"), ("topology",)])
def test_neither_files_nor_a_cluster(command: tuple[str, ...], tmp_path: Path) -> None:
    nowhere = {"HOME": str(tmp_path), "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""}
    result = closeby(*command, environment=nowhere)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no cluster is known" in result.stderr and "-f PATH" in result.stderr


def test_a_scheduler_is_only_asked_about_a_cluster() -> None:
    result = closeby("explain", "solo", "-f", "-", "--scheduler", "off", stdin=text(*CLUSTER, pod("solo")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--scheduler" in result.stderr
