"""`closeby agent` as the chart runs it: on every node, in the nodes' network, with few rights."""

import asyncio
import base64
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeby.cli.operating.agent_work import PORT_NAME
from closeby.kube.metrics.serving import ListenAddress, read_address
from closeby.kube.writing.node_status import patch_node_status
from closeby.reading.decoding.bandwidth import BANDWIDTH
from tests.agents.test_live_agent import own_address, slice_of
from tests.cli.calling import closeby as call
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.deploy.helm import CHART, called, objects, rendered
from tests.deploy.installed import Release, allowed, installed, kubeconfig, running
from tests.deploy.test_rights import CONTROLLERS_ONLY, NEITHER, SCHEDULER_ONLY, forbidden
from tests.kube.live import direct, eventually

TOKEN = "0123456789abcdef0123456789abcdef"
ENABLED = ("--set", f"agent.enabled=true,agent.token={TOKEN}")
EVERYTHING = (
    "--set",
    "agent.tlsSecret=certificates,metrics.networkPolicy.enabled=true,agent.hostNetwork=false",
)


def found(text: str, kind: str) -> dict[str, Any]:
    """The agent's only object of a kind."""
    (one,) = (
        one for one in objects(text) if one["kind"] == kind and one["metadata"]["name"] == "closeby-agent"
    )
    return dict(one)


def kinds(text: str) -> set[str]:
    names = ("closeby-agent", "default-closeby-agent")
    return {one["kind"] for one in objects(text) if one["metadata"]["name"] in names}


def pod_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pods' spec, and their only container."""
    spec = found(text, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def test_it_is_left_out_unless_it_is_enabled(helm: Path) -> None:
    assert "agent" not in rendered(helm)


def test_helm_finds_no_fault_with_it(helm: Path) -> None:
    done = called(helm, "lint", "--strict", str(CHART), *ENABLED, *EVERYTHING)
    assert done.returncode == 0, done.stdout


def test_agents_without_anything_to_know_each_other_by_are_not_installed(helm: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(helm, "--set", "agent.enabled=true")
    assert "agent.existingSecret" in refused.value.stderr
    assert "openssl rand -hex 32" in refused.value.stderr


@pytest.mark.parametrize(
    ("values", "complaint"),
    [("agent.token=short", "token"), ("agent.port=0", "port"), ("agent.hostNetwrk=true", "hostNetwrk")],
)
def test_values_are_checked(helm: Path, values: str, complaint: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(helm, *ENABLED, "--set", values)
    assert f"/agent/{complaint}" in refused.value.stderr or f"'{complaint}'" in refused.value.stderr


def test_the_token_is_in_a_secret_and_nowhere_else(helm: Path) -> None:
    text = rendered(helm, *ENABLED)
    assert base64.b64decode(found(text, "Secret")["data"]["token"]).decode() == TOKEN
    assert TOKEN not in text
    spec, container = pod_of(text)
    assert "--token-file=/etc/closeby/token/token" in container["args"]
    assert [one["secret"]["secretName"] for one in spec["volumes"]] == ["closeby-agent"]
    own = rendered(helm, "--set", "agent.enabled=true,agent.existingSecret=mine")
    assert "Secret" not in kinds(own)
    assert [one["secret"]["secretName"] for one in pod_of(own)[0]["volumes"]] == ["mine"]


def test_certificates_instead_of_a_token(helm: Path) -> None:
    spec, container = pod_of(rendered(helm, "--set", "agent.enabled=true,agent.tlsSecret=certificates"))
    assert not any("token" in one for one in container["args"])
    assert sum(one.startswith("--tls-") for one in container["args"]) == 3
    assert [one["secret"]["secretName"] for one in spec["volumes"]] == ["certificates"]


def test_it_runs_without_privileges_in_the_nodes_network(helm: Path) -> None:
    spec, container = pod_of(rendered(helm, *ENABLED))
    assert spec["hostNetwork"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in pod_of(rendered(helm, *ENABLED, "--set", "agent.hostNetwork=false"))[0]


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::7"])
def test_its_metrics_are_served_on_the_nodes_own_address_alone(helm: Path, address: str) -> None:
    """Anybody may read them who gets there, and a node may have an address in the Internet too."""
    _, container = pod_of(rendered(helm, *ENABLED))
    (source,) = (one["valueFrom"]["fieldRef"] for one in container["env"] if one["name"] == "HOST_IP")
    assert source == {"fieldPath": "status.hostIP"}
    (given,) = (one for one in container["args"] if one.startswith("--metrics-address="))
    told = read_address(given.partition("=")[2].replace("$(HOST_IP)", address))
    assert told == ListenAddress(address, 9472)
    _, container = pod_of(rendered(helm, *ENABLED, "--set", "agent.hostNetwork=false"))
    assert "--metrics-address=:9472" in container["args"]
    assert [one["name"] for one in container["env"]] == ["NODE_NAME"]


def test_its_namespace_takes_pods_in_the_nodes_network(helm: Path) -> None:
    """The pod security standard `restricted` would refuse them, without a word but in Events."""

    def level(*values: str) -> str:
        text = rendered(helm, "--set", "namespace.create=true", *values)
        (one,) = (one for one in objects(text) if one["kind"] == "Namespace")
        return str(one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"])

    assert level() == "restricted"
    assert level(*ENABLED) == "privileged"
    assert level(*ENABLED, "--set", "agent.hostNetwork=false") == "restricted"


def test_its_service_leads_to_its_pods_and_names_the_port(helm: Path) -> None:
    text = rendered(helm, *ENABLED)
    service, daemons = found(text, "Service"), found(text, "DaemonSet")["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == daemons["selector"]["matchLabels"]
    assert service["spec"]["selector"].items() <= daemons["template"]["metadata"]["labels"].items()
    assert {one["name"] for one in service["spec"]["ports"]} == {PORT_NAME, "metrics"}
    assert f"--service={service['metadata']['name']}" in pod_of(text)[1]["args"]


def test_its_arguments_are_options_of_the_command(helm: Path) -> None:
    _, container = pod_of(rendered(helm, *ENABLED, *EVERYTHING, "--set", "agent.advertise=false"))
    command, *options = container["args"]
    assert command == "agent"
    shown = call(command, "--help").stdout
    for option in options:
        assert re.search(rf"(^|[\s/]){option.partition('=')[0]}\b", shown), f"{option} is not in:\n{shown}"


def test_who_may_reach_its_ports_in_the_network_of_pods(helm: Path) -> None:
    assert "NetworkPolicy" not in kinds(
        rendered(helm, *ENABLED, "--set", "metrics.networkPolicy.enabled=true")
    )
    text = rendered(helm, *ENABLED, *EVERYTHING)
    policy = found(text, "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["ports"] == [{"port": "probe", "protocol": "TCP"}]
    assert policy["ingress"][0]["from"] == [{"podSelector": policy["podSelector"]}]
    assert policy["ingress"][1]["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert len(policy["ingress"][1]["from"]) == 1


def test_without_bandwidth_it_has_no_rights_on_nodes(helm: Path) -> None:
    def asked(*values: str) -> set[str]:
        rules = found(rendered(helm, *ENABLED, *values), "ClusterRole")["rules"]
        return {one for rule in rules for one in rule["resources"]}

    reviews = {"tokenreviews", "subjectaccessreviews"}
    assert asked() == reviews | {"nodes", "nodes/status"}
    assert asked("--set", "agent.advertise=false") == reviews
    neither = rendered(helm, *ENABLED, "--set", "agent.advertise=false,metrics.secure=false")
    assert "ClusterRole" not in kinds(neither)


def test_its_metrics_are_secure_unless_configured_otherwise(helm: Path) -> None:
    container = pod_of(rendered(helm, *ENABLED, "--set", "metrics.tlsSecret=cert"))[1]
    assert "--metrics-secure" in container["args"]
    assert "metrics-tls" in [one["name"] for one in container["volumeMounts"]]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    container = pod_of(rendered(helm, *ENABLED, "--set", "metrics.secure=false"))[1]
    assert not [one for one in container["args"] if one.startswith("--metrics-secure")]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_the_api_server_takes_its_objects(helm: Path, control_plane: ControlPlane, namespace: str) -> None:
    """Checked, and not kept."""
    places = {
        "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
        "Service": "/api/v1/namespaces/{}/services",
        "Secret": "/api/v1/namespaces/{}/secrets",
        "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    }

    async def run() -> None:
        async with Api(control_plane.access()) as api:
            for more in ((), EVERYTHING):
                text = rendered(helm, *ENABLED, *more, "--namespace", namespace)
                for kind in kinds(text) & places.keys():
                    await api.create(
                        places[kind].format(namespace) + "?dryRun=All&fieldValidation=Strict",
                        found(text, kind),
                    )

    asyncio.run(run())


def test_it_does_its_work_with_these_rights_and_has_no_others(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    log, name, address = tmp_path / "log", f"{namespace}-a", own_address()
    (tmp_path / "token").mkdir()
    (tmp_path / "token" / "token").write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    values = tmp_path / "values.yaml"
    agent = {"enabled": True, "token": TOKEN, "port": port, "extraArgs": ["--bandwidth=10G"]}
    values.write_text(yaml.safe_dump({"agent": agent}))

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, [node(name)]),
            installed(helm, api, namespace, "--values", str(values)) as release,
        ):
            await check_rights(api, release, namespace)
            who = await kubeconfig(control_plane, api, release, "agent", await pod_on(api, release, name))
            slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            await api.create(slices, slice_of(name, release.account("agent"), address, port))

            async def told() -> bool:
                status = (await api.get(f"/api/v1/nodes/{name}"))["status"]
                return status["allocatable"].get(BANDWIDTH) == "10G" and "answering peers" in log.read_text()

            with running(arguments(release, tmp_path, name), who, log):
                try:
                    await eventually(told)
                except TimeoutError as error:
                    raise AssertionError(log.read_text()) from error
        assert forbidden(log) == []
        assert "watch failed" not in log.read_text()

    asyncio.run(run())


async def pod_on(api: Api, release: Release, name: str) -> Object:
    """A pod of the agent on a node, whose token says on which."""
    spec = {
        "serviceAccountName": release.account("agent"),
        "nodeName": name,
        "containers": [{"name": "main", "image": "none"}],
    }
    body = {"metadata": {"name": f"on-{name}"}, "spec": spec}
    return await api.create(f"/api/v1/namespaces/{release.namespace}/pods", body)


def test_an_agent_writes_the_bandwidth_of_its_own_node_and_nothing_else(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Roles allow it to write the status of any node; the policy one resource of that of its own."""
    own, other = f"{namespace}-own", f"{namespace}-other"
    values = ("--set", f"agent.enabled=true,agent.token={TOKEN}")
    bandwidth = [
        {"op": "add", "path": f"/status/{part}/network.aware.com~1bandwidth", "value": "1G"}
        for part in ("capacity", "allocatable")
    ]
    refused = {
        "to its own node alone": (other, bandwidth),
        "capacity and allocatable alone": (
            own,
            [{"op": "replace", "path": "/status/conditions/0/status", "value": "False"}],
        ),
        "bandwidth alone": (own, [{"op": "replace", "path": "/status/allocatable/cpu", "value": "1"}]),
        "network.aware.com/bandwidth alone": (own, [{"op": "remove", "path": "/status/capacity/memory"}]),
    }

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, [node(own), node(other)]),
            installed(helm, api, namespace, *values) as release,
        ):
            pod = await pod_on(api, release, own)
            who = await kubeconfig(control_plane, api, release, "agent", pod)
            async with direct(who) as transport:

                async def at_work() -> bool:
                    # The API server takes a while to learn of a policy.
                    error = await patch_node_status(transport, other, bandwidth)
                    return error is not None and "own node alone" in error.message

                await eventually(at_work)
                for complaint, (name, operations) in refused.items():
                    error = await patch_node_status(transport, name, operations)
                    assert error is not None and complaint in error.message, complaint
                assert await patch_node_status(transport, own, bandwidth) is None
                assert await patch_node_status(transport, own, bandwidth) is None
            # A token that says nothing of a node is good for none.
            async with direct(await kubeconfig(control_plane, api, release, "agent")) as transport:
                error = await patch_node_status(transport, own, bandwidth[:1])
                assert error is not None and "own node alone" in error.message
            # Others are not held to anything.
            await api.patch(f"/api/v1/nodes/{other}/status", {"status": {"capacity": {BANDWIDTH: "2G"}}})

    asyncio.run(run())


def test_older_clusters_have_no_such_policy(helm: Path) -> None:
    """Only since 1.32 does a token tell the API server of which node's pod it is."""
    assert "ValidatingAdmissionPolicy" in kinds(rendered(helm, *ENABLED))
    older = kinds(rendered(helm, *ENABLED, "--kube-version", "1.31.0"))
    assert "DaemonSet" in older and "ValidatingAdmissionPolicy" not in older


def arguments(release: Release, folder: Path, name: str) -> list[str]:
    """Those of the container, for this machine."""
    (container,) = (
        container
        for one in release.objects
        if one["kind"] == "DaemonSet"
        for container in one["spec"]["template"]["spec"]["containers"]
    )
    given = [str(one).replace("/etc/closeby", str(folder)) for one in container["args"]]
    return [re.sub(r"--metrics-address=.*", "--metrics-address=127.0.0.1:0", one) for one in given] + [
        f"--node-name={name}"
    ]


async def check_rights(api: Api, release: Release, namespace: str) -> None:
    user = release.user("agent")
    its = [
        ("patch", "nodes:status"),
        ("list", "nodes"),
        ("watch", "nodes"),
        ("list", "discovery.k8s.io/endpointslices"),
    ]
    for verb, resource in its:
        assert await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
    more = [("patch", "nodes"), ("update", "nodes:status"), ("list", "pods"), ("list", "services")]
    for verb, resource in (*NEITHER, *SCHEDULER_ONLY, *CONTROLLERS_ONLY, *more):
        if (verb, resource) != ("patch", "nodes:status"):
            assert not await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
    elsewhere = await allowed(api, user, "list", "discovery.k8s.io/endpointslices", namespace="kube-system")
    assert not elsewhere
