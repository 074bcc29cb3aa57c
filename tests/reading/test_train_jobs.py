"""TrainJobs of Kubeflow Trainer v2: with their runtime they are JobSets."""

import pytest

from closeby.objects.groups import Layer, Remainder, TopologyConstraint
from tests.lab.workload_text import expanded, names, only_group
from tests.reading.manifest_text import error_of, read_good

RACK = "cloud.provider.com/topology-rack"


def runtime(annotations: str = "", more: str = "mlPolicy: {numNodes: 1, torch: {}}") -> str:
    """kubeflow/trainer: manifests/base/runtimes/torch_distributed.yaml, with annotations at its pods."""
    return f"""
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: torch-distributed}}
spec:
  {more}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec:
            template:
              metadata: {{annotations: {{{annotations}}}}}
              spec: {{containers: [{{name: node, image: pytorch}}]}}
"""


def train_job(more: str = "", name: str = "torch-distributed", spec: str = "") -> str:
    return f"""
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: train}}
spec:
  runtimeRef: {{name: {name}}}
  trainer: {{numNodes: 4, resourcesPerNode: {{requests: {{cpu: 2}}}}{more}}}
{spec}
"""


def test_a_train_job_has_a_pod_for_each_node() -> None:
    found = expanded(train_job() + runtime())
    assert names(found) == [f"train-node-0-{i}" for i in range(4)]
    assert {dict(one.spec.requests)["cpu"] for one in found.pods} == {2000}
    group = only_group(found)
    assert (group.name, group.min_member, group.by_nature) == ("train", 4, "JobSet")


def launching(policy: str, container: str = "node") -> str:
    """kubeflow/trainer: manifests/base/runtimes/deepspeed_distributed.yaml."""
    step = "metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}"
    jobs = "".join(
        f"""
      - name: {name}
        template:
          {more}
          spec: {{template: {{spec: {{containers: [{{name: {inside}, image: deepspeed}}]}}}}}}"""
        for name, more, inside in (("launcher", step, container), ("node", "", "node"))
    )
    before = runtime(more=f"mlPolicy: {{numNodes: 1, mpi: {{{policy}}}}}").partition("replicatedJobs:")[0]
    return before + "replicatedJobs:" + jobs


@pytest.mark.parametrize(
    ("policy", "container", "nodes", "workers", "launcher"),
    [
        ("runLauncherAsNode: true", "node", 4, 3, 2000),
        ("runLauncherAsNode: true", "launcher", 4, 3, 2000),
        ("runLauncherAsNode: true", "node", 2, 1, 2000),
        ("runLauncherAsNode: true", "node", 1, 1, 2000),
        ("runLauncherAsNode: false", "launcher", 4, 4, 0),
        ("", "launcher", 4, 4, 0),
        ("", "other", 1, 1, 0),
    ],
)
def test_a_launcher_may_be_one_of_the_nodes(
    policy: str, container: str, nodes: int, workers: int, launcher: int
) -> None:
    found = expanded(train_job().replace("numNodes: 4", f"numNodes: {nodes}") + launching(policy, container))
    assert {one.name: dict(one.spec.requests).get("cpu", 0) for one in found.pods} == {
        "train-launcher-0-0": launcher,
        **{f"train-node-0-{i}": 2000 for i in range(workers)},
    }


def test_annotations_of_the_runtime_ask_for_places() -> None:
    keys = f"kueue.x-k8s.io/podset-slice-required-topology: {RACK}, kueue.x-k8s.io/podset-slice-size: '2'"
    group = only_group(expanded(train_job() + runtime(keys)))
    assert (group.layers, group.conditions) == ((Layer(level=RACK, size=2, remainder=Remainder.ALLOW),), ())
    volcano = "podGroupPolicy: {volcano: {networkTopology: {mode: hard, highestTierAllowed: 1}}}"
    assert only_group(expanded(train_job() + runtime(more=volcano))).constraint == TopologyConstraint(
        topology="hypernodes", required="hypernodes.closeby.dev/tier-1"
    )


def test_a_job_set_that_is_there_counts() -> None:
    job_set = """
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: c}]}}}}}]}
"""
    assert len(expanded(train_job() + runtime() + job_set).pods) == 1


def test_a_runtime_that_is_not_there_is_said() -> None:
    (notice,) = read_good(train_job(name="torch-distribute") + runtime()).notices
    assert (notice.object, notice.field) == ("TrainJob/default/train", "spec.runtimeRef.name")
    assert "did you mean torch-distributed?" in notice.remedy


@pytest.mark.parametrize("field", ["runtimePatches", "podTemplateOverrides", "podSpecOverrides"])
def test_pods_of_templates_that_are_patched_wait(field: str) -> None:
    found = expanded(train_job(spec=f"  {field}: [{{a: b}}]") + runtime())
    assert {one.spec.unsupported for one in found.pods} == {(f"TrainJob/train spec.{field}",)}


def test_annotations_of_the_spec_are_those_of_the_job_set() -> None:
    asked = '  annotations: {kueue.x-k8s.io/podset-required-topology: "rack"}'
    (workload,) = read_good(train_job(spec=asked) + runtime()).workloads
    assert workload.annotations["kueue.x-k8s.io/podset-required-topology"] == "rack"


@pytest.mark.parametrize(
    ("given", "instead", "field"),
    [
        ("replicatedJobs:", "replicatedJobs: 5\n      others:", "spec.replicatedJobs"),
        ("containers: [", "containers: 5, others: [", "containers"),
    ],
)
def test_a_runtime_that_has_no_list_where_one_must_be(given: str, instead: str, field: str) -> None:
    said = error_of(train_job() + runtime().replace(given, instead))
    assert field in said and "list" in said


@pytest.mark.parametrize("nodes", [-1, 2**31, 10**30])
def test_numbers_of_nodes_that_make_no_sense_are_refused_where_they_stand(nodes: int) -> None:
    problem = error_of(train_job().replace("numNodes: 4", f"numNodes: {nodes}") + runtime())
    assert "TrainJob/train" in problem and "spec.trainer.numNodes" in problem


def test_what_is_wrong_with_a_runtime_is_said_with_its_name_and_field() -> None:
    problem = error_of(train_job() + runtime().replace("replicatedJobs:", "replicatedJobs: x\n      others:"))
    assert "'torch-distributed'" in problem and "spec.template.spec.replicatedJobs must be a list" in problem
