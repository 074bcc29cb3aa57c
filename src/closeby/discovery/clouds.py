"""The network under the hosts of clouds, as their command lines print it in JSON."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from closeby.discovery.assembling import warning
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labelling import Place
from closeby.discovery.places import Collected
from closeby.discovery.slurm_trees import MOST_LEVELS
from closeby.discovery.source_files import decode, read_json
from closeby.discovery.topograph import SUB_DOMAIN_KEY
from closeby.errors import UnreadableError
from closeby.reading.decoding.errors import Path, field_path
from closeby.topology.families import listed

Entry = Mapping[str, object]
Found = Iterator[tuple[Path, Entry]]


class _AwsInstance(Struct, rename="pascal"):
    instance_id: str
    network_nodes: list[str] | None = None
    capacity_block_id: str | None = None


class _GcpTopology(Struct):
    subblock: str | None = None
    block: str | None = None
    cluster: str | None = None


class _GcpStatus(Struct, rename="camel"):
    physical_host_topology: _GcpTopology | None = None


class _GcpInstance(Struct, rename="camel"):
    name: str
    resource_status: _GcpStatus | None = None


class _OciHost(Struct, rename=lambda name: name.replace("_", "")):
    """A host with its keys as ``_plain`` makes them."""

    instance_id: str | None = None
    local_block_id: str | None = None
    network_block_id: str | None = None
    hpc_island_id: str | None = None
    gpu_memory_fabric_id: str | None = None


def read_aws(
    file: str, text: str, keys: Sequence[str] | None = None, names: Mapping[str, str] | None = None
) -> ScanFindings:
    """``aws ec2 describe-instance-topology``: network nodes from the root down, and the capacity block of an
    UltraServer as accelerator domain. ``names`` are node names by instance.

    Instances have three or four network nodes. Levels are counted from the instance, so that the closest one
    is of the finest level whatever others have; network nodes that are of several levels for that are
    reported.

    Raises:
        UnreadableError: it can't be read, or describes no instance.
    """
    value = read_json(file, text)
    collected = Collected(names)
    levels: dict[str, set[int]] = {}
    for path, entry in _pages(file, value, "Instances", "describe-instance-topology"):
        one = decode(file, entry, _AwsInstance, path)
        nodes = one.network_nodes or []
        if len(nodes) > MOST_LEVELS:
            field = field_path((*path, "NetworkNodes"))
            raise UnreadableError(file, f"has more than {MOST_LEVELS} network nodes", field=field)
        place = tuple(name or None for name in reversed(nodes))
        for level, name in enumerate(place):
            levels.setdefault(name or "", set()).add(level)
        collected.add(_named(file, one.instance_id, path, "InstanceId"), place, one.capacity_block_id or None)
    shared = [name for name, several in levels.items() if name and len(several) > 1]
    if shared:
        message = (
            f"instances have unequally many network nodes above them, so {listed(shared)} "
            f"{'is' if len(shared) == 1 else 'are'} of a coarser level for some than for others"
        )
        remedy = "gangs over both kinds share no domain there; keep each to one kind"
        collected.warnings.append(warning("Network", message, remedy))
    _incomplete(value, "NextToken", collected)
    return collected.findings(file, keys)


def read_gcp(
    file: str, text: str, keys: Sequence[str] | None = None, names: Mapping[str, str] | None = None
) -> ScanFindings:
    """``gcloud compute instances list --format=json``: subblock, block and cluster of each physical host.

    Raises:
        UnreadableError: it can't be read, or describes no instance.
    """
    value = read_json(file, text)
    collected = Collected(names)
    for path, entry in _pages(file, value, "items", "instances list"):
        one = decode(file, entry, _GcpInstance, path)
        host = (one.resource_status or _GcpStatus()).physical_host_topology or _GcpTopology()
        place = tuple(name or None for name in (host.subblock, host.block, host.cluster))
        collected.add(_named(file, one.name, path, "name"), place)
    _incomplete(value, "nextPageToken", collected)
    return collected.findings(file, keys)


def read_oci(
    file: str, text: str, keys: Sequence[str] | None = None, names: Mapping[str, str] | None = None
) -> ScanFindings:
    """``oci compute compute-host list`` (or ``get``): local block, network block and HPC island of each host
    that runs an instance, and its GPU memory fabric as accelerator domain.

    Keys are read as the command line writes them (``local-block-id``) and as the API does (``localBlockId``).

    Raises:
        UnreadableError: it can't be read, or describes no instance.
    """
    value = read_json(file, text)
    collected = Collected(names)
    idle = 0
    for path, raw in _pages(file, _oci_data(value), "items", "compute-host list"):
        entry = {_plain(key): one for key, one in raw.items()}
        host = decode(file, entry, _OciHost, path)
        if not host.instance_id:
            idle += 1
            continue
        levels = (host.local_block_id, host.network_block_id, host.hpc_island_id)
        place: Place = tuple(name or None for name in levels)
        domain = host.gpu_memory_fabric_id or None
        rack = _rack(entry)
        labels = {SUB_DOMAIN_KEY: f"{domain}.{rack}"} if domain is not None and rack else {}
        collected.add(host.instance_id, place, domain, labels)
    if idle:
        hosts = "1 host runs" if idle == 1 else f"{idle} hosts run"
        collected.warnings.append(
            warning("Network", f"{hosts} no instance and {'is' if idle == 1 else 'are'} left out")
        )
    _incomplete(value, "opc-next-page", collected)
    return collected.findings(file, keys)


def _oci_data(value: object) -> object:
    """What is under ``data``; a single host is a list of one."""
    data = value.get("data") if isinstance(value, dict) and "data" in value else value
    if isinstance(data, dict) and "items" not in data:
        return [data]
    return data


def _plain(key: str) -> str:
    """``compute-local-block-id``, ``localBlockId`` and ``local-block-id`` are one."""
    return key.replace("-", "").replace("_", "").lower().removeprefix("compute")


def _rack(entry: Entry) -> str | None:
    value: object = entry.get("additionaldata")
    for step in ("locationdetails", "rack"):
        if not isinstance(value, dict):
            return None
        value = {_plain(key): one for key, one in value.items()}.get(step)
    return value if isinstance(value, str) and value else None


def _pages(file: str, value: object, key: str, command: str) -> Found:
    """The entries under ``key`` of one answer, of a list of answers, or of a bare list."""
    if isinstance(value, dict):
        if key not in value:
            raise UnreadableError(file, f"has no {key}", f"give what `{command}` prints as JSON")
        yield from _entries(file, value[key], (key,))
        return
    for path, entry in _entries(file, value, ()):
        if isinstance(entry.get(key), list):
            yield from _entries(file, entry[key], (*path, key))
        else:
            yield path, entry


def _entries(file: str, value: object, path: Path) -> Found:
    for index, entry in enumerate(decode(file, value, list[dict[str, object]], path)):
        yield (*path, index), entry


def _named(file: str, name: str, path: Path, key: str) -> str:
    if not name:
        raise UnreadableError(file, "is empty", field=field_path((*path, key)))
    return name


def _incomplete(value: object, key: str, collected: Collected) -> None:
    pages = value if isinstance(value, list) else [value]
    if pages and isinstance(pages[-1], dict) and pages[-1].get(key):
        message = f"it has a {key}, so there are more hosts than it describes"
        collected.warnings.append(warning("Network", message, "ask for all pages"))
