"""What `kubectl get nodes,pods -A` prints of a busy cluster, and how long commands take to read it."""

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from closeby.lab.benchmarks.figures import Figure, TimedSample, summary, timed
from closeby.objects.labels import API_VERSION, HOSTNAME, REGION, ZONE
from closeby.reading.configuration import Configuration
from closeby.reading.decoding.keys import POD_GROUP
from closeby.reading.manifests import Manifests, read_manifests
from closeby.report.documents.scheduling import scheduling_report
from closeby.simulator.runs import simulate

Manifest = dict[str, Any]

NODES = 5_000
PODS = 20_000
#: Members of each gang that waits; the second can't be placed.
GANG = 64
_HOSTS_A_RACK = 20
_RACKS_A_BLOCK = 25
_GPU = "nvidia.com/gpu"
#: What is first in the unique identifiers of pods, by what their names begin with.
_KINDS = {"web": 3, "train": 4, "large": 5}
_CREATED = "2026-11-01T08:00:00Z"


def reading() -> Iterator[Figure]:
    """Whole commands, each in a process of its own as a user starts it; then the phases of ``simulate``."""
    with TemporaryDirectory() as folder:
        files = {ending: Path(folder, f"cluster.{ending}") for ending in ("json", "yaml")}
        # In a process of its own: what this one holds would count as memory of those that it starts.
        subprocess.run([sys.executable, "-m", __name__, folder], check=True)
        commands: dict[str, tuple[Sequence[str], float]] = {
            "simulate -f, JSON": (("simulate", "-f", str(files["json"])), 3000.0),
            "simulate -f, YAML": (("simulate", "-f", str(files["yaml"])), 4500.0),
            "explain -f, JSON": (("explain", "podgroup/research/large", "-f", str(files["json"])), 4000.0),
        }
        for case, (arguments, limit) in commands.items():
            sample, peak = _command(arguments)
            yield summary("files", case, NODES, PODS, [sample], limit)
            yield _peak(f"{case}: peak", sample, peak)
        found: list[Manifests] = []

        def read(path: Path) -> Callable[[], int]:
            def call() -> int:
                found.append(read_manifests([str(path)]))
                return 0

            return call

        yield summary("files", "of that: reading JSON", NODES, PODS, [timed(read(files["json"]))])
        yield summary("files", "of that: reading YAML", NODES, PODS, [timed(read(files["yaml"]))])
        run = [simulate(found[0], Configuration())]
        sample = timed(lambda: len(simulate(found[0], Configuration()).bindings))
        yield summary("files", "of that: taking it in and deciding", NODES, PODS, [sample])
        sample = timed(lambda: len(scheduling_report(run[0]).groups) * 0)
        yield summary("files", "of that: the report", NODES, PODS, [sample])


def _command(arguments: Sequence[str]) -> tuple[TimedSample, float]:
    """Time of a command, and its peak of resident memory in MiB."""
    began = time.perf_counter()
    started = subprocess.Popen(
        [sys.executable, "-m", "closeby", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise subprocess.CalledProcessError(started.returncode, arguments)
    cpu = usage.ru_utime + usage.ru_stime
    return TimedSample(cpu, time.perf_counter() - began, GANG), usage.ru_maxrss / 1024


def _peak(case: str, sample: TimedSample, peak: float) -> Figure:
    cpu_ms = round(sample.cpu * 1000)
    return Figure(
        benchmark="files",
        case=case,
        nodes=NODES,
        pods=PODS,
        runs=1,
        cpu_ms=cpu_ms,
        cpu_ms_min=cpu_ms,
        wall_ms=0.0,
        placed=0,
        memory_mib=round(peak),
    )


def dumped(nodes: int = NODES, pods: int = PODS) -> Iterator[Manifest]:
    """A Topology, the nodes, pods that run on them, and two gangs that wait. The same every time."""
    yield {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"nodeLabel": label} for label in ("example.com/block", "example.com/rack")]},
    }
    for number in range(nodes):
        yield _node(number)
    for number in range(pods - 2 * GANG):
        yield _pod(
            f"web-{number // 5}-{number % 5}", "services", number, _container(_cores("500m")), number % nodes
        )
    for gang, gpus in (("train", 4), ("large", 64)):
        yield {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": gang, "namespace": "research"},
            "spec": {
                "minMember": GANG,
                "topologyConstraint": {"topology": "fabric", "requiredTopologyLevel": "block"},
            },
        }
        asked = {**_cores("8"), _GPU: str(gpus)}
        for number in range(GANG):
            pod = _pod(f"{gang}-{number}", "research", number, _container(asked), None)
            pod["metadata"]["labels"][POD_GROUP] = gang
            yield pod


def as_json(manifests: Iterator[Manifest]) -> str:
    """As `kubectl get -o json` prints them."""
    return json.dumps({"apiVersion": "v1", "items": list(manifests), "kind": "List"}, indent=4) + "\n"


def as_yaml(manifests: Iterator[Manifest]) -> str:
    """As `kubectl get -o yaml` prints them."""
    import yaml

    listed = {"apiVersion": "v1", "items": list(manifests), "kind": "List"}
    return yaml.dump(
        listed, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=True, width=2**30
    )


def _node(number: int) -> Manifest:
    name = f"node-{number}"
    rack = number // _HOSTS_A_RACK
    offered = {
        "cpu": "128",
        "ephemeral-storage": "1843Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "2113469160Ki",
        _GPU: "8",
        "pods": "110",
    }
    ready = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": _CREATED,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "example.com/block": f"block-{rack // _RACKS_A_BLOCK}",
                "example.com/rack": f"rack-{rack}",
                "kubernetes.io/arch": "amd64",
                HOSTNAME: name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "gpu-8",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                REGION: "region-1",
                ZONE: "zone-a",
            },
            "name": name,
            "resourceVersion": str(1_000_000 + number),
            "uid": _uid(1, number),
        },
        "spec": {
            "podCIDR": f"10.{number // 256}.{number % 256}.0/24",
            "providerID": f"cloud:///zone-a/{name}",
        },
        "status": {
            "addresses": [
                {"address": f"10.200.{number // 256}.{number % 256}", "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": offered,
            "capacity": dict(offered),
            "conditions": [
                {
                    "lastHeartbeatTime": _CREATED,
                    "lastTransitionTime": _CREATED,
                    "message": f"kubelet has nothing to say against {kind}",
                    "reason": f"Kubelet{kind}",
                    "status": "True" if kind == "Ready" else "False",
                    "type": kind,
                }
                for kind in ready
            ],
            "images": [
                {
                    "names": [f"registry.example.com/team/image-{image}@sha256:{image:064x}"],
                    "sizeBytes": 100_000_000 + image,
                }
                for image in range(10)
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.8.0-60-generic",
                "kubeletVersion": "v1.35.0",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.2 LTS",
            },
        },
    }


def _pod(name: str, namespace: str, number: int, container: Manifest, node: int | None) -> Manifest:
    waits: Manifest = {"phase": "Pending", "qosClass": "Burstable"}
    placed = {} if node is None else {"nodeName": f"node-{node}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"prometheus.io/scrape": "true"},
            "creationTimestamp": _CREATED,
            "generateName": f"{name.rpartition('-')[0]}-",
            "labels": {
                "app": name.rpartition("-")[0],
                "pod-template-hash": f"{number // 5:x}",
                "team": namespace,
            },
            "name": name,
            "namespace": namespace,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "blockOwnerDeletion": True,
                    "controller": True,
                    "kind": "ReplicaSet",
                    "name": name.rpartition("-")[0],
                    "uid": _uid(2, number // 5),
                }
            ],
            "resourceVersion": str(2_000_000 + number),
            "uid": _uid(_KINDS[name.partition("-")[0]], number),
        },
        "spec": {
            "containers": [copy.deepcopy(container)],
            **placed,
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {
                    "name": "token",
                    "projected": {
                        "defaultMode": 420,
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                    "name": "kube-root-ca.crt",
                                }
                            },
                        ],
                    },
                }
            ],
        },
        "status": waits if node is None else _running(number),
    }


def _container(requests: dict[str, str]) -> Manifest:
    devices = {key: value for key, value in requests.items() if "/" in key}
    return {
        "env": [{"name": f"SETTING_{index}", "value": f"value number {index}"} for index in range(6)],
        "image": "registry.example.com/team/service:v1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "resources": {"limits": devices, "requests": dict(requests)}
        if devices
        else {"requests": dict(requests)},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": True}
        ],
    }


def _cores(cores: str) -> dict[str, str]:
    return {"cpu": cores, "memory": "2Gi"}


def _running(number: int) -> Manifest:
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "conditions": [
            {"lastProbeTime": None, "lastTransitionTime": _CREATED, "status": "True", "type": kind}
            for kind in kinds
        ],
        "containerStatuses": [
            {
                "containerID": f"containerd://{number:064x}",
                "image": "registry.example.com/team/service:v1.2.3",
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": _CREATED}},
            }
        ],
        "hostIP": "10.200.0.1",
        "phase": "Running",
        "podIP": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}",
        "qosClass": "Burstable",
        "startTime": _CREATED,
    }


def _uid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


if __name__ == "__main__":
    Path(sys.argv[1], "cluster.json").write_text(as_json(dumped()))
    Path(sys.argv[1], "cluster.yaml").write_text(as_yaml(dumped()))
