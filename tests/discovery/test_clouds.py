"""What AWS, Google and Oracle print of their hosts, as findings."""

import json
from pathlib import Path

import pytest

from closeby.discovery.clouds import read_aws, read_gcp, read_oci
from closeby.discovery.findings import ScanFindings
from closeby.discovery.places import read_names
from closeby.errors import UnreadableError
from tests.cli.calling import closeby
from tests.golden.fixture import Golden

AWS = {
    "Instances": [
        {
            "InstanceId": "i-1",
            "InstanceType": "p5.48xlarge",
            "NetworkNodes": ["nn-1", "nn-2", "nn-4"],
            "AvailabilityZone": "us-west-2a",
            "ZoneId": "usw2-az2",
            "CapacityBlockId": None,
        },
        {"InstanceId": "i-2", "NetworkNodes": ["nn-1", "nn-2", "nn-5"], "CapacityBlockId": "cbr-7"},
    ]
}
GCP = [
    {
        "name": "gpu-1",
        "id": "123",
        "resourceStatus": {
            "physicalHostTopology": {"cluster": "c", "block": "b", "subblock": "s1", "host": "h1"}
        },
    },
    {"name": "gpu-2", "resourceStatus": {"physicalHostTopology": {"cluster": "c", "block": "b"}}},
    {"name": "cpu-1", "resourceStatus": {}},
]
OCI = {
    "data": {
        "items": [
            {
                "id": "ocid1.computebaremetalhost.1",
                "instance-id": "ocid1.instance.1",
                "local-block-id": "lb-1",
                "network-block-id": "nb-1",
                "hpc-island-id": "hi-1",
                "gpu-memory-fabric-id": "gf-1",
                "additional-data": {"locationDetails": {"rack": "r7"}},
            },
            {"id": "ocid1.computebaremetalhost.2", "instance-id": None, "local-block-id": "lb-1"},
        ]
    }
}


def paths(findings: ScanFindings) -> dict[str, tuple[str | None, ...]]:
    return {name: node.path for name, node in findings.nodes.items()}


def test_aws_lists_network_nodes_from_the_root() -> None:
    findings = read_aws("f", json.dumps(AWS))
    assert findings.levels == ("accelerator", "block", "datacenter", "zone")
    assert paths(findings) == {
        "i-1": (None, "nn-4", "nn-2", "nn-1"),
        "i-2": ("cbr-7", "nn-5", "nn-2", "nn-1"),
    }


def test_an_aws_instance_with_four_layers_moves_none_with_three(golden: Golden) -> None:
    #       root
    #       mid
    #   low     high
    #   i-3     highest
    #             i-4
    instances = [
        {"InstanceId": "i-3", "NetworkNodes": ["root", "mid", "low"]},
        {"InstanceId": "i-5", "NetworkNodes": None},
        {"InstanceId": "i-4", "NetworkNodes": ["root", "mid", "high", "highest"]},
    ]
    alone = read_aws("f", json.dumps({"Instances": instances[:2]}))
    findings = read_aws("f", json.dumps({"Instances": instances}))
    assert alone.nodes["i-3"] == findings.nodes["i-3"]
    assert paths(findings) == {
        "i-3": ("low", "mid", "root"),
        "i-4": ("highest", "high", "mid"),
        "i-5": (),
    }
    said = [one.message for one in findings.warnings]
    golden("discover", said[0])
    golden("discover", said[1])
    assert "has 4 levels" in said[2]


def test_aws_pages_are_joined_and_a_missing_one_is_reported() -> None:
    pages = [{"Instances": [one]} for one in AWS["Instances"]]
    assert list(read_aws("f", json.dumps(pages)).nodes) == ["i-1", "i-2"]
    cut = read_aws("f", json.dumps({**AWS, "NextToken": "more"}))
    assert "there are more hosts" in cut.warnings[0].message


def test_gcp_gives_subblock_block_and_cluster() -> None:
    findings = read_gcp("f", json.dumps(GCP))
    assert paths(findings) == {"cpu-1": (), "gpu-1": ("s1", "b", "c"), "gpu-2": (None, "b", "c")}
    assert read_gcp("f", json.dumps({"items": GCP})).nodes == findings.nodes


def test_oci_gives_blocks_the_island_and_the_memory_fabric(golden: Golden) -> None:
    findings = read_oci("f", json.dumps(OCI))
    assert paths(findings) == {"ocid1.instance.1": ("gf-1", "lb-1", "nb-1", "hi-1")}
    assert findings.nodes["ocid1.instance.1"].labels["accelerator.topograph.run/sub-domain"] == "gf-1.r7"
    golden("discover", findings.warnings[0].message)


def test_oci_keys_of_the_api_and_of_a_single_host_are_read_too() -> None:
    host = {"instanceId": "i", "localBlockId": "l", "networkBlockId": "n", "hpcIslandId": "h"}
    assert paths(read_oci("f", json.dumps({"data": host}))) == {"i": ("l", "n", "h")}
    bare = {"instance-id": "i", "compute-local-block-id": "l", "compute-network-block-id": "n"}
    assert paths(read_oci("f", json.dumps({"data": [bare]}))) == {"i": ("l", "n")}


def test_an_identifier_that_is_no_label_value_is_hashed() -> None:
    block = "ocid1.computenetworkblock.oc1.eu-frankfurt-1." + "a" * 60
    findings = read_oci("f", json.dumps({"data": [{"instance-id": "i", "local-block-id": block}]}))
    label = findings.nodes["i"].labels["network.topology.kubernetes.io/block"]
    assert label.startswith("x")
    assert len(label) <= 17
    assert findings.warnings[0].object.startswith("Switch/ocid1.computenetworkblock")


@pytest.mark.parametrize("reader", [read_aws, read_gcp, read_oci])
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "3", '"a"', "[[]]", "[3]", '{"Instances": 3}', "[{}]", '{"data": 3}']
)
def test_what_is_something_else_is_refused(reader: object, text: str) -> None:
    assert callable(reader)
    with pytest.raises(UnreadableError):
        reader("f", text)


def test_node_names_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "aws.json").write_text(json.dumps(AWS))
    (tmp_path / "names").write_text("# comment\ni-1 node-1\ni-2=node-2\n")
    result = closeby(
        "discover", "aws", tmp_path / "aws.json", "--node-names", tmp_path / "names", "-o", "json"
    )
    assert result.exit_code == 0
    assert list(json.loads(result.stdout)["nodes"]) == ["node-1", "node-2"]


@pytest.mark.parametrize(("text", "line"), [("a\n", 1), ("a b\na c\n", 2), ("\na b c d\n", 2)])
def test_a_file_of_names_that_makes_no_sense_is_refused(text: str, line: int) -> None:
    with pytest.raises(UnreadableError, match=f":{line}:"):
        read_names("names", text)


def test_a_topology_object_names_the_accelerator_as_its_finest_level(tmp_path: Path) -> None:
    (tmp_path / "aws.json").write_text(json.dumps(AWS))
    result = closeby("discover", "aws", tmp_path / "aws.json", "-o", "topology")
    assert [line.split("/")[-1] for line in result.stdout.splitlines() if "nodeLabel" in line] == [
        "zone",
        "datacenter",
        "block",
        "accelerator",
        "hostname",
    ]


def test_accelerators_that_span_several_blocks_are_a_topology_of_their_own(tmp_path: Path) -> None:
    instances = [
        {"InstanceId": f"i-{one}", "NetworkNodes": ["r", f"l{one}"], "CapacityBlockId": "c"} for one in (1, 2)
    ]
    (tmp_path / "aws.json").write_text(json.dumps({"Instances": instances}))
    result = closeby("discover", "aws", tmp_path / "aws.json", "-o", "topology")
    assert [line.split("/")[-1] for line in result.stdout.splitlines() if "nodeLabel" in line] == [
        "datacenter",
        "block",
        "hostname",
        "accelerator",
        "hostname",
    ]
    assert "name: network-accelerator" in result.stdout
