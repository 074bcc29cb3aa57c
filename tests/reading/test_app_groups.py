"""AppGroups in the KEP's shape and as published, and what is said about those that make no sense."""

import pytest

from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.reasons import Condition
from closeby.reading.manifests import read_manifests
from tests.reading.manifest_text import error_of, read, read_good
from tests.real_input import shared_data

KEP = "scheduling.sigs.k8s.io/v1alpha1"
PUBLISHED = "appgroup.diktyo.x-k8s.io/v1alpha1"


def app(spec: str, api: str = KEP) -> AppGroup:
    text = f"{{apiVersion: {api}, kind: AppGroup, metadata: {{name: A1}}, spec: {spec}}}"
    (result,) = read_good(text).app_groups
    return result


def calls(group: AppGroup) -> dict[str, list[str]]:
    return {one.name: [need.workload for need in one.dependencies] for one in group.workloads}


def told(group: AppGroup) -> list[tuple[str, str, bool]]:
    assert all((one.reason, one.object) == ("InvalidSpec", "AppGroup/default/A1") for one in group.conditions)
    assert all(one.remedy for one in group.conditions)
    return [(one.field, one.message, one.blocking) for one in group.conditions]


def test_the_keps_chain() -> None:
    group = app(
        """{
          numMembers: 3,
          topologySortingAlgorithm: KahnSort,
          Pods: [
            {name: P1, type: Pod, dependencies: [{name: P2, type: Pod}]},
            {name: P2, type: Pod, dependencies: [{name: P3, type: Pod}]},
            {name: P3, type: Pod}]}"""
    )
    assert group == AppGroup(
        namespace="default",
        name="A1",
        workloads=(
            AppWorkload(name="P1", dependencies=(Dependency(workload="P2"),)),
            AppWorkload(name="P2", dependencies=(Dependency(workload="P3"),)),
            AppWorkload(name="P3"),
        ),
        algorithm="KahnSort",
        num_members=3,
        source=KEP,
    )
    assert group.usable


@pytest.mark.parametrize(
    ("dependencies", "needed"),
    [
        ("{podAffinity: P2}", ["P2"]),
        ("{podAffinity: [P2, P3]}", ["P2", "P3"]),
        ("[{name: P2}, {name: P3, type: Pod}]", ["P2", "P3"]),
        ("[]", []),
        ("null", []),
        ("{}", []),
    ],
)
def test_both_ways_of_the_kep_to_name_dependencies(dependencies: str, needed: list[str]) -> None:
    group = app(f"{{Pods: [{{name: P1, dependencies: {dependencies}}}]}}")
    assert (calls(group), group.conditions) == ({"P1": needed}, ())


def test_pods_may_be_written_the_way_of_kubernetes() -> None:
    group = app("{pods: [{name: P1, dependencies: [{name: ''}]}]}")
    assert calls(group) == {"P1": []}
    assert told(group) == [("spec.pods[0].dependencies[0].name", "is missing", True)]


def test_workloads_as_published_are_called_by_their_selector() -> None:
    group = app(
        """{workloads: [
          {workload: {kind: Deployment, name: web-deployment, selector: web},
           dependencies: [
             {workload: {name: x, selector: cart}, minBandwidth: 100Mi, maxNetworkCost: 30, weight: 2.5},
             {workload: {name: mail-deployment}},
             {workload: {name: mail, selector: unknown}},
             {workload: {name: ads}}]},
          {workload: {kind: Deployment, name: cart-deployment, selector: cart}},
          {workload: {kind: Deployment, name: mail-deployment, selector: mailer}},
          {workload: {kind: StatefulSet, name: db}}]}""",
        PUBLISHED,
    )
    assert group.conditions == ()
    assert calls(group) == {
        "web": ["cart", "mailer", "unknown", "ads"],
        "cart": [],
        "mailer": [],
        "db": [],
    }
    assert group.workloads[0].dependencies[0] == Dependency(
        workload="cart", weight=2.5, min_bandwidth=100 * 2**20, max_network_cost=30
    )


@pytest.mark.parametrize(
    ("spec", "field", "message", "blocking"),
    [
        ("{}", "spec.Pods", "no workloads are given", True),
        ("{Pods: []}", "spec.Pods", "no workloads are given", True),
        ("{Pods: [{type: Pod}]}", "spec.Pods[0].name", "is missing", True),
        (
            "{Pods: [{name: a}, {name: a}]}",
            "spec.Pods[1].name",
            "a is already given in spec.Pods[0]",
            False,
        ),
        ("{numMembers: 0, Pods: [{name: a}]}", "spec.numMembers", "0 is less than 1", False),
        (
            "{numMembers: 1, Pods: [{name: a}, {name: b}]}",
            "spec.numMembers",
            "1 is less than the 2 workloads, each of which has at least one pod",
            False,
        ),
        (
            "{topologySortingAlgorithm: kahn, Pods: [{name: a}]}",
            "spec.topologySortingAlgorithm",
            "'kahn' is not a sort, so KahnSort is used",
            False,
        ),
        (
            "{Pods: [{name: a, dependencies: {podAntiAffinity: b}}]}",
            "spec.Pods[0].dependencies.podAntiAffinity",
            "podAntiAffinity is not a way to name dependencies",
            False,
        ),
        (
            "{Pods: [{name: a, dependencies: [{name: b}, {name: b}]}]}",
            "spec.Pods[0].dependencies[1].name",
            "b is named twice among the dependencies of one workload",
            False,
        ),
        ("{Pods: [{name: a}], workloads: []}", "spec.workloads", "workloads is not a field here", True),
        ("{Pods: [{name: a}], numMember: 3}", "spec.numMember", "numMember is not a field here", False),
        ("{Pods: [{name: a}], NumMembers: 3}", "spec.NumMembers", "NumMembers is not a field here", True),
    ],
)
def test_what_is_wrong_with_an_app_group(spec: str, field: str, message: str, blocking: bool) -> None:
    assert told(app(spec)) == [(field, message, blocking)]


@pytest.mark.parametrize(
    ("said", "field", "message", "blocking"),
    [
        ("weight: 0", "weight", "0 is not a weight above 0 and up to 1,000,000,000", False),
        ("weight: -2", "weight", "-2 is not a weight above 0 and up to 1,000,000,000", False),
        ("weight: 10000000000", "weight", "1e+10 is not a weight above 0 and up to 1,000,000,000", False),
        ("maxNetworkCost: -1", "maxNetworkCost", "-1 is negative, so no node could meet it", True),
        (
            "maxNetworkCost: 10001",
            "maxNetworkCost",
            "10001 is more than 10000, which the published schema refuses",
            False,
        ),
        ("minBandwidth: 10Mb", "minBandwidth", "'10Mb' has an unknown suffix 'Mb'", False),
        ("minBandwidth: -1", "minBandwidth", "-1 is negative", False),
    ],
)
@pytest.mark.parametrize(
    ("api", "spec", "place"),
    [
        (KEP, "{{Pods: [{{name: a, dependencies: [{{name: b, {}}}]}}]}}", "spec.Pods[0]"),
        (
            PUBLISHED,
            "{{workloads: [{{workload: {{name: a}}, dependencies: [{{workload: {{name: b}}, {}}}]}}]}}",
            "spec.workloads[0]",
        ),
    ],
)
def test_what_is_wrong_with_a_dependency(
    api: str, spec: str, place: str, said: str, field: str, message: str, blocking: bool
) -> None:
    group = app(spec.format(said), api)
    assert told(group) == [(f"{place}.dependencies[0].{field}", message, blocking)]
    assert group.usable is not blocking
    assert group.workloads[0].dependencies[0].weight == 1.0


def test_a_limit_beyond_the_published_schema_still_holds() -> None:
    group = app("{Pods: [{name: a, dependencies: [{name: b, maxNetworkCost: 20000}]}]}")
    assert group.workloads[0].dependencies[0].max_network_cost == 20000


def test_of_two_entries_for_one_dependency_the_stricter_values_count() -> None:
    group = app(
        """{Pods: [{name: a, dependencies: [
            {name: b, weight: 2, minBandwidth: 1M},
            {name: c},
            {name: b, maxNetworkCost: 5, minBandwidth: 2M}]}]}"""
    )
    assert group.workloads[0].dependencies == (
        Dependency(workload="b", weight=2.0, min_bandwidth=2_000_000, max_network_cost=5),
        Dependency(workload="c"),
    )


def test_a_workload_that_is_given_twice_needs_what_either_entry_says() -> None:
    group = app(
        "{Pods: [{name: a, dependencies: [{name: b}]}, {name: b}, {name: a, dependencies: [{name: c}]}]}"
    )
    assert calls(group) == {"a": ["b", "c"], "b": []}
    assert group.usable


def test_two_selectors_of_one_workload_are_reported() -> None:
    group = app(
        """{workloads: [
          {workload: {kind: Deployment, name: web, selector: a}, dependencies: [{workload: {name: web}}]},
          {workload: {kind: Deployment, name: web, selector: b}},
          {workload: {kind: StatefulSet, name: web, selector: c}}]}""",
        PUBLISHED,
    )
    assert told(group) == [
        ("spec.workloads[1].workload.name", "web is already workload 0, with selector a", False)
    ]
    # A workload that needs itself is a circle, which is for those to judge who sort the graph.
    assert calls(group) == {"a": ["a"], "b": [], "c": []}


def test_unknown_fields_are_left_alone() -> None:
    group = app("{Pods: [{name: a, replicas: 3}], maxBandwidth: 5, statistics: {}}")
    assert group.conditions == ()


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ("{name: P1}", "spec.Pods: must be a list, but is a mapping"),
        (
            "[{name: a, dependencies: [{name: b, weight: .nan}]}]",
            "spec.Pods[0].dependencies[0].weight: must be a number, but is text ('.nan')",
        ),
        (
            "[{name: a, dependencies: [{name: b, maxNetworkCost: 1.5}]}]",
            "spec.Pods[0].dependencies[0].maxNetworkCost: must be a whole number, but is a number (1.5)",
        ),
    ],
)
def test_values_of_the_wrong_type_are_errors(pods: str, said: str) -> None:
    text = f"{{apiVersion: {KEP}, kind: AppGroup, metadata: {{name: A1}}, spec: {{Pods: {pods}}}}}"
    assert f"AppGroup/A1: {said}" in error_of(text)


@pytest.mark.parametrize(("second", "errors"), [("a", 0), ("b", 1)])
def test_both_groups_share_one_space_of_names(second: str, errors: int) -> None:
    manifests = read(
        f"""
        {{apiVersion: {KEP}, kind: AppGroup, metadata: {{name: A1}}, spec: {{Pods: [{{name: a}}]}}}}
        ---
        apiVersion: {PUBLISHED}
        kind: AppGroup
        metadata: {{name: A1}}
        spec: {{workloads: [{{workload: {{selector: {second}}}}}]}}
        """
    )
    assert [group.source for group in manifests.app_groups] == [KEP]
    assert (len(manifests.errors), len(manifests.notices)) == (errors, 1 - errors)


def test_the_published_chain() -> None:
    (group,) = read_manifests([str(shared_data("network-aware/appGroup-example.yaml"))]).app_groups
    assert (group.key, group.num_members, group.conditions) == ("default/a1", 3, ())
    assert calls(group) == {"P1": ["P2"], "P2": ["P3"], "P3": []}
    edges = [need for one in group.workloads for need in one.dependencies]
    assert [(one.min_bandwidth, one.max_network_cost) for one in edges] == [
        (100 * 2**20, 30),
        (250 * 2**20, 20),
    ]


def test_the_published_redis() -> None:
    (group,) = read_manifests([str(shared_data("network-aware/redis-appGroup-example.yaml"))]).app_groups
    assert calls(group) == {"redis-leader": ["redis-follower"], "redis-follower": []}
    assert (group.algorithm, group.conditions) == ("AlternateKahn", ())


def test_the_published_online_boutique_gets_the_problems_of_its_text() -> None:
    path = "network-aware/onlineBoutique-appGroup-example.yaml"
    (error,) = read_manifests([str(shared_data(path))]).errors
    assert str(error).endswith(
        f"{path}, document 1, line 80: is not YAML: mapping values are not allowed in this context; "
        "line 79 gives a value, `workload: redis-cart`, and has fields indented below it: "
        "drop the value, or indent the fields like it"
    )


def test_conditions_are_in_the_order_of_the_text() -> None:
    group = app("{Pods: [{name: a, dependencies: [{name: b, weight: 0}]}, {name: a}], numMembers: 0}")
    assert [field_of(one) for one in group.conditions] == ["weight", "name", "numMembers"]


def field_of(condition: Condition) -> str:
    return condition.field.rpartition(".")[2]
