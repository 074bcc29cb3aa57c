"""What tests of what-if answers share: the cluster as a run left it, and whose end a pod waits for."""

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.reading.manifests import Manifests
from closeby.simulator.runs import Run


def left_by(run: Run, manifests: Manifests) -> Manifests:
    """The cluster as the run left it."""
    return replace(manifests, pods=tuple(replace(pod, node_name=run.node_of(pod)) for pod in manifests.pods))


def job_name(pod: Pod) -> str:
    """What ends as one: a gang, or a pod without one."""
    return f"pod/{pod.key}" if pod.group is None else f"podgroup/{pod.namespace}/{pod.group}"
