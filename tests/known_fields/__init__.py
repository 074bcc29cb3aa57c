"""Makes the table of fields that the API servers know, from what others publish: `make fields`."""

from typing import Final

from msgspec import Struct


class Project(Struct, frozen=True):
    """Where definitions of custom resources come from."""

    name: str
    #: On GitHub.
    repository: str
    #: Of these major releases; more than one project may share a repository.
    majors: tuple[int, ...] = (0, 1)
    #: The oldest release, as (major, minor).
    oldest: tuple[int, int] = (0, 0)
    #: The newest, where later tags are no releases.
    newest: tuple[int, int] = (99, 0)
    #: Whether there are only pre-releases.
    pre_releases: bool = False


#: The Go modules `k8s.io/kubernetes` whose schemas are united: the newest patch of each release.
KUBERNETES: Final = ("v1.34.4", "v1.35.3", "v1.36.3", "v1.37.2")

PROJECTS: Final = (
    Project("Kueue", "kubernetes-sigs/kueue", oldest=(0, 10)),
    Project("KAI", "kai-scheduler/KAI-Scheduler", oldest=(0, 4), newest=(0, 17)),
    Project("Volcano", "volcano-sh/volcano", oldest=(1, 8)),
    Project("JobSet", "kubernetes-sigs/jobset", oldest=(0, 3)),
    Project("LeaderWorkerSet", "kubernetes-sigs/lws"),
    Project("Kubeflow Training Operator (trainer v1)", "kubeflow/trainer", oldest=(1, 3)),
    Project("Kubeflow Trainer v2 (TrainJob)", "kubeflow/trainer", (2,)),
    Project("Kubeflow MPI Operator", "kubeflow/mpi-operator"),
    Project("KubeRay", "ray-project/kuberay", oldest=(1, 1)),
    Project("scheduler-plugins", "kubernetes-sigs/scheduler-plugins", oldest=(0, 25)),
    Project("Grove", "ai-dynamo/grove", pre_releases=True),
)
