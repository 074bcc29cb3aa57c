from closeby.objects.pods import PodSpec
from closeby.objects.reasons import Reason
from closeby.plugins.scheduling_gates import SchedulingGates
from closeby.scheduling.extension import NoArguments
from tests.golden.fixture import Golden
from tests.plugins.asking import handle_of, pod_of


def test_a_pod_without_gates_enters_the_queue() -> None:
    assert SchedulingGates(NoArguments(), handle_of([])).pre_enqueue(pod_of()) is None


def test_a_gated_pod_waits_and_names_its_gates(golden: Golden) -> None:
    pod = pod_of(PodSpec(scheduling_gates=("kueue.x-k8s.io/admission", "quota")), "train-0")
    condition = SchedulingGates(NoArguments(), handle_of([])).pre_enqueue(pod)
    assert condition is not None
    assert condition.reason is Reason.SCHEDULING_GATED
    assert condition.object == "Pod/default/train-0"
    assert condition.field == "spec.schedulingGates"
    golden("plugins", condition.message)
    assert condition.blocking
