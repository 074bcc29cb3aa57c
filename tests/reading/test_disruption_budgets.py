"""PodDisruptionBudgets, and what else preemption goes by in objects that are read."""

from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.pods import Pod, PodDisruptionBudget, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelRequirement, LabelSelector, matches, selector_of
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
    found = budgets(**fields)
    assert [found.covering(pod) for pod in pods(4)] == [0, 0, 0, 0]
    assert found.allowed(pods(4)) == [allowed]


def test_pods_that_wait_count_for_a_percentage_but_are_not_available() -> None:
    assert budgets(max_unavailable="50%").allowed(pods(2), pods(2, "Pending", None)) == [0]


def test_a_pod_under_two_budgets_is_noted() -> None:
    found = budgets(max_unavailable=1)
    found.take(BudgetChanged(PodDisruptionBudget(namespace="d", name="all", selector=LabelSelector())))
    assert found.covering(*pods(1)) == SEVERAL
    found.take(BudgetDeleted("d/b"))
    found.take(BudgetDeleted("d/all"))
    assert found.covering(*pods(1)) == NONE
    assert found.allowed(pods(1)) == []


def test_pods_that_are_not_healthy_may_go_where_the_budget_says_so() -> None:
    assert budgets(unhealthy_may_go=True).covering(*pods(1, "Pending")) == NONE


@pytest.mark.parametrize("seed", range(4))
def test_what_many_budgets_cover_is_what_each_of_them_selects(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        found, known = Budgets(), dict[str, PodDisruptionBudget]()
        for number in range(random.randint(1, 6)):
            one = PodDisruptionBudget(
                namespace=random.choice("de"),
                name=f"b{number}",
                selector=random.choice((None, LabelSelector(_requirements(random)))),
                max_unavailable=random.randint(0, 4),
                allowed=random.choice((None, None, 1)),
                unhealthy_may_go=random.random() < 0.5,
            )
            found.take(BudgetChanged(one))
            known[one.key] = one
        crowd = [
            replace(
                one,
                namespace=random.choice("de"),
                labels={key: random.choice("xy") for key in random.sample("klm", 2)},
                phase=random.choice(("Running", "Pending")),
                terminating=random.random() < 0.3,
            )
            for one in pods(12)
        ]
        there, waiting = crowd[:8], crowd[8:]
        order = sorted(known)
        for pod in crowd:
            over = [
                order.index(key)
                for key, one in known.items()
                if _selects(one, pod) and not (one.unhealthy_may_go and pod.phase != "Running")
            ]
            expected = SEVERAL if len(over) > 1 else next(iter(over), NONE)
            assert found.covering(pod) == expected
        allowed = [_still_allowed(known[key], there, waiting) for key in order]
        assert found.allowed(there, waiting) == allowed


def _still_allowed(one: PodDisruptionBudget, there: list[Pod], waiting: list[Pod]) -> int:
    if one.allowed is not None:
        return one.allowed
    available = sum(_selects(one, pod) and not pod.terminating for pod in there)
    expected = sum(_selects(one, pod) for pod in (*there, *waiting))
    assert isinstance(one.max_unavailable, int)
    return max(available - max(expected - one.max_unavailable, 0), 0)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return budget.namespace == pod.namespace and matches(budget.selector, pod.labels)


def _requirements(random: Random) -> tuple[LabelRequirement, ...]:
    return tuple(
        LabelRequirement(random.choice("klm"), operator, values)
        for operator, values in random.sample(
            [("In", ("x",)), ("In", ("x", "y")), ("NotIn", ("y",)), ("Exists", ()), ("DoesNotExist", ())],
            random.randint(0, 2),
        )
    )
