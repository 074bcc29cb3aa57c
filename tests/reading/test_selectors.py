from typing import Any

import pytest

from closeby.objects.labels import NAMESPACE_NAME
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    Namespace,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodTerm,
    selector_of,
)
from tests.reading.manifest_text import read_good, read_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = selector_of({"app": "web"})


def expression(operator: str, *values: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", operator, values),))


@pytest.mark.parametrize(
    ("selector", "of_web", "of_none"),
    [
        (LabelSelector(), True, True),
        (WEB, True, False),
        (expression("In", "db", "web"), True, False),
        (expression("NotIn", "web"), False, True),
        (expression("NotIn", "db"), True, True),
        (expression("Exists"), True, False),
        (expression("DoesNotExist"), False, True),
        (LabelSelector((*WEB.requirements, LabelRequirement("tier", "Exists"))), False, False),
    ],
)
def test_what_a_selector_selects(selector: LabelSelector, of_web: bool, of_none: bool) -> None:
    assert (selector.matches({"app": "web"}), selector.matches({})) == (of_web, of_none)


def test_a_term_without_namespaces_means_its_pods_own() -> None:
    term = PodAffinityTerm("zone", WEB).of_pod("shop", {})
    assert (term.means("shop", {}), term.means("other", {})) == (True, False)


def test_an_empty_namespace_selector_means_all_namespaces() -> None:
    term = PodAffinityTerm("zone", WEB, namespace_selector=LabelSelector()).of_pod("shop", {})
    assert term.means("other", {})
    team = PodAffinityTerm("zone", WEB, ("a",), selector_of({"team": "x"})).of_pod("shop", {})
    assert [team.means("a", {}), team.means("b", {"team": "x"}), team.means("shop", {})] == [
        True,
        True,
        False,
    ]


def test_label_keys_take_the_values_of_their_pod() -> None:
    written = PodAffinityTerm("zone", WEB, match_label_keys=("hash", "gone"), mismatch_label_keys=("tenant",))
    labels = {"app": "web", "hash": "1", "tenant": "t"}
    term = written.of_pod("shop", labels)
    assert str(term.selector) == "app=web,hash=1,tenant!=t"
    # The API server has done that already; doing it again adds nothing.
    again = PodAffinityTerm(
        "zone", term.selector, match_label_keys=("hash",), mismatch_label_keys=("tenant",)
    )
    assert again.of_pod("shop", labels) == term
    # Without a selector a term selects nothing, whatever its keys.
    assert PodAffinityTerm("zone", match_label_keys=("hash",)).of_pod("shop", labels).selector is None


def test_pod_affinity_is_read() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    other = {
        "topologyKey": "host",
        "namespaces": ["b", "a"],
        "namespaceSelector": {},
        "matchLabelKeys": ["hash"],
        "mismatchLabelKeys": ["tenant"],
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    weighted = [{"weight": 5, "podAffinityTerm": term}]
    affinity = {
        "podAffinity": {REQUIRED: [other], PREFERRED: weighted},
        "podAntiAffinity": {REQUIRED: [term], PREFERRED: weighted},
    }
    read = read_pod({"affinity": affinity}).spec.pod_affinity
    web = PodAffinityTerm("zone", WEB)
    assert read is not None
    assert read.required == (
        PodAffinityTerm("host", expression("Exists"), ("a", "b"), LabelSelector(), ("hash",), ("tenant",)),
    )
    assert read.forbidden == (web,)
    assert read.preferred == (WeightedPodTerm(5, web), WeightedPodTerm(-5, web))


def test_topology_spread_is_read_with_the_defaults_of_the_api_server() -> None:
    plain = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    full = {
        **plain,
        "topologyKey": "host",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["hash"],
    }
    soft = {**plain, "whenUnsatisfiable": "ScheduleAnyway"}
    spec = read_pod({"topologySpreadConstraints": [plain, full, soft]}).spec
    assert spec.invalid == ()
    assert spec.topology_spread == (
        TopologySpreadConstraint(topology_key="zone", max_skew=1),
        TopologySpreadConstraint(
            topology_key="host",
            max_skew=1,
            selector=WEB,
            min_domains=3,
            honors_affinity=False,
            honors_taints=True,
            match_label_keys=("hash",),
        ),
        TopologySpreadConstraint(topology_key="zone", max_skew=1, hard=False),
    )


@pytest.mark.parametrize(
    ("spread", "field"),
    [
        ({"maxSkew": 0}, "maxSkew"),
        ({"topologyKey": ""}, "topologyKey"),
        ({"whenUnsatisfiable": "Never"}, "whenUnsatisfiable"),
        ({"minDomains": 0}, "minDomains"),
        ({"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}, "minDomains"),
        ({"nodeTaintsPolicy": "Maybe"}, "nodeTaintsPolicy"),
    ],
)
def test_a_spread_constraint_that_no_api_server_takes(spread: dict[str, Any], field: str) -> None:
    good = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    (invalid,) = read_pod({"topologySpreadConstraints": [{**good, **spread}]}).spec.invalid
    assert invalid.startswith(f"spec.topologySpreadConstraints[0].{field} ")


@pytest.mark.parametrize(
    ("term", "field"),
    [
        ({"topologyKey": ""}, "topologyKey"),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            "labelSelector.matchExpressions[0].operator",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "namespaceSelector.matchExpressions[0].values",
        ),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}},
            "labelSelector.matchExpressions[0].values",
        ),
        (
            {"labelSelector": {"matchExpressions": [{"operator": "Exists"}]}},
            "labelSelector.matchExpressions[0].key",
        ),
    ],
)
def test_a_term_that_no_api_server_takes(term: dict[str, Any], field: str) -> None:
    affinity = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}
    (invalid,) = read_pod({"affinity": affinity}).spec.invalid
    assert invalid.startswith(f"spec.affinity.podAntiAffinity.{REQUIRED}[0].{field} ")


def test_a_weight_is_1_to_100() -> None:
    affinity = {"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}}
    (invalid,) = read_pod({"affinity": affinity}).spec.invalid
    assert ".weight is 101" in invalid


def test_namespaces_services_and_selectors_of_workloads_are_read() -> None:
    manifests = read_good(
        """
        {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: x}}}
        ---
        {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}}}
        ---
        {apiVersion: v1, kind: Service, metadata: {name: outside, namespace: shop}, spec: {}}
        ---
        apiVersion: apps/v1
        kind: ReplicaSet
        metadata: {name: r}
        spec: {selector: {matchExpressions: [{key: app, operator: Exists}]}}
        ---
        {apiVersion: v1, kind: ReplicationController, metadata: {name: c}, spec: {selector: {app: web}}}
        """
    )
    assert manifests.namespaces == (Namespace(name="shop", labels={"team": "x", NAMESPACE_NAME: "shop"}),)
    assert [(one.key, one.selector) for one in manifests.services] == [
        ("Service/shop/web", WEB),
        ("Service/shop/outside", None),
    ]
    assert {one.kind: one.selector for one in manifests.workloads} == {
        "ReplicaSet": expression("Exists"),
        "ReplicationController": WEB,
    }
