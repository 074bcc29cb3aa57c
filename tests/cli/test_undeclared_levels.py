"""Labels of nodes that look like a topology which no object declares: a notice with the command that does."""

from typing import Any

import pytest

from tests.cli.calling import Manifest, closeby, gang, node, pod, report, text

ZONE, RACK, ROW = "topology.kubernetes.io/zone", "example.com/rack", "dc.example.com/row-id"
NETWORK, CSI = "network.topology.kubernetes.io/block", "topology.ebs.csi.aws.com/zone"
OWN_RACK = "topology.kubernetes.io/rack"


def nodes(*keys: str, count: int = 8) -> list[Manifest]:
    """Rows of four nodes with two racks each, all in one of two zones, with these labels."""
    values = {ROW: 4, RACK: 2, OWN_RACK: 2, ZONE: 4, CSI: 4, NETWORK: 4, "example.com/blocks": 1}
    return [
        node(f"n-{i}", {key: f"{key[:2]}-{i // values.get(key, count + 1)}" for key in keys})
        for i in range(count)
    ]


def manifests(*keys: str) -> str:
    return text(*nodes(*keys), gang("train", 2), *(pod(f"train-{i}", 8, gang="train") for i in range(2)))


def hints(stdin: str, *command: str) -> list[dict[str, Any]]:
    found = report(*command, "-f", "-", stdin=stdin)["conditions"]
    return [one for one in found if one["object"] == "Topology"]


@pytest.mark.parametrize("command", [("simulate",), ("explain", "train"), ("topology",)])
@pytest.mark.parametrize(
    ("keys", "levels"),
    [
        ((RACK,), [RACK]),
        ((ROW, RACK), [RACK, ROW]),
        ((ZONE, RACK), [RACK]),
        ((OWN_RACK,), [OWN_RACK]),
        ((OWN_RACK, RACK), [RACK]),
    ],
)
def test_the_command_that_writes_one_is_named(
    command: tuple[str, ...], keys: tuple[str, ...], levels: list[str]
) -> None:
    (hint,) = hints(manifests(*keys), *command)
    assert (hint["reason"], hint["blocking"]) == ("TopologyNotFound", False)
    assert f"closeby discover labels --key {','.join(levels)} -o topology" in hint["remedy"]


def test_the_command_writes_what_makes_the_hint_go_away() -> None:
    stdin = manifests(ROW, RACK)
    written = closeby(
        "discover", "labels", "--key", f"{RACK},{ROW}", "-o", "topology", "-f", "-", stdin=stdin
    )
    assert written.exit_code == 0
    assert hints(f"{stdin}\n---\n{written.stdout}", "simulate") == []


@pytest.mark.parametrize(
    "keys",
    [
        (),
        (ZONE,),
        (NETWORK, RACK),
        # One value for all nodes, and one for each.
        ("example.com/block", "example.com/blocks"),
        # The same as the zone.
        (ZONE, CSI),
        ("example.com/team",),
    ],
)
def test_other_labels_are_no_matter(keys: tuple[str, ...]) -> None:
    assert hints(manifests(*keys), "simulate") == []


def test_labels_of_few_nodes_and_labels_that_do_not_nest_are_left_out() -> None:
    few = [*nodes(RACK, count=4), *({**one, "metadata": {"name": f"x-{i}"}} for i, one in enumerate(nodes()))]
    assert hints(text(*few), "simulate") == []
    crossing = [
        node(f"n-{i}", {RACK: f"r-{i // 2}", "example.com/switch": f"s-{i % 2}", ROW: f"w-{i // 4}"})
        for i in range(8)
    ]
    (hint,) = hints(text(*crossing), "simulate")
    assert f"--key {RACK}," in hint["remedy"]


def test_a_topology_object_answers_it() -> None:
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"nodeLabel": ROW}]},
    }
    assert hints(f"{manifests(ROW, RACK)}\n---\n{text(topology)}", "simulate") == []
