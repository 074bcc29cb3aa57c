"""`closeby simulate`: its contract, its exit codes and its table."""

import itertools
import json
from pathlib import Path

import pytest
import yaml

from tests.cli.calling import GPU, closeby, gang, node, pod, racks, report, text, train
from tests.golden.fixture import Golden

# a/r1 and a/r2 have two hosts of 8 GPUs each, b/r1 has one.
CLUSTER = racks({"a/r1": 2, "a/r2": 2, "b/r1": 1})


def test_the_report_of_a_gang_that_fits_one_rack() -> None:
    """Four pods of 3 GPUs: two on each host of the first rack."""
    found = report("simulate", "-f", "-", stdin=text(*CLUSTER, *train(4, 3), pod("solo", 8), pod("huge", 9)))

    assert list(found) == [
        "apiVersion",
        "kind",
        "pods",
        "groups",
        "appGroups",
        "preemptions",
        "conditions",
        "errors",
        "unused",
        "configuration",
        "model",
    ]
    assert (found["apiVersion"], found["kind"]) == ("closeby.dev/v1alpha1", "SchedulingReport")
    assert found["groups"] == [
        {
            "namespace": "default",
            "name": "train",
            "minMember": 4,
            "scheduled": 4,
            "topology": "fabric",
            "level": "rack",
            "domain": ["a", "r1"],
            "span": {"zone": 1, "rack": 1, "hostname": 2},
            "reason": None,
            "message": None,
            "conditions": [],
            "quality": {
                "excessSpan": {"zone": 1.0, "rack": 1.0, "hostname": 1.0},
                "crossPairs": {"zone": 0, "rack": 0, "hostname": 4},
                "pairs": 6,
                "meanDistance": 1.33333,
                "diameter": 2,
                "ringCrossings": {"zone": 0, "rack": 0, "hostname": 2},
                "ringHops": 4,
                "leastRingHops": 4,
                "groupSpread": {"zone": 1.0, "rack": 1.0, "hostname": 2.0},
                # 12 ranks: 22 steps of 9.6 µs, and 22/12 GiB over 3 links of 50 GB/s
                "allReduceSeconds": 0.0133347,
                "contendedAllReduceSeconds": 0.0133347,
                "idealAllReduceSeconds": 0.0133347,
                "slowdown": 1.0,
                "jobSlowdown": 1.0,
            },
        }
    ]
    assert [entry["name"] for entry in found["pods"]] == [
        "huge",
        "solo",
        "train-0",
        "train-1",
        "train-2",
        "train-3",
    ]
    by_name = {entry.pop("name"): entry for entry in found["pods"]}
    assert by_name["train-0"] == {
        "namespace": "default",
        "group": "train",
        "node": "node-1",
        "phase": "Scheduled",
        "order": by_name["train-0"]["order"],
        "rank": 0,
        "reason": None,
        "message": None,
    }
    assert [by_name[f"train-{index}"]["node"] for index in range(4)] == [
        "node-1",
        "node-1",
        "node-2",
        "node-2",
    ]
    assert sorted(entry["order"] for entry in by_name.values() if entry["phase"] == "Scheduled") == [
        0,
        1,
        2,
        3,
        4,
    ]
    huge = by_name["huge"]
    assert (huge["phase"], huge["node"], huge["order"], huge["rank"]) == ("Pending", None, None, None)
    assert huge["reason"] == "InsufficientResources"
    assert f"{GPU}: at most 8 free on one node, 9 asked" in huge["message"]
    assert found["appGroups"] == []


def test_a_gang_without_topology_has_no_domain() -> None:
    """Nodes without any Topology object."""
    nodes = [node("n-1", {}), node("n-2", {})]
    found = report("simulate", "-f", "-", stdin=text(*nodes, *train(2, 8, required=None)))
    (entry,) = found["groups"]
    assert (entry["topology"], entry["level"], entry["domain"]) == (None, None, [])
    assert entry["span"] == {"hostname": 2}
    assert entry["scheduled"] == 2


def test_a_gang_that_fits_no_rack_waits_as_a_whole() -> None:
    """Three hosts' worth of pods and at most two hosts a rack; everybody says why."""
    result = closeby("simulate", "-f", "-", "-o", "json", stdin=text(*CLUSTER, *train(3, 8)))
    found = json.loads(result.stdout)
    (entry,) = found["groups"]
    assert (entry["scheduled"], entry["reason"]) == (0, "TopologyPlacementFailed")
    assert (entry["topology"], entry["level"], entry["domain"], entry["span"]) == ("fabric", None, [], {})
    assert {one["reason"] for one in found["pods"]} == {"TopologyPlacementFailed"}
    assert result.exit_code == 0


def test_a_group_without_pods_is_incomplete_unless_its_pods_have_finished() -> None:
    """Finished pods free their node and are not reported."""
    done = pod("done-0", 8, gang="done", on="node-5")
    done["status"] = {"phase": "Succeeded"}
    found = report("simulate", "-f", "-", stdin=text(*CLUSTER, gang("empty", 2), gang("done", 1), done))
    assert {entry["name"]: entry["reason"] for entry in found["groups"]} == {
        "done": None,
        "empty": "GangIncomplete",
    }
    assert found["pods"] == []


def test_pods_that_name_an_unknown_gang_wait_for_it() -> None:
    """The report has an entry for the gang all the same, with an unknown minimum."""
    found = report("simulate", "-f", "-", stdin=text(*CLUSTER, pod("w-0", gang="ghost")))
    (entry,) = found["groups"]
    assert (entry["name"], entry["minMember"], entry["reason"]) == ("ghost", None, "GangIncomplete")


def test_running_pods_keep_their_nodes_and_terminating_ones_too() -> None:
    """node-5 is taken by a pod that is being deleted; what is pending and being deleted is not scheduled."""
    leaving = pod("leaving", 8, on="node-5")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    given_up = pod("given-up", 1)
    given_up["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    chooser = pod("chooser", 8, nodeSelector={"example.com/zone": "b"})
    found = report("simulate", "-f", "-", stdin=text(*CLUSTER, leaving, given_up, chooser))
    by_name = {entry["name"]: entry for entry in found["pods"]}
    assert (by_name["leaving"]["phase"], by_name["leaving"]["node"]) == ("Running", "node-5")
    assert (by_name["chooser"]["phase"], by_name["given-up"]["phase"]) == ("Pending", "Pending")
    assert by_name["given-up"]["reason"] is None


def test_what_is_odd_about_nodes_is_said_and_counts_as_nothing_free() -> None:
    """An unknown node, and more GPUs used than there are."""
    found = report(
        "simulate", "-f", "-", stdin=text(*CLUSTER, pod("lost", on="nowhere"), pod("fat", 9, on="node-5"))
    )
    assert [(entry["object"], entry["reason"]) for entry in found["conditions"]] == [
        ("Node/node-5", "InsufficientResources"),
        ("Node/nowhere", "InvalidSpec"),
    ]


def test_only_pods_of_the_named_scheduler_are_scheduled(golden: Golden) -> None:
    """Those of others stay pending without a reason, so that --strict does not count them."""
    manifests = text(*CLUSTER, pod("ours", schedulerName="closeby"), pod("theirs"))
    arguments = ("simulate", "-f", "-", "--scheduler-name")
    by_name = {entry["name"]: entry for entry in report(*arguments, "closeby", stdin=manifests)["pods"]}
    assert (by_name["ours"]["phase"], by_name["theirs"]["phase"]) == ("Scheduled", "Pending")
    golden("simulate", by_name["theirs"]["message"])
    assert closeby(*arguments, "closeby", "--strict", stdin=manifests).exit_code == 0
    by_name = {
        entry["name"]: entry for entry in report(*arguments, "default-scheduler", stdin=manifests)["pods"]
    }
    assert (by_name["ours"]["phase"], by_name["theirs"]["phase"]) == ("Pending", "Scheduled")


# Explanations


def test_explanations_are_there_when_asked_for() -> None:
    """Candidates in the order they were looked at, scores of nodes that pass, refusals of the others."""
    manifests = text(*CLUSTER, pod("old", 4, on="node-5"), *train(2, 6))
    assert "explain" not in report("simulate", "-f", "-", stdin=manifests)
    found = report("simulate", "--explain", "-f", "-", stdin=manifests)
    assert list(found)[5] == "explain"
    first = found["explain"][0]
    assert [entry["pod"] for entry in found["explain"]] == ["default/train-0", "default/train-1"]
    assert list(first) == ["pod", "candidates", "scores", "rejected", "buckets"]
    assert first["candidates"] == [
        {"domain": ["a", "r1"], "fits": 2, "wanted": 2, "blockedBy": {}},
        {"domain": ["a", "r2"], "fits": 2, "wanted": 2, "blockedBy": {}},
        {"domain": ["b", "r1"], "fits": 0, "wanted": 2, "blockedBy": {"InsufficientResources": 1}},
    ]
    assert sorted(first["scores"]) == ["node-1", "node-2", "node-3", "node-4"]
    assert all("total" in scores for scores in first["scores"].values())
    assert first["rejected"] == {
        "node-5": {
            "plugin": "NodeResourcesFit",
            "reason": "InsufficientResources",
            "message": f"{GPU}: requested 6, free 4",
        }
    }
    assert first["buckets"] is None


def test_of_many_nodes_the_best_are_explained_and_the_rest_counted() -> None:
    """210 nodes, of which 5 are too small; --explain=all leaves nothing out."""
    nodes = [node(f"n-{index}", {}, gpus=2 if index < 30 else 8) for index in range(210)]
    manifests = text(*nodes, pod("solo", 4))
    (some,) = report("simulate", "--explain", "-f", "-", stdin=manifests)["explain"]
    assert (len(some["scores"]), len(some["rejected"])) == (20, 20)
    assert some["rejectedBy"] == {"InsufficientResources": 30}
    (every,) = report("simulate", "--explain=all", "-f", "-", stdin=manifests)["explain"]
    assert (len(every["scores"]), len(every["rejected"])) == (180, 30)
    assert "rejectedBy" not in every


@pytest.mark.parametrize(
    ("strategy", "chosen", "runner_up"),
    [("binpack", {"domain": ["a", "r29"], "fits": 2}, 7), ("spread", {"domain": ["a", "r0"], "fits": 8}, 8)],
)
def test_the_chosen_domain_is_the_first_candidate_however_many_there_are(
    strategy: str, chosen: dict[str, object], runner_up: int
) -> None:
    """Thirty racks, one with room for two, one for seven: binpack takes the tightest, spread the emptiest."""
    cluster = racks({f"a/r{number}": 1 for number in range(30)})
    group, *members = train(2, 1)
    group["spec"]["placement"] = {"strategy": strategy}
    running = [pod("old", 6, on="node-30"), pod("small", 1, on="node-29")]
    found = report("simulate", "-f", "-", "--explain", stdin=text(*cluster, *running, group, *members))
    first, second, *others = found["explain"][0]["candidates"]
    assert first == {**chosen, "wanted": 2, "blockedBy": {}}
    assert second["fits"] == runner_up
    assert len(others) == 18


# Input


def test_the_order_of_files_and_documents_does_not_matter(tmp_path: Path) -> None:
    """Every order of four files, and documents turned round, give the same bytes."""
    parts = {
        "nodes": CLUSTER,
        "gangs": [*train(2, 6), *train(4, 2, name="other", required="zone")],
        "more": train(2, 8, name="last", required=None),
        "pods": [pod("old", 3, on="node-4"), pod("one"), pod("two", 2)],
    }
    for name, manifests in parts.items():
        (tmp_path / f"{name}.yaml").write_text(text(*manifests))
        (tmp_path / f"{name}-turned.yaml").write_text(text(*reversed(manifests)))
    outputs = set()
    for order in itertools.permutations(parts):
        for suffix in ("", "-turned"):
            files = [argument for name in order for argument in ("-f", tmp_path / f"{name}{suffix}.yaml")]
            outputs.add(closeby("simulate", *files, "--explain", "-o", "json").stdout_bytes)
    assert len(outputs) == 1


def test_folders_and_standard_input_together(tmp_path: Path) -> None:
    """Folders are read with all below them; other endings are left alone."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "nodes.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER})
    )
    (tmp_path / "notes.txt").write_text("not a manifest")
    found = report("simulate", "-f", tmp_path, "-f", "-", stdin=text(pod("solo")))
    assert [entry["phase"] for entry in found["pods"]] == ["Scheduled"]


def test_yaml_says_what_json_says() -> None:
    """The same keys in the same order."""
    manifests = text(*CLUSTER, *train(2, 6))
    shown = closeby("simulate", "-f", "-", "-o", "yaml", "--explain", stdin=manifests).stdout
    expected = report("simulate", "-f", "-", "--explain", stdin=manifests)
    assert yaml.safe_load(shown) == expected
    assert list(yaml.safe_load(shown)) == list(expected)


BROKEN = """\
apiVersion: v1
kind: Pod
metadata: {name: broken}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: 1x}}
"""


def test_an_unreadable_document_stops_the_run(tmp_path: Path) -> None:
    """Nothing on standard output; the error names file, document, line, object, field and remedy."""
    path = tmp_path / "pods.yaml"
    path.write_text(f"{text(*CLUSTER)}\n---\n{BROKEN}")
    result = closeby("simulate", "-f", path)
    assert (result.exit_code, result.stdout) == (2, "")
    for part in (
        str(path),
        f"document {len(CLUSTER) + 1}",
        "line",
        "Pod",
        "broken",
        "requests.cpu",
        "1x",
        ";",
    ):
        assert part in result.stderr
    assert "--keep-going" in result.stderr


def test_keep_going_uses_the_rest_and_reports_what_was_left_out(tmp_path: Path) -> None:
    """The error is on standard error and in the report."""
    path = tmp_path / "pods.yaml"
    path.write_text(f"{text(*CLUSTER, pod('fine'))}\n---\n{BROKEN}")
    result = closeby("simulate", "-f", path, "--keep-going", "-o", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [entry["name"] for entry in found["pods"]] == ["fine"]
    assert len(found["errors"]) == 1
    assert "1x" in found["errors"][0]
    assert "1x" in result.stderr


def test_keep_going_with_nothing_left_is_unusable_input(tmp_path: Path) -> None:
    """A report about nothing would hide the mistake."""
    path = tmp_path / "pods.yaml"
    path.write_text(BROKEN)
    result = closeby("simulate", "-f", path, "--keep-going")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "-f"),
        (("-f", "no/such/file.yaml"), "no/such/file.yaml"),
        (("-f", "-", "-o", "xml"), "xml"),
        (("-f", "-", "--explain=much"), "much"),
        (("-f", "-", "--config", "no-such-config"), "no-such-config"),
        (("-f", "-", "--no-such-option"), "--no-such-option"),
    ],
)
def test_unusable_arguments_exit_with_2(arguments: tuple[str, ...], said: str) -> None:
    """And say which argument it was."""
    result = closeby("simulate", *arguments, stdin=text(*CLUSTER))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_an_unknown_plugin_is_an_error_with_its_line(tmp_path: Path) -> None:
    """Found only when the plugins are made, reported like any other mistake in the file."""
    path = tmp_path / "closeby.yaml"
    path.write_text("plugins:\n  - name: NodeName\n  - name: NodeNam\n")
    result = closeby("simulate", "-f", "-", "--config", path, stdin=text(*CLUSTER))
    assert result.exit_code == 2
    assert f"{path}:3" in result.stderr
    assert "NodeNam" in result.stderr


def test_the_report_names_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("plugins: []")
    manifests = text(*racks({"a/r1": 1}), pod("solo"))
    for name in ("", "kube-scheduler", str(file)):
        arguments = ("simulate", "-f", "-", *(("--config", name) if name else ()))
        assert report(*arguments, stdin=manifests)["configuration"] == (name or "default")
        shown = "".join(closeby(*arguments, stdin=manifests).stdout.split())
        assert (f"Configuration:{name}." in shown) == bool(name)


def test_a_configuration_changes_what_is_chosen(tmp_path: Path) -> None:
    """The default fills the host in use, LeastAllocated takes an empty one."""
    manifests = text(*CLUSTER, pod("old", 1, on="node-4"), pod("new", 1))
    path = tmp_path / "closeby.yaml"
    strategy = f"{{type: LeastAllocated, resources: [{{name: {GPU}, weight: 1}}]}}"
    path.write_text(f"plugins:\n  - name: NodeResourcesFit\n    arguments: {{scoringStrategy: {strategy}}}\n")
    packed = {
        entry["name"]: entry["node"] for entry in report("simulate", "-f", "-", stdin=manifests)["pods"]
    }
    spread = {
        entry["name"]: entry["node"]
        for entry in report("simulate", "-f", "-", "--config", path, stdin=manifests)["pods"]
    }
    assert spread["new"] != "node-4"
    assert packed["new"] == "node-4"


def test_strict_exits_with_3_after_printing_the_report() -> None:
    """And with 0 when all is placed."""
    waiting = closeby("simulate", "-f", "-", "--strict", stdin=text(*CLUSTER, *train(3, 8)))
    assert waiting.exit_code == 3
    assert "TopologyPlacementFailed" in waiting.stdout
    assert closeby("simulate", "-f", "-", "--strict", stdin=text(*CLUSTER, *train(2, 8))).exit_code == 0
    assert closeby("simulate", "-f", "-", stdin=text(*CLUSTER, *train(3, 8))).exit_code == 0


# The table


def test_the_table_tells_all_in_80_columns_and_without_colours(golden: Golden) -> None:
    """Equal pods on one node share a line; nothing is cut off; no escape codes when piped."""
    manifests = text(
        *CLUSTER, *train(8, 1), *train(3, 8, name="big"), pod("solo", 8), pod("old", on="node-5")
    )
    result = closeby("simulate", "-f", "-", stdin=manifests, environment={"COLUMNS": "80"})
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout
    for part in (
        "train-0..7",
        "×8",
        "a/r1/node-1",
        "solo",
        "big",
        "GangDoesNotFit",
        "2 of 3 pods fit",
    ):
        assert part in " ".join(result.stdout.split())
    golden("simulate", result.stdout)


def test_gangs_by_nature_are_said_once(tmp_path: Path, golden: Golden) -> None:
    """Two jobs that ask for nothing, and one that opts out."""
    template = "{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}"
    node = "{kind: Node, apiVersion: v1, metadata: {name: n}, status: {allocatable: {cpu: 8, pods: 9}}}"
    spec = f"spec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 2, template: {template}}}}}}}"
    jobs = [
        f"{{kind: PyTorchJob, apiVersion: kubeflow.org/v1, metadata: {metadata}, {spec}}}"
        for metadata in (
            "{name: a}",
            "{name: b}",
            "{name: c, annotations: {closeby.dev/gang: 'false'}}",
        )
    ]
    path = tmp_path / "jobs.yaml"
    path.write_text("\n---\n".join([node, *jobs]))
    found = report("simulate", "-f", path)
    assert {one["name"]: one["byNature"] for one in found["groups"]} == {"a": "PyTorchJob", "b": "PyTorchJob"}
    table = closeby("simulate", "-f", path).stdout
    golden("simulate", table)
    explained = closeby("explain", "podgroup/a", "-f", path).stdout
    golden("simulate", explained)


def test_a_scheduler_that_no_pending_pod_names_is_said_and_strict_minds_it() -> None:
    given = text(*CLUSTER, *train(2, 8))
    result = closeby("simulate", "-f", "-", "--strict", "-o", "json", "--scheduler-name", "nope", stdin=given)
    assert result.exit_code == 3
    [notice] = json.loads(result.stdout)["conditions"]
    assert (notice["object"], notice["field"]) == ("Scheduler/nope", "spec.schedulerName")
    assert "default-scheduler" in notice["message"]
    assert closeby("simulate", "-f", "-", "--scheduler-name", "nope", stdin=given).exit_code == 0


@pytest.mark.parametrize("given", [text(*train(2, 8)), "# nothing\n---\n"])
def test_input_without_any_node_names_the_command_that_prints_nodes(given: str) -> None:
    [notice] = report("simulate", "-f", "-", stdin=given)["conditions"]
    assert notice["object"] == "Node"
    assert "kubectl get nodes" in notice["remedy"]
    assert not report("simulate", "-f", "-", stdin=text(*CLUSTER, *train(2, 8)))["conditions"]
