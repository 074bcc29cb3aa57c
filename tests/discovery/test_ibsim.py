"""What the real ibnetdiscover sees of fabrics in the real ibsim, and where hosts are then."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.discovery.drawing_fabrics import findings, paths, warned
from tests.discovery.ibsim import Simulator, simulated
from tests.golden.fixture import Golden

Start = Callable[[str], Simulator]

#: Two spines, three leaves with two hosts each, one cable between each leaf and each spine.
FAT_TREE = """
Switch 8 "S1"
[1] "L1"[7]
[2] "L2"[7]
[3] "L3"[7]

Switch 8 "S2"
[1] "L1"[8]
[2] "L2"[8]
[3] "L3"[8]

Switch 8 "L1"
[1] "n1"[1]
[2] "n2"[1]
[7] "S1"[1]
[8] "S2"[1]

Switch 8 "L2"
[1] "n3"[1]
[2] "n4"[1]
[7] "S1"[2]
[8] "S2"[2]

Switch 8 "L3"
[1] "n5"[1]
[2] "n6"[1]
[7] "S1"[3]
[8] "S2"[3]
""" + "".join(
    f'\nHca 1 "n{number}"\n[1] "L{(number + 1) // 2}"[{2 - number % 2}]\n' for number in range(1, 7)
)

#: Two planes without a cable between them: each host has an adapter on a leaf of each.
TWO_PLANES = """
Switch 8 "S-a1" # "MF0;A:MQM8700/U1"
[1] "H-11"[1]
[2] "H-21"[1]
[3] "H-31"[1]

Switch 8 "S-b1" # "MF0;B:MQM8700/U1"
[1] "H-12"[1]
[2] "H-22"[1]

Ca 1 "H-11" # "n1 mlx5_0"
[1] "S-a1"[1]

Ca 1 "H-12" # "n1 mlx5_1"
[1] "S-b1"[1]

Ca 1 "H-21" # "n2 mlx5_0"
[1] "S-a1"[2]

Ca 1 "H-22" # "n2 mlx5_1"
[1] "S-b1"[2]

Ca 1 "H-31" # "Mellanox Technologies Aggregation Node"
[1] "S-a1"[3]
"""

ALL_SIX = {"n1": "L1/S1", "n2": "L1/S1", "n3": "L2/S1", "n4": "L2/S1", "n5": "L3/S1", "n6": "L3/S1"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a simulator that ends with the test."""
    with ExitStack() as stack:
        yield lambda network: stack.enter_context(simulated(network, tmp_path))


def test_a_fat_tree(start: Start) -> None:
    fabric = start(FAT_TREE)
    found = findings(fabric.scan("n1"))
    assert paths(found) == ALL_SIX
    assert found.warnings == ()
    assert {(link.width, link.speed, link.bandwidth) for link in found.links} == {
        ("4x", "SDR", 10_000_000_000)
    }
    # The other things that the program can be asked to print say the same.
    for arguments in ("-p", "-f", "-g", "-s"):
        assert paths(findings(fabric.scan("n1", arguments))) == ALL_SIX, arguments


def test_a_dead_uplink_is_reported(start: Start, golden: Golden) -> None:
    fabric = start(FAT_TREE)
    port = '[7]\t"S-'
    leaf = next(one for one in fabric.scan("n1").split("\n\n") if '# "L2" base port' in one)
    line = next(one for one in leaf.splitlines() if one.startswith(port))
    fabric.console('Unlink "L2"[7]')
    found = findings(fabric.scan_without(line, "n1"))
    assert paths(found) == ALL_SIX
    assert list(warned(found)) == ["Switch/L2"]
    golden("discover", warned(found)["Switch/L2"])
    assert found.nodes["n3"].qos["L2"].bandwidth == 10_000_000_000


def test_an_isolated_leaf_is_not_seen_from_elsewhere(start: Start, golden: Golden) -> None:
    fabric = start(FAT_TREE)
    fabric.console('Unlink "L3"[7]')
    fabric.console('Unlink "L3"[8]')
    rest, alone = fabric.scan_without('"L3"', "n1"), fabric.scan("n5")
    assert paths(findings(rest)) == {name: path for name, path in ALL_SIX.items() if path != "L3/S1"}
    assert paths(findings(alone)) == {"n5": "L3", "n6": "L3"}
    # Both scans together know all of it.
    joined = findings(rest, alone)
    assert paths(joined) == {**ALL_SIX, "n5": "L3", "n6": "L3"}
    golden("discover", warned(joined)["Switch/L3"])


def test_two_planes_take_a_scan_each(start: Start) -> None:
    fabric = start(TWO_PLANES)
    one, other = fabric.scan("n1 mlx5_0"), fabric.scan("n1 mlx5_1")
    assert paths(findings(one)) == {"n1": "A", "n2": "A"}
    assert paths(findings(other)) == {"n1": "B", "n2": "B"}
    # The planes have the same hosts, so they are rails of one rack.
    joined = findings(one, other)
    (name,) = set(paths(joined).values())
    assert name in ("A", "B")
    assert {(link.a, link.b) for link in joined.links} == {
        (host, leaf) for host in ("n1", "n2") for leaf in ("A", "B")
    }
    assert joined.warnings == ()


def test_the_command_runs_the_program_itself(start: Start) -> None:
    fabric = start(FAT_TREE)
    done = subprocess.run(
        [sys.executable, "-m", "closeby", "discover", "ibnetdiscover", "-o", "json"],
        env=fabric.environment("n1"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert {name: "/".join(node["path"]) for name, node in nodes.items()} == ALL_SIX


def test_the_command_scans_each_plane_from_a_port_in_it(start: Start, tmp_path: Path) -> None:
    fabric = start(TWO_PLANES)
    # The simulator gives a program one adapter, so this says which; with hardware ibnetdiscover does.
    program = tmp_path / "by-adapter"
    program.write_text(
        '#!/bin/sh\n[ "$1 $3" = "-C -P" ] || exit 1\nexport SIM_HOST="n1 $2"\nexec ibnetdiscover -P "$4"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def discovered(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "closeby",
                "discover",
                "ibnetdiscover",
                "-o",
                "json",
                *map(str, arguments),
            ],
            env=fabric.environment("nobody"),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def links(*ports: str) -> set[tuple[str, str]]:
        done = discovered("--program", program, *(part for port in ports for part in ("--port", port)))
        assert done.returncode == 0, done.stderr
        return {(link["a"], link["b"]) for link in json.loads(done.stdout)["links"]}

    assert links("mlx5_0:1") == {("n1", "A"), ("n2", "A")}
    assert links("mlx5_0:1", "mlx5_1:1") == {(host, leaf) for host in ("n1", "n2") for leaf in ("A", "B")}
    # A plane that can't be scanned is not taken for one without hosts.
    done = discovered("--program", program, "--port", "mlx5_0:1", "--port", "mlx5_1:2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {program} -C mlx5_1 -P 2: failed with exit code")


def test_a_scan_that_hangs_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "closeby",
            "discover",
            "ibnetdiscover",
            "--program",
            program,
            "--timeout",
            "1",
        ],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {program}: did not end within 1 seconds; check the fabric, or allow more with --timeout\n"
    )
