"""PodGroup in every dialect: how each says gang, constraint and tree, and what is said about nonsense."""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Layer, LayerMode, PodGroup, Strategy, SubGroup, TopologyConstraint
from closeby.objects.pods import ProtectionRequest
from closeby.objects.reasons import Condition
from closeby.objects.topologies import tier_level
from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read_good

OURS = "closeby.dev/v1alpha1"
KAI = "scheduling.run.ai/v2alpha2"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
UPSTREAM = "scheduling.k8s.io/v1beta1"


def group(api: str, spec: str, annotations: str = "{}", labels: str = "{}") -> PodGroup:
    """The gang that one PodGroup describes."""
    (result,) = read_good(
        f"""
        apiVersion: {api}
        kind: PodGroup
        metadata: {{name: g, annotations: {annotations}, labels: {labels}}}
        spec: {spec}
        """
    ).groups
    return result


def condition(group: PodGroup) -> Condition:
    (result,) = group.conditions
    return result


def test_our_own() -> None:
    (result,) = read_good(
        """
        apiVersion: closeby.dev/v1alpha1
        kind: PodGroup
        metadata:
          name: train
          namespace: ml
          uid: 12ab
          creationTimestamp: "1970-01-01T00:01:00Z"
        spec:
          minMember: 9
          priorityClassName: high
          placement: {strategy: spread}
          topologyConstraint: {topology: fabric, requiredTopologyLevel: zone, preferredTopologyLevel: rack}
          minSubGroup: 1
          subGroups:
          - {name: stage, minSubGroup: 2}
          - name: a
            parent: stage
            minMember: 4
            topologyConstraint: {topology: fabric, requiredTopologyLevel: rack}
          - {name: b, parent: stage}
        """
    ).groups
    assert result == PodGroup(
        namespace="ml",
        name="train",
        uid="12ab",
        created=60.0,
        min_member=9,
        priority_class_name="high",
        strategy=Strategy.SPREAD,
        constraint=TopologyConstraint(topology="fabric", required="zone", preferred="rack"),
        min_subgroups=1,
        subgroups=(
            SubGroup(name="stage", min_subgroups=2),
            SubGroup(
                name="a",
                parent="stage",
                min_member=4,
                constraint=TopologyConstraint(topology="fabric", required="rack"),
            ),
            SubGroup(name="b", parent="stage"),
        ),
        source=OURS,
    )


def test_our_own_schema_is_strict(golden: Golden) -> None:
    text = f"{{apiVersion: {OURS}, kind: PodGroup, metadata: {{name: g}}, spec: {{minMembers: 3}}}}"
    golden("manifest-problems", error_of(text))
    text = (
        f"{{apiVersion: {OURS}, kind: PodGroup, metadata: {{name: g}}, spec: {{subGroups: [{{size: 3}}]}}}}"
    )
    golden("manifest-problems", error_of(text))


@pytest.mark.parametrize("field", ["topologyConstraint", "topologyConstraints"])
def test_kai_with_the_designs_name_and_the_implementations(field: str) -> None:
    result = group(KAI, f"{{minMember: 3, queue: q, {field}: {{topology: t, preferredTopologyLevel: rack}}}}")
    assert result.min_member == 3
    assert result.constraint == TopologyConstraint(topology="t", preferred="rack")
    assert result.conditions == ()


def test_kai_looks_parents_up_in_lower_case() -> None:
    result = group(
        KAI, "{subGroups: [{name: Stage}, {name: exact}, {name: a, parent: STAGE}, {name: b, parent: exact}]}"
    )
    assert [one.parent for one in result.subgroups] == [None, None, "Stage", "exact"]
    assert result.conditions == ()


#              g: all          g: 1 of 2
#             /     \
#        a: 1 of 2   d: 4
#        /     \
#      b: 3    c: 2
def test_in_kai_the_tree_says_how_many_pods_are_needed() -> None:
    subgroups = (
        "[{name: a, minSubGroup: 1, minMember: 50}, {name: b, parent: a, minMember: 3},"
        " {name: c, parent: a, minMember: 2}, {name: d, minMember: 4}]"
    )
    assert group(KAI, f"{{minMember: 77, subGroups: {subgroups}}}").min_member == 6
    assert group(KAI, f"{{minSubGroup: 1, subGroups: {subgroups}}}").min_member == 2


def test_ours_takes_the_minimum_that_is_given_and_else_what_the_tree_needs() -> None:
    subgroups = "[{name: a, minMember: 3}, {name: b, minMember: 0}]"
    assert group(OURS, f"{{minMember: 7, subGroups: {subgroups}}}").min_member == 7
    assert group(OURS, f"{{subGroups: {subgroups}}}").min_member == 3
    assert group(OURS, "{}").min_member == 1


def test_coscheduling() -> None:
    result = group(COSCHEDULING, "{minMember: 5, scheduleTimeoutSeconds: 60, minResources: {cpu: 3}}")
    assert (result.min_member, result.constraint, result.conditions) == (5, None, ())
    assert group(COSCHEDULING, "{}").min_member == 1


def test_volcano() -> None:
    result = group(
        VOLCANO, "{minMember: 5, queue: default, priorityClassName: high, minTaskMember: {ps: 2, worker: 3}}"
    )
    assert (result.min_member, result.priority_class_name, result.conditions) == (5, "high", ())
    assert result.subgroups == (SubGroup(name="ps", min_member=2), SubGroup(name="worker", min_member=3))


def test_volcano_looks_at_tasks_only_where_all_of_them_must_start() -> None:
    assert group(VOLCANO, "{minMember: 4, minTaskMember: {ps: 2, worker: 3}}").subgroups == ()


@pytest.mark.parametrize(
    ("wish", "constraint"),
    [
        ("{highestTierAllowed: 2}", TopologyConstraint(topology="hypernodes", required=tier_level(2))),
        ("{mode: hard, highestTierName: rack}", TopologyConstraint(topology="hypernodes", required="rack")),
        (
            "{mode: soft, highestTierAllowed: 2}",
            TopologyConstraint(topology="hypernodes", preferred=tier_level(1)),
        ),
    ],
)
def test_volcanos_tiers_are_levels_of_its_hypernodes(wish: str, constraint: TopologyConstraint) -> None:
    result = group(VOLCANO, f"{{minMember: 2, networkTopology: {wish}}}")
    assert (result.constraint, result.conditions) == (constraint, ())


@pytest.mark.parametrize(
    ("wish", "field", "blocking"),
    [
        ("{}", "spec.networkTopology.highestTierAllowed", False),
        ("{mode: firm}", "spec.networkTopology.mode", True),
        ("{highestTierAllowed: 1, highestTierName: rack}", "spec.networkTopology", True),
    ],
)
def test_volcanos_wishes_that_make_no_sense(wish: str, field: str, blocking: bool) -> None:
    result = group(VOLCANO, f"{{minMember: 2, networkTopology: {wish}}}")
    found = condition(result)
    assert (found.reason, found.field, found.blocking) == ("InvalidSpec", field, blocking)
    assert result.constraint is None


#: As Volcano's controller writes the partitions of a task.
PARTITIONS = (
    "{name: t0, subGroupSize: 4, minSubGroups: 2, networkTopology: {mode: hard, highestTierAllowed: 1},"
    " labelSelector: {matchLabels: {volcano.sh/task-spec: t0}}, matchLabelKeys: [volcano.sh/partition-id]}"
)


def test_volcanos_partitions_are_layers() -> None:
    layer = Layer(level=tier_level(1), size=4, min_segments=2, topology="hypernodes")
    result = group(VOLCANO, f"{{minMember: 7, subGroupPolicy: [{PARTITIONS}]}}")
    assert (result.min_member, result.layers, result.subgroups, result.conditions) == (8, (layer,), (), ())
    minima = "minTaskMember: {t0: 8, t1: 1}"
    result = group(VOLCANO, f"{{minMember: 9, {minima}, subGroupPolicy: [{PARTITIONS}]}}")
    assert result.subgroups == (
        SubGroup(name="t0", min_member=8, layers=(layer,)),
        SubGroup(name="t1", min_member=1),
    )
    two = f"{PARTITIONS}, {PARTITIONS.replace('t0', 't1').replace('hard', 'soft')}"
    result = group(VOLCANO, f"{{minMember: 16, subGroupPolicy: [{two}]}}")
    preferred = replace(layer, mode=LayerMode.PREFERRED)
    assert result.subgroups == (
        SubGroup(name="t0", min_member=8, layers=(layer,)),
        SubGroup(name="t1", min_member=8, layers=(preferred,)),
    )


@pytest.mark.parametrize(
    ("policy", "blocking"),
    [
        # Volcano groups them by the values of any label; closeby divides pods by their index.
        ("{name: p, subGroupSize: 4, networkTopology: {highestTierName: rack}}", True),
        (PARTITIONS.replace("partition-id", "anything"), True),
        (PARTITIONS.replace("partition-id", "anything").replace("hard", "soft"), False),
        ("{name: p, subGroupSize: 4}", False),
        ("{name: p, subGroupSize: 4, matchLabelKeys: [volcano.sh/partition-id]}", False),
    ],
)
def test_volcanos_subgroups_of_other_kinds_wait_where_they_are_hard(policy: str, blocking: bool) -> None:
    found = condition(group(VOLCANO, f"{{minMember: 2, subGroupPolicy: [{policy}]}}"))
    assert (found.reason, found.blocking) == ("Unsupported", blocking)
    assert found.field.startswith("spec.subGroupPolicy")


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("minima", ["", "minTaskMember: {t0: 8, t1: 1}, "])
def test_volcanos_partitions_have_pods(size: int, minima: str) -> None:
    policy = PARTITIONS.replace("subGroupSize: 4", f"subGroupSize: {size}")
    found = condition(group(VOLCANO, f"{{minMember: 9, {minima}subGroupPolicy: [{policy}]}}"))
    assert (found.field, found.blocking) == ("spec.subGroupPolicy[0].subGroupSize", True)


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
@pytest.mark.parametrize("spelling", ["key", "level"])
def test_upstream(version: str, spelling: str) -> None:
    result = group(
        f"scheduling.k8s.io/{version}",
        "{schedulingPolicy: {gang: {minCount: 8}}, priorityClassName: high, priority: 7,"
        " disruptionMode: {single: {}},"
        f" schedulingConstraints: {{topology: [{{{spelling}: example.com/rack}}]}}}}",
    )
    assert result.min_member == 8
    assert result.constraint == TopologyConstraint(required="example.com/rack")
    assert (result.priority_class_name, result.priority, result.conditions) == ("high", 7, ())


@pytest.mark.parametrize("policy", ["Never", "PreemptLowerPriority"])
def test_upstreams_preemption_policy(policy: str) -> None:
    result = group(UPSTREAM, f"{{schedulingPolicy: {{gang: {{minCount: 8}}}}, preemptionPolicy: {policy}}}")
    assert (result.preemption_policy, result.conditions) == (policy, ())


@pytest.mark.parametrize(
    ("preemptibility", "minimum_only"),
    [
        ("non-preemptible", False),
        ("semi-preemptible", True),
        ("Semi-Preemptible", True),
        ("preemptible", None),
    ],
)
def test_kais_preemptibility(preemptibility: str, minimum_only: bool | None) -> None:
    def asked(where: str) -> ProtectionRequest | None:
        text = f"{where}={preemptibility}"
        return None if minimum_only is None else ProtectionRequest(text, minimum_only)

    found = group(KAI, f"{{preemptibility: {preemptibility}}}")
    assert found.protected_by == asked("spec.preemptibility")
    labelled = group(KAI, "{}", labels=f"{{kai.scheduler/preemptibility: {preemptibility}}}")
    assert labelled.protected_by == asked("kai.scheduler/preemptibility")
    assert (found.conditions, labelled.conditions) == ((), ())


def test_kais_preemption_delay() -> None:
    assert group(KAI, "{preemptionDelay: 5m}").preemption_delay == 300
    assert group(KAI, "{}", "{kai.scheduler/preemption-delay: 90s}").preemption_delay == 90
    assert group(OURS, "{minMember: 1}", "{kai.scheduler/preemption-delay: 1h30m}").preemption_delay == 5400


@pytest.mark.parametrize(
    ("spec", "annotations", "field"),
    [
        ("{preemptionDelay: soon}", "{}", "spec.preemptionDelay"),
        ("{preemptionDelay: '300'}", "{}", "spec.preemptionDelay"),
        (
            "{}",
            "{kai.scheduler/preemption-delay: -5m}",
            'metadata.annotations["kai.scheduler/preemption-delay"]',
        ),
    ],
)
def test_a_delay_that_is_no_span_of_time_is_ignored_and_reported(
    spec: str, annotations: str, field: str
) -> None:
    found = group(KAI, spec, annotations)
    assert found.preemption_delay == 0
    problem = condition(found)
    assert (problem.reason, problem.field, problem.blocking) == ("InvalidSpec", field, False)


@pytest.mark.parametrize("api", [OURS, VOLCANO])
@pytest.mark.parametrize("key", ["closeby.dev/preemptible", "volcano.sh/preemptable"])
@pytest.mark.parametrize("value", ["false", "true"])
def test_an_annotation_of_a_pod_group_says_whether_its_pods_may_be_evicted(
    api: str, key: str, value: str
) -> None:
    found = group(api, "{minMember: 1}", f"{{{key}: '{value}'}}")
    assert found.protected_by == (ProtectionRequest(f"{key}=false") if value == "false" else None)
    assert found.conditions == ()


def test_upstreams_basic_policy_is_no_gang() -> None:
    assert group(UPSTREAM, "{schedulingPolicy: {basic: {}}}").min_member == 0


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ("{}", "InvalidSpec", "spec.schedulingPolicy"),
        ("{schedulingPolicy: {basic: {}, gang: {minCount: 1}}}", "InvalidSpec", "spec.schedulingPolicy"),
        ("{schedulingPolicy: {gang: {}}}", "InvalidSpec", "spec.schedulingPolicy.gang.minCount"),
        (
            "{schedulingPolicy: {basic: {}}, parentCompositePodGroupName: root}",
            "Unsupported",
            "spec.parentCompositePodGroupName",
        ),
        (
            "{schedulingPolicy: {basic: {}}, resourceClaims: [{name: c}]}",
            "Unsupported",
            "spec.resourceClaims",
        ),
        (
            "{schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: a}, {key: b}]}}",
            "Unsupported",
            "spec.schedulingConstraints.topology",
        ),
        (
            "{schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{}]}}",
            "InvalidSpec",
            "spec.schedulingConstraints.topology[0].key",
        ),
    ],
)
def test_upstreams_groups_that_wait(spec: str, reason: str, field: str) -> None:
    found = condition(group(UPSTREAM, spec))
    assert (found.reason, found.field, found.object, found.blocking) == (
        reason,
        field,
        "PodGroup/default/g",
        True,
    )


def test_a_composite_group_is_reported() -> None:
    manifests = read_good(
        "{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {name: root}}"
    )
    (notice,) = manifests.notices
    assert (notice.reason, notice.object) == ("Unsupported", "CompositePodGroup/default/root")


#: Each subgroup stands below the one before.
DEEP = ", ".join(f"{{name: s{i}, parent: s{i - 1}}}" for i in range(1, 5_000))


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ("{minMember: -1}", "spec.minMember", "minMember -1 is negative"),
        ("{minSubGroup: 1}", "spec.minSubGroup", "1 is not between 0 and the 0 subgroups there are"),
        ("{subGroups: [{minMember: 1}]}", "spec.subGroups[0].name", "subgroup 0 has no name"),
        (
            "{subGroups: [{name: a, minMember: -2}]}",
            "spec.subGroups[0].minMember",
            "minMember -2 of subgroup 'a' is negative",
        ),
        (
            "{subGroups: [{name: a, parent: b}]}",
            "spec.subGroups[0].parent",
            "the parent 'b' of subgroup 'a' is not a subgroup",
        ),
        (
            f"{{subGroups: [{{name: s0}}, {DEEP}]}}",
            "spec.subGroups",
            "the subgroups have 5000 levels below each other",
        ),
        ("{subGroups: [{name: a, parent: a}]}", "spec.subGroups[0].parent", "a -> a is a cycle"),
        (
            "{subGroups: [{name: x}, {name: c, parent: b}, {name: b, parent: a}, {name: a, parent: c}]}",
            "spec.subGroups[3].parent",
            "a -> c -> b -> a is a cycle",
        ),
        (
            "{subGroups: [{name: a, minSubGroup: 3}, {name: b, parent: a}]}",
            "spec.subGroups[0].minSubGroup",
            "3 is not between 0 and the 1 subgroups there are",
        ),
    ],
)
@pytest.mark.parametrize("api", [OURS, KAI])
def test_trees_that_make_no_sense_keep_the_gang_waiting(api: str, spec: str, field: str, said: str) -> None:
    found = condition(group(api, spec))
    assert (found.reason, found.object, found.blocking) == ("InvalidSpec", "PodGroup/default/g", True)
    assert (found.field, found.message) == (field, said)
    assert found.remedy


def test_each_of_two_equal_names_is_reported() -> None:
    fields = [one.field for one in group(OURS, "{subGroups: [{name: a}, {name: b}, {name: a}]}").conditions]
    assert fields == ["spec.subGroups[0].name", "spec.subGroups[2].name"]


def test_an_unknown_strategy_is_refused(golden: Golden) -> None:
    found = condition(group(OURS, "{placement: {strategy: tight}}"))
    golden("manifest-problems", (found.field, found.sentence()))


@pytest.mark.parametrize("api", [KAI, COSCHEDULING, VOLCANO])
def test_other_dialects_name_the_strategy_in_an_annotation(api: str) -> None:
    key = "closeby.dev/placement-strategy"
    assert group(api, "{}", f"{{{key}: spread}}").strategy is Strategy.SPREAD
    found = condition(group(api, "{}", f"{{{key}: tight}}"))
    assert (found.field, found.blocking) == (f'metadata.annotations["{key}"]', True)


@pytest.mark.parametrize("api", [OURS, KAI])
def test_a_topology_without_a_level_asks_for_nothing_and_says_so(api: str) -> None:
    result = group(api, "{topologyConstraint: {topology: t}}")
    assert result.constraint is None
    assert (condition(result).field, condition(result).blocking) == ("spec.topologyConstraint", False)


@pytest.mark.parametrize("api", [OURS, KAI])
def test_a_level_without_a_topology_is_left_to_the_scheduler(api: str) -> None:
    result = group(api, "{topologyConstraint: {requiredTopologyLevel: rack}}")
    assert (result.constraint, result.conditions) == (TopologyConstraint(required="rack"), ())


def test_annotations_are_kept_for_plugins() -> None:
    assert group(VOLCANO, "{}", "{example.com/x: y}").annotations == {"example.com/x": "y"}
