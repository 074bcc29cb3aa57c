"""Where each kind of workload keeps the template of its pods."""

from typing import Final

#: Kind -> path of its pod template. Volcano's Job shares its kind with Kubernetes' own.
_TEMPLATES: Final = {
    "CronJob": "spec.jobTemplate.spec.template",
    "DaemonSet": "spec.template",
    "Deployment": "spec.template",
    "Job": "spec.template",
    "JAXJob": "spec.jaxReplicaSpecs.*.template",
    "JobSet": "spec.replicatedJobs[*].template.spec.template",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.workerTemplate",
    "MPIJob": "spec.mpiReplicaSpecs.*.template",
    "PaddleJob": "spec.paddleReplicaSpecs.*.template",
    "PyTorchJob": "spec.pytorchReplicaSpecs.*.template",
    "RayCluster": "spec.workerGroupSpecs[*].template",
    "ReplicaSet": "spec.template",
    "ReplicationController": "spec.template",
    "StatefulSet": "spec.template",
    "TFJob": "spec.tfReplicaSpecs.*.template",
    "XGBoostJob": "spec.xgbReplicaSpecs.*.template",
}
_OF_VOLCANO: Final = "spec.tasks[*].template"


def pod_field(owner: str, field: str, *, volcano: bool = False) -> str:
    """How to name a field of the pods that ``owner`` (``Kind/name``, empty for none) makes.

    With a known kind that is the field of its pod template, such as ``spec.template.spec.priorityClassName of
    Job/train``; else the field of the pods themselves.
    """
    kind = owner.partition("/")[0]
    template = _OF_VOLCANO if volcano and kind == "Job" else _TEMPLATES.get(kind)
    return f"{field} of its pods" if template is None else f"{template}.{field} of {owner}"
