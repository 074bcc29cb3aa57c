"""Pods that name an AppGroup nobody has heard of: when they go on, and with what, by a clock of the test."""

from closeby.kube.state.unknown_groups import UnknownGroups
from closeby.kube.watch.resources import Resource
from closeby.objects.applications import APP_GROUP_LABEL
from closeby.objects.pods import Pod, PodSpec

KEP = Resource(
    group="scheduling.sigs.k8s.io", version="v1alpha1", kind="AppGroup", plural="appgroups", namespaced=True
)
PUBLISHED = Resource(
    group="appgroup.diktyo.x-k8s.io", version="v1alpha1", kind="AppGroup", plural="appgroups", namespaced=True
)


def pod(name: str, app: str | None = "app", *, gates: tuple[str, ...] = ()) -> Pod:
    labels = {} if app is None else {APP_GROUP_LABEL: app}
    return Pod(namespace="ns", name=name, uid=name, spec=PodSpec(scheduling_gates=gates), labels=labels)


class At:
    """The time, and whether all kinds are listed, as the test says; 5 seconds of grace."""

    def __init__(self) -> None:
        self.now = 100.0
        self.listed = True
        self.unknown = UnknownGroups(5.0, lambda: self.listed, lambda: self.now)

    def sees(self, *pods: Pod, before: Pod | None = None) -> None:
        for one in pods:
            self.unknown.pod_seen(one, before)

    def takes(self) -> list[str]:
        """The pods that go on."""
        return [one.name for one in self.unknown.released()]

    def looks(self, *names: str, began: float | None = None) -> None:
        """A look ends that found these AppGroups in the namespace, if it was asked about it."""
        began = self.now if began is None else began
        self.unknown.looked(began, dict.fromkeys(self.unknown.due(began), names))


def test_pods_that_name_none_or_one_that_is_known_never_wait() -> None:
    at = At()
    at.unknown.group_seen(KEP, "ns/app")
    at.sees(pod("a"), pod("b", None))
    assert not at.unknown.waiting


def test_pods_go_on_together_when_their_app_group_comes() -> None:
    at = At()
    at.sees(pod("a"), pod("b"), pod("c", "other"))
    assert at.unknown.wanted.is_set()
    assert at.takes() == []
    at.unknown.group_seen(PUBLISHED, "ns/app")
    assert at.takes() == ["a", "b"]
    assert [at.unknown.holds(name) for name in "abc"] == [False, False, True]


def test_what_comes_in_one_batch_did_not_wait() -> None:
    at = At()
    at.sees(pod("a"))
    at.unknown.group_seen(KEP, "ns/app")
    assert at.takes() == []
    assert not at.unknown.holds("a")


def test_without_it_they_go_on_by_a_look_that_began_after_the_grace() -> None:
    at = At()
    at.sees(pod("early"))
    at.now += 3
    at.sees(pod("late"))
    assert at.takes() == []
    at.now += 1.9
    at.looks()
    assert at.takes() == []
    at.now += 0.1
    at.looks()
    assert at.takes() == ["early"]
    # A look that takes long says how it was when it began.
    began = at.now
    at.now += 10
    at.looks(began=began)
    assert at.takes() == []
    at.looks()
    assert at.takes() == ["late"]
    assert not at.unknown.waiting


def test_one_that_the_server_has_is_waited_for_however_late_its_watch_is() -> None:
    at = At()
    at.sees(pod("a"))
    assert at.takes() == []
    at.now += 100
    at.looks("app")
    assert at.takes() == []
    at.looks()
    assert at.takes() == ["a"]


def test_a_namespace_that_the_server_says_nothing_about_decides_nothing() -> None:
    at = At()
    at.sees(pod("a"))
    assert at.takes() == []
    at.now += 100
    at.unknown.looked(at.now, {"elsewhere": ()})
    assert at.takes() == []


def test_costs_that_are_being_listed_are_waited_for_during_the_grace() -> None:
    at = At()
    at.sees(pod("a"))
    assert at.takes() == []
    at.listed = False
    at.unknown.group_seen(KEP, "ns/app")
    assert at.takes() == []
    at.now += 5
    assert at.takes() == ["a"]


def test_what_was_let_go_on_does_not_wait_again() -> None:
    at = At()
    at.unknown.group_seen(KEP, "ns/app")
    at.sees(pod("a"))
    at.unknown.group_gone(KEP, "ns/app")
    at.sees(pod("a"), before=pod("a"))
    assert not at.unknown.waiting


def test_another_name_or_a_gate_that_is_gone_is_a_new_question() -> None:
    at = At()
    at.sees(pod("a"), before=pod("a", "other"))
    at.sees(pod("b"), before=pod("b", gates=("g",)))
    assert at.unknown.waiting == 2


def test_one_name_in_two_dialects_is_there_until_both_are_gone() -> None:
    at = At()
    for kind in (KEP, PUBLISHED):
        at.unknown.group_seen(kind, "ns/app")
    at.unknown.group_gone(KEP, "ns/app")
    at.sees(pod("a"))
    assert not at.unknown.waiting
    at.unknown.group_gone(PUBLISHED, "ns/app")
    at.sees(pod("b"))
    assert at.unknown.holds("b")


def test_pods_that_are_gone_are_forgotten() -> None:
    at = At()
    at.sees(pod("a"), pod("b"))
    assert at.takes() == []
    at.unknown.group_seen(KEP, "ns/app")
    at.unknown.forget("a")
    assert at.takes() == ["b"]
    at.unknown.forget("b")
    assert not at.unknown.waiting


def test_thousands_are_one_namespace_to_ask_about() -> None:
    at = At()
    at.sees(*(pod(f"p-{number}", f"app-{number}") for number in range(8000)))
    assert at.takes() == []
    at.now += 5
    assert at.unknown.due(at.now) == {"ns"}
    at.looks("app-7")
    assert len(at.takes()) == 7999
    assert at.unknown.holds("p-7")
