"""Effective requests, quality of service and host ports of a pod, after Kubernetes' own examples."""

from typing import Any

import pytest

from closeby.objects.pods import HostPort
from tests.reading.manifest_text import read_objects, read_pod

Spec = dict[str, Any]


def container(cpu: str, *, always: bool = False, memory: str = "0", gpu: str = "0") -> Spec:
    """A container that requests some cpu (and other resources)."""
    requests = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu}
    result: Spec = {"resources": {"requests": requests}}
    return result | {"restartPolicy": "Always"} if always else result


def requests_of(spec: Spec) -> dict[str, int]:
    return dict(read_pod(spec).spec.requests)


@pytest.mark.parametrize(
    ("what", "spec", "cpu"),
    [
        ("the sum of the containers", {"containers": [container("1"), container("500m")]}, 1500),
        (
            "an init container counts where it needs more",
            {"initContainers": [container("4")], "containers": [container("1")]},
            4000,
        ),
        (
            "the greatest of the init containers, one runs at a time",
            {"initContainers": [container("2"), container("3")], "containers": [container("1")]},
            3000,
        ),
        (
            "a sidecar runs beside the containers",
            {"initContainers": [container("200m", always=True)], "containers": [container("1")]},
            1200,
        ),
        (
            "a sidecar runs beside the init containers after it",
            {
                "initContainers": [container("1", always=True), container("3")],
                "containers": [container("1")],
            },
            4000,
        ),
        (
            "a sidecar is not there yet for the init containers before it",
            {
                "initContainers": [container("3"), container("1", always=True)],
                "containers": [container("1")],
            },
            3000,
        ),
        (
            # The example of the sidecar containers KEP: max(sum of all, init + sidecars before it).
            "all together",
            {
                "initContainers": [
                    container("5"),
                    container("1", always=True),
                    container("2"),
                    container("500m", always=True),
                    container("3500m"),
                ],
                "containers": [container("1"), container("2")],
            },
            5000,
        ),
        (
            "overhead comes on top",
            {"containers": [container("1")], "overhead": {"cpu": "250m"}},
            1250,
        ),
        (
            "limits stand in for requests that are not there",
            {"containers": [{"resources": {"limits": {"cpu": "3"}}}, container("1")]},
            4000,
        ),
        (
            "a request counts and not its limit",
            {"containers": [{"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}}]},
            1000,
        ),
        (
            "the pod's own request settles it",
            {"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}},
            5000,
        ),
        (
            "overhead comes on top of the pod's own request",
            {
                "containers": [container("1")],
                "resources": {"requests": {"cpu": "5"}},
                "overhead": {"cpu": "250m"},
            },
            5250,
        ),
        (
            "the pod's limit counts where nobody requests anything",
            {"containers": [{}], "resources": {"limits": {"cpu": "2"}}},
            2000,
        ),
        (
            "the containers' requests count before the pod's limit",
            {"containers": [container("1")], "resources": {"limits": {"cpu": "2"}}},
            1000,
        ),
        (
            "what is finer than the unit is added up before it is rounded",
            {"containers": [container("400u"), container("400u"), container("400u")]},
            2,
        ),
    ],
)
def test_effective_cpu(what: str, spec: Spec, cpu: int) -> None:
    assert requests_of(spec) == {"cpu": cpu}, what


def test_each_resource_takes_its_own_greatest() -> None:
    spec = {
        "initContainers": [container("2", memory="1Gi")],
        "containers": [container("1", memory="3Gi", gpu="8")],
    }
    assert requests_of(spec) == {"cpu": 2000, "memory": 3 * 1024**3, "nvidia.com/gpu": 8}


def test_zero_is_no_request() -> None:
    assert requests_of({"containers": [container("0", gpu="0")]}) == {}


def test_devices_are_not_settled_by_the_pod() -> None:
    spec = {
        "containers": [container("1", gpu="1")],
        "resources": {"requests": {"nvidia.com/gpu": 4}},
    }
    assert requests_of(spec)["nvidia.com/gpu"] == 1


FULL = {"limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("spec", "quality"),
    [
        ({"containers": [{}]}, "BestEffort"),
        ({"containers": [container("0")]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}]}, "BestEffort"),
        ({"containers": [{"resources": FULL}]}, "Guaranteed"),
        ({"containers": [{"resources": FULL | {"requests": {"cpu": "1000m"}}}]}, "Guaranteed"),
        ({"containers": [{"resources": FULL | {"requests": {"cpu": "500m"}}}]}, "Burstable"),
        ({"containers": [{"resources": FULL}, {}]}, "Burstable"),
        ({"containers": [{"resources": FULL}], "initContainers": [{}]}, "Burstable"),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, "Burstable"),
        ({"containers": [{}], "resources": FULL}, "Guaranteed"),
        ({"containers": [{"resources": FULL}], "resources": {"requests": {"cpu": "4"}}}, "Burstable"),
    ],
)
def test_quality_of_service(spec: Spec, quality: str) -> None:
    assert read_pod(spec).spec.qos_class == quality


def test_host_ports() -> None:
    ports = [
        {"containerPort": 80},
        {"containerPort": 81, "hostPort": 8081},
        {"containerPort": 82, "hostPort": 8082, "protocol": "UDP", "hostIP": "10.0.0.1"},
        {"containerPort": 83, "hostPort": 8081},
    ]
    assert read_pod({"containers": [{"ports": ports}]}).spec.host_ports == (
        HostPort(8081, "TCP", "0.0.0.0"),
        HostPort(8082, "UDP", "10.0.0.1"),
    )


def test_on_the_host_network_every_container_port_is_a_host_port() -> None:
    spec = {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}
    assert read_pod(spec).spec.host_ports == (HostPort(80),)


def test_only_sidecars_among_the_init_containers_hold_ports() -> None:
    sidecar = {"ports": [{"hostPort": 1}], "restartPolicy": "Always"}
    spec = {"initContainers": [sidecar, {"ports": [{"hostPort": 2}]}], "containers": [{}]}
    assert read_pod(spec).spec.host_ports == (HostPort(1),)


@pytest.mark.parametrize(
    ("resources", "field", "message"),
    [
        (
            {"requests": {"example.com/gpu": "0.5"}, "limits": {"example.com/gpu": "0.5"}},
            "requests",
            "whole number",
        ),
        ({"limits": {"example.com/gpu": "1500m"}}, "limits", "whole number"),
        (
            {"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 2}},
            "requests",
            "not equal to its limit",
        ),
        ({"requests": {"example.com/gpu": 1}}, "limits", "is missing"),
        (
            {"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "4Mi"}},
            "requests",
            "not equal",
        ),
        ({"requests": {"cpu": 2}, "limits": {"cpu": 1}}, "requests", "more than its limit"),
    ],
)
def test_an_amount_that_no_api_server_accepts_is_reported(
    resources: dict[str, Any], field: str, message: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    place = f"spec.containers[0].resources.{field}"
    notice = next(one for one in read_objects(pod).notices if one.field.startswith(place))
    assert (notice.reason, notice.blocking) == ("InvalidSpec", False)
    assert message in notice.message


@pytest.mark.parametrize(
    ("resources", "fields"),
    [
        ({"limits": {"example.com/gpu": 8}}, ['limits["example.com/gpu"]']),
        (
            {"requests": {"example.com/gpu": 8}, "limits": {"example.com/gpu": 8}},
            ['requests["example.com/gpu"]'],
        ),
        ({"requests": {"ephemeral-storage": "1Gi"}}, ["requests.ephemeral-storage"]),
        ({"requests": {"cpu": 1, "memory": "1Gi", "hugepages-2Mi": "4Mi"}}, []),
    ],
)
def test_what_no_api_server_takes_at_pod_level_is_reported(
    resources: dict[str, Any], fields: list[str]
) -> None:
    spec = {"containers": [{"name": "c"}], "resources": resources}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    notices = read_objects(pod).notices
    assert [one.field.removeprefix("spec.resources.") for one in notices] == fields
    assert {one.reason for one in notices} <= {"InvalidSpec"}


def test_amounts_that_an_api_server_accepts_are_not_reported() -> None:
    resources = {
        "requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": 2, "ephemeral-storage": "1.5Gi"},
        "limits": {"cpu": 1, "example.com/gpu": 2, "vendor.kubernetes.io/part": "0.5"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    assert read_objects(pod).notices == ()


def test_the_same_amount_in_very_many_containers_is_reported_once() -> None:
    containers = [
        {"name": f"c{i}", "resources": {"limits": {"example.com/gpu": "500m"}}} for i in range(1000)
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    (notice,) = read_objects(pod).notices
    assert notice.field == 'spec.containers[0].resources.limits["example.com/gpu"]'
