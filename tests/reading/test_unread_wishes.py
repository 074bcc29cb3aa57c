"""Keys of known schedulers that closeby does not read: hard ones keep pods waiting, others are reported."""

import pytest

from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import unread_wishes, wish_conditions
from tests.golden.fixture import Golden
from tests.reading.manifest_text import read_good, read_pod

#: Keys that differ from one that is read by a letter, and that one.
MISSPELT = [
    ("kueue.x-k8s.io/podset-requird-topology", "kueue.x-k8s.io/podset-required-topology"),
    ("kueue.x-k8s.io/podset-prefered-topology", "kueue.x-k8s.io/podset-preferred-topology"),
    ("kueue.x-k8s.io/podset-required-toplogy", "kueue.x-k8s.io/podset-required-topology"),
    ("kai.scheduler/topologys", "kai.scheduler/topology"),
]
HARD = [
    ("kai.scheduler/topology-required", "rack"),
    ("volcano.sh/numa-topology-policy", "single-numa-node"),
    ("gang.scheduling.koordinator.sh/network-topology-spec", '{"gatherStrategy": "MustGather"}'),
    ("gang.scheduling.koordinator.sh/networkTopologyAware", '{"strategy": "MustGather"}'),
    ("gang.scheduling.koordinator.sh/groups", '["default/a", "default/b"]'),
    ("gang.scheduling.koordinator.sh/name", "g"),
    ("scheduling.koordinator.sh/gpu-partition-spec", "{}"),
    ("yunikorn.apache.org/task-group-name", "workers"),
    ("gpu-fraction", "0.5"),
    ("gpu-memory", "2500"),
    ("nvidia.com/use-gpuuuid", "GPU-0f95da43"),
    ("hygon.com/nouse-dcutype", "Z100"),
    ("nvidia.com/numa-bind", "true"),
    ("slurmjob.slinky.slurm.net/constraints", "a100"),
    ("gpu-fraction-num-devices", "2"),
    ("scheduling.koordinator.sh/exact-match-reservation", "{}"),
    ("scheduling.koordinator.sh/numa-topology-spec", '{"numaTopologyPolicy": "SingleNUMANode"}'),
    ("scheduling.koordinator.sh/resource-spec", '{"requiredCPUBindPolicy": "FullPCPUs"}'),
    ("scheduling.koordinator.sh/device-joint-allocate", '{"requiredScope": "SamePCIe"}'),
    ("hami.io/use-Ascend910B2-uuid", "a"),
    ("hami.io/no-use-xpu-uuid", "a"),
    ("hami.io/gpu-use-uuid", "a"),
    ("aws.amazon.com/use-neuron-uuid", "a"),
    ("amd.com/use-gpu-uuid", "a"),
    ("birentech.com/nouse-biren", "a"),
    ("huawei.com/vnpu-mode", "hami-core"),
    ("volcano.sh/vgpu-use-gpuuuid", "a"),
    ("volcano.sh/vgpu-mode", "mig"),
    ("armadaproject.io/gangId", "g"),
    ("alibabacloud.com/gpu-milli", "600"),
    ("alibabacloud.com/gpu-card-model", "P100"),
]
SOFT = [
    ("kai.scheduler/node-pool", "a"),
    ("closeby.dev/placement-stategy", "spread"),
    ("volcano.sh/numa-topology-policy", "best-effort"),
    ("scheduling.koordinator.sh/device-joint-allocate", "{}"),
    ("nvidia.com/numa-bind", "false"),
    ("slurmjob.slinky.slurm.net/partition", "a"),
    ("gpu-fraction-container-name", "main"),
    ("yunikorn.apache.org/schedulingPolicyParameters", "gangSchedulingStyle=Hard"),
    ("hami.io/gpu-scheduler-policy", "binpack"),
    ("scheduling.koordinator.sh/resource-spec", '{"preferredCPUBindPolicy": "FullPCPUs"}'),
]
#: Extended resources of a part of a device, one of each scheduler.
PARTS = [
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/gpu.shared",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-number",
    "volcano.sh/gpu-memory",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "hygon.com/dcumem",
    "cambricon.com/mlu.smlu.vmemory",
    "iluvatar.ai/MR-V100.vCore",
    "metax-tech.com/vmemory",
    "mthreads.com/sgpu-memory",
    "huawei.com/Ascend910B-memory",
    "aliyun.com/gpu-mem",
    "tencent.com/vcuda-core",
    "alibabacloud.com/gpu-milli",
    "aliyun.com/gpu-core.percentage",
    "tke.cloud.tencent.com/qgpu-core",
    "vke.volcengine.com/mgpu-memory",
    "baidu.com/cgpu_memory",
    "huawei.com/npu-core",
    "gpu.intel.com/millicores",
]
WHOLE = ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "amd.com/gpu", "google.com/tpu"]

READ = [
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-size",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    "kueue.x-k8s.io/podset-group-name",
    "kai.scheduler/segment-size",
    "kai.scheduler/segment-topology-required-placement",
    "kai.scheduler/segment-topology-preferred-placement",
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
    "closeby.dev/segment-size",
    "closeby.dev/exclusive-level",
    "volcano.sh/network-topology-mode",
    "volcano.sh/network-topology-highest-tier",
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/topology",
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/topology-preferred-placement",
    "kai.scheduler/queue",
    "kai.scheduler/subgroup-name",
    "closeby.dev/pod-group",
    "closeby.dev/rank",
    "closeby.dev/topology-domain",
    "volcano.sh/task-spec",
    "volcano.sh/task-topology-affinity",
    "volcano.sh/task-topology-anti-affinity",
    "volcano.sh/task-topology-task-order",
    "closeby.dev/role",
    "closeby.dev/task-traffic",
    "scheduling.x-k8s.io/pod-group",
    "topology.kubernetes.io/zone",
    "example.com/required-topology",
    "example.com/use-case",
    "nvidia.com/gpu.product",
    "kai.scheduler/numa-placement-predicted",
    "volcano.sh/job-allocated-hypernode",
    "hami.io/vgpu-devices-allocated",
    "closeby.dev/gang",
    "tier",
]


@pytest.mark.parametrize(("key", "value"), HARD)
def test_a_hard_wish_blocks(key: str, value: str) -> None:
    (condition,) = wish_conditions({key: value, "app": "x"}, "Job/default/j")
    assert (condition.reason, condition.blocking) == ("Unsupported", True)
    assert condition.field == field_path((key,), "metadata.annotations")


@pytest.mark.parametrize(("key", "value"), SOFT)
def test_any_other_wish_is_reported(key: str, value: str) -> None:
    (condition,) = wish_conditions({key: value}, "Job/default/j")
    assert not condition.blocking


@pytest.mark.parametrize("key", READ)
def test_keys_that_are_read_or_ask_for_nothing_are_no_wishes(key: str) -> None:
    assert unread_wishes({key: "required"}) == ()


def test_the_path_of_a_key_without_a_domain() -> None:
    (condition,) = wish_conditions({"gpu-fraction": "0.5"}, "Job/default/j")
    assert condition.field == "metadata.annotations.gpu-fraction"


def test_a_label_without_a_domain_is_no_wish() -> None:
    assert unread_wishes({"gpu-memory": "large"}, labels=True) == ()
    (condition,) = wish_conditions({"gpu-memory": "2500"}, "Job/default/j", "metadata.annotations")
    assert condition.blocking
    assert wish_conditions({"gpu-memory": "2500"}, "Job/default/j", "spec.template.metadata.labels") == ()


def test_a_slip_in_our_own_keys_is_met_with_the_right_one() -> None:
    (condition,) = wish_conditions({"closeby.dev/placement-stategy": "spread"}, "Job/default/j")
    assert (condition.reason, condition.remedy) == (
        "InvalidSpec",
        "did you mean closeby.dev/placement-strategy?",
    )


@pytest.mark.parametrize(("key", "value"), HARD)
def test_a_pod_with_a_hard_wish_waits(key: str, value: str) -> None:
    path = field_path((key,), "metadata.annotations")
    assert read_pod({}, annotations={key: value}).spec.unsupported == (path,)


@pytest.mark.parametrize("name", PARTS)
def test_a_pod_that_asks_for_a_part_of_a_device_waits(name: str) -> None:
    """What is free on all devices of a node together need not be free on one of them."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {name: "1"}}}]}
    (lack,) = read_pod(spec).spec.unsupported
    assert name in lack


@pytest.mark.parametrize("name", WHOLE)
def test_whole_devices_are_honoured(name: str) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {name: "1"}}}]}
    assert read_pod(spec).spec.unsupported == ()


def test_a_soft_wish_of_many_pods_is_said_once(golden: Golden) -> None:
    annotations = "{{kai.scheduler/node-pool: '4'}}"
    pod = f"{{{{apiVersion: v1, kind: Pod, metadata: {{{{name: {{}}, annotations: {annotations}}}}}}}}}"
    manifests = read_good("\n---\n".join(pod.format(name) for name in "ab"))
    assert all(one.spec.unsupported == () for one in manifests.pods)
    (notice,) = manifests.notices
    golden("manifest-problems", (notice.object, notice.message))


def test_a_hard_wish_of_a_workload_keeps_its_pods_waiting() -> None:
    (workload,) = read_good(
        """
        apiVersion: jobset.x-k8s.io/v1alpha2
        kind: JobSet
        metadata:
          name: j
          annotations: {alpha.jobset.sigs.k8s.io/required-topology: rack}
        spec:
          replicatedJobs: [{name: w}]
        """
    ).workloads
    assert workload.pod_sets[0].template.spec.unsupported == (
        'JobSet/j metadata.annotations["alpha.jobset.sigs.k8s.io/required-topology"]',
    )


@pytest.mark.parametrize(("key", "meant"), MISSPELT)
def test_of_a_key_that_is_almost_one_that_is_read_that_one_is_offered(key: str, meant: str) -> None:
    (condition,) = wish_conditions({key: "rack"}, "Job/default/a")
    assert (condition.reason, condition.field) == ("Unsupported", f'metadata.annotations["{key}"]')
    assert condition.remedy == f"did you mean {meant}?"
    assert key not in condition.message


@pytest.mark.parametrize("key", [key for key, _ in (*HARD, *SOFT) if not key.startswith("closeby.dev/")])
def test_a_key_of_its_own_is_no_misspelling(key: str) -> None:
    for one in wish_conditions({key: "required"}, "Job/default/a"):
        assert (one.reason, "did you mean" in one.remedy) == ("Unsupported", False)
