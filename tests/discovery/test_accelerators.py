"""NVLink partitions as nvidia-smi prints them."""

import pytest

from closeby.discovery.accelerators import read_nvidia_smi
from closeby.discovery.findings import ScanFindings
from closeby.errors import UnreadableError
from tests.golden.fixture import Golden

RACK = "81b2b5a0-7b0e-4b5c-9f46-0f5f2f3ad1a1"
OTHER = "0c3e4e5f-58ef-4f0e-86a9-5d1b0ac2f6c7"

GATHERED = f"""
node-1: {RACK}, 3
node-1: {RACK}, 3
node-2: {RACK}, 3
node-10: {OTHER}, 3
"""


def domains(findings: ScanFindings) -> dict[str, tuple[str | None, ...]]:
    return {name: node.path for name, node in findings.nodes.items()}


def said(findings: ScanFindings) -> dict[str, str]:
    return {one.object: one.message for one in findings.warnings}


def test_hosts_of_one_partition_share_a_domain() -> None:
    findings = read_nvidia_smi("smi", GATHERED)
    assert findings.levels == ("accelerator",)
    assert domains(findings) == {
        "node-1": (f"{RACK}.3",),
        "node-2": (f"{RACK}.3",),
        "node-10": (f"{OTHER}.3",),
    }
    assert findings.nodes["node-1"].labels == {"network.topology.kubernetes.io/accelerator": f"{RACK}.3"}
    assert findings.warnings == ()


def test_lines_of_one_host_need_its_name() -> None:
    text = f"fabric.clusterUuid, fabric.cliqueId\n{RACK}, 1\n"
    assert domains(read_nvidia_smi("smi", text, host="n1")) == {"n1": (f"{RACK}.1",)}
    with pytest.raises(UnreadableError, match=r":1: .*does not say which host"):
        read_nvidia_smi("smi", text)


def test_a_host_whose_gpus_disagree_has_no_domain() -> None:
    findings = read_nvidia_smi("smi", f"a: {RACK}, 1\na: {RACK}, 2\nb: {RACK}, 1\n")
    assert domains(findings) == {"a": (), "b": (f"{RACK}.1",)}
    assert "are in" in said(findings)["Node/a"]


@pytest.mark.parametrize("value", ["N/A, N/A", "[N/A], [N/A]", "00000000-0000-0000-0000-000000000000, 0"])
def test_a_host_without_a_fabric_has_no_domain(value: str, golden: Golden) -> None:
    findings = read_nvidia_smi("smi", f"a: {value}\nb: {RACK}, 1\n")
    assert domains(findings) == {"a": (), "b": (f"{RACK}.1",)}
    golden("discover", said(findings))


def test_an_error_message_of_a_host_or_pdsh_is_reported() -> None:
    text = f"a: NVIDIA-SMI has failed\npdsh@admin: c: ssh exited with exit code 255\nb: {RACK}, 1\n"
    findings = read_nvidia_smi("smi", text)
    assert domains(findings) == {"a": (), "b": (f"{RACK}.1",), "c": ()}
    assert "NVIDIA-SMI has failed" in said(findings)["Node/a"]
    assert "exit code 255" in said(findings)["Node/c"]


@pytest.mark.parametrize("text", ["", "\n", "a: hello\n", "hello\n", "a: b: c\n"])
def test_what_is_something_else_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_nvidia_smi("smi", text)
