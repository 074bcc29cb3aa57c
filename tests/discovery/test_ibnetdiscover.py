"""The text of ibnetdiscover, line by line: what is read of it, and how other files are refused."""

import io
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.discovery import ibnetdiscover
from closeby.discovery.fabric import Cable, DeviceKind, End, Fabric, FabricBuilder
from closeby.discovery.fabric_findings import fabric_findings, read_scans
from closeby.discovery.ibnetdiscover import read_scan
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition
from tests.discovery.drawing_fabrics import FAT_TREE, UPLINKS, Drawing, findings, paths, warned
from tests.golden.fixture import Golden

#: A leaf with two hosts and two cables to a spine: what a real program prints, by hand with newer speeds.
SCAN = """\
#
# Topology file: generated on Sat Nov 21 09:09:11 2026
#
# Initiated from node 000000000000b100 port 000000000000b101

vendid=0x0
devid=0x0
sysimgguid=0xa1ff
switchguid=0xa1ff(a1ff)
Switch\t8 "S-000000000000a1ff"\t\t# "MF0;spine:MQM8700/U1" enhanced port 0 lid 3 lmc 0
[1]\t"S-000000000000a100"[7]\t\t# "MF0;leaf:MQM8700/U1" lid 1 4xHDR
[2]\t"S-000000000000a100"[8]\t\t# "MF0;leaf:MQM8700/U1" lid 1 2xHDR

vendid=0x0
devid=0x0
sysimgguid=0xa100
switchguid=0xa100(a100)
Switch\t8 "S-000000000000a100"\t\t# "MF0;leaf:MQM8700/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-000000000000b100"[1](b101) \t\t# "gpu-a01 mlx5_0" lid 4 4xHDR
[2]\t"H-000000000000b200"[1](b201) \t\t# ""gpu"a02 HCA-1" lid 5
[7]\t"S-000000000000a1ff"[1]\t\t# "MF0;spine:MQM8700/U1" lid 3 4xHDR s=1 w=2 v=4
[8]\t"S-000000000000a1ff"[2]\t\t# "MF0;spine:MQM8700/U1" lid 3 2xHDR s=1 w=2 v=4

vendid=0x0
devid=0x0
sysimgguid=0xb200\t\t# Chassis 1
caguid=0xb200
Ca\t1 "H-000000000000b200"\t\t# ""gpu"a02 HCA-1"
[1](b201) \t"S-000000000000a100"[2]\t\t# lid 5 lmc 0 "MF0;leaf:MQM8700/U1" lid 1

vendid=0x0
devid=0x0
sysimgguid=0xb100
caguid=0xb100
Ca\t1 "H-000000000000b100"\t\t# "gpu-a01 mlx5_0"
[1](b101) \t"S-000000000000a100"[1]\t\t# lid 4 lmc 0 "MF0;leaf:MQM8700/U1" lid 1 4xHDR"""

#: The same as ``ibnetdiscover -p`` prints it, which knows adapters by their ports.
PORTS = """\
CA     5  1 0x000000000000b201 ?? ???? - SW     1  2 0x000000000000a100 ( '"gpu"a02 HCA-1' - 'LEAF' )
SW     3  8 0x000000000000a1ff 4x SDR                                    'SPINE'
SW     3  2 0x000000000000a1ff 2x HDR - SW     1  8 0x000000000000a100 ( 'SPINE' - 'LEAF' )
SW     3  1 0x000000000000a1ff 4x HDR - SW     1  7 0x000000000000a100 ( 'SPINE' - 'LEAF' )
SW     1  1 0x000000000000a100 4x HDR - CA     4  1 0x000000000000b101 ( 'LEAF' - 'gpu-a01 mlx5_0' )
""".replace("LEAF", "MF0;leaf:MQM8700/U1").replace("SPINE", "MF0;spine:MQM8700/U1")

LEAF, SPINE, CARD = "000000000000a100", "000000000000a1ff", "000000000000b100"


def read(*texts: str) -> tuple[Fabric, list[Condition]]:
    """The graph of scans, and what was odd."""
    builder = FabricBuilder()
    odd: list[Condition] = []
    for text in texts:
        odd += read_scan("scan", io.BytesIO(text.encode()), builder)
    return builder.build(), odd


def refusal(text: bytes | str | BinaryIO) -> str:
    """Why this is not a scan."""
    stream = (
        io.BytesIO(text if isinstance(text, bytes) else text.encode())
        if isinstance(text, bytes | str)
        else text
    )
    with pytest.raises(UnreadableError) as caught:
        read_scan("scan.txt", stream, FabricBuilder())
    return str(caught.value)


def test_every_cable_is_there_once_with_its_width_and_speed() -> None:
    fabric, odd = read(SCAN)
    assert odd == []
    assert fabric.cables == (
        Cable(a=End(LEAF, 1), b=End(CARD, 1), width="4x", speed="HDR"),
        Cable(a=End(LEAF, 2), b=End("000000000000b200", 1)),
        Cable(a=End(LEAF, 7), b=End(SPINE, 1), width="4x", speed="HDR"),
        Cable(a=End(LEAF, 8), b=End(SPINE, 2), width="2x", speed="HDR"),
    )
    assert [one.bandwidth for one in fabric.cables] == [
        200_000_000_000,
        None,
        200_000_000_000,
        100_000_000_000,
    ]


def test_every_device_is_there_with_its_description() -> None:
    fabric, _ = read(SCAN)
    assert {guid: (one.kind, one.description, one.system) for guid, one in fabric.devices.items()} == {
        LEAF: (DeviceKind.SWITCH, "MF0;leaf:MQM8700/U1", LEAF),
        SPINE: (DeviceKind.SWITCH, "MF0;spine:MQM8700/U1", SPINE),
        CARD: (DeviceKind.ADAPTER, "gpu-a01 mlx5_0", CARD),
        "000000000000b200": (DeviceKind.ADAPTER, '"gpu"a02 HCA-1', "000000000000b200"),
    }


def test_unequal_cables_between_the_same_two_are_two_links() -> None:
    links = [one for one in findings(SCAN).links if one.a == "leaf"]
    assert [(one.b, one.cables, one.width, one.bandwidth) for one in links] == [
        ("spine", 1, "2x", 100_000_000_000),
        ("spine", 1, "4x", 200_000_000_000),
    ]


def test_equal_cables_are_one_link() -> None:
    found = findings(Drawing({"L1": "n1 a"}, "L1-S1, L1-S1, L1-S1"))
    link = next(one for one in found.links if one.a == "L1")
    assert (link.cables, link.bandwidth) == (3, 600_000_000_000)


@pytest.mark.parametrize("ending", ["", "\n", "\n\n\n"])
@pytest.mark.parametrize("end_of_line", ["\n", "\r\n"])
def test_how_the_file_ends_does_not_matter(ending: str, end_of_line: str) -> None:
    assert read((SCAN + ending).replace("\n", end_of_line))[0] == read(SCAN)[0]


def test_a_report_of_ports_tells_the_same_places() -> None:
    assert (
        paths(findings(PORTS)) == paths(findings(SCAN)) == {"gpu-a01": "leaf/spine", '"gpu"a02': "leaf/spine"}
    )


@pytest.mark.parametrize("texts", [(SCAN, PORTS), (PORTS, SCAN)])
def test_both_joined_are_one_fabric(texts: tuple[str, str]) -> None:
    assert read(*texts)[0] == read(SCAN)[0]


def test_a_cable_that_one_side_reports() -> None:
    leaf = SCAN[SCAN.index('Switch\t8 "S-000000000000a100"') :].partition("\n\n")[0]
    assert paths(findings(leaf)) == {"gpu-a01": "leaf/spine", '"gpu"a02': "leaf/spine"}


def test_a_cable_between_two_adapters() -> None:
    more = """

vendid=0x0
devid=0x0
sysimgguid=0xb300
caguid=0xb300
Ca\t2 "H-000000000000b300"\t\t# "gpu-a03 mlx5_0"
[2](b302) \t"H-000000000000b400"[2] (b402) \t\t# lid 6 lmc 0 "gpu-a04 mlx5_0" lid 7 4xEDR
"""
    fabric, _ = read(SCAN + more)
    (found,) = (one for one in fabric.cables if one.a.guid.endswith("b300"))
    assert found == Cable(a=End("000000000000b300", 2), b=End("000000000000b400", 2), width="4x", speed="EDR")
    assert fabric.devices["000000000000b400"].description == "gpu-a04 mlx5_0"


def test_a_loop_and_a_record_given_twice_are_reported(golden: Golden) -> None:
    looped = SCAN.replace(
        '[7]\t"S-000000000000a1ff"[1]', '[4]\t"S-000000000000a100"[5]\n[7]\t"S-000000000000a1ff"[1]'
    )
    found = findings(f"{looped}\n\n{SCAN}")
    assert paths(found) == {"gpu-a01": "leaf/spine", '"gpu"a02': "leaf/spine"}
    golden("discover", warned(found)["Port/000000000000a100:4"])
    golden("discover", warned(found)["Switch/000000000000a100"])


def test_a_port_with_two_cables_is_reported(golden: Golden) -> None:
    moved = PORTS.replace("7 0x000000000000a100", "8 0x000000000000a100")
    golden("discover", warned(findings(moved))["Port/000000000000a100:8"])


def test_a_port_after_a_blank_line_belongs_to_no_record() -> None:
    """What stands between two records was torn out of a third."""
    torn = SCAN.replace("[8]\t", "\n[8]\t", 1)
    fabric, odd = read(torn + '\n\n[1]\t"S-000000000000a1ff"[5]\t\t# "MF0;spine:MQM8700/U1" lid 3 4xHDR')
    assert not [one for one in fabric.cables if 5 in (one.a.port, one.b.port)]
    assert [one.object for one in odd] == ["scan"]


def test_the_system_of_one_record_says_nothing_of_the_next() -> None:
    """The second of two adapters has no line of its system; it is not one machine with the first."""
    more = """

sysimgguid=0xc100
caguid=0xc100
Ca\t1 "H-000000000000c100"\t\t# "x mlx5_0"
Ca\t1 "H-000000000000c200"\t\t# "y mlx5_0"

sysimgguid=0xc300

Ca\t1 "H-000000000000c400"\t\t# "z mlx5_0"
"""
    fabric, _ = read(SCAN + more)
    assert {guid[-4:]: one.system for guid, one in fabric.devices.items() if guid[-4] == "c"} == {
        "c100": "000000000000c100",
        "c200": None,
        "c400": None,
    }


def test_an_unreadable_line_is_skipped_and_reported(golden: Golden) -> None:
    found = findings(SCAN.replace("vendid=0x0", "ibwarn: [1] something", 1))
    golden("discover", warned(found)["scan 0"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "scan.txt: holds no switch, so the scan failed or saw nothing"),
        ("#\n# Topology file: generated\n#\n", "holds no switch"),
        ('Ca 1 "H-1" # "n1 a"\n[1](1) "H-2"[1] # lid 1 lmc 0 "n2 a" lid 2 4xHDR', "holds no switch"),
        ("hello\n", "scan.txt:1: is not a scan of a fabric; give what `ibnetdiscover` prints"),
        ('{"levels": []}', "is not a scan of a fabric"),
        ('Ca\t : 0x0000000000100015 ports 2 devid 0x0 vendid 0x0 "node08"', "is an inventory (-l)"),
        ("a" * 5000, "longer than 1024 bytes"),
        (b"\x00\x01\x02", "is binary and no text; of a cache of ibnetdiscover give what"),
    ],
)
def test_what_is_no_scan(text: str | bytes, why: str) -> None:
    assert why in refusal(text)


def test_switches_alone() -> None:
    assert "holds no host" in refusal('Switch 8 "S-1" # "leaf"\n[1] "S-2"[1] # "spine" lid 0 4xSDR\n')


class Huge(io.RawIOBase):
    """A file of 100 MB that is nowhere as a whole, and counts what is read of it."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece * (1 + 65536 // len(piece))
        self.read_so_far = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        found = self._piece[:size] if self.read_so_far < 100_000_000 else b""
        self.read_so_far += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)


GARBAGE = {
    "one line": b"x",
    "binary": bytes(range(256)),
    "empty lines": b"\n",
    "comments": b"# comment\n",
    "headings": b"vendid=0x0\nsysimgguid=0xb100\n",
    "prose": b"lorem ipsum dolor\n",
    "latin": "ö\n".encode("latin-1"),
    "ports of nobody": b'[1]\t"S-1"[1]\t# "x" lid 1 4xSDR\n',
    "quotes": b'Switch 8 "S-1" # ' + b'"' * 900 + b" x\n[" + b"1" * 900 + b"]\n" * 3,
    "ports beyond the switch": b'Switch 8 "S-1" # "a"\n'
    + b"".join(b'[%d]\t"H-%x"[1]\t# "n a" lid 1 4xSDR\n' % (port, port) for port in range(9, 255)),
    "ends of nobody": b"SW 1 1 0x1 4x SDR - SW 1 1 ( '" + b"' - '" * 700 + b"\n",
}


@pytest.mark.parametrize("piece", GARBAGE.values(), ids=GARBAGE)
def test_of_100_mb_of_garbage_little_is_read(piece: bytes) -> None:
    source = Huge(piece)
    refusal(io.BufferedReader(source))
    assert source.read_so_far < 4_000_000


def test_more_devices_than_a_fabric_can_have(golden: Golden) -> None:
    lines = (f'Switch 8 "S-{number:x}" # "s"\n' for number in range(100_002))
    golden("discover", refusal("".join(lines)))


def test_a_port_beyond_those_of_its_switch_is_left_out(golden: Golden) -> None:
    text = Drawing(FAT_TREE, UPLINKS).text().replace("Switch\t65", "Switch\t4", 1)
    assert paths(findings(text))["n1"] == "L1/S1"
    assert not findings(text).warnings
    cut = findings(text.replace("Switch\t4", "Switch\t2", 1))
    golden("discover", warned(cut)["scan 0"])


def switches(ports: int) -> Iterator[bytes]:
    """Very many switches, with consistent cables between them, and one host."""
    yield b'Switch 254 "S-1" # "s"\n[254] "H-999999"[1](999998) # "n1 a" lid 1 4xNDR\n'
    for number in range(1 << 16):
        yield b'Switch 254 "S-%x" # "s"\n' % (number + 1)
        for port in range(1, ports):
            yield b'[%d] "S-%x"[%d]\n' % (port, 1 + (number ^ port), port)


def test_a_scan_with_too_many_cables_or_bytes_is_refused(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(ibnetdiscover, "MOST_CABLES", 2000)
    golden("discover", refusal(b"".join(islice(switches(100), 9000))))
    monkeypatch.setattr(ibnetdiscover, "MOST_BYTES", 1 << 20)
    golden("discover", refusal(SCAN * 2000))


def test_a_scan_that_contradicts_itself_is_refused_early(golden: Golden) -> None:
    # One switch and one host; each port of one leads to each port of the other.
    lines = (
        f'[{port}] "H-2"[{peer}](3) # "n a" lid 1 4xNDR' for peer in range(1, 255) for port in range(1, 255)
    )
    why = refusal("\n".join(('Switch 254 "S-1" # "s"', *lines)))
    golden("discover", why)
    assert int(why.split(":")[1]) < 3000


@pytest.mark.slow
def test_of_a_scan_that_goes_on_and_on_little_is_held() -> None:
    """A process with 1 GB of memory and half a minute of processor time is enough to refuse it."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))

    command = [sys.executable, "-m", "closeby", "discover", "ibnetdiscover", "-"]
    with tempfile.TemporaryFile() as scan:
        scan.writelines(islice(switches(200), 2_000_000))
        scan.seek(0)
        done = subprocess.run(
            command, stdin=scan, capture_output=True, check=False, preexec_fn=bounded, timeout=500
        )
    assert done.returncode == 2, done.stderr[-500:]
    assert b"has more cables than a fabric can" in done.stderr


LINES = [*SCAN.splitlines(), *PORTS.splitlines(), *Drawing(FAT_TREE, UPLINKS).text().splitlines()]
PIECES = st.one_of(
    st.sampled_from(LINES),
    st.text(max_size=30),
    st.sampled_from(
        ['"', "'", "[1]", "[1](b101)", '"S-a1ff"[1]', "Switch", "Ca", "\t# ", " lid 1 ", "4xHDR", "0x", "-"]
    ),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A scan with lines left out, doubled, moved, cut and spliced."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        cut, end = sorted((draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))))
        match draw(st.integers(0, 4)):
            case 0:
                del lines[place]
            case 1:
                lines.insert(draw(st.integers(0, len(lines))), line)
            case 2:
                lines[place] = line[:cut] + draw(PIECES) + line[end:]
            case 3:
                lines = lines[place:] + lines[:place]
            case _:
                lines[place] = line[:cut] + line[end:]
        if not lines:
            return ""
    return "\n".join(lines)


@given(st.one_of(mutated(), st.lists(PIECES, max_size=40).map("\n".join), st.lists(PIECES).map("".join)))
@settings(max_examples=400)
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    scans = [("scan", io.BytesIO(text.encode(errors="surrogatepass")))]
    try:
        found = fabric_findings("scan", read_scans(scans))
    except UnreadableError as error:
        assert str(error).startswith("scan")
        return
    assert found.nodes
    for node in found.nodes.values():
        assert 1 <= len(node.path) <= len(found.levels)
        assert node.path[-1] is not None
        assert all(0 < len(value) <= 63 for value in node.labels.values())


@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_any_bytes(content: bytes) -> None:
    refusal(content)
