"""`closeby topology`: sums, what it shows before and after scheduling, and how parts of it are asked for."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.calling import GPU, Manifest, closeby, gang, node, pod, racks, report, text, train
from tests.golden.fixture import Golden

CLUSTER = racks({"a/r1": 2, "a/r2": 1, "b/r1": 1})


def test_domains_from_the_cluster_down_to_nodes() -> None:
    """One gang of two runs in a/r1, a single pod on node-4."""
    running = [
        gang("old", 2),
        *(pod(f"old-{n}", 3, gang="old", on=f"node-{n}") for n in (1, 2)),
        pod("p", on="node-4"),
    ]
    found = report("topology", "-f", "-", stdin=text(*CLUSTER, *running))
    assert (found["kind"], found["mainResources"]) == ("TopologyReport", [GPU])
    (fabric,) = found["topologies"]
    assert [(level["name"], level["domains"]) for level in fabric["levels"]] == [
        ("zone", 2),
        ("rack", 3),
        ("hostname", 4),
    ]
    lines = [
        ("/".join(one["path"]), one["nodes"], one["used"][GPU], one["free"][GPU]) for one in fabric["domains"]
    ]
    assert lines == [
        ("", 4, 7, 25),
        ("a", 3, 6, 18),
        ("a/r1", 2, 6, 10),
        ("a/r1/node-1", 1, 3, 5),
        ("a/r1/node-2", 1, 3, 5),
        ("a/r2", 1, 0, 8),
        ("a/r2/node-3", 1, 0, 8),
        ("b", 1, 1, 7),
        ("b/r1", 1, 1, 7),
        ("b/r1/node-4", 1, 1, 7),
    ]
    whole = fabric["domains"][0]
    assert (whole["gangs"], whole["singlePods"]) == ([{"gang": "default/old", "pods": 2}], 1)
    assert whole["capacity"] == {"cpu": 128, "memory": 256 << 30, GPU: 32}


def children_of(domains: list[Any], path: list[Any]) -> list[Any]:
    """Domains one level below."""
    return [one for one in domains if len(one["path"]) == len(path) + 1 and one["path"][: len(path)] == path]


@settings(max_examples=30)
@given(
    sizes=st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from("12345")), st.integers(1, 4), min_size=1
    ),
    running=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=12),
)
def test_every_domain_is_the_sum_of_those_inside_it(
    sizes: dict[tuple[str, str], int], running: list[tuple[int, int]]
) -> None:
    """Also with overcommitted nodes: those count as having nothing free."""
    cluster = racks({f"{zone}/{rack}": count for (zone, rack), count in sizes.items()})
    hosts = sum(sizes.values())
    pods = [pod(f"p-{n}", gpus, on=f"node-{1 + at % hosts}") for n, (at, gpus) in enumerate(running)]
    (fabric,) = report("topology", "-f", "-", stdin=text(*cluster, *pods))["topologies"]
    domains = fabric["domains"]
    for domain in domains:
        inside = children_of(domains, domain["path"])
        if not inside:
            assert domain["level"] == "hostname"
            assert domain["free"][GPU] == max(domain["capacity"][GPU] - domain["used"][GPU], 0)
            continue
        for field in ("capacity", "used", "free"):
            for resource, amount in domain[field].items():
                assert amount == sum(one[field][resource] for one in inside)
        for field in ("nodes", "singlePods", "unavailable"):
            assert domain[field] == sum(one[field] for one in inside)
    assert domains[0]["used"][GPU] == sum(gpus for _, gpus in running)


def test_it_shows_the_files_unless_asked_for_the_state_after_scheduling() -> None:
    manifests = text(*CLUSTER, *train(2, 8))
    before = report("topology", "-f", "-", stdin=manifests)["topologies"][0]["domains"]
    after = report("topology", "-f", "-", "--after", stdin=manifests)["topologies"][0]["domains"]
    assert (before[0]["used"][GPU], after[0]["used"][GPU]) == (0, 16)
    assert [one["gangs"] for one in after if one["path"] == ["a", "r1"]] == [
        [{"gang": "default/train", "pods": 2}]
    ]


def test_nodes_that_take_no_pod_are_counted_and_have_nothing_free() -> None:
    cordoned = node("node-9", {"example.com/zone": "b", "example.com/rack": "r1"})
    cordoned["spec"] = {"unschedulable": True}
    domains = report("topology", "-f", "-", "--level", "zone", stdin=text(*CLUSTER, cordoned))["topologies"][
        0
    ]
    (_, b) = domains["domains"]
    assert (b["nodes"], b["unavailable"], b["capacity"][GPU], b["free"][GPU]) == (2, 1, 16, 8)


def test_nodes_without_a_label_are_flagged_and_lie_alone(golden: Golden) -> None:
    stray = node("stray", {"example.com/zone": "a"})
    manifests = text(*CLUSTER, stray)
    (fabric,) = report("topology", "-f", "-", stdin=manifests)["topologies"]
    assert fabric["unlabelled"] == [{"node": "stray", "missing": ["example.com/rack"]}]
    assert [one["path"] for one in fabric["domains"] if not one["labelled"]] == [["a", None]]
    golden("topology", closeby("topology", "-f", "-", stdin=manifests).stdout)


def test_nodes_without_a_level_share_one_line_where_that_level_is_shown(golden: Golden) -> None:
    """Three nodes of zone a have no rack, one lacks both labels; 5 GPUs of one are in use."""
    strays = [node(f"stray-{number}", {"example.com/zone": "a"}) for number in range(3)]
    manifests = text(*CLUSTER, *strays, node("lost", {}), pod("p", 5, on="stray-1"))
    (fabric,) = report("topology", "-f", "-", "--level", "rack", stdin=manifests)["topologies"]
    assert sum(not one["labelled"] for one in fabric["domains"]) == 4
    golden("topology", closeby("topology", "-f", "-", "--level", "rack", stdin=manifests).stdout)


def test_depth_and_level_show_less() -> None:
    manifests = text(*CLUSTER)

    def levels(*arguments: str) -> list[str | None]:
        (fabric,) = report("topology", "-f", "-", *arguments, stdin=manifests)["topologies"]
        return list(dict.fromkeys(one["level"] for one in fabric["domains"]))

    assert levels("--depth", "0") == [None]
    assert levels("--depth", "2") == [None, "zone", "rack"]
    assert levels("--level", "rack") == levels("--level", "example.com/rack") == ["rack"]
    assert levels("--level", "hostname") == ["hostname"]


def second_topology() -> Manifest:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "rows"},
        "spec": {"levels": [{"nodeLabel": "example.com/row"}]},
    }


def test_topologies_lie_side_by_side_and_can_be_named() -> None:
    manifests = text(*CLUSTER, second_topology())
    assert [one["name"] for one in report("topology", "-f", "-", stdin=manifests)["topologies"]] == [
        "fabric",
        "rows",
    ]
    (chosen,) = report("topology", "-f", "-", "--topology", "rows", stdin=manifests)["topologies"]
    assert chosen["name"] == "rows"
    (having,) = report("topology", "-f", "-", "--level", "rack", stdin=manifests)["topologies"]
    assert having["name"] == "fabric"


def test_without_a_topology_all_nodes_lie_side_by_side() -> None:
    manifests = text(node("n-1", {}), node("n-2", {}))
    (flat,) = report("topology", "-f", "-", stdin=manifests)["topologies"]
    assert [one["path"] for one in flat["domains"]] == [[], ["n-1"], ["n-2"]]
    assert "No topology is declared" in closeby("topology", "-f", "-", stdin=manifests).stdout


def test_unknown_names_are_unusable_arguments() -> None:
    for arguments, known in (
        (("--topology", "fabrik"), "fabric"),
        (("--level", "row"), "zone, rack, hostname"),
    ):
        result = closeby("topology", "-f", "-", *arguments, stdin=text(*CLUSTER))
        assert (result.exit_code, result.stdout) == (2, "")
        assert known in result.stderr


def test_a_disabled_topology_is_said_to_be_so() -> None:
    wrong = second_topology()
    wrong["spec"]["levels"] = []
    result = closeby("topology", "-f", "-", "--topology", "rows", stdin=text(*CLUSTER, wrong))
    assert result.exit_code == 2
    assert "rows" in result.stderr


def test_the_table_shows_bars_numbers_and_who_runs_where() -> None:
    manifests = text(*CLUSTER, gang("old", 1), pod("old-0", 4, gang="old", on="node-4"))
    result = closeby("topology", "-f", "-", stdin=manifests, environment={"COLUMNS": "80"})
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    (line,) = [line for line in result.stdout.splitlines() if "node-4" in line]
    assert line.split() == ["node-4", "1", "████░░░░", "4/8", "4", "old", "(1)"]


def test_a_level_may_be_named_by_the_end_of_its_label_where_one_alone_ends_so() -> None:
    levels = [{"nodeLabel": f"example.com/topology-{one}"} for one in ("block", "rack")]
    cluster = [
        {**CLUSTER[0], "spec": {"levels": levels}},
        node("n", {f"example.com/topology-{one}": "x" for one in ("block", "rack")}),
    ]
    (fabric,) = report("topology", "--level", "rack", "-f", "-", stdin=text(*cluster))["topologies"]
    assert [one["path"] for one in fabric["domains"]] == [["x", "x"]]
    levels.insert(1, {"nodeLabel": "example.com/half-rack"})
    refused = closeby("topology", "--level", "rack", "-f", "-", stdin=text(*cluster))
    assert refused.exit_code == 2
    assert "example.com/half-rack or example.com/topology-rack" in refused.stderr
