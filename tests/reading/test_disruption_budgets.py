"""PodDisruptionBudgets, and what else preemption goes by in objects that are read."""

import pytest

from closeby.objects.disruption import PodDisruptionBudget
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelSelector, selector_of
from closeby.scheduling.events import BudgetChanged, BudgetDeleted
from closeby.scheduling.intake.budgets import NONE, SEVERAL, Budgets
from tests.reading.manifest_text import read, read_good

BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep, namespace: team}
spec: {selector: {matchLabels: {app: web}}, minAvailable: 50%, unhealthyPodEvictionPolicy: AlwaysAllow}
status: {disruptionsAllowed: 2}
"""


def test_a_budget_is_read() -> None:
    (budget,) = read_good(BUDGET).budgets
    assert budget == PodDisruptionBudget(
        namespace="team",
        name="keep",
        selector=selector_of({"app": "web"}),
        min_available="50%",
        allowed=2,
        unhealthy_may_go=True,
    )


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("50%", "most", "minAvailable"),
        ("50%", "-1", "minAvailable"),
        ("50%", "101%", "minAvailable"),
        ("50%", f"{'9' * 5000}%", "minAvailable"),
        ("50%,", "1, maxUnavailable: 1,", "minAvailable"),
    ],
)
def test_what_no_api_server_takes_is_an_error_with_its_place(before: str, after: str, field: str) -> None:
    (error,) = read(BUDGET.replace(before, after)).errors
    assert f"spec.{field}" in str(error)


def test_policies_and_starts_are_read() -> None:
    read_ = read_good(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, annotations: {closeby.dev/checkpointed-at: "1970-01-01T00:02:00Z"}}
        spec: {preemptionPolicy: Never, containers: [{name: c}]}
        status: {phase: Running, startTime: "1970-01-01T00:01:00Z"}
        ---
        apiVersion: scheduling.k8s.io/v1
        kind: PriorityClass
        metadata: {name: calm}
        value: 5
        preemptionPolicy: Never
        ---
        apiVersion: scheduling.k8s.io/v1alpha3
        kind: PodGroup
        metadata: {name: g}
        spec: {schedulingPolicy: {gang: {minCount: 2}}, disruptionMode: {single: {}}}
        """
    )
    (pod,), (named,), (group,) = read_.pods, read_.priority_classes, read_.groups
    assert (pod.spec.preemption_policy, pod.started, pod.checkpointed) == ("Never", 60.0, 120.0)
    assert (named.preemption_policy, group.disruption) == ("Never", "single")


@pytest.mark.parametrize(
    ("version", "written", "meant"),
    [
        ("v1alpha2", "PodGroup", "all"),
        ("v1alpha2", "Pod", "single"),
        ("v1alpha3", "{all: {}}", "all"),
        ("v1alpha3", "{single: {}}", "single"),
    ],
)
def test_upstreams_disruption_mode(version: str, written: str, meant: str) -> None:
    manifests = read_good(
        f"{{apiVersion: scheduling.k8s.io/{version}, kind: PodGroup, metadata: {{name: g}},"
        f" spec: {{schedulingPolicy: {{gang: {{minCount: 2}}}}, disruptionMode: {written}}}}}"
    )
    assert [group.disruption for group in manifests.groups] == [meant]


@pytest.mark.parametrize(
    ("written", "meant"), [("{all: {}}", "all"), ("{single: {}}", "single"), ("{}", ""), ("null", "")]
)
def test_our_own_disruption_mode(written: str, meant: str) -> None:
    (group,) = read_good(_of_ours(written)).groups
    assert group.disruption == meant


def test_both_modes_are_one_too_many() -> None:
    (group,) = read_good(_of_ours("{all: {}, single: {}}")).groups
    assert group.disruption == "all"
    (condition,) = group.conditions
    assert (condition.reason, condition.field) == (Reason.INVALID_SPEC, "spec.disruptionMode")
    assert not condition.blocking


def _of_ours(mode: str) -> str:
    return (
        "{apiVersion: closeby.dev/v1alpha1, kind: PodGroup, metadata: {name: g},"
        f" spec: {{minMember: 2, disruptionMode: {mode}}}}}"
    )


def pods(count: int, phase: str = "Running", on: str | None = "n") -> list[Pod]:
    return [
        Pod(
            namespace="d", name=f"p{i}", uid=f"{phase}{i}", spec=PodSpec(), labels={"app": "web"},
            node_name=on, phase=phase,
        )
        for i in range(count)
    ]  # fmt: skip


def budgets(**fields: object) -> Budgets:
    found = Budgets()
    selector = selector_of({"app": "web"})
    found.take(BudgetChanged(PodDisruptionBudget(namespace="d", name="b", selector=selector, **fields)))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"min_available": 3}, 1),
        ({"min_available": "50%"}, 2),
        ({"min_available": "51%"}, 1),
        ({"max_unavailable": 3}, 3),
        ({"max_unavailable": "25%"}, 1),
        ({"max_unavailable": "26%"}, 2),
        ({}, 0),
        ({"min_available": 9}, 0),
        ({"min_available": 3, "allowed": 0}, 0),
    ],
)
def test_how_many_may_go(fields: dict[str, object], allowed: int) -> None:
    assert budgets(**fields).of(pods(4)) == ([0, 0, 0, 0], [allowed])


def test_pods_that_wait_count_for_a_percentage_but_are_not_available() -> None:
    assert budgets(max_unavailable="50%").of(pods(2), pods(2, "Pending", None))[1] == [0]


def test_a_pod_under_two_budgets_is_noted() -> None:
    found = budgets(max_unavailable=1)
    found.take(BudgetChanged(PodDisruptionBudget(namespace="d", name="all", selector=LabelSelector())))
    assert found.of(pods(1))[0] == [SEVERAL]
    found.take(BudgetDeleted("d/b"))
    found.take(BudgetDeleted("d/all"))
    assert found.of(pods(1)) == ([NONE], [])


def test_pods_that_are_not_healthy_may_go_where_the_budget_says_so() -> None:
    assert budgets(unhealthy_may_go=True).of(pods(1, "Pending"))[0] == [NONE]
