"""Manifests of workloads and pods in a few words, and what expansion makes of them."""

import textwrap

from closeby.objects.groups import PodGroup, TopologyConstraint
from closeby.reading.manifests import read_manifests
from closeby.simulator.expansion import Expansion, expand

CONTAINERS = "containers: [{resources: {requests: {cpu: 1}}}]"
TEMPLATE = f"{{spec: {{{CONTAINERS}}}}}"
KAI = "kai.scheduler/topology: net, kai.scheduler/topology-required-placement: rack"
RACK = TopologyConstraint(topology="net", required="rack")

#: A queue with one flavor, whose nodes have the topology ``net``.
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tas}
spec: {nodeLabels: {pool: gpu}, topologyName: net, tolerations: [{key: gpu, operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {resourceGroups: [{flavors: [{name: tas}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq}
spec: {clusterQueue: cq}
---
"""
#: A driver and two jobs of two workers.
JOB_SET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  replicatedJobs:
  - {{name: driver, template: {{spec: {{template: {TEMPLATE}}}}}}}
  - name: workers
    replicas: 2
    template: {{spec: {{parallelism: 2, completions: 2, template: {TEMPLATE}}}}}
"""

QUEUED = "labels: {kueue.x-k8s.io/queue-name: lq}"


def expanded(text: str) -> Expansion:
    """What comes out of a manifest without errors."""
    manifests = read_manifests(["-"], stdin=lambda: textwrap.dedent(text))
    assert manifests.errors == ()
    return expand(manifests)


def names(expansion: Expansion) -> list[str]:
    """The pods' names."""
    return [pod.name for pod in expansion.pods]


def only_group(expansion: Expansion) -> PodGroup:
    """The one gang."""
    (group,) = expansion.groups
    return group


def job(metadata: str = "", spec: str = "parallelism: 3", template: str = TEMPLATE) -> str:
    """A Job of three pods."""
    return f"""
---
apiVersion: batch/v1
kind: Job
metadata: {{name: train, {metadata}}}
spec: {{{spec}, template: {template}}}
"""


def pod(name: str, owner: str = "", more: str = "", spec: str = "", phase: str = "Running") -> str:
    """A pod that exists; ``owner`` is ``Kind/name``."""
    kind, _, of = owner.partition("/")
    owners = f"ownerReferences: [{{kind: {kind}, name: {of}, controller: true}}]," if owner else ""
    return f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, {owners} {more}}}
spec: {{{spec}}}
status: {{phase: {phase}}}
"""


def annotated(keys: str, *, spec: str = CONTAINERS) -> str:
    """A pod template with annotations."""
    return f"{{metadata: {{annotations: {{{keys}}}}}, spec: {{{spec}}}}}"


def replicated(kind: str, name: str, replicas: int, metadata: str = "") -> str:
    """A Deployment, StatefulSet or ReplicaSet."""
    return f"""
---
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, {metadata}}}
spec: {{replicas: {replicas}, template: {TEMPLATE}}}
"""


def pod_group(api: str, name: str, spec: str = "{}") -> str:
    """A PodGroup object."""
    return f"""
---
apiVersion: {api}
kind: PodGroup
metadata: {{name: {name}}}
spec: {spec}
"""
