"""Segments as each scheduler's users ask for them, read into layers of a gang and of its subgroups.

The manifests have the shape of the projects' own examples, which are named beside them.
"""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import (
    Arrangement,
    Exclusive,
    Layer,
    LayerMode,
    PodGroup,
    Remainder,
    SubGroup,
    TopologyConstraint,
)
from tests.lab.workload_text import expanded, only_group

BLOCK = "cloud.provider.com/topology-block"
RACK = "cloud.provider.com/topology-rack"
HOST = "kubernetes.io/hostname"
POOL = "cloud.google.com/gke-nodepool"
TEMPLATE = "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}"


def annotated(annotations: str) -> str:
    return f"{{metadata: {{annotations: {{{annotations}}}}}, {TEMPLATE}}}"


def job(pods: int, annotations: str, at_job: str = "") -> str:
    """An Indexed Job with annotations at its template, and at the Job."""
    return f"""
---
apiVersion: batch/v1
kind: Job
metadata: {{name: train, annotations: {{{at_job}}}}}
spec:
  parallelism: {pods}
  completions: {pods}
  completionMode: Indexed
  template: {annotated(annotations)}
"""


def job_set(*jobs: str, annotations: str = "") -> str:
    return f"""
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: train, annotations: {{{annotations}}}}}
spec: {{replicatedJobs: [{", ".join(jobs)}]}}
"""


def replicated(
    name: str, jobs: int, pods: int, annotations: str = "", of_job: str = "", template: str | None = None
) -> str:
    """A replicated job; annotations at its pods' template and at the template of the Job."""
    spec = f"{{parallelism: {pods}, completions: {pods}, template: {template or annotated(annotations)}}}"
    head = f"metadata: {{annotations: {{{of_job}}}}}, " if of_job else ""
    return f"{{name: {name}, replicas: {jobs}, template: {{{head}spec: {spec}}}}}"


def leader_worker_set(
    size: int, annotations: str = "", more: str = "", worker: str = "", leader: str = ""
) -> str:
    head = f"leaderTemplate: {annotated(leader)}, " if leader else ""
    return f"""
---
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: serve, annotations: {{{annotations}}}}}
spec:
  replicas: 2
  leaderWorkerTemplate: {{size: {size}, {more}{head}workerTemplate: {annotated(worker)}}}
"""


def pytorch_job(workers: int, worker: str, at_job: str = "") -> str:
    return f"""
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: train, annotations: {{{at_job}}}}}
spec:
  pytorchReplicaSpecs:
    Master: {{replicas: 1, template: {{{TEMPLATE}}}}}
    Worker: {{replicas: {workers}, template: {annotated(worker)}}}
"""


def the_gang(text: str) -> PodGroup:
    """The only gang, about which there is nothing to say."""
    group = only_group(expanded(text))
    assert group.conditions == ()
    return group


def parts(group: PodGroup) -> dict[str, tuple[int, TopologyConstraint | None, tuple[Layer, ...]]]:
    return {one.name: (one.min_member, one.constraint, one.layers) for one in group.subgroups}


SLICE = f"kueue.x-k8s.io/podset-slice-required-topology: {RACK}, kueue.x-k8s.io/podset-slice-size: '4'"
WITHIN = f"kueue.x-k8s.io/podset-required-topology: {BLOCK}"


def constraints(*layers: tuple[str, int]) -> str:
    text = ", ".join(f'{{"topology": "{level}", "size": {size}}}' for level, size in layers)
    return f"kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{text}]'"


@pytest.mark.parametrize(("least", "workers"), [(1, 0), (2, 4), (9, 8), (10, 12), (16, 16), (17, 16)])
def test_a_minimum_of_all_pods_leaves_the_later_segments_out(least: int, workers: int) -> None:
    # kai-scheduler/KAI-Scheduler: docs/topology/segments.md, Elasticity
    keys = f"kai.scheduler/segment-size: '4', kai.scheduler/segment-topology-required-placement: {RACK}"
    policy = f"spec:\n  runPolicy: {{schedulingPolicy: {{minAvailable: {least}}}}}"
    group = only_group(expanded(pytorch_job(16, keys).replace("spec:", policy, 1)))
    assert {name: part[0] for name, part in parts(group).items()} == {"master": 1, "worker": workers}


def test_kueues_slices_of_a_job_set() -> None:
    # kubernetes-sigs/kueue: site/static/examples/jobs/sample-jobset-tas-sliced.yaml and -combined.yaml
    group = the_gang(job_set(replicated("workers", 1, 8, SLICE)))
    assert (group.min_member, group.constraint, group.layers) == (
        8,
        None,
        (Layer(level=RACK, size=4, remainder=Remainder.ALLOW),),
    )
    group = the_gang(job_set(replicated("workers", 1, 8, f"{WITHIN}, {SLICE}")))
    assert group.constraint == TopologyConstraint(required=BLOCK)
    assert group.layers == (Layer(level=RACK, size=4, remainder=Remainder.ALLOW),)


def test_slices_of_one_part_make_it_a_subgroup() -> None:
    group = the_gang(job_set(replicated("driver", 1, 1), replicated("workers", 2, 4, SLICE)))
    assert group.layers == ()
    slices = (Layer(level=RACK, size=4, remainder=Remainder.ALLOW),)
    assert parts(group) == {"driver": (1, None, ()), "workers": (8, None, slices)}


def test_kueues_slices_of_several_layers() -> None:
    # kubernetes-sigs/kueue: site/content/en/docs/concepts/topology_aware_scheduling.md
    group = the_gang(job(64, constraints((BLOCK, 32), (RACK, 16))))
    assert group.layers == (Layer(level=BLOCK, size=32), Layer(level=RACK, size=16))
    # Three are the most, and one pod may be a segment.
    group = the_gang(job(8, constraints((BLOCK, 4), (RACK, 2), (HOST, 1))))
    assert [(layer.level, layer.size) for layer in group.layers] == [(BLOCK, 4), (RACK, 2), (HOST, 1)]
    fields = [layer.written.required.rpartition("[")[2] for layer in group.layers]
    assert fields == ["0].topology", "1].topology", "2].topology"]


@pytest.mark.parametrize(
    ("keys", "field", "remedy"),
    [
        (constraints(), "constraints", "1 to 3"),
        (constraints(("a/a", 8), ("a/b", 4), ("a/c", 2), ("a/d", 1)), "constraints", "1 to 3 entries"),
        (constraints((BLOCK, 8), (RACK, 3)), "constraints[1].size", "divides 8"),
        (constraints((BLOCK, 8), (BLOCK, 4)), "constraints[1].topology", "keep one"),
        (constraints((BLOCK, 0)), "constraints[0].size", "at least 1"),
        (constraints(("not a label", 8)), "constraints[0].topology", "nodeLabel"),
        ("kueue.x-k8s.io/podset-slice-required-topology-constraints: '{'", "constraints", "write ["),
        (f"{SLICE}, {constraints((BLOCK, 8))}", "slice-required-topology", "keep one"),
        ("kueue.x-k8s.io/podset-slice-size: '4'", "slice-size", "add kueue.x-k8s.io/podset-slice-required"),
        (
            f"kueue.x-k8s.io/podset-slice-required-topology: {RACK}",
            "slice-required-topology",
            "add kueue.x-k8s.io/podset-slice-size",
        ),
        (SLICE.replace("'4'", "four"), "slice-size", "at least 1"),
        (constraints((BLOCK, 6), (RACK, 3)), "constraints[0].topology", "divides 8"),
        (SLICE.replace("'4'", "'16'"), "slice-required-topology", "at most 8"),
        (f"{SLICE}, {WITHIN}, kueue.x-k8s.io/podset-group-name: g", "podset-group-name", "take out"),
        ("kueue.x-k8s.io/podset-group-name: g", "podset-group-name", "both pod sets"),
        (f"{WITHIN}, kueue.x-k8s.io/podset-group-name: '7'", "podset-group-name", "give the group a name"),
    ],
)
def test_slices_that_make_no_sense_keep_the_gang_waiting(keys: str, field: str, remedy: str) -> None:
    group = only_group(expanded(job(8, keys)))
    (condition,) = [one for one in group.conditions if one.blocking]
    assert (condition.object, condition.reason) == ("Job/default/train", "InvalidSpec")
    assert condition.field.replace('"]', "").endswith(field)
    assert remedy in condition.remedy


GROUP = f"kueue.x-k8s.io/podset-required-topology: {RACK}, kueue.x-k8s.io/podset-group-name: lws-group"


def test_kueues_leader_and_workers_are_together() -> None:
    # kubernetes-sigs/kueue: site/static/examples/serving-workloads/sample-leaderworkerset-tas.yaml
    first, second = expanded(leader_worker_set(3, leader=GROUP, worker=GROUP)).groups
    assert (first.name, second.name) == ("serve-0", "serve-1")
    assert (first.min_member, first.constraint, first.subgroups) == (3, TopologyConstraint(required=RACK), ())


def test_a_group_of_two_of_three_pod_sets() -> None:
    text = job_set(
        replicated("launcher", 1, 1, GROUP), replicated("workers", 2, 4, GROUP), replicated("logger", 1, 1)
    )
    assert the_gang(text).subgroups == (
        SubGroup(name="lws-group", min_member=0, constraint=TopologyConstraint(required=RACK)),
        SubGroup(name="launcher", min_member=1, parent="lws-group"),
        SubGroup(name="workers", min_member=8, parent="lws-group"),
        SubGroup(name="logger", min_member=1),
    )


@pytest.mark.parametrize(
    ("jobs", "remedy"),
    [
        ([replicated("a", 1, 1, GROUP), replicated("b", 1, 4)], "to the leader and to its workers alone"),
        ([replicated("a", 1, 2, GROUP), replicated("b", 1, 4, GROUP)], "let one of the two be the leader"),
        (
            [replicated("a", 1, 1, GROUP), replicated("b", 1, 4, GROUP.replace(RACK, BLOCK))],
            "give both the same",
        ),
    ],
)
def test_groups_that_kueue_refuses(jobs: list[str], remedy: str) -> None:
    (condition,) = only_group(expanded(job_set(*jobs))).conditions
    assert condition.blocking
    assert condition.field.endswith('metadata.annotations["kueue.x-k8s.io/podset-group-name"]')
    assert remedy in condition.remedy


SEGMENT = f"kai.scheduler/segment-size: '4', kai.scheduler/segment-topology-required-placement: {RACK}"
NET = "kai.scheduler/topology: cluster-topology"
OF_FOUR = Layer(level=RACK, size=4, remainder=Remainder.ALLOW, topology="cluster-topology")


def test_kais_segments_of_the_workers() -> None:
    # kai-scheduler/KAI-Scheduler: docs/topology/segments.md
    group = the_gang(pytorch_job(16, f"{NET}, {SEGMENT}"))
    assert (group.constraint, group.layers) == (None, ())
    assert parts(group) == {"master": (1, None, ()), "worker": (16, None, (OF_FOUR,))}


def test_kais_segments_within_a_zone() -> None:
    zone = "kai.scheduler/topology-required-placement: topology.kubernetes.io/zone"
    group = the_gang(pytorch_job(18, SEGMENT, at_job=f"{NET}, {zone}"))
    assert group.constraint == TopologyConstraint(
        topology="cluster-topology", required="topology.kubernetes.io/zone"
    )
    assert parts(group)["worker"] == (18, None, (OF_FOUR,))


def test_kais_segments_may_prefer_a_level_too() -> None:
    group = the_gang(job(6, f"{SEGMENT}, kai.scheduler/segment-topology-preferred-placement: nvlink"))
    assert group.layers == (
        Layer(level=RACK, size=4, remainder=Remainder.ALLOW),
        Layer(level="nvlink", size=4, remainder=Remainder.ALLOW, mode=LayerMode.PREFERRED),
    )


@pytest.mark.parametrize(
    ("size", "more", "layer"),
    [
        # The leader is the first of its segment, and one more where the workers alone fill the segments.
        (5, "subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderWorker}, ", {"counts": (3, 2)}),
        (6, "subGroupPolicy: {subGroupSize: 2}, ", {"size": 2}),
        (8, "subGroupPolicy: {subGroupSize: 3}, ", {"size": 3}),
    ],
)
def test_kais_segments_of_a_leader_and_workers(size: int, more: str, layer: dict[str, object]) -> None:
    # kai-scheduler/KAI-Scheduler: docs/topology/segments.md
    worker = f"{NET}, kai.scheduler/segment-topology-required-placement: {RACK}"
    group = expanded(leader_worker_set(size, more=more, worker=worker, leader="a: b")).groups[0]
    expected = Layer(level=RACK, remainder=Remainder.ALLOW, topology="cluster-topology")
    assert group.conditions == ()
    assert group.subgroups == ()
    assert group.layers == (replace(expected, **layer),)


def test_kais_segments_without_the_leader() -> None:
    more = "subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderExcluded}, "
    worker = f"kai.scheduler/segment-topology-required-placement: {RACK}"
    group = expanded(leader_worker_set(5, more=more, worker=worker, leader="a: b")).groups[0]
    assert parts(group) == {
        "leader": (1, None, ()),
        "worker": (4, None, (Layer(level=RACK, size=2, remainder=Remainder.ALLOW),)),
    }


def test_segments_without_a_leader_that_has_the_template_of_its_workers() -> None:
    more = "subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderExcluded}, "
    worker = f"{NET}, kai.scheduler/segment-topology-required-placement: {RACK}"
    worker += f", kai.scheduler/topology-required-placement: {BLOCK}"
    group = expanded(leader_worker_set(5, more=more, worker=worker)).groups[0]
    layer = Layer(level=RACK, size=2, remainder=Remainder.ALLOW, topology="cluster-topology")
    assert parts(group) == {"leader": (1, None, ()), "worker": (4, None, (layer,))}
    assert (group.constraint and group.constraint.required, group.layers) == (BLOCK, ())
    alone = f"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: {RACK}"
    found = expanded(leader_worker_set(5, alone, more))
    (workers,) = [one for one in found.groups[0].subgroups if one.name == "worker"]
    assert [(one.level, one.size, one.exclusive) for one in workers.layers] == [(RACK, 2, Exclusive.KIND)]
    assert [pod.subgroup for pod in found.pods] == ["leader", *["worker"] * 4] * 2


@pytest.mark.parametrize(
    ("keys", "field", "blocking"),
    [
        (SEGMENT.replace("'4'", "x"), "segment-size", True),
        (SEGMENT.replace("'4'", "'9'"), "segment-topology-required-placement", True),
        (f"kai.scheduler/segment-topology-required-placement: {RACK}", "required-placement", True),
        ("kai.scheduler/segment-size: '4'", "segment-size", False),
    ],
)
def test_kais_segments_that_make_no_sense(keys: str, field: str, blocking: bool) -> None:
    (condition,) = only_group(expanded(job(8, keys))).conditions
    assert (condition.object, condition.blocking) == ("Job/default/train", blocking)
    assert condition.field.endswith(f'{field}"]')


ALONE = Layer(level=POOL, size=3, remainder=Remainder.ALLOW, exclusive=Exclusive.KIND)


def test_each_job_of_a_job_set_has_a_domain() -> None:
    # kubernetes-sigs/jobset: site/static/examples/simple/exclusive-placement.yaml
    key = f"alpha.jobset.sigs.k8s.io/exclusive-topology: {POOL}"
    group = the_gang(job_set(replicated("workers", 3, 3), annotations=key))
    assert (group.min_member, group.layers) == (9, (ALONE,))
    group = the_gang(job_set(replicated("driver", 1, 1), replicated("workers", 2, 3, of_job=key)))
    assert parts(group) == {"driver": (1, None, ()), "workers": (6, None, (ALONE,))}
    group = the_gang(job_set(replicated("workers", 3, 3, key)))
    assert (group.conditions, group.layers) == ((), (ALONE,)), "in the pod template, where JobSet looks"


def test_node_pools_that_are_labelled_by_hand_are_not_supported() -> None:
    keys = (
        f"alpha.jobset.sigs.k8s.io/exclusive-topology: {POOL}, alpha.jobset.sigs.k8s.io/node-selector: 'true'"
    )
    found = expanded(job_set(replicated("workers", 3, 3), annotations=keys))
    assert {one.spec.unsupported for one in found.pods} == {
        ('JobSet/train metadata.annotations["alpha.jobset.sigs.k8s.io/node-selector"]',)
    }


def test_each_group_of_a_leader_worker_set_has_a_domain() -> None:
    # kubernetes-sigs/lws: docs/examples/sample/lws-exclusive-placement.yaml
    key = f"leaderworkerset.sigs.k8s.io/exclusive-topology: {POOL}"
    groups = expanded(leader_worker_set(3, key)).groups
    assert [(one.min_member, one.layers) for one in groups] == [(3, (ALONE,)), (3, (ALONE,))]


def test_each_subgroup_has_a_domain() -> None:
    # kubernetes-sigs/lws: keps/115-Subgroup-support
    keys = (
        f"leaderworkerset.sigs.k8s.io/exclusive-topology: {BLOCK}, "
        f"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: {RACK}"
    )
    more = "subGroupPolicy: {subGroupSize: 4}, "
    group = expanded(leader_worker_set(9, keys, more)).groups[0]
    assert group.layers == (
        Layer(level=BLOCK, size=9, remainder=Remainder.ALLOW, exclusive=Exclusive.KIND),
        Layer(level=RACK, counts=(5, 4), remainder=Remainder.ALLOW, exclusive=Exclusive.KIND),
    )
    more = "subGroupPolicy: {subGroupSize: 4, subGroupPolicyType: LeaderExcluded}, "
    found = expanded(leader_worker_set(9, keys, more))
    assert {one.spec.unsupported for one in found.pods} == {
        ("LeaderWorkerSet/serve spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType",)
    }


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ("closeby.dev/segment-size: '4', closeby.dev/segment-level: rack", [Layer(level="rack", size=4)]),
        (
            (
                "closeby.dev/segment-size: '4', closeby.dev/segment-level: rack,"
                " closeby.dev/segment-arrangement: spread, closeby.dev/exclusive-level: rack"
            ),
            [Layer(level="rack", size=4, arrangement=Arrangement.SPREAD, exclusive=Exclusive.ALL)],
        ),
        (
            (
                "closeby.dev/segment-size: '4', closeby.dev/segment-level: rack,"
                " closeby.dev/exclusive-level: block"
            ),
            [Layer(level="block", size=4, exclusive=Exclusive.ALL), Layer(level="rack", size=4)],
        ),
        ("closeby.dev/exclusive-level: rack", [Layer(level="rack", size=1, exclusive=Exclusive.ALL)]),
    ],
)
def test_slurms_segments_and_exclusive_topology(keys: str, layers: list[Layer]) -> None:
    assert list(the_gang(job(8, "", at_job=keys)).layers) == layers


def test_slurms_switches() -> None:
    one = "closeby.dev/switches: '1', closeby.dev/switch-level: leaf"
    group = the_gang(job(8, "", at_job=one))
    assert (group.constraint, group.layers) == (TopologyConstraint(required="leaf"), ())
    several = the_gang(job(8, "", at_job=one.replace("'1'", "'2'")))
    assert several.layers == (Layer(level="leaf", size=1, max_domains=2),)
    assert several.constraint is None


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("30m", 1800.0),
        ("30", 1800.0),
        ("10:30", 630.0),
        # Hours, minutes and seconds, with days before them.
        ("2:30:05", 9_005.0),
        ("1-2", 93_600.0),
        ("1-2:03", 93_780.0),
        ("1-2:03:04", 93_784.0),
    ],
)
def test_slurms_switches_for_a_time(time: str, seconds: float) -> None:
    keys = f"closeby.dev/switches: 1@{time}, closeby.dev/switch-level: leaf"
    (layer,) = the_gang(job(8, "", at_job=keys)).layers
    assert layer == Layer(level="leaf", size=1, max_domains=1, relax_after=seconds)


def test_slurms_switches_beside_segments() -> None:
    keys = "closeby.dev/segment-size: '4', closeby.dev/segment-level: rack, closeby.dev/switches: 2@30m"
    same = the_gang(job(8, "", at_job=f"{keys}, closeby.dev/switch-level: rack"))
    assert same.layers == (Layer(level="rack", size=4, max_domains=2, relax_after=1800.0),)
    above = the_gang(job(8, "", at_job=f"{keys}, closeby.dev/switch-level: block"))
    assert above.layers == (
        Layer(level="block", size=4, max_domains=2, relax_after=1800.0),
        Layer(level="rack", size=4),
    )


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ("closeby.dev/segment-size: '4'", "segment-size"),
        ("closeby.dev/segment-level: rack", "segment-level"),
        ("closeby.dev/segment-size: '0', closeby.dev/segment-level: rack", "segment-size"),
        ("closeby.dev/segment-size: '3', closeby.dev/segment-level: rack", "segment-level"),
        ("closeby.dev/segment-arrangement: spread", "segment-arrangement"),
        (
            (
                "closeby.dev/segment-size: '4', closeby.dev/segment-level: rack,"
                " closeby.dev/segment-arrangement: x"
            ),
            "segment-arrangement",
        ),
        ("closeby.dev/switches: '1'", "switches"),
        ("closeby.dev/switches: '1@', closeby.dev/switch-level: rack", "switches"),
        ("closeby.dev/switches: '1@soon', closeby.dev/switch-level: rack", "switches"),
    ],
)
def test_annotations_of_ours_that_make_no_sense(keys: str, field: str) -> None:
    (condition,) = only_group(expanded(job(8, "", at_job=keys))).conditions
    assert (condition.object, condition.blocking) == ("Job/default/train", True)
    assert condition.field == f'metadata.annotations["closeby.dev/{field}"]'
    assert condition.remedy


def test_segments_are_asked_for_once() -> None:
    text = job(8, SLICE, at_job="closeby.dev/segment-size: '4', closeby.dev/segment-level: rack")
    assert the_gang(text).layers[0].level == "rack"
    both = f"{SLICE}, closeby.dev/segment-size: '4', closeby.dev/segment-level: rack"
    (condition,) = only_group(expanded(job(8, both))).conditions
    assert condition.blocking
    within = f"{WITHIN}, closeby.dev/segment-size: '4', closeby.dev/segment-level: rack"
    group = the_gang(job(8, within))
    assert group.constraint == TopologyConstraint(required=BLOCK)
    assert group.layers == (Layer(level="rack", size=4),)
