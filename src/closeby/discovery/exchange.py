"""Files of networks by their kind: which reader reads a file, and which writer writes findings."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from closeby.discovery.accelerators import read_nvidia_smi
from closeby.discovery.assembling import has_domains
from closeby.discovery.clouds import read_aws, read_gcp, read_oci
from closeby.discovery.fabric_findings import fabric_findings, read_scans
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labels import read_labels
from closeby.discovery.slurm import read_slurm
from closeby.discovery.slurm_writing import slurm_block_text, slurm_tree_text, slurm_yaml_text
from closeby.discovery.source_files import read_json
from closeby.discovery.topograph import read_topograph, topograph_text
from closeby.errors import UnreadableError
from closeby.reading.decoding.errors import explain, field_path
from closeby.reading.decoding.sources import STDIN
from closeby.reading.manifests import read_manifests
from closeby.topology.families import NETWORK_LABELS, PRESETS, LabelFamily

#: Reads a file, given its name, its text and label keys (None for the default ones).
Reader = Callable[[str, str, Sequence[str] | None], ScanFindings]

_JSON_START: Final = re.compile(r"\s*[{\[]")
_SLURM_LINE: Final = re.compile(r"^\s*(SwitchName|BlockName)\s*=", re.IGNORECASE | re.MULTILINE)
_SLURM_YAML: Final = re.compile(r"^-\s*topology\s*:", re.MULTILINE)
_MODEL_YAML: Final = re.compile(r"^(switches|blocks)\s*:", re.MULTILINE)
_SCAN_LINE: Final = re.compile(r"^(switchguid=|caguid=|Switch\t|Ca\t|(SW|CA)\s+\d)", re.MULTILINE)
_NODE_LINE: Final = re.compile(r"^kind:\s*(Node|List|NodeList)\s*$", re.MULTILINE)
_SMI_LINE: Final = re.compile(r"^[A-Za-z0-9][\w.-]*:\s*[A-Za-z0-9-]+\s*,\s*\d+\s*$", re.MULTILINE)


def slurm_text(findings: ScanFindings) -> str:
    """A ``topology.conf``: the tree of switches, or blocks where there are only accelerator domains."""
    first = int(has_domains(findings))
    switches = any(one is not None for node in findings.nodes.values() for one in node.path[first:])
    return slurm_tree_text(findings) if switches or not first else slurm_block_text(findings)


#: Forms of other tools in which findings can be written.
WRITERS: Final[Mapping[str, Callable[[ScanFindings], str]]] = MappingProxyType(
    {
        "slurm": slurm_text,
        "slurm-block": slurm_block_text,
        "slurm-yaml": slurm_yaml_text,
        "topograph": topograph_text,
    }
)


def read_findings(file: str, text: str, keys: Sequence[str] | None = None) -> ScanFindings:
    """Findings as ``closeby discover -o json`` prints them; they have their labels, whatever ``keys`` says.

    Raises:
        UnreadableError: it is something else.
    """
    value = read_json(file, text)
    try:
        return msgspec.convert(value, ScanFindings)
    except msgspec.ValidationError as error:
        problem = explain(error, value, {})
        remedy = problem.remedy or "give what `closeby discover … -o json` prints"
        raise UnreadableError(file, problem.message, remedy, field=field_path(problem.path)) from error


def _read_scan(file: str, text: str, keys: Sequence[str] | None = None) -> ScanFindings:
    scans = read_scans([(file, io.BytesIO(text.encode()))])
    return fabric_findings(file, scans, keys=None if keys is None else tuple(keys))


def _labels_reader(family: LabelFamily) -> Reader:
    def read(file: str, text: str, keys: Sequence[str] | None = None) -> ScanFindings:
        manifests = read_manifests([STDIN], lambda: text)
        if manifests.errors:
            error = manifests.errors[0]
            raise UnreadableError(file, error.message, error.remedy, line=error.line, field=error.field)
        if not manifests.nodes:
            raise UnreadableError(file, "holds no Node", "give what `kubectl get nodes -o yaml` prints")
        return read_labels(manifests.nodes, family, keys).findings

    return read


#: Readers by the name of the kind, which is that of the source.
READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "findings": read_findings,
        "ibnetdiscover": _read_scan,
        "slurm": read_slurm,
        "topograph": read_topograph,
        "aws": read_aws,
        "gcp": read_gcp,
        "oci": read_oci,
        "nvidia-smi": read_nvidia_smi,
        "labels": _labels_reader(NETWORK_LABELS),
        **{f"labels:{name}": _labels_reader(family) for name, family in PRESETS.items()},
    }
)


def kind_of(file: str, text: str) -> str:
    """The kind of a file by what it holds.

    Raises:
        UnreadableError: it is of no known kind.
    """
    kind = _kind_of_json(file, text) if _JSON_START.match(text) else _kind_of_text(text)
    if kind is None:
        known = ", ".join(kind for kind in READERS if ":" not in kind)
        raise UnreadableError(file, "is of no known kind", f"name it with --from, one of {known}")
    return kind


def _kind_of_text(text: str) -> str | None:
    for kind, pattern in (
        ("slurm", _SLURM_LINE),
        ("slurm", _SLURM_YAML),
        ("topograph", _MODEL_YAML),
        ("ibnetdiscover", _SCAN_LINE),
        ("labels", _NODE_LINE),
        ("nvidia-smi", _SMI_LINE),
    ):
        if pattern.search(text):
            return kind
    return None


def _kind_of_json(file: str, text: str) -> str | None:
    value = read_json(file, text)
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    for kind, signs in (
        ("findings", {"levels", "nodes"}),
        ("topograph", {"instances"}),
        ("aws", {"Instances"}),
        ("aws", {"InstanceId", "NetworkNodes"}),
        ("gcp", {"resourceStatus"}),
        ("labels", {"apiVersion", "kind"}),
        ("gcp", {"items", "kind"}),
        ("oci", {"data"}),
        ("oci", {"local-block-id"}),
        ("slurm", {"topology"}),
    ):
        if signs <= set(value):
            return kind
    return None
