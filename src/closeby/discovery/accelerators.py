"""Accelerator domains (NVLink partitions) as ``nvidia-smi`` names them on each host."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from closeby.discovery.assembling import assemble, several, warning
from closeby.discovery.findings import ScanFindings
from closeby.discovery.source_files import lines_of, shown
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key

QUERY: Final = "nvidia-smi --query-gpu=fabric.clusterUuid,fabric.cliqueId --format=csv,noheader"

_MOST_HOSTS: Final = 200_000
_PREFIXED: Final = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?):(?:[ \t]+(.*))?")
_UUID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_CLIQUE: Final = re.compile(r"[0-9]{1,10}")
_HEADER: Final = re.compile(r"fabric\.\w+\s*,\s*fabric\.\w+", re.IGNORECASE)
#: Lines of pdsh itself about a host that it could not reach.
_FAILED: Final = re.compile(r"pdsh@[^:\s]+: ([^:\s]+): (.*)")
_UNKNOWN: Final = frozenset({"n/a", "[n/a]", "[not supported]", "not supported", "[unknown error]"})
_NO_FABRIC: Final = "00000000-0000-0000-0000-000000000000"


class _Said(NamedTuple):
    line: int
    host: str
    text: str


def read_nvidia_smi(
    file: str,
    text: str,
    keys: Sequence[str] | None = None,
    *,
    host: str | None = None,
    names: Mapping[str, str] | None = None,
) -> ScanFindings:
    """What ``QUERY`` prints, a line per GPU, as ``pdsh`` or ``clush`` gather it from hosts (``host: line``).

    The domain is ``<ClusterUUID>.<CliqueId>``. ``host`` is the one that lines without a host come from. A
    host whose GPUs do not agree, or that has no fabric, has no domain, and a warning says so.

    Raises:
        UnreadableError: a line has no host and none is given, or not one line is of this form.
    """
    domains: dict[str, set[str]] = {}
    odd: dict[str, str] = {}
    understood = False
    for said in _lines(file, text, host):
        node = said.host if names is None else names.get(said.host, said.host)
        domain = _domain(said.text)
        if domain is None:
            odd.setdefault(node, f"line {said.line} is {shown(said.text)}")
        else:
            understood = True
        if len(domains) >= _MOST_HOSTS and node not in domains:
            message = f"has lines of more than {_MOST_HOSTS:,} hosts"
            raise UnreadableError(file, message, "check that it is the right file", line=said.line)
        domains.setdefault(node, set()).update({domain} if domain else ())
    if not understood:
        first = next(iter(odd.values()), "it is empty")
        raise UnreadableError(
            file, f"has no line of a cluster UUID and a clique: {first}", f"give what `{QUERY}` prints"
        )
    warnings = list(_warnings(domains, odd))
    clear = {
        node: next(iter(found)) for node, found in domains.items() if len(found) == 1 and node not in odd
    }
    return assemble(dict.fromkeys(domains, ()), keys, domains=clear, warnings=warnings)


def _lines(file: str, text: str, host: str | None) -> Iterator[_Said]:
    for number, raw in lines_of(text):
        line = raw.strip()
        if not line:
            continue
        failed = _FAILED.fullmatch(line)
        if failed:
            yield _Said(number, failed[1], failed[2])
            continue
        prefixed = _PREFIXED.fullmatch(line)
        if prefixed is None and host is None:
            message = f"{shown(line)} does not say which host it is from"
            raise UnreadableError(
                file, message, "gather it with pdsh, or name the host with --host", line=number
            )
        whose = host if prefixed is None or host is not None else prefixed[1]
        rest = line if prefixed is None else (prefixed[2] or "").strip()
        if whose is not None and rest and not _HEADER.fullmatch(rest):
            yield _Said(number, whose, rest)


def _domain(line: str) -> str | None:
    """The domain of one line; empty where the GPU has no fabric, None when the line is something else."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 2:
        return None
    uuid, clique = fields
    if uuid.lower() in _UNKNOWN or clique.lower() in _UNKNOWN or uuid == _NO_FABRIC:
        return ""
    if not _UUID.fullmatch(uuid) or not _CLIQUE.fullmatch(clique):
        return None
    return f"{uuid}.{clique}"


def _warnings(domains: Mapping[str, set[str]], odd: Mapping[str, str]) -> Iterator[Condition]:
    for node in sorted(domains, key=natural_key):
        if node in odd:
            message = f"{odd[node]}, which is not a cluster UUID and clique, so its domain is unknown"
            yield warning(f"Node/{node}", message, "look after the host, and ask it again")
        elif len(domains[node]) > 1:
            message = f"its GPUs are in {several(domains[node])}, so its domain is unknown"
            yield warning(f"Node/{node}", message, "look after its NVLink fabric")
    without = [node for node, found in domains.items() if not found and node not in odd]
    if without:
        first = min(without, key=natural_key)
        verb = "has" if len(without) == 1 else "have"
        yield warning(f"Node/{first}", f"{several(without)} {verb} no NVLink fabric", "no domain is known")
