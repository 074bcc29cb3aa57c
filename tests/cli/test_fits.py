"""`closeby topology --fits`: how many gangs of one size each level could take, now and if it were empty."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import GPU, Manifest, closeby, node, pod, racks, report, text


# zone a: rack 1 (3 hosts), rack 2 (2 hosts)    zone b: rack 3 (4 hosts), each with 8 GPUs
# node-1 has 4 GPUs in use, node-4 all, node-6 two
def cluster() -> list[Manifest]:
    return [
        *racks({"a/1": 3, "a/2": 2, "b/3": 4}),
        pod("p1", 4, on="node-1"),
        pod("p2", 8, on="node-4"),
        pod("p3", 2, on="node-6"),
    ]


def fits(size: str, *manifests: Manifest, more: tuple[str, ...] = ()) -> Any:
    return report("topology", "-f", "-", "--fits", size, *more, stdin=text(*manifests))["fits"]


def levels(fit: Any) -> dict[str | None, tuple[int, int]]:
    [topology] = fit["topologies"]
    return {one["level"]: (one["gangs"], one["gangsIfEmpty"]) for one in topology["levels"]}


def test_gangs_that_each_level_takes_now_and_if_it_were_empty() -> None:
    [fit] = fits("2x8", *cluster())

    # Whole nodes are free: rack 1 has two, rack 2 one, rack 3 three.
    assert levels(fit) == {None: (3, 4), "zone": (2, 4), "rack": (2, 4), "hostname": (0, 0)}
    assert (fit["resource"], fit["pods"], fit["needs"]) == (GPU, 2, {GPU: 8})


def test_a_node_takes_as_many_pods_as_each_of_them_finds_whole_room() -> None:
    [fit] = fits("4x3", *cluster())

    [topology] = fit["topologies"]
    [rack] = [one for one in topology["levels"] if one["level"] == "rack"]
    # 4 of 8 free take one pod of 3, 8 free take two.
    assert [(one["path"], one["pods"], one["podsIfEmpty"]) for one in rack["places"]] == [
        (["a", "1"], 5, 6),
        (["a", "2"], 2, 4),
        (["b", "3"], 8, 8),
    ]
    assert levels(fit)["rack"] == (3, 4)


def test_other_resources_of_a_pod_count_too() -> None:
    [fit] = fits("1x1,cpu=16", *cluster())

    assert levels(fit)["hostname"] == (16, 18)
    assert fit["needs"] == {GPU: 1, "cpu": 16}


@pytest.mark.parametrize(
    ("size", "too_little"),
    [
        ("1x8", None),
        ("1x16", {GPU: 8}),
        ("1x8,nic=1", {}),
        ("1x16,nic=1", {GPU: 8}),
        ("1x1,nic=2", {"nic": 1}),
    ],
)
def test_where_no_node_takes_such_a_pod_what_they_have_too_little_of_is_said(
    size: str, too_little: dict[str, int] | None
) -> None:
    """One node has network cards, and no accelerators."""
    cards = node("bare", {}, 0)
    cards["status"]["allocatable"]["nic"] = "1"
    [fit] = fits(size, *cluster(), cards)
    assert fit["tooLittle"] == too_little


def test_nodes_that_are_left_out_have_nothing() -> None:
    given = cluster()
    for one in given:
        if one["kind"] == "Node":
            one["spec"] = {"unschedulable": True}
    [fit] = fits("1x8", *given, node("bare", {}, 0))
    assert fit["tooLittle"] == {GPU: 0}


def test_nodes_that_take_no_pods_are_left_out() -> None:
    given = cluster()
    cordoned, tainted, dedicated = (
        one for one in given if one["metadata"]["name"] in ("node-7", "node-8", "node-9")
    )
    cordoned["spec"] = {"unschedulable": True}
    tainted["spec"] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
    dedicated["spec"] = {"taints": [{"key": GPU, "effect": "NoSchedule"}]}

    [fit] = fits("1x8", *given)

    assert (fit["leftOut"], fit["leftOutBy"]) == (2, {"cordoned": 1, "taint team": 1})
    assert fit["tolerated"] == 1
    assert levels(fit)["hostname"] == (4, 7)


def test_the_toleration_that_admission_adds_is_a_setting(tmp_path: Path) -> None:
    given = cluster()
    [dedicated] = [one for one in given if one["metadata"]["name"] == "node-9"]
    dedicated["spec"] = {"taints": [{"key": GPU, "effect": "NoSchedule"}]}
    configuration = tmp_path / "config.yaml"
    configuration.write_text("extendedResourceToleration: false")

    [fit] = fits("1x8", *given, more=("--config", str(configuration)))

    assert (fit["tolerated"], fit["leftOutBy"]) == (0, {f"taint {GPU}": 1})


def test_a_footnote_says_which_nodes_are_left_out_and_how_to_use_them() -> None:
    given = cluster()
    cordoned, tainted = (one for one in given if one["metadata"]["name"] in ("node-7", "node-8"))
    cordoned["spec"] = {"unschedulable": True}
    tainted["spec"] = {"taints": [{"key": "team", "effect": "NoSchedule"}]}

    shown = closeby("topology", "-f", "-", "--fits", "1x8", stdin=text(*given)).stdout

    _, _, footnote = " ".join(shown.split()).partition("2 nodes are left out")
    assert all(one in footnote for one in ("1 cordoned", "1 taint team", "kubectl uncordon"))


def test_a_node_without_the_label_is_no_rack() -> None:
    [fit] = fits("1x8", *cluster(), node("lonely", {}))

    [topology] = fit["topologies"]
    assert {one["level"]: one["domains"] for one in topology["levels"]} == {
        None: 1,
        "zone": 2,
        "rack": 3,
        "hostname": 10,
    }
    assert levels(fit)[None] == (7, 10)
    assert levels(fit)["rack"] == (6, 9)


def test_each_accelerator_that_nodes_offer_is_counted_unless_one_is_named() -> None:
    other = node("tpu-1", {"example.com/zone": "b", "example.com/rack": "3"}, 0)
    other["status"]["allocatable"]["google.com/tpu"] = "4"
    given = [*cluster(), other]

    assert {one["resource"]: levels(one)[None] for one in fits("1x4", *given)} == {
        GPU: (14, 18),
        "google.com/tpu": (1, 1),
    }
    [fit] = fits("1x4", *given, more=("--resource", "google.com/tpu"))
    assert fit["resource"] == "google.com/tpu"


def test_one_level_lists_its_domains() -> None:
    shown = closeby("topology", "-f", "-", "--fits", "2x8", "--level", "rack", stdin=text(*cluster())).stdout

    assert [line.split() for line in shown.splitlines() if line.strip().startswith(("a/", "b/"))] == [
        ["a/1", "2", "1", "1"],
        ["a/2", "1", "0", "1"],
        ["b/3", "3", "1", "2"],
    ]


@pytest.mark.parametrize(
    "size",
    [
        "8",
        "8x",
        "x8",
        "0x8",
        "8x0",
        "-1x8",
        "8x8x8",
        "8x8,cpu",
        "8x8,=4",
        "8x1.5",
        "8x9999999",
        "8x" + "9" * 5000,
        "",
    ],
)
def test_what_is_no_size_is_refused_with_an_example(size: str) -> None:
    result = closeby("topology", "-f", "-", "--fits", size, stdin=text(*cluster()))

    assert result.exit_code == 2
    assert "8x8,cpu=16,memory=64Gi" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--fits", "8x8", "--resource", "amd.com/gpu"), "amd.com/gpu"),
        (("--fits", "8x8,fpga=1"), "fpga"),
        (("--fits", "8x8,cpu=many"), "many"),
        (("--fits", "8x8,cpu=0"), "cpu=0"),
        (("--fits", f"8x8,{GPU}=2"), f"{GPU}=2"),
        (("--resource", GPU), "--fits"),
    ],
)
def test_resources_that_can_not_be_counted_are_named(arguments: tuple[str, ...], named: str) -> None:
    result = closeby("topology", "-f", "-", *arguments, stdin=text(*cluster()))

    assert result.exit_code == 2
    assert named in result.stderr


def test_a_cluster_without_accelerators_asks_for_a_resource() -> None:
    bare = node("n1", {}, 0)
    del bare["status"]["allocatable"][GPU]

    assert "--resource" in closeby("topology", "-f", "-", "--fits", "2x4", stdin=text(bare)).stderr
    [fit] = fits("2x4", bare, more=("--resource", "cpu"))
    assert levels(fit) == {None: (4, 4), "hostname": (4, 4)}


def test_a_share_of_a_device_is_no_device() -> None:
    host = node("shared", {})
    host["status"]["allocatable"] |= {"volcano.sh/vgpu-memory": "800", "nvidia.com/gpu.shared": "80"}
    assert [one["resource"] for one in fits("1x8", host)] == [GPU]
    asked = "1x8,volcano.sh/vgpu-memory=10"
    refused = closeby("topology", "-f", "-", "--fits", asked, stdin=text(host))
    assert (refused.exit_code, "volcano.sh/vgpu-memory" in refused.stderr) == (2, True)
