"""Whatever the input holds, reading and expanding it ends in records and errors, never in an exception."""

import copy
import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from closeby.reading.manifests import read_manifests
from closeby.reading.registry import READERS
from closeby.simulator.expansion import expand

POD = """
metadata:
  labels: {closeby.dev/pod-group: g, kueue.x-k8s.io/queue-name: lq, volcano.sh/task-spec: a}
  annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack}
spec:
  nodeSelector: {a: b}
  overhead: {cpu: 100m}
  resources: {limits: {cpu: 4}}
  tolerations: [{key: a, operator: Exists, effect: NoSchedule}]
  schedulingGates: [{name: a}]
  schedulingGroup: {podGroupName: g}
  volumes: [{persistentVolumeClaim: {claimName: a}}]
  topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway}]
  initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}]
  containers: [{ports: [{containerPort: 1, hostPort: 2}], resources: {requests: {cpu: 500m, memory: 1e3}}}]
  affinity:
    podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
"""
#: Kind to what a good object of it holds.
GOOD = """
Node:
  spec: {taints: [{key: a, effect: NoSchedule}], unschedulable: true}
  status: {allocatable: {cpu: 4, memory: 8Gi}, conditions: [{type: Ready, status: "True"}]}
PodGroup:
  spec:
    minMember: 2
    minSubGroup: 1
    minTaskMember: {a: 1}
    topologyConstraint: {topology: t, requiredTopologyLevel: rack}
    subGroups: [{name: a, minMember: 1}, {name: b, parent: a, minSubGroup: 0}]
    placement: {strategy: spread}
    networkTopology: {mode: soft, highestTierAllowed: 1}
    subGroupPolicy: [{networkTopology: {mode: hard}}]
    schedulingPolicy: {gang: {minCount: 2}}
    schedulingConstraints: {topology: [{key: rack}]}
Topology: {spec: {levels: [{nodeLabel: zone}, {nodeLabel: rack, alias: r}]}}
ResourceFlavor: {spec: {nodeLabels: {a: b}, topologyName: t, tolerations: [{operator: Exists}]}}
ClusterQueue: {spec: {resourceGroups: [{flavors: [{name: a}]}]}}
LocalQueue: {spec: {clusterQueue: a}}
PriorityClass: {value: 5, globalDefault: true}
Deployment: {spec: {replicas: 2, template: POD}}
StatefulSet: {spec: {replicas: 2, volumeClaimTemplates: [{}], template: POD}}
Job:
  spec:
    parallelism: 2
    completions: 3
    completionMode: Indexed
    template: POD
    minAvailable: 1
    tasks: [{name: a, replicas: 2, minAvailable: 1, partitionPolicy: {networkTopology: {}}, template: POD}]
  status: {succeeded: 1, conditions: [{type: Suspended, status: "True"}], state: {phase: Running}}
JobSet: {spec: {replicatedJobs: [{name: a, replicas: 2, template: {spec: {parallelism: 2, template: POD}}}]}}
LeaderWorkerSet: {spec: {replicas: 2, leaderWorkerTemplate: {size: 2, workerTemplate: POD}}}
PyTorchJob:
  spec:
    runPolicy: {suspend: false, schedulingPolicy: {minAvailable: 1}}
    elasticPolicy: {minReplicas: 1}
    pytorchReplicaSpecs: {Worker: {replicas: 2, template: POD}}
RayCluster:
  spec:
    headGroupSpec: {template: POD}
    workerGroupSpecs: [{groupName: a, replicas: 2, minReplicas: 1, numOfHosts: 2, template: POD}]
RayJob:
  spec:
    rayClusterSpec:
      headGroupSpec: {template: POD}
      workerGroupSpecs: [{groupName: a, replicas: 2, minReplicas: 1, template: POD}]
  status: {jobDeploymentStatus: Running}
Workload: {spec: {podGroups: [{name: a, policy: {gang: {minCount: 2}}}, {name: b, policy: {basic: {}}}]}}
"""
META = """
name: a
generateName: a-
namespace: ns
labels: {kueue.x-k8s.io/queue-name: lq}
annotations: {kai.scheduler/topology-required-placement: rack, kai.scheduler/batch-min-member: "2"}
creationTimestamp: "2026-01-02T03:04:05Z"
ownerReferences: [{kind: Job, name: a, controller: true}]
"""
KINDS = sorted(
    (f"{group}/{version}" if group else version, kind)
    for (group, kind), entry in READERS.items()
    for version in entry.versions or ("v1alpha1" if kind == "Workload" else "v1",)
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.floats()
    | st.sampled_from(["a", "b", "1", "500m", "rack", "2026-01-02T03:04:05Z", "spread", "1" * 30, 10**30])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def good_object(api_version: str, kind: str) -> dict[str, Any]:
    """An object that is read without errors, or nearly: kinds of one name share their fields."""
    pod = yaml.safe_load(POD)
    kinds = json.loads(json.dumps(yaml.safe_load(GOOD)).replace('"POD"', json.dumps(pod)))
    parts = pod if kind == "Pod" else kinds.get(kind, {})
    metadata = yaml.safe_load(META) | parts.get("metadata", {})
    return {"apiVersion": api_version, "kind": kind, **parts, "metadata": metadata}


def spoil(draw: st.DrawFn, value: Any) -> None:
    """Replaces, adds or removes one thing somewhere inside of ``value``."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 4)):
            value = inner
            continue
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove":
            del value[key]
        elif change == "add" and isinstance(value, dict):
            value[draw(st.text(max_size=3))] = draw(VALUES)
        else:
            value[key] = draw(VALUES)
        return


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A good object with up to three things changed."""
    result = copy.deepcopy(good_object(*draw(st.sampled_from(KINDS))))
    for _ in range(draw(st.integers(0, 3))):
        spoil(draw, result)
    return result


@given(st.lists(objects(), max_size=6))
def test_spoilt_objects(items: list[dict[str, Any]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    as_json = read_manifests(["-"], stdin=lambda: text)
    expand(as_json)
    assert all(str(error).startswith("standard input, document 1") for error in as_json.errors)
    as_yaml = read_manifests(["-"], stdin=lambda: f"# YAML\n{text}")
    expand(as_yaml)
    assert all(error.line is not None for error in as_yaml.errors)


@given(st.text(alphabet="ab:-[]{}\"'&*!|>#%\n \t\\0", max_size=60))
def test_random_text(text: str) -> None:
    manifests = read_manifests(["-"], stdin=lambda: text)
    assert manifests.nodes == ()


@given(st.binary(max_size=40))
def test_random_bytes(data: bytes) -> None:
    manifests = read_manifests(["-"], stdin=lambda: data)
    assert manifests.pods == ()
