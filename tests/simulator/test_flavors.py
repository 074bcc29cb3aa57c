"""Which flavor of a queue of Kueue a job gets: the first one, in the queue's order, in which it has a place.

pool   a (flavor res)      b (flavor spot)
nodes  a0  a1              b0  b1  b2          each holds one pod of a job
"""

import pytest

from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.simulator.runs import Asked, Run, simulate

QUEUES = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: net}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: far}
spec: {levels: [{nodeLabel: hall}, {nodeLabel: rack}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: res}
spec: {nodeLabels: {pool: a}, topologyName: net}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec: {nodeLabels: {pool: b}, topologyName: far, tolerations: [{key: spot, operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: res}, {name: spot}]}]}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq}, spec: {clusterQueue: cq}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 100}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: -1}
"""


def node(name: str, taint: str = "") -> str:
    labels = f"pool: {name[0]}, rack: r{name[0]}, hall: h, kubernetes.io/hostname: {name}"
    taints = f"taints: [{{key: {taint}, effect: NoSchedule}}]" if taint else ""
    return f"""
---
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{{labels}}}}}
spec: {{{taints}}}
status: {{allocatable: {{cpu: 1, pods: 110}}}}
"""


NODES = "".join(map(node, ("a0", "a1", "b0", "b1", "b2")))


def template(more: str = "") -> str:
    asks = "annotations: {kueue.x-k8s.io/podset-required-topology: rack}"
    containers = "containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]"
    return f"{{metadata: {{{asks}}}, spec: {{restartPolicy: Never, {containers}{more}}}}}"


def job(name: str, pods: int, more: str = "") -> str:
    return f"""
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: lq}}}}
spec: {{parallelism: {pods}, completions: {pods}, template: {template(more)}}}
"""


def run(text: str, *, preempt: bool = False) -> Run:
    manifests = read_manifests(["-"], stdin=lambda: QUEUES + text)
    return simulate(manifests, Configuration(), Asked(preempt=preempt))


def pools(found: Run) -> dict[str, str]:
    """The pools in which the pods of each job are; ``-`` stands for pods that wait."""
    result: dict[str, set[str]] = {}
    for pod in found.pods:
        result.setdefault(pod.name.rpartition("-")[0], set()).add((found.node_of(pod) or "-")[0])
    return {name: "".join(sorted(nodes)) for name, nodes in result.items()}


@pytest.mark.parametrize(
    ("jobs", "right"),
    [
        (job("j", 2), {"j": "a"}),
        # Too large for the first flavor, and never in two.
        (job("j", 3), {"j": "b"}),
        (job("j", 4), {"j": "-"}),
        (job("j", 1, ", nodeSelector: {pool: b}"), {"j": "b"}),
        (job("i", 2) + job("j", 2), {"i": "a", "j": "b"}),
        # The flavor that the first one passes over is left to the next.
        (job("i", 3) + job("j", 2), {"i": "b", "j": "a"}),
        # In both flavors the higher priority comes first.
        (
            job("i", 3, ", priorityClassName: low") + job("j", 3),
            {"i": "-", "j": "b"},
        ),
    ],
)
def test_a_job_gets_the_first_flavor_that_holds_it(jobs: str, right: dict[str, str]) -> None:
    assert pools(run(NODES + jobs)) == right


def test_a_flavor_whose_nodes_have_a_taint_is_passed_over() -> None:
    nodes = node("a0", "team") + node("b0", "spot")
    assert pools(run(nodes + job("j", 1))) == {"j": "b"}


def test_the_topology_is_that_of_the_flavor() -> None:
    found = run(NODES + job("j", 3))
    assert {key: place.path for key, place in found.places.items()} == {"default/j": ("h", "rb")}
    (condition,) = found.gang_outcomes["default/j"].conditions
    assert (condition.object, condition.blocking) == ("PodGroup/default/j", False)
    assert "ResourceFlavor res" in condition.message


def test_what_each_flavor_refused_is_reported() -> None:
    outcome = run(NODES + job("j", 4)).gang_outcomes["default/j"]
    assert outcome.reason == "GangDoesNotFit"
    assert ["ResourceFlavor spot" in one.message for one in outcome.conditions] == [True]


def running(name: str, on: str, priority: str) -> str:
    return f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {on}
  priorityClassName: {priority}
  containers: [{{name: c, image: x, resources: {{requests: {{cpu: 1}}}}}}]
status: {{phase: Running}}
"""


def test_no_pod_leaves_for_one_flavor_while_another_has_room() -> None:
    low = running("low-0", "a0", "low") + running("low-1", "a1", "low")
    found = run(NODES + low + job("j", 2), preempt=True)
    assert (pools(found)["j"], found.preemptions) == ("b", ())


def test_pods_leave_the_first_flavor_when_all_are_full() -> None:
    low = "".join(running(f"low-{on}", on, "low") for on in ("a0", "a1", "b0", "b1", "b2"))
    found = run(NODES + low + job("j", 2), preempt=True)
    assert (pools(found)["j"], len(found.victims)) == ("a", 2)


def test_pods_that_are_made_join_the_flavor_of_those_that_run() -> None:
    one = """
---
apiVersion: v1
kind: Pod
metadata:
  name: j-0
  labels: {batch.kubernetes.io/job-name: j}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}]
spec:
  nodeName: b0
  nodeSelector: {pool: b}
  containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]
status: {phase: Running}
"""
    assert pools(run(NODES + job("j", 2) + one)) == {"j": "b"}


def test_each_pod_set_has_a_flavor_of_its_own() -> None:
    sets = "".join(
        f"{{name: {name}, replicas: 1, template: {{spec: {{parallelism: {pods}, completions: {pods}, "
        f"template: {template()}}}}}}}, "
        for name, pods in (("few", 2), ("many", 3))
    )
    text = f"""
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: s, labels: {{kueue.x-k8s.io/queue-name: lq}}}}
spec: {{replicatedJobs: [{sets}]}}
"""
    found = pools(run(NODES + text))
    assert {name.split("-")[1]: where for name, where in found.items()} == {"few": "a", "many": "b"}


def plain(name: str, more: str = "", group: str = "", scheduler: str = "default-scheduler") -> str:
    of = f", kueue.x-k8s.io/pod-group-name: {group}" if group else ""
    return f"""
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: lq{of}}}
  annotations: {{kueue.x-k8s.io/pod-group-total-count: "2"}}
spec:
  schedulerName: {scheduler}
  containers: [{{name: c, image: x, resources: {{requests: {{cpu: 1}}}}}}]
  {more}
"""


def test_a_group_of_plain_pods_gets_one_flavor() -> None:
    others = job("i", 1)
    assert pools(run(NODES + others + plain("p-0", group="p") + plain("p-1", group="p"))) == {
        "i": "a",
        "p": "b",
    }


def test_a_plain_pod_joins_the_flavor_of_its_group() -> None:
    there = plain("p-0", "nodeName: b0\n  nodeSelector: {pool: b}", group="p")
    assert pools(run(NODES + there + plain("p-1", group="p"))) == {"p": "b"}


def test_a_pod_of_another_scheduler_gets_no_flavor() -> None:
    pods = plain("other-0", scheduler="other") + plain("ours-0", scheduler="closeby")
    manifests = read_manifests(["-"], stdin=lambda: QUEUES + NODES + pods)
    found = simulate(manifests, Configuration(), Asked(scheduler_name="closeby"))
    assert pools(found) == {"other": "-", "ours": "a"}


@pytest.mark.parametrize(("effect", "right"), [("NoSchedule", "-"), ("PreferNoSchedule", "a")])
def test_a_job_waits_when_the_only_flavor_repels_it(effect: str, right: str) -> None:
    tainted = f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: kept}}
spec: {{nodeLabels: {{pool: a}}, topologyName: net, nodeTaints: [{{key: team, effect: {effect}}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: only}}
spec: {{resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: kept}}]}}]}}
---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: lo}}, spec: {{clusterQueue: only}}}}
"""
    assert pools(run(NODES + tainted + job("j", 1).replace("queue-name: lq", "queue-name: lo"))) == {
        "j": right
    }
