"""What a pod asks of its node: effective requests, quality of service, host ports.

Source of the rules: Kubernetes' resource helpers (``PodRequests``, ``ComputePodQOS``), the sidecar containers
KEP and the pod-level resources KEP.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import field

from closeby.errors import FieldError, QuantityError
from closeby.objects.bounds import quoted
from closeby.objects.pods import HostPort
from closeby.objects.quantities import amount_of_nanos, nanos
from closeby.objects.reasons import MOST_CONDITIONS
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.wire import Quantities, Wire

Amounts = dict[str, int]
#: In one unit of a resource.
NANOS: Final = 10**9


class ResourcesWire(Wire):
    """``resources`` of a container or a pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class PortWire(Wire, gc=False):
    """``ports[]``."""

    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = field(name="hostIP", default=None)


class ContainerWire(Wire):
    """A container or an init container."""

    name: str = ""
    image: str | None = None
    resources: ResourcesWire | None = None
    ports: list[PortWire] | None = None
    restart_policy: str | None = None


class ContainersWire(Wire):
    """The part of a pod's ``spec`` that says what it consumes."""

    containers: list[ContainerWire] | None = None
    init_containers: list[ContainerWire] | None = None
    overhead: Quantities | None = None
    resources: ResourcesWire | None = None
    host_network: bool | None = None


def effective_requests(spec: ContainersWire) -> tuple[tuple[str, int], ...]:
    """What the scheduler must set aside: per resource the greater of what runs together and what each start
    step needs, plus overhead; sorted by name, zeros left out, rounded up once at the end.

    Raises:
        FieldError: a quantity that is none, is negative or too large; the path starts at the pod's ``spec``.
    """
    running: Amounts = {}
    for path, container in _containers(spec.containers, "containers"):
        _add(running, requests_or_limits(container.resources, path))
    sidecars: Amounts = {}
    start: Amounts = {}
    for path, container in _containers(spec.init_containers, "initContainers"):
        wanted = requests_or_limits(container.resources, path)
        if container.restart_policy == "Always":
            # It keeps running: beside the containers, and beside each init container after it.
            _add(running, wanted)
            _add(sidecars, wanted)
            step = sidecars
        else:
            step = dict(sidecars)
            _add(step, wanted)
        for name, value in step.items():
            start[name] = max(start.get(name, 0), value)
    total = {name: max(running.get(name, 0), start.get(name, 0)) for name in (running | start)}
    total.update(_pod_level(spec.resources, total))
    _add(total, read_amounts(spec.overhead, ("overhead",)))
    return whole_amounts(total, ("containers",))


def whole_amounts(amounts: Mapping[str, int], path: Path) -> tuple[tuple[str, int], ...]:
    """Billionths as whole units, rounded up; sorted by name, zeros left out.

    Raises:
        FieldError: one is too large; ``path`` is where they stand.
    """
    try:
        return tuple((name, amount_of_nanos(name, value)) for name, value in sorted(amounts.items()) if value)
    except QuantityError as error:
        raise FieldError(path, error.message, error.remedy) from error


def refusals(spec: ContainersWire) -> tuple[tuple[Path, str, str], ...]:
    """Amounts that no API server accepts: where in the pod's ``spec``, what is wrong, and the remedy.

    Source: Kubernetes' validation of resource requirements. The pod is placed by what can be read of them.

    Raises:
        FieldError: as ``effective_requests``.
    """
    found: dict[tuple[Path, str], tuple[Path, str, str]] = {}
    for name, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for path, container in _containers(containers, name):
            if container.resources is not None:
                for one in _refused(container.resources, (*path, "resources")):
                    # The same slip in several containers is said of the first one.
                    found.setdefault((one[0][-2:], one[1]), one)
    if spec.resources is not None:
        for part, quantities in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
            for resource in sorted(quantities or {}):
                if not _settled_by_pod(resource):
                    remedy = "ask for it in a container; it counts for nothing here"
                    one = ("resources", part, resource), "can't be asked for at pod level", remedy
                    found.setdefault((one[0][-1:], one[1]), one)
    return tuple(found.values())[:MOST_CONDITIONS]


def _refused(resources: ResourcesWire, path: Path) -> Iterator[tuple[Path, str, str]]:
    requests = read_amounts(resources.requests, (*path, "requests"))
    limits = read_amounts(resources.limits, (*path, "limits"))
    for part, amounts in (("requests", requests), ("limits", limits)):
        for name, value in amounts.items():
            if _is_device(name) and value % NANOS:
                yield (
                    (*path, part, name),
                    "is not a whole number",
                    "devices are not shared; it counts as the next one",
                )
    for name, value in requests.items():
        limit = limits.get(name)
        if _is_device(name) or name.startswith("hugepages-"):
            if limit is None:
                yield (*path, "limits", name), "is missing", "repeat the request: it can't be overcommitted"
            elif limit != value:
                yield (*path, "requests", name), "is not equal to its limit", "make both equal"
        elif limit is not None and limit < value:
            yield (*path, "requests", name), "is more than its limit", "raise the limit"


def _is_device(resource: str) -> bool:
    """Whether it is an extended resource: a name with a domain that is not Kubernetes' own."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def qos_class(spec: ContainersWire) -> str:
    """Guaranteed, Burstable or BestEffort; cpu and memory alone decide.

    Raises:
        FieldError: as ``effective_requests``.
    """
    requests: Amounts = {}
    limits: Amounts = {}
    guaranteed = True
    if spec.resources and (spec.resources.requests or spec.resources.limits):
        claims: list[tuple[Path, ResourcesWire | None]] = [((), spec.resources)]
    else:
        claims = [
            (path, container.resources)
            for name, containers in (
                ("containers", spec.containers),
                ("initContainers", spec.init_containers),
            )
            for path, container in _containers(containers, name)
        ]
    for path, resources in claims:
        limited = _computing(
            read_amounts(resources.limits if resources else None, (*path, "resources", "limits"))
        )
        guaranteed = guaranteed and len(limited) == 2
        _add(limits, limited)
        _add(requests, _computing(requests_or_limits(resources, path)))
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def host_ports(spec: ContainersWire) -> tuple[HostPort, ...]:
    """The ports the pod takes on its node, sorted, without repeats."""
    ports = set()
    for container in [
        *(spec.containers or ()),
        *(one for one in spec.init_containers or () if one.restart_policy == "Always"),
    ]:
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else None)
            if number:
                ports.add((number, port.protocol or "TCP", port.host_ip or "0.0.0.0"))
    return tuple(HostPort(*port) for port in sorted(ports))


def _containers(containers: list[ContainerWire] | None, name: str) -> Iterator[tuple[Path, ContainerWire]]:
    for i, container in enumerate(containers or ()):
        yield (name, i), container


def requests_or_limits(resources: ResourcesWire | None, path: Path) -> Amounts:
    """Requests of one container in billionths; a limit stands in for a request that is not there.

    Raises:
        FieldError: as ``read_amounts``.
    """
    if resources is None:
        return {}
    wanted = read_amounts(resources.limits, (*path, "resources", "limits"))
    wanted.update(read_amounts(resources.requests, (*path, "resources", "requests")))
    return wanted


def _pod_level(resources: ResourcesWire | None, containers: Mapping[str, int]) -> Amounts:
    """What ``spec.resources`` settles: its requests, and its limits where there is no request."""
    if resources is None:
        return {}
    settled = {
        name: value
        for name, value in read_amounts(resources.limits, ("resources", "limits")).items()
        if name not in containers
    }
    settled.update(read_amounts(resources.requests, ("resources", "requests")))
    return {name: value for name, value in settled.items() if _settled_by_pod(name)}


def _settled_by_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _computing(amounts: Amounts) -> Amounts:
    return {name: value for name, value in amounts.items() if name in ("cpu", "memory") and value}


def read_amounts(quantities: Quantities | None, path: Path) -> Amounts:
    """Quantities in billionths of their unit.

    Raises:
        FieldError: one is none, is negative or too large.
    """
    result: Amounts = {}
    for name, text in (quantities or {}).items():
        try:
            value = nanos(text)
        except QuantityError as error:
            raise FieldError((*path, name), error.message, error.remedy) from error
        if value < 0:
            raise FieldError((*path, name), f"{quoted(text)} is negative", "give zero or more")
        result[name] = value
    return result


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value
