"""Whatever a file holds: findings or a clear error, soon, and in bounded memory."""

import gzip
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from closeby.discovery.exchange import READERS, WRITERS, kind_of
from closeby.discovery.findings import ScanFindings
from closeby.discovery.slurm import read_slurm
from closeby.discovery.source_files import MOST_BYTES, read_text
from closeby.discovery.topograph import SUB_DOMAIN_KEY
from closeby.discovery.views.findings import discovery_views
from closeby.errors import UnreadableError
from closeby.report.documents.common import to_json
from closeby.topology.families import TOPOGRAPH_DOMAIN

#: Pieces of all these formats, so that random texts come close to real ones.
PIECES = """
SwitchName= BlockName= Nodes= Switches= BlockSizes= LinkSpeed= n[1-3] n1 L[1-2] L1 S1
switches: blocks: nodes: topology: tree: block: flat: true switch: children: block_sizes:
{"instances": "id": "network_layers": "Instances" "InstanceId": "NetworkNodes" "data"
, = " # [ ] - : { } &a *a << --- null 3 1e999 node-1: N/A uuid, pdsh@a:
"""
WORDS = [*PIECES.split(), "\\", "é", "\x1b", "\x00", "\n", "  ", "\t", "\r"]
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=60).map("".join),
)
NAMES_OF_FIELDS = """
instances id network_layers labels Instances InstanceId NetworkNodes CapacityBlockId NextToken items name
resourceStatus physicalHostTopology subblock block cluster data instance-id local-block-id network-block-id
hpc-island-id gpu-memory-fabric-id additional-data locationDetails rack levels nodes path links a b cables
warnings accelerator.topograph.run/domain topology tree switches switch children
"""
KEYS = st.sampled_from(NAMES_OF_FIELDS.split())
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), KEYS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)


#: Few names, so that they clash: switches in circles, nodes in two places, names that no label takes.
NAMES = st.sampled_from(["A", "B", "C", "s-1", "n1", "n02", "a b", "x" * 70, "é", "", "\x1b[31m", 'q"#'])
LISTS = st.sampled_from(["A", "B", "A,B", "C", "n[1-3]", "n1", "n02", "n[1-2]x[0-1]", "s-1", ""])
LINES = st.one_of(
    st.builds("SwitchName={} Switches={}".format, NAMES, LISTS),
    st.builds("SwitchName={} Nodes={}".format, NAMES, LISTS),
    st.builds("BlockName={} Nodes={}".format, NAMES, LISTS),
    st.builds("BlockSizes={},{}".format, st.integers(1, 4), st.integers(1, 16)),
)
SMI = st.builds("{}: {}, {}".format, st.sampled_from(["a", "b"]), st.sampled_from(["u1", "u2", "N/A"]), LISTS)
PATHS = st.lists(st.one_of(NAMES, st.none()), max_size=5)
SWITCHES = st.lists(
    st.fixed_dictionaries({"switch": NAMES}, optional={"children": LISTS, "nodes": LISTS}), max_size=5
)
BLOCKS = st.lists(st.fixed_dictionaries({"block": NAMES}, optional={"nodes": LISTS}), max_size=5)
HOST = st.fixed_dictionaries(
    {"instance-id": NAMES},
    optional={
        key: st.one_of(NAMES, st.none())
        for key in ("local-block-id", "network-block-id", "hpc-island-id", "gpu-memory-fabric-id")
    },
)
#: Per kind what is nearly or wholly right.
PLAUSIBLE: dict[str, st.SearchStrategy[str]] = {
    "slurm": st.lists(LINES, max_size=8).map("\n".join),
    "nvidia-smi": st.lists(SMI, max_size=6).map("\n".join),
    "topograph": st.lists(
        st.fixed_dictionaries(
            {"id": NAMES, "network_layers": PATHS},
            optional={"labels": st.dictionaries(st.sampled_from([TOPOGRAPH_DOMAIN, SUB_DOMAIN_KEY]), NAMES)},
        )
    ).map(lambda found: json.dumps({"instances": found})),
    "aws": st.lists(
        st.fixed_dictionaries(
            {"InstanceId": NAMES, "NetworkNodes": PATHS}, optional={"CapacityBlockId": NAMES}
        )
    ).map(lambda found: json.dumps({"Instances": found})),
    "gcp": st.lists(
        st.builds(
            lambda name, host: {"name": name, "resourceStatus": {"physicalHostTopology": host}},
            NAMES,
            st.dictionaries(st.sampled_from(["subblock", "block", "cluster"]), NAMES),
        )
    ).map(json.dumps),
    "oci": st.lists(HOST).map(lambda found: json.dumps({"data": {"items": found}})),
}
MODELS = st.fixed_dictionaries(
    {},
    optional={
        "switches": st.dictionaries(NAMES, st.builds(lambda below: {"switches": below}, st.lists(NAMES))),
        "blocks": st.lists(st.fixed_dictionaries({"nodes": st.lists(LISTS)}, optional={"switch": NAMES})),
    },
).map(lambda model: msgspec.yaml.encode(model).decode())
UNITS = st.lists(
    st.fixed_dictionaries(
        {"topology": NAMES},
        optional={
            "cluster_default": st.booleans(),
            "flat": st.booleans(),
            "tree": st.builds(lambda found: {"switches": found}, SWITCHES),
            "block": st.builds(lambda found: {"block_sizes": [1, 2], "blocks": found}, BLOCKS),
        },
    ),
    max_size=3,
).map(lambda units: msgspec.yaml.encode(units).decode())


#: Presets of labels are read alike.
KINDS = [kind for kind in READERS if ":" not in kind]


def outcome(kind: str, text: str, file: str = "file") -> ScanFindings | str:
    try:
        findings = READERS[kind](file, text, None)
    except UnreadableError as error:
        said = str(error)
        assert file in said
        assert len(said) < 2_000
        return said
    assert findings.nodes or findings.warnings or kind == "findings"
    return findings


def usable(findings: ScanFindings) -> None:
    """Everything that can be done with findings can be done with these."""
    to_json(findings)
    assert list(discovery_views(findings))
    for write in WRITERS.values():
        write(findings)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_any_text(kind: str, text: str) -> None:
    found = outcome(kind, text)
    if isinstance(found, ScanFindings):
        usable(found)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_any_yaml(text: str) -> None:
    try:
        usable(read_slurm("t.yaml", text))
    except UnreadableError as error:
        assert "t.yaml" in str(error)


@pytest.mark.parametrize("kind", ["findings", "topograph", "aws", "gcp", "oci"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES)
def test_any_json(kind: str, value: object) -> None:
    found = outcome(kind, json.dumps(value))
    if isinstance(found, ScanFindings):
        usable(found)


@pytest.mark.parametrize("kind", PLAUSIBLE)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_plausible_files(kind: str, data: st.DataObject) -> None:
    found = outcome(kind, data.draw(PLAUSIBLE[kind]))
    if isinstance(found, ScanFindings):
        usable(found)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(UNITS, MODELS)
def test_plausible_yaml(units: str, model: str) -> None:
    for kind, text, file in (("slurm", units, "t.yaml"), ("topograph", model, "model.yaml")):
        found = outcome(kind, text, file)
        if isinstance(found, ScanFindings):
            usable(found)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_kind(text: str) -> None:
    try:
        assert kind_of("file", text) in READERS
    except UnreadableError as error:
        assert "file" in str(error)


HUGE = {
    "brackets": b"[" * (1 << 20),
    "quotes": b'"\\"' + b'\\"' * (1 << 19),
    "backslashes": b"SwitchName=a \\\n" * (1 << 16),
    "lists": b"SwitchName=a Nodes=" + b"n[1-2]" * (1 << 17),
    "commas": b"SwitchName=a Nodes=" + b"," * (1 << 20) + b"x[",
    "open": b"SwitchName=a Nodes=" + b"[" * (1 << 20),
    "spaces": b"SwitchName" + b" " * (1 << 20) + b"x",
    "anchors": b"a: &a [x]\n" + b"b: [*a,*a,*a]\n" * (1 << 14),
    "colons": b"a: " * (1 << 18),
    "digits": b"node-1: " + b"1" * (1 << 20),
    "hashes": b"#" * (1 << 20),
    "equals": b"=" * (1 << 20),
    "hosts": b"".join(b"h%d: x\n" % one for one in range(100_000)),
    "chain": b"switches:\n"
    + b"".join(b"  s%d: {switches: [s%d]}\n" % (one, one + 1) for one in range(20_000)),
    "name": b"SwitchName=" + b"x" * (1 << 20) + b" Nodes=n1",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HUGE)
def test_a_megabyte_of_one_thing_takes_no_time(kind: str, name: str) -> None:
    began = time.process_time()
    outcome(kind, HUGE[name].decode())
    assert time.process_time() - began < 20


def test_a_file_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "long"
    with file.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(UnreadableError, match="is longer than 64 MiB"):
        read_text(str(file))


def test_a_compressed_file_is_unpacked_up_to_the_same_length(tmp_path: Path) -> None:
    file = tmp_path / "scan.txt"
    file.write_bytes(gzip.compress(b"SwitchName=L1 Nodes=n1"))
    assert read_text(str(file)) == "SwitchName=L1 Nodes=n1"
    file.write_bytes(gzip.compress(b" " * (MOST_BYTES + 1)))
    with pytest.raises(UnreadableError, match="is longer than 64 MiB"):
        read_text(str(file))
    file.write_bytes(gzip.compress(b"SwitchName=L1 Nodes=n1")[:-9])
    with pytest.raises(UnreadableError, match="is compressed, and can't be unpacked"):
        read_text(str(file))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("slurm", "FILE"),
        ("topograph", "FILE"),
        ("aws", "FILE"),
        ("nvidia-smi", "FILE"),
        ("diff", "FILE", "FILE"),
    ],
)
def test_a_hundred_megabytes_are_refused_in_bounded_memory(tmp_path: Path, arguments: Sequence[str]) -> None:
    file = tmp_path / "garbage"
    line = b"SwitchName=x \xf0\x9f\xa6\x86 node-1: {[garbage, 1 \x00\n"
    with file.open("wb") as stream:
        for _ in range(100):
            stream.write(line * ((1 << 20) // len(line)))
    limit = 700 << 20

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "closeby",
            "discover",
            *(str(file) if one == "FILE" else one for one in arguments),
        ],
        capture_output=True,
        timeout=100,
        check=False,
        preexec_fn=confine,
    )
    assert result.returncode == 2, result.stderr[-500:]
    assert b"is longer than 64 MiB" in result.stderr
