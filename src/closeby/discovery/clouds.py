"""What clouds tell of the network under their hosts, as their command lines print it in JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from closeby.discovery.assembling import warning
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labelling import Place
from closeby.discovery.places import Collected
from closeby.discovery.slurm_trees import MOST_LEVELS
from closeby.discovery.topograph import SUB_DOMAIN_KEY
from closeby.discovery.unreadable import kind, mappings, read_json, text_of
from closeby.errors import UnreadableError
from closeby.reading.decoding.errors import Path, field_path
from closeby.topology.node_groups import listed

Entry = Mapping[str, object]
Found = Iterator[tuple[Path, Entry]]

_OCI_LEVELS: Final = ("localblockid", "networkblockid", "hpcislandid")


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
        instance = _required(file, entry, "InstanceId", path)
        nodes = entry.get("NetworkNodes")
        if nodes is None:
            nodes = []
        if not isinstance(nodes, list) or not all(isinstance(one, str) for one in nodes):
            field = field_path((*path, "NetworkNodes"))
            raise UnreadableError(file, "must be a list of names, root first", field=field)
        if len(nodes) > MOST_LEVELS:
            field = field_path((*path, "NetworkNodes"))
            raise UnreadableError(file, f"has more than {MOST_LEVELS} network nodes", field=field)
        place = tuple(one or None for one in reversed(nodes))
        for level, name in enumerate(place):
            levels.setdefault(name or "", set()).add(level)
        collected.add(instance, place, text_of(file, entry, "CapacityBlockId", path))
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
        instance = _required(file, entry, "name", path)
        status = _inner(file, entry, "resourceStatus", path)
        at = (*path, "resourceStatus", "physicalHostTopology")
        host = _inner(file, status, "physicalHostTopology", at[:-1])
        collected.add(
            instance, tuple(text_of(file, host, one, at) for one in ("subblock", "block", "cluster"))
        )
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
        instance = text_of(file, entry, "instanceid", path)
        if instance is None:
            idle += 1
            continue
        place: Place = tuple(text_of(file, entry, level, path) for level in _OCI_LEVELS)
        domain = text_of(file, entry, "gpumemoryfabricid", path)
        rack = _rack(entry)
        labels = {SUB_DOMAIN_KEY: f"{domain}.{rack}"} if domain is not None and rack else {}
        collected.add(instance, place, domain, labels)
    if idle:
        hosts = "1 host runs" if idle == 1 else f"{idle} hosts run"
        collected.warnings.append(
            warning("Network", f"{hosts} no instance and {'is' if idle == 1 else 'are'} left out")
        )
    _incomplete(value, "opc-next-page", collected)
    return collected.findings(file, keys)


def _oci_data(value: object) -> object:
    """What lies under ``data``; a single host is a list of one."""
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
        yield from mappings(file, value[key], (key,))
        return
    for path, entry in mappings(file, value, ()):
        if isinstance(entry.get(key), list):
            yield from mappings(file, entry[key], (*path, key))
        else:
            yield path, entry


def _required(file: str, entry: Entry, key: str, path: Path) -> str:
    value = text_of(file, entry, key, path)
    if value is None:
        raise UnreadableError(file, "is missing", field=field_path((*path, key)))
    return value


def _inner(file: str, entry: Entry, key: str, path: Path) -> Entry:
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableError(
            file, f"must be a mapping, but is {kind(value)}", field=field_path((*path, key))
        )
    return value


def _incomplete(value: object, key: str, collected: Collected) -> None:
    pages = value if isinstance(value, list) else [value]
    if pages and isinstance(pages[-1], dict) and pages[-1].get(key):
        message = f"it has a {key}, so there are more hosts than it describes"
        collected.warnings.append(warning("Network", message, "ask for all pages"))
