"""Workloads that are under way: what their controllers still make, whichever objects are in the input.

Each case is a workload, what its status says, and the objects below it that are there; then the pods that are
made. What has finished is not made again, and what is there is not made twice.
"""

import pytest

from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.report.documents.scheduling import group_entries
from closeby.simulator.expansion import Expansion
from closeby.simulator.runs import NOTHING_MORE, Asked, Run, simulate
from tests.lab.workload_text import TEMPLATE, expanded, pod

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SETS = "jobset.x-k8s.io/v1alpha2"


def of(api: str, kind: str, spec: str, status: str = "", metadata: str = "", name: str = "w") -> str:
    """A workload, whose templates are written ``T``."""
    meta, spec = f"{{name: {name}, {metadata}}}", spec.replace("emplate: T", f"emplate: {TEMPLATE}")
    body = f"metadata: {meta}, spec: {{{spec}}}, status: {{{status}}}"
    return f"\n---\n{{apiVersion: {api}, kind: {kind}, {body}}}\n"


def made(found: Expansion) -> list[str]:
    """The pods that were not in the input, without those that have finished."""
    return [one.name for one in found.pods if "there" not in one.labels and not one.finished]


def there(owner: str, *pods: str, labels: str = "") -> str:
    """Pods of one owner, each ``name``, ``name Phase`` or ``name Phase index``."""
    text = ""
    for one in pods:
        name, phase, index = (*one.split(), "Running", "")[:3] if " " in one else (one, "Running", "")
        numbered = f"{INDEX}: '{index}', " if index else ""
        text += pod(
            name, owner, f"labels: {{{numbered}there: 'yes', {labels}}}", phase=phase, spec="nodeName: n"
        )
    return text


def job(spec: str, status: str = "", metadata: str = "", name: str = "w") -> str:
    return of("batch/v1", "Job", f"{spec}, template: T", status, metadata, name)


INDEXED = "parallelism: 2, completions: 4, completionMode: Indexed"
DONE = "conditions: [{type: Complete, status: 'True'}]"

JOBS = {
    "none of its pods is there": (job("parallelism: 3"), ["w-0", "w-1", "w-2"]),
    "indices done by the status": (
        job(INDEXED, "succeeded: 2, completedIndexes: '0,2'"),
        ["w-1", "w-3"],
    ),
    "a range of them": (job(INDEXED, "succeeded: 3, completedIndexes: 0-2"), ["w-3"]),
    "indices that failed for good": (job(INDEXED, "failedIndexes: '0,1'"), ["w-2", "w-3"]),
    "what no controller writes": (
        job(INDEXED, "completedIndexes: '0-99999999999999999999999,a,-,,1-0,9,2'"),
        ["w-0", "w-1"],
    ),
    "indices done by pods": (
        job(INDEXED) + there("Job/w", "w-0-x Succeeded 0", "w-2-x Running 2"),
        ["w-1"],
    ),
    "an index that failed is tried again": (job(INDEXED) + there("Job/w", "w-0-x Failed 0"), ["w-0", "w-1"]),
    "it failed, and then was done": (
        job(INDEXED) + there("Job/w", "w-0-a Succeeded 0", "w-0-b Failed 0"),
        ["w-1", "w-2"],
    ),
    "no more than are left": (job("parallelism: 3, completions: 5", "succeeded: 4"), ["w-0"]),
    "none is left": (job("parallelism: 3, completions: 3", "succeeded: 3"), []),
    "it is complete": (job("parallelism: 3", DONE), []),
    "it is about to be": (job("parallelism: 3", DONE.replace("Complete", "SuccessCriteriaMet")), []),
    "it is about to fail": (job("parallelism: 3", DONE.replace("Complete", "FailureTarget")), []),
    "it is deleted": (job("parallelism: 3", metadata="deletionTimestamp: '2026-01-01T00:00:00Z'"), []),
    "without completions, one has succeeded": (
        job("parallelism: 3") + there("Job/w", "w-a Succeeded", "w-b Running"),
        [],
    ),
    "without completions, one has failed": (
        job("parallelism: 3") + there("Job/w", "w-a Failed", "w-b Running"),
        ["w-0", "w-1"],
    ),
    "a Job of one pod": (job("suspend: false", "succeeded: 1"), []),
}


@pytest.mark.parametrize("case", JOBS)
def test_jobs(case: str) -> None:
    text, names = JOBS[case]
    assert made(expanded(text)) == names


TWO = """
replicatedJobs: [
{name: prep, template: {spec: {template: T}}},
{name: train, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: T}}}]
"""
ALL_OF_IT = ["w-prep-0-0", "w-train-0-0", "w-train-0-1", "w-train-1-0", "w-train-1-1"]
BY_JOB_SET = "ownerReferences: [{kind: JobSet, name: w, controller: true}]"


def job_set(status: str = "", spec: str = TWO, metadata: str = "") -> str:
    return of(JOB_SETS, "JobSet", spec, status, metadata)


def child(name: str, spec: str = "parallelism: 2, completions: 2", status: str = "") -> str:
    return job(spec, status, f"labels: {{jobset.sigs.k8s.io/jobset-name: w}}, {BY_JOB_SET}", name)


def below(name: str, *pods: str) -> str:
    """Pods of a Job of the JobSet, as the name of the Job begins theirs."""
    _, part, number = name.split("-")
    labels = f"jobset.sigs.k8s.io/jobset-name: w, jobset.sigs.k8s.io/replicatedjob-name: {part}, "
    return there(f"Job/{name}", *pods, labels=labels + f"jobset.sigs.k8s.io/job-index: '{number}'")


def counted(**jobs: str) -> str:
    return "replicatedJobsStatus: [" + ", ".join(f"{{name: {k}, {v}}}" for k, v in jobs.items()) + "]"


JOB_SET_CASES = {
    "nothing is there": (job_set(), ALL_OF_IT),
    "a job is complete by its object": (
        job_set() + child("w-prep-0", "completions: 1", f"succeeded: 1, {DONE}"),
        ALL_OF_IT[1:],
    ),
    "a job has failed by its object": (
        job_set() + child("w-train-0", status=DONE.replace("Complete", "Failed")),
        ["w-prep-0-0", "w-train-1-0", "w-train-1-1"],
    ),
    "a job is complete by the status alone": (job_set(counted(prep="succeeded: 1")), ALL_OF_IT[1:]),
    "one of two is, and the other runs": (
        job_set(counted(prep="succeeded: 1", train="succeeded: 1, active: 1"))
        + below("w-train-0", "w-train-0-0-x Running 0"),
        ["w-train-0-1"],
    ),
    "its pods are complete, the Jobs are not in the input": (
        job_set()
        + below("w-prep-0", "w-prep-0-0-x Succeeded 0")
        + below("w-train-1", "w-train-1-1-x Running 1"),
        ["w-train-0-0", "w-train-0-1", "w-train-1-0"],
    ),
    "the indices of a job by its object": (
        job_set()
        + child("w-train-1", "parallelism: 2, completions: 2", "succeeded: 1, completedIndexes: '0'"),
        ["w-prep-0-0", "w-train-0-0", "w-train-0-1", "w-train-1-1"],
    ),
    "a job with more completions than pods at a time": (
        job_set(spec=TWO.replace("completions: 2", "completions: 4"))
        + below("w-train-0", "w-train-0-0-x Succeeded 0", "w-train-0-1-x Running 1"),
        ["w-prep-0-0", "w-train-0-2", "w-train-1-0", "w-train-1-1"],
    ),
    "it is complete": (job_set("conditions: [{type: Completed, status: 'True'}]"), []),
    "it is deleted": (job_set(metadata="deletionTimestamp: '2026-01-01T00:00:00Z'"), []),
}


@pytest.mark.parametrize("case", JOB_SET_CASES)
def test_job_sets(case: str) -> None:
    text, names = JOB_SET_CASES[case]
    assert made(expanded(text)) == names


RUNTIME = f"""
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {{name: r}}
spec:
  template:
    spec: {{{TWO.replace("template: T", f"template: {TEMPLATE}")}}}
"""


@pytest.mark.parametrize(
    ("status", "more", "names"),
    [
        ("", "", ALL_OF_IT),
        ("jobsStatus: [{name: prep, succeeded: 1}, {name: train, active: 2}]", "", ALL_OF_IT[1:]),
        ("", child("w-prep-0", status=DONE), ALL_OF_IT[1:]),
        (
            "",
            below("w-train-0", "w-train-0-0-x Running 0", "w-train-0-1-x Running 1"),
            [ALL_OF_IT[0], *ALL_OF_IT[3:]],
        ),
        ("", job_set(counted(prep="succeeded: 1")), ALL_OF_IT[1:]),
        ("conditions: [{type: Complete, status: 'True'}]", "", []),
    ],
)
def test_train_jobs_without_their_job_set(status: str, more: str, names: list[str]) -> None:
    spec = "runtimeRef: {kind: TrainingRuntime, name: r}"
    train_job = of("trainer.kubeflow.org/v1alpha1", "TrainJob", spec, status)
    assert made(expanded(RUNTIME + train_job + more)) == names


ROLES = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
}


def training(kind: str, status: str = "", policy: str = "restartPolicy: OnFailure") -> str:
    spec = f"{ROLES[kind]}: {{Worker: {{replicas: 3, {policy}, template: T}}}}"
    return of("kubeflow.org/v1", kind, spec, status)


def volcano(status: str = "", spec: str = "minAvailable: 3", policy: str = "") -> str:
    del policy
    return of(
        "batch.volcano.sh/v1alpha1",
        "Job",
        f"{spec}, tasks: [{{name: worker, replicas: 3, template: T}}]",
        status,
    )


def ran(owner: str, *pods: str) -> str:
    """Workers, each ``index Phase``."""
    text = ""
    for one in pods:
        index, phase = one.split()
        labels = "labels: {there: 'yes', training.kubeflow.org/replica-type: worker,"
        labels += f" training.kubeflow.org/replica-index: '{index}', volcano.sh/task-index: '{index}',"
        labels += " volcano.sh/task-spec: worker}"
        text += pod(f"w-worker-{index}", owner, labels, phase=phase, spec="nodeName: n")
    return text


@pytest.mark.parametrize("kind", [*ROLES, "Volcano"])
def test_workers_that_have_one_turn(kind: str) -> None:
    owner = "Job/w" if kind == "Volcano" else f"{kind}/w"

    def workload(status: str = "", policy: str = "restartPolicy: OnFailure") -> str:
        return volcano(status) if kind == "Volcano" else training(kind, status, policy)

    def names(text: str) -> list[str]:
        return made(expanded(text))

    assert names(workload()) == ["w-worker-0", "w-worker-1", "w-worker-2"]
    assert names(workload() + ran(owner, "0 Succeeded", "1 Running")) == ["w-worker-2"]
    succeeded = "taskStatusCount: {worker: {phase: {Succeeded: 2}}}"
    succeeded = succeeded if kind == "Volcano" else "replicaStatuses: {Worker: {succeeded: 2}}"
    assert len(names(workload(succeeded))) == 1
    assert names(workload(succeeded) + ran(owner, "0 Succeeded", "1 Running")) == []
    failed = workload(policy="restartPolicy: Never") + ran(owner, "0 Failed", "1 Running")
    assert names(failed) == ["w-worker-2"]
    over = (
        "state: {phase: Completed}"
        if kind == "Volcano"
        else "conditions: [{type: Succeeded, status: 'True'}]"
    )
    assert names(workload(over)) == []


@pytest.mark.parametrize("kind", ROLES)
def test_a_worker_that_failed_is_made_again_where_its_policy_says_so(kind: str) -> None:
    again = ["w-worker-0", "w-worker-2"]
    there = ran(f"{kind}/w", "0 Failed", "1 Running")
    assert made(expanded(training(kind) + there)) == again
    by_default = again if kind in ("PyTorchJob", "PaddleJob") else again[1:]
    assert made(expanded(training(kind, policy="restartPolicy: null") + there)) == by_default


LAUNCHES = "mpiReplicaSpecs: {Launcher: {template: T}, Worker: {replicas: 2, template: T}}"
BY_MPI_JOB = "ownerReferences: [{kind: MPIJob, name: w, controller: true}]"


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (ran("MPIJob/w", "0 Running", "1 Running"), ["w-launcher-0"]),
        (
            job("backoffLimit: 1", "active: 0", BY_MPI_JOB, "w-launcher"),
            ["w-launcher-0", "w-worker-0", "w-worker-1"],
        ),
        (job("backoffLimit: 1", DONE, BY_MPI_JOB, "w-launcher"), ["w-worker-0", "w-worker-1"]),
        (
            there("Job/w-launcher", "w-launcher-x7k2p", labels="training.kubeflow.org/job-name: w"),
            ["w-worker-0", "w-worker-1"],
        ),
    ],
)
def test_the_launcher_of_an_mpi_job_is_a_job(more: str, names: list[str]) -> None:
    assert made(expanded(of("kubeflow.org/v2beta1", "MPIJob", LAUNCHES) + more)) == names


@pytest.mark.parametrize("policy", ["", "schedulingPolicy: {}", "schedulingPolicy: {minAvailable: 3}"])
def test_a_launcher_that_waits_takes_no_workers_place(policy: str) -> None:
    spec = f"launcherCreationPolicy: WaitForWorkersReady, runPolicy: {{{policy}}}, {LAUNCHES}"
    text = of("kubeflow.org/v2beta1", "MPIJob", spec)
    assert placed(run(text, 3)) == ["w-launcher-0", "w-worker-0", "w-worker-1"]
    assert placed(run(text, 2)) == ["w-worker-0", "w-worker-1"]
    assert placed(run(text, 1)) == []
    begun = text + ran("MPIJob/w", "0 Running", "1 Running")
    assert placed(run(begun, 1)) == ["w-launcher-0"]


GROUP = "{groupName: g, replicas: 2, minReplicas: 2, template: T}"
RAY = f"headGroupSpec: {{template: T}}, workerGroupSpecs: [{GROUP}]"


def ray(*pods: str, cluster: str = "w-x7k2p") -> str:
    text = ""
    for name in pods:
        group = "headgroup" if "head" in name else "g"
        labels = f"labels: {{there: 'yes', ray.io/cluster: {cluster}, ray.io/group: {group}}}"
        text += pod(name, f"RayCluster/{cluster}", labels, spec="nodeName: n")
    return text


def ray_job(status: str) -> str:
    return of("ray.io/v1", "RayJob", f"rayClusterSpec: {{{RAY}}}", status)


def ray_cluster(replicas: int = 2, metadata: str = "") -> str:
    made_by = f"ownerReferences: [{{kind: RayJob, name: w, controller: true}}], {metadata}"
    spec = RAY.replace("replicas: 2", f"replicas: {replicas}", 1)
    return of("ray.io/v1", "RayCluster", spec, "", made_by, "w-x7k2p")


NAMED = "rayClusterName: w-x7k2p, jobDeploymentStatus: Running"
RAY_CASES = {
    "nothing is there": (ray_job(""), ["w-g-worker-0", "w-g-worker-1", "w-head"]),
    "its cluster is not in the input": (ray_job(NAMED) + ray("h-head", "a", "b"), []),
    "one of the pods is missing": (ray_job(NAMED) + ray("h-head", "a"), ["w-g-worker-0"]),
    "its cluster is": (ray_job(NAMED) + ray_cluster() + ray("h-head", "a", "b"), []),
    "its cluster has grown": (
        ray_job(NAMED) + ray_cluster(4) + ray("h-head", "a", "b"),
        ["w-x7k2p-g-worker-0", "w-x7k2p-g-worker-1"],
    ),
    "its cluster is deleted": (
        ray_job(NAMED) + ray_cluster(metadata="deletionTimestamp: '2026-01-01T00:00:00Z'") + ray("a"),
        [],
    ),
    "it is complete": (ray_job(NAMED.replace("Running", "Complete")) + ray("h-head"), []),
    "it is complete, its cluster stays": (
        ray_job(NAMED.replace("Running", "Complete")) + ray_cluster() + ray("h-head"),
        ["w-x7k2p-g-worker-0", "w-x7k2p-g-worker-1"],
    ),
    "a cluster of a service that is not in the input": (
        of("ray.io/v1", "RayCluster", RAY, "", "ownerReferences: [{kind: RayService, name: s}]", "w-x7k2p")
        + ray("h-head", "a"),
        ["w-x7k2p-g-worker-0"],
    ),
}


@pytest.mark.parametrize("case", RAY_CASES)
def test_ray_clusters(case: str) -> None:
    text, names = RAY_CASES[case]
    assert made(expanded(text)) == names


LWS = "leaderworkerset.x-k8s.io/v1"
LWS_LABEL = "leaderworkerset.sigs.k8s.io/name: w"


def lws_pods() -> str:
    return there("StatefulSet/w", "w-0", labels=LWS_LABEL) + there(
        "StatefulSet/w-0", "w-0-1", labels=LWS_LABEL
    )


def stateful(name: str, replicas: int, owner: str) -> str:
    meta = f"labels: {{{LWS_LABEL}}}, ownerReferences: [{{kind: {owner}, controller: true}}]"
    return of("apps/v1", "StatefulSet", f"replicas: {replicas}, template: T", "", meta, name)


@pytest.mark.parametrize("between", ["none", "the leaders'", "all"])
def test_leader_worker_sets(between: str) -> None:
    text = (
        of(LWS, "LeaderWorkerSet", "replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: T}")
        + lws_pods()
    )
    if between != "none":
        text += stateful("w", 2, "LeaderWorkerSet, name: w")
    if between == "all":
        text += stateful("w-0", 2, "Pod, name: w-0") + stateful("w-1", 2, "Pod, name: w-1")
    assert made(expanded(text)) == ["w-0-2", "w-1", "w-1-1", "w-1-2"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_what_runs_until_it_is_removed_is_made_again(kind: str) -> None:
    labels = "" if kind != "StatefulSet" else "apps.kubernetes.io/pod-index: '0'"
    text = of("apps/v1", kind, "replicas: 2, template: T")
    text += there(f"{kind}/w", "w-0 Succeeded", labels=labels)
    assert len(made(expanded(text))) == 2


STATEFUL = of(
    "apps/v1", "StatefulSet", "replicas: 2, volumeClaimTemplates: [{metadata: {name: data}}], template: T"
)
NAMED_AGAIN = {
    "StatefulSet": (
        STATEFUL + there("StatefulSet/w", "w-1 Failed", labels="apps.kubernetes.io/pod-index: '1'"),
        ["w-0", "w-1"],
    ),
    "LeaderWorkerSet": (
        of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "leaderWorkerTemplate: {size: 2, workerTemplate: T}",
        )
        + there("StatefulSet/w-0", "w-0-1 Failed", labels="leaderworkerset.sigs.k8s.io/name: w"),
        ["w-0", "w-0-1"],
    ),
    "a pod of another's is no pod of its own": (
        STATEFUL + there("", "w-1 Failed"),
        ["w-0", "w-1-statefulset1"],
    ),
}


@pytest.mark.parametrize("case", NAMED_AGAIN)
def test_a_pod_that_failed_is_made_again_under_its_name(case: str) -> None:
    text, names = NAMED_AGAIN[case]
    assert made(expanded(text)) == names


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", ["w-5", "w-6", "w-7"]),
        (
            there("StatefulSet/w", "w-6", labels="apps.kubernetes.io/pod-index: '6'"),
            ["w-5", "w-7"],
        ),
        (there("StatefulSet/w", "w-6"), ["w-5", "w-7"]),
        (there("StatefulSet/w", "w-6 Failed"), ["w-5", "w-6", "w-7"]),
    ],
)
def test_a_stateful_set_numbers_its_pods_from_where_it_says(more: str, names: list[str]) -> None:
    found = expanded(of("apps/v1", "StatefulSet", "replicas: 3, ordinals: {start: 5}, template: T") + more)
    assert made(found) == names
    assert [pod.index for pod in found.pods] == [5, 6, 7]


def leaving(text: str) -> str:
    """The same, all of its pods being deleted."""
    return text.replace("labels:", "deletionTimestamp: '2026-01-01T00:00:00Z', labels:")


BY_DEFAULT = "parallelism: 2, completions: 2"
LEAVING = {
    "Deployment": (of("apps/v1", "Deployment", "replicas: 2, template: T"), 2),
    "ReplicaSet": (of("apps/v1", "ReplicaSet", "replicas: 2, template: T"), 2),
    "StatefulSet": (of("apps/v1", "StatefulSet", "replicas: 2, template: T"), 1),
    "Job": (job(BY_DEFAULT), 2),
    "Indexed Job": (job(f"{BY_DEFAULT}, completionMode: Indexed"), 2),
    "Job that replaces failed pods": (job(f"{BY_DEFAULT}, podReplacementPolicy: Failed"), 1),
    "Job with rules of failures": (job(f"{BY_DEFAULT}, podFailurePolicy: {{rules: []}}"), 1),
    "Job with rules that does not wait": (
        job(f"{BY_DEFAULT}, podFailurePolicy: {{rules: []}}, podReplacementPolicy: TerminatingOrFailed"),
        2,
    ),
}


@pytest.mark.parametrize("case", LEAVING)
def test_a_pod_that_is_being_deleted_is_replaced_at_once_or_when_it_is_gone(case: str) -> None:
    text, number = LEAVING[case]
    kind = text.partition("kind: ")[2].partition(",")[0]
    pods = leaving(there(f"{kind}/w", "w-0 Running 0", labels="apps.kubernetes.io/pod-index: '0'"))
    assert len(made(expanded(text + pods))) == number


@pytest.mark.parametrize(("policy", "number"), [("TerminatingOrFailed", 5), ("Failed", 4)])
def test_jobs_of_a_job_set_replace_by_their_own_policy(policy: str, number: int) -> None:
    spec = TWO.replace("template: {spec: {", f"template: {{spec: {{podReplacementPolicy: {policy}, ")
    assert (
        len(made(expanded(job_set(spec=spec) + leaving(below("w-train-0", "w-train-0-0-x Running 0")))))
        == number
    )


def test_a_gang_starts_without_the_pods_that_are_being_deleted() -> None:
    text = job("parallelism: 3, completions: 3", metadata="annotations: {closeby.dev/gang: 'true'}")
    text += leaving(there("Job/w", "w-a")) + there("Job/w", "w-b")
    assert placed(run(text, 2)) == ["w-0", "w-1"]
    assert placed(run(text, 1)) == []


def test_pods_of_a_deployment_without_its_replica_set() -> None:
    text = of("apps/v1", "Deployment", "replicas: 2, template: T")
    assert made(
        expanded(text + there("ReplicaSet/w-5d8", "w-5d8-abcde", labels="pod-template-hash: 5d8"))
    ) == ["w-0"]


def test_pods_of_a_clique_set_without_its_cliques() -> None:
    """One of them is there, with the labels that Grove gives it."""
    clique = "{name: c, spec: {replicas: 2, podSpec: {containers: [{name: c}]}}}"
    text = of("grove.io/v1alpha1", "PodCliqueSet", f"replicas: 2, template: {{cliques: [{clique}]}}")
    labels = "app.kubernetes.io/part-of: w, grove.io/podclique: w-1-c"
    text += there("PodClique/w-1-c", "w-1-c-x7k2p Running", labels=labels)
    assert len(made(expanded(text))) == 3


def test_what_the_status_counts_and_the_input_lacks_is_said() -> None:
    text = job("parallelism: 3", "active: 2")
    (said,) = expanded(text + there("Job/w", "w-a")).conditions
    assert (said.reason, said.object, said.blocking) == ("GangIncomplete", "Job/default/w", False)
    assert "kubectl get pods" in said.remedy
    assert expanded(text + there("Job/w", "w-a", "w-b")).conditions == ()


def run(text: str, cpus: int, asked: Asked = NOTHING_MORE) -> Run:
    """What is placed on one node of so many CPUs; pods that are there take none."""
    meta, status = "{name: n, labels: {kubernetes.io/hostname: n}}", f"allocatable: {{cpu: {cpus}, pods: 99}}"
    node = f"{{apiVersion: v1, kind: Node, metadata: {meta}, status: {{{status}}}}}\n---\n"
    return simulate(read_manifests(["-"], stdin=lambda: node + text), Configuration(), asked)


def placed(found: Run) -> list[str]:
    return sorted(one.pod.name for one in found.bindings.values())


GANGS = {
    "a JobSet of which a job is complete": (
        job_set() + below("w-prep-0", "w-prep-0-0-x Succeeded 0"),
        4,
    ),
    "a JobSet of which a status says so": (job_set(counted(prep="succeeded: 1")), 4),
    "a training job": (training("TFJob") + ran("TFJob/w", "0 Succeeded", "1 Running"), 1),
    "a training job by its status": (training("TFJob", "replicaStatuses: {Worker: {succeeded: 2}}"), 1),
    "a job of Volcano": (volcano() + ran("Job/w", "0 Succeeded", "1 Running"), 1),
    "a job of Volcano by its status": (volcano("succeeded: 2"), 1),
    "a Job with segments": (
        "{apiVersion: kueue.x-k8s.io/v1beta1, kind: Topology, metadata: {name: net}, spec: {levels:"
        " [{nodeLabel: kubernetes.io/hostname}]}}"
        + job(
            "parallelism: 4, completions: 4, completionMode: Indexed",
            "succeeded: 1, completedIndexes: '0'",
            "annotations: {closeby.dev/segment-size: '2', closeby.dev/segment-level: kubernetes.io/hostname}",
        ),
        3,
    ),
}


@pytest.mark.parametrize("case", GANGS)
def test_a_gang_starts_without_those_that_have_finished(case: str) -> None:
    """All that is left, or nothing."""
    text, left = GANGS[case]
    assert len(placed(run(text, left))) == left
    found = run(text, left - 1)
    assert placed(found) == []
    assert {one.reason for one in found.leftovers.values()} <= {"GangDoesNotFit"}


def test_the_report_counts_those_that_have_finished() -> None:
    (group,) = group_entries(run(volcano() + ran("Job/w", "0 Succeeded", "1 Running"), 1))
    assert (group.min_member, group.scheduled, group.finished) == (3, 2, 1)


def test_a_pod_of_kueues_group_that_has_succeeded_counts() -> None:
    """The group says how many pods it has; one that failed must be replaced."""
    more = "labels: {kueue.x-k8s.io/pod-group-name: g},"
    more += " annotations: {kueue.x-k8s.io/pod-group-total-count: '3'}"
    left = pod("b", "", more, phase="Pending") + pod("c", "", more, phase="Pending")
    assert placed(run(pod("a", "", more, phase="Succeeded") + left, 2)) == ["b", "c"]
    assert placed(run(pod("a", "", more, phase="Failed") + left, 2)) == []


def steps(status: str, more: str = "", spec: str = "") -> str:
    """A JobSet with ``train`` behind ``prep``."""
    after = f"name: train, dependsOn: [{{name: prep, status: {status}}}]" if status else "name: train"
    return job_set(more, TWO.replace("name: train", after) + spec)


TRAIN = ALL_OF_IT[1:]
IN_ORDER = ", startupPolicy: {startupPolicyOrder: InOrder}"


def test_a_step_waits_for_the_one_before_it_that_has_pods() -> None:
    none = "{name: none, replicas: 0, template: {spec: {template: T}}},"
    spec = TWO.replace("{name: train", f"{none} {{name: train") + IN_ORDER
    waiting = run(job_set(spec=spec), 0).leftovers.values()
    assert {one.pod.name for one in waiting if one.reason == "SchedulingGated"} == set(TRAIN)


@pytest.mark.parametrize(("status", "spec"), [("Ready", ""), ("", IN_ORDER)])
def test_a_step_starts_whole_when_the_one_before_it_has_its_nodes(status: str, spec: str) -> None:
    text = steps(status, spec=spec)
    assert placed(run(text, 5)) == ALL_OF_IT
    assert placed(run(text, 4)) == ["w-prep-0-0"]
    found = run(text, 0)
    assert placed(found) == []
    reasons = {found.leftovers[uid].pod.name: found.leftovers[uid].reason for uid in found.leftovers}
    assert [reasons[name] for name in TRAIN] == ["SchedulingGated"] * 4
    assert (found.gang_outcomes["default/w-train"].reason) == "SchedulingGated"


def test_a_step_starts_at_once_where_the_one_before_it_runs() -> None:
    assert placed(run(steps("Ready") + below("w-prep-0", "w-prep-0-0-x Running 0"), 4)) == TRAIN


def test_a_step_of_another_scheduler_is_left_to_it() -> None:
    train = "completions: 2, template: {spec: {"
    text = steps("Ready").replace(train, f"{train}schedulerName: x, ")
    asked = Asked(scheduler_name="default-scheduler")
    assert placed(run(text, 9, asked)) == ["w-prep-0-0"]


@pytest.mark.parametrize(
    ("more", "whole", "room"),
    [
        ("", ["w-prep-0-0"], 5),
        (below("w-prep-0", "w-prep-0-0-x Running 0"), [], 5),
        (below("w-prep-0", "w-prep-0-0-x Succeeded 0"), TRAIN, 4),
        (child("w-prep-0", "completions: 1", DONE), TRAIN, 4),
        # It was begun.
        (child("w-prep-0", "completions: 1") + child("w-train-0"), ALL_OF_IT, 5),
    ],
)
def test_a_step_behind_one_that_must_be_complete_waits_for_that(
    more: str, whole: list[str], room: int
) -> None:
    """The two never run at once, so they do not take their room at once."""
    assert placed(run(steps("Complete") + more, room)) == whole


def test_a_status_says_that_the_step_before_is_complete() -> None:
    text = steps("Complete", counted(prep="succeeded: 1"))
    assert placed(run(text, 4)) == TRAIN
    assert placed(run(text, 3)) == []


def test_steps_of_jobs_that_are_no_gang_wait_too() -> None:
    text = steps("Complete").replace("name: w,", "name: w, annotations: {closeby.dev/gang: 'false'}", 1)
    assert placed(run(text, 9)) == ["w-prep-0-0"]


def test_steps_that_wait_for_the_same_are_one_gang() -> None:
    after = "dependsOn: [{name: prep, status: Ready}]"
    more = f"{{name: eval, {after}, template: {{spec: {{template: T}}}}}}]"
    spec = TWO.replace("name: train", f"name: train, {after}").rstrip().removesuffix("]") + f", {more}"
    groups = {one.name: one.min_member for one in expanded(job_set(spec=spec)).groups}
    assert groups == {"w": 1, "w-train": 5}
