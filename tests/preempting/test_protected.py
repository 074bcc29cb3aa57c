"""Which pods of a domain can't be evicted for an item, and why, as its explanation says."""

from collections.abc import Callable
from typing import Any

import pytest

from closeby.objects.pods import PodDisruptionBudget, ProtectionRequest
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import BudgetChanged, EvictionsRestored
from closeby.scheduling.outcomes import DomainCost, Eviction
from closeby.scheduling.preemption.protected import NAMED
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, Site, names

RACKS = "zone-a rack-1 : a1=2\nzone-a rack-2 : a2=2"
A1, A2 = ["a1", "a1"], ["a2", "a2"]


def made(**arguments: Any) -> Site:
    """rack-2 is full of what costs more than anything in rack-1 might."""
    site = Site(RACKS, explain=True, **arguments)
    site.running("dear", A2, priority=99)
    return site


def by_path(domains: tuple[DomainCost, ...]) -> dict[str | None, DomainCost]:
    return {one.path[-1]: one for one in domains}


def budgeted(site: Site, name: str, most: int) -> None:
    site.tell(
        BudgetChanged(
            PodDisruptionBudget(
                namespace="default", name=name, selector=selector_of({"by": name}), max_unavailable=most
            )
        )
    )


def priority(site: Site) -> None:
    site.running("low", A1, priority=100)


def annotation(site: Site) -> None:
    site.running("low", A1, annotations={"closeby.dev/preemptible": "false"})


def too_young(site: Site) -> None:
    site.running("low", A1, started=NOW - 60)


def one_budget(site: Site) -> None:
    site.running("low", A1, labels={"by": "keep"})
    budgeted(site, "keep", 1)


def pinned(site: Site) -> None:
    site.running("low", A1, owner="DaemonSet/low")


def often(site: Site) -> None:
    site.running("low", A1)
    site.tell(EvictionsRestored("default/low", tuple(Eviction(NOW - at, 100) for at in (1, 2, 3))))


def other(site: Site) -> None:
    site.running("low", A1, needs={"scheduler_name": "theirs"})


def kueue(site: Site) -> None:
    site.running("low", A1, annotations={"kueue.x-k8s.io/workload": "w"})


REASONS: dict[str, tuple[Callable[[Site], None], dict[str, Any], str]] = {
    "Priority": (priority, {}, "priority 100 is not below 100"),
    "Annotation": (annotation, {}, "it says closeby.dev/preemptible=false"),
    "MinRuntime": (too_young, {"minRuntime": "1h"}, "it has not run for as long as a victim must"),
    "PodDisruptionBudget": (one_budget, {}, "PodDisruptionBudget default/keep allows 1 eviction"),
    "Pinned": (pinned, {}, "it comes back to its node at once"),
    "MaxEvictions": (often, {}, "it was evicted too often within a day"),
    "OtherScheduler": (
        other,
        {"whose": Preemptible(scheduler_name="default-scheduler")},
        "another scheduler has placed it",
    ),
    "Kueue": (kueue, {}, "Kueue admitted it"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_gang_that_is_kept_is_named_with_the_reason(reason: str) -> None:
    keep, arguments, message = REASONS[reason]
    site = made(**arguments)
    keep(site)
    site.waiting("train", 2)
    [plan] = site.tick()
    assert plan.path[-1] == "rack-2"
    row = by_path(plan.domains)["rack-1"]
    assert row.cost is None and row.kept_pods == 2
    [kept] = row.kept
    assert (kept.name, kept.is_gang, kept.pods) == ("default/low", True, 2)
    assert (kept.reason, kept.message) == (reason, message)
    assert by_path(plan.domains)["rack-2"].kept == ()


REQUESTS: dict[str, dict[str, Any]] = {
    "it says kai.scheduler/preemptibility=non-preemptible": {
        "labels": {"kai.scheduler/preemptibility": "non-preemptible"}
    },
    "it says kai.scheduler/preemptibility=semi-preemptible": {
        "labels": {"kai.scheduler/preemptibility": "semi-preemptible"}
    },
    "its PodGroup says spec.preemptibility=semi-preemptible": {
        "group": {
            "protected_by": ProtectionRequest("spec.preemptibility=semi-preemptible", minimum_only=True)
        }
    },
    "it says volcano.sh/preemptable=false": {"annotations": {"volcano.sh/preemptable": "false"}},
    "it says volcano.sh/preemptable=0": {"labels": {"volcano.sh/preemptable": "0"}},
    "its PodGroup says spec.preemptibility=non-preemptible": {
        "group": {"protected_by": ProtectionRequest("spec.preemptibility=non-preemptible")}
    },
}


@pytest.mark.parametrize("message", REQUESTS)
def test_the_words_of_kai_and_volcano_protect_a_gang(message: str) -> None:
    site = made()
    site.running("low", A1, **REQUESTS[message])
    site.waiting("train", 2)
    [plan] = site.tick()
    assert plan.path[-1] == "rack-2"
    [kept] = by_path(plan.domains)["rack-1"].kept
    assert (kept.pods, kept.reason, kept.message) == (2, "Annotation", message)


def test_the_minimum_of_a_semi_preemptible_gang_is_named_where_it_is_in_the_way() -> None:
    site = made()
    asks = REQUESTS["its PodGroup says spec.preemptibility=semi-preemptible"]
    site.running("low", A1, minimum=1, **asks)
    site.waiting("train", 2)
    [plan] = site.tick()
    assert plan.path[-1] == "rack-2"
    [kept] = by_path(plan.domains)["rack-1"].kept
    assert (kept.name, kept.pods, kept.reason) == ("default/low", 1, "Annotation")
    assert kept.message.endswith("1 pod beyond its minimum of 1 may go")


def test_a_protected_pod_group_keeps_members_beyond_its_minimum() -> None:
    site = made()
    site.running(
        "low", A1, minimum=1, group={"protected_by": ProtectionRequest("closeby.dev/preemptible=false")}
    )
    site.alone("high", priority=98)
    assert site.tick() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"kai.scheduler/preemptibility": "preemptible"}},
        {"annotations": {"volcano.sh/preemptable": "true"}, "labels": {"volcano.sh/preemptable": "false"}},
        {"labels": {"closeby.dev/preemptible": "false"}},
    ],
)
def test_other_words_protect_nothing(fields: dict[str, Any]) -> None:
    """Volcano reads the annotation before the label."""
    site = made()
    site.running("low", A1, **fields)
    site.waiting("train", 2)
    [plan] = site.tick()
    assert plan.path[-1] == "rack-1"


@pytest.mark.parametrize("message", REQUESTS)
def test_users_protect_pods_only_where_the_operator_lets_them(message: str) -> None:
    site = made(protectedNamespaces=["theirs"])
    site.running("low", A1, **REQUESTS[message])
    site.waiting("train", 2)
    [plan] = site.tick()
    assert plan.path[-1] == "rack-1"


def test_one_member_that_is_protected_keeps_its_gang() -> None:
    site = made()
    site.running("low", ["a1"], minimum=2, annotations={"closeby.dev/preemptible": "false"})
    site.running("low", ["a1"], minimum=2, prefix="other")
    site.waiting("train", 2)
    [plan] = site.tick()
    [kept] = by_path(plan.domains)["rack-1"].kept
    assert (kept.pods, kept.reason) == (2, "Annotation")
    assert kept.message.startswith("it goes only as a whole, and low-0 stays: ")


def test_the_nodes_of_a_plain_pod_name_what_stays_there() -> None:
    site = made()
    site.alone("daemon", "a1", owner="DaemonSet/daemon"), site.alone("web", "a1")
    site.alone("high", priority=100, gpu=2)
    [plan] = site.tick()
    row = by_path(plan.domains)["a1"]
    assert (row.cost, row.kept_pods, row.why_not) == (None, 1, "not enough even so")
    assert [(one.name, one.is_gang, one.reason) for one in row.kept] == [("default/daemon", False, "Pinned")]


def test_a_budget_does_not_keep_what_may_violate_it() -> None:
    site = made(pdb="soft")
    one_budget(site)
    site.waiting("train", 2)
    [plan] = site.tick()
    assert all(row.kept_pods == 0 for row in plan.domains)


@pytest.mark.parametrize("explain", [True, False])
def test_the_budget_that_keeps_victims_is_named_where_they_would_make_room(explain: bool) -> None:
    site = Site("zone-a rack-1 : a1=2", explain=explain)
    one_budget(site)
    site.waiting("train", 2)
    assert site.tick() == []
    outcome = site.outcomes["default/train"]
    assert "PodDisruptionBudget default/keep allows 1 eviction of 2 pods" in (outcome.message or "")
    assert (outcome.no_preemption is not None) == explain


def test_a_budget_without_which_nothing_would_fit_either_is_not_named() -> None:
    site = Site("zone-a rack-1 : a1=2")
    site.running("stays", ["a1"], priority=500)
    site.running("low", ["a1"], labels={"by": "keep"})
    budgeted(site, "keep", 0)
    site.waiting("train", 2)
    assert site.tick() == []
    assert "PodDisruptionBudget" not in (site.outcomes["default/train"].message or "")


@pytest.mark.parametrize(("namespaces", "victims"), [(("default", "a"), ["low-0", "low-1"]), (("a",), [])])
@pytest.mark.parametrize("budgets", [("keep",), ("keep", "more")])
def test_the_budgets_of_a_namespace_that_is_overruled_keep_no_pod(
    namespaces: tuple[str, ...], victims: list[str], budgets: tuple[str, ...]
) -> None:
    """A pod under several of them too, which the Eviction API never lets go."""
    site = Site("zone-a rack-1 : a1=2", overruleBudgets=namespaces)
    site.running("low", ["a1", "a1"], labels={"by": "keep", "also": "more"})
    for name, key in zip(budgets, ("by", "also"), strict=False):
        selector = selector_of({key: name})
        budget = PodDisruptionBudget(namespace="default", name=name, selector=selector, max_unavailable=0)
        site.tell(BudgetChanged(budget))
    site.waiting("train", 2)
    plans = site.tick()
    assert [name for plan in plans for name in names(plan)] == victims
    assert all(plan.cost.pdb_violations == 0 for plan in plans)


def test_a_budget_that_is_overruled_still_protects_from_the_same_priority() -> None:
    site = Site("zone-a rack-1 : a1=2", overruleBudgets=("default",))
    one_budget(site)
    site.waiting("train", 2, priority=0)
    assert site.tick() == []


def test_where_all_pods_are_protected_the_table_says_so() -> None:
    """No item has victims, and no priority would change that."""
    site = Site("zone-a rack-1 : a1=2", explain=True)
    annotation(site)
    site.waiting("train", 2)
    assert site.tick() == []
    found = site.why("train")
    assert found is not None and found.above is None
    assert [(row.kept_pods, row.kept[0].reason) for row in found.domains] == [(2, "Annotation")]


def test_equal_priorities_alone_are_no_news() -> None:
    site = Site("zone-a rack-1 : a1=2", explain=True)
    priority(site)
    site.waiting("train", 2)
    assert site.tick() == [] and site.why("train") is None


def test_of_many_the_first_are_named_and_all_are_counted() -> None:
    site = Site("zone-a rack-1 : a1=30\nzone-a rack-2 : a2=30", explain=True)
    site.running("dear", ["a2"] * 30, priority=99)
    for number in range(20):
        site.alone(f"web-{number}", "a1", priority=100)
    site.running("gang", ["a1"] * 10, priority=100)
    site.waiting("train", 30)
    [plan] = site.tick()
    row = by_path(plan.domains)["rack-1"]
    assert (row.kept_pods, len(row.kept)) == (30, NAMED)
    assert [one.name for one in row.kept[:3]] == ["default/gang", "default/web-0", "default/web-1"]
