"""Namespaces that the operator excludes, and the pods there that ask for closeby."""

from closeby.kube.scheduler.excluded import ExcludedNamespaces, excluding
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from tests.plugins.asking import handle_of, pod_of


def test_a_pod_elsewhere_enters_the_queue() -> None:
    assert ExcludedNamespaces(["kube-system"], handle_of([])).pre_enqueue(pod_of()) is None


def test_a_pod_of_an_excluded_namespace_waits_and_learns_what_to_do() -> None:
    condition = ExcludedNamespaces(["default"], handle_of([])).pre_enqueue(pod_of(name="web"))
    assert condition is not None and condition.blocking
    assert condition.reason is Reason.NAMESPACE_EXCLUDED
    assert condition.object == "Pod/default/web"
    assert condition.field == "metadata.namespace"
    assert "spec.schedulerName" in condition.remedy


def test_they_are_asked_before_all_other_plugins_and_not_at_all_where_none_is_excluded() -> None:
    profile = profile_for(Configuration(), handle_of([]))
    assert excluding(profile, (), handle_of([])) is profile
    changed = excluding(profile, ("kube-system",), handle_of([]))
    assert changed.pre_enqueue[0].name == "ExcludedNamespaces"
    assert changed.pre_enqueue[1:] == profile.pre_enqueue
