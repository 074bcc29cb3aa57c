"""`closeby discover ibnetdiscover` as a user calls it."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.calling import closeby, report
from tests.discovery.drawing_fabrics import FAT_TREE, UPLINKS, Drawing
from tests.golden.fixture import Golden
from tests.real_input import shared_data

PREFIX = "network.topology.kubernetes.io/"
TEXT = Drawing(FAT_TREE, UPLINKS).text()


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    path = tmp_path / "scan.txt"
    path.write_text(TEXT)
    return path


def test_json(scan: Path) -> None:
    found = report("discover", "ibnetdiscover", scan)
    assert list(found) == ["levels", "nodes", "links", "planes", "warnings"]
    assert found["levels"] == ["block", "datacenter"]
    assert found["nodes"]["n1"] == {
        "path": ["L1", "S1"],
        "labels": {f"{PREFIX}block": "L1", f"{PREFIX}datacenter": "S1"},
        "qos": {"L1": {"latency": None, "bandwidth": 400_000_000_000, "uplinks": 2}},
    }
    assert found["links"][0] == {
        "a": "L1",
        "b": "S1",
        "cables": 1,
        "width": "4x",
        "speed": "HDR",
        "bandwidth": 200_000_000_000,
    }
    assert found["warnings"] == []


def test_standard_input_and_yaml(scan: Path) -> None:
    printed = closeby("discover", "ibnetdiscover", "-", "-o", "yaml", stdin=TEXT)
    assert yaml.safe_load(printed.stdout) == report("discover", "ibnetdiscover", scan)


def test_labels_are_partial_nodes(scan: Path) -> None:
    arguments = ("-o", "labels", "--labels", "a.com/leaf,a.com/spine")
    printed = closeby("discover", "ibnetdiscover", scan, *arguments, "--no-qos")
    assert next(iter(yaml.safe_load_all(printed.stdout))) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"a.com/leaf": "L1", "a.com/spine": "S1"}},
    }


def test_partial_nodes_have_names_that_nodes_can_have(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "scan.txt"
    path.write_text(Drawing({"L1": "B11-P1 mlx5_0, n_2 mlx5_0, c mlx5_0"}, "L1-S1").text())
    printed = closeby("discover", "ibnetdiscover", path, "-o", "labels")
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(printed.stdout)]
    assert names == ["b11-p1", "c"]
    golden("discover", printed.stderr)


def test_a_table(scan: Path, golden: Golden) -> None:
    printed = closeby("discover", "ibnetdiscover", scan)
    golden("discover", printed.stdout)


def test_a_map_and_several_files(tmp_path: Path, scan: Path) -> None:
    names = tmp_path / "names"
    names.write_text("0000000000200000 rack-1\n")
    found = report("discover", "ibnetdiscover", scan, scan, "--map", names)
    assert found["nodes"]["n1"]["path"][0] == "rack-1"
    assert found["warnings"] == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "can't be read: No such file or directory; check the path"),
        ("", "holds no switch, so the scan failed or saw nothing"),
        ("kind: Node\n", ":1: is not a scan of a fabric; give what `ibnetdiscover` prints"),
        (Drawing({"L1": ""}, "L1-S1").text(), "holds no host"),
    ],
)
def test_a_file_that_can_t_be_used(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    printed = closeby("discover", "ibnetdiscover", path)
    assert printed.exit_code == 2
    assert printed.stderr.startswith(f"error: {path}")
    assert why in printed.stderr
    assert printed.stdout == ""


def test_garbage_in_one_file_of_several_is_not_passed_over(tmp_path: Path, scan: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(bytes(range(256)) * 10_000)
    printed = closeby("discover", "ibnetdiscover", scan, garbage)
    assert printed.exit_code == 2
    assert f"{garbage}: is binary and no text" in printed.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--labels", "a,a"], "give one or more different keys"),
        (["--labels", "not a key"], "'not a key' is not a key of a label"),
        (["--dry-run"], "--dry-run, --watch and --overwrite go with --apply"),
        (["--program", "/nowhere/ibnetdiscover"], "/nowhere/ibnetdiscover: is not installed here"),
        (["--program", "false"], "false: failed with exit code 1"),
        (["--port", "mlx5_0:one"], "'mlx5_0:one' is not a port of an adapter; give such as mlx5_0:1"),
        (["--port", "--help"], "'--help' is not a port of an adapter"),
        (["--port", "mlx5_0", "scan.txt"], "give it or files"),
        (["-", "--apply", "--watch", "5"], "standard input can be read once"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], why: str) -> None:
    printed = closeby("discover", "ibnetdiscover", *arguments)
    assert printed.exit_code == 2
    assert why in printed.stderr


def test_a_cluster_that_is_not_there(scan: Path, tmp_path: Path) -> None:
    nobody = tmp_path / "kubeconfig"
    nobody.write_text(json.dumps({"current-context": "none"}))
    printed = closeby("discover", "ibnetdiscover", scan, "--apply", "--kubeconfig", nobody)
    assert printed.exit_code == 2
    assert printed.stderr.startswith("error: ")


def test_the_real_fabric_as_a_table_has_a_line_per_rack() -> None:
    printed = closeby("discover", "ibnetdiscover", shared_data("infiniband/topograph-example.out"))
    assert printed.exit_code == 0
    assert "B10-P1-IBSPINE-07/B09-P1-IBLEAF-01-05" in printed.stdout
    assert "the uplinks of A09-P1-IBLEAF-01-02 are degraded: 14 cables of" in printed.stdout
