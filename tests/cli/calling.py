"""Calls the command line as a user would, and small manifests to call it with."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from click.testing import CliRunner, Result

from closeby.cli.main import cli

GPU = "nvidia.com/gpu"
Manifest = dict[str, Any]


def closeby(
    *arguments: object, stdin: str | None = None, environment: Mapping[str, str] | None = None
) -> Result:
    """Run the command line in this process; standard output and error are kept apart."""
    result = CliRunner(env=dict(environment or {})).invoke(cli, [str(one) for one in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def report(*arguments: object, stdin: str | None = None) -> Any:
    """What a command prints with ``-o json``."""
    result = closeby(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def text(*manifests: Manifest) -> str:
    """Manifests as a stream of documents."""
    return "\n---\n".join(json.dumps(one) for one in manifests)


def racks(sizes: Mapping[str, int], gpus: int = 8) -> list[Manifest]:
    """A topology ``fabric`` of zones and racks with a Node object per host.

    ``sizes`` maps ``zone/rack`` to the number of hosts; hosts are called node-1, node-2, ….
    """
    levels = [{"nodeLabel": "example.com/zone"}, {"nodeLabel": "example.com/rack"}]
    levels.append({"nodeLabel": "kubernetes.io/hostname"})
    found: list[Manifest] = [
        {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "fabric"},
            "spec": {"levels": levels},
        }
    ]
    number = 0
    for place, count in sizes.items():
        zone, rack = place.split("/")
        for _ in range(count):
            number += 1
            labels = {"example.com/zone": zone, "example.com/rack": rack}
            found.append(node(f"node-{number}", labels, gpus))
    return found


def node(name: str, labels: Mapping[str, str], gpus: int = 8) -> Manifest:
    """A Node with 8 GPUs, 32 cores and 64 GiB."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110", GPU: str(gpus)}},
    }


def pod(
    name: str, gpus: int = 1, *, gang: str | None = None, on: str | None = None, cpu: int = 0, **spec: object
) -> Manifest:
    """A Pod that asks for GPUs and cores; ``on`` a node it runs already."""
    resources = {"requests": {GPU: str(gpus), "cpu": str(cpu)}, "limits": {GPU: str(gpus)}}
    found: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}], **spec},
    }
    if gang is not None:
        found["metadata"]["labels"] = {"closeby.dev/pod-group": gang}
    if on is not None:
        found["spec"]["nodeName"] = on
        found["status"] = {"phase": "Running"}
    return found


def gang(name: str, members: int, *, required: str | None = None, preferred: str | None = None) -> Manifest:
    """A PodGroup; its constraint names levels of ``fabric``."""
    spec: Manifest = {"minMember": members}
    if required or preferred:
        spec["topologyConstraint"] = {"topology": "fabric"}
    if required:
        spec["topologyConstraint"]["requiredTopologyLevel"] = required
    if preferred:
        spec["topologyConstraint"]["preferredTopologyLevel"] = preferred
    return {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def train(count: int, gpus: int, name: str = "train", required: str | None = "rack") -> list[Manifest]:
    """A gang of equal pods with its PodGroup."""
    members: Iterable[Manifest] = (pod(f"{name}-{index}", gpus, gang=name) for index in range(count))
    return [gang(name, count, required=required), *members]
