"""A tenant writes applications and pods that take long to decide and can't be placed, again and again.

No other tenant may wait for that: a search ends after a number of steps, and namespaces whose decisions come
to nothing take turns with the others. Time is counted in steps, not measured (``closeby.scheduling.steps``).
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pytest
from msgspec.structs import replace

from closeby.cluster.columns import Batch
from closeby.kube.scheduler.live import STEPS
from closeby.objects.arrays import Counts
from closeby.objects.groups import Layer
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.pods import HostPort, Pod, PortOrDisk, conflict
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodTerm,
    selector_of,
)
from closeby.plugins.inter_pod_affinity import InterPodAffinity
from closeby.reading.decoding.keys import TASK_AFFINITY
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    FlushUnschedulable,
    GroupChanged,
    NodeUpserted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.gangs.parts import NodeSet
from closeby.scheduling.judging.class_results import ClassResults
from closeby.scheduling.judging.pod_classes import PodClass, Share
from closeby.scheduling.outcomes import Outcome, Output, outcomes_of
from closeby.scheduling.placing.search import Search
from closeby.scheduling.placing.statement import Statement
from closeby.topology.tree import Tree
from tests.attacks.crowds import cluster, complete, engine, in_namespace
from tests.worlds import GPU, fabric, gang, node, pods, spec

#: Steps that may be taken beyond the limit, where what was found is put in place.
BEYOND = 100_000


def outcomes(decisions: Iterable[Output]) -> dict[str, Outcome]:
    return {one.key: one for one in outcomes_of(decisions)}


def turns(it: Engine, now: float | None = None) -> Iterator[list[Output]]:
    """Single turns until nothing is left to decide; the state is valid after each."""
    while decisions := it.handle(Tick(now, limit=1, steps=STEPS)):
        it.validate_state()
        assert (it.cluster.requested <= it.cluster.allocatable).all()
        yield decisions


def good_gang() -> Iterator[Event]:
    yield GroupChanged(replace(gang("good", 16), namespace="good"))
    yield from (PodUpserted(in_namespace(one, "good")) for one in pods("good", 16))


def test_applications_that_can_not_be_placed_keep_no_gang_of_another_tenant_waiting() -> None:
    """Six applications whose workloads all talk to each other, most of which no node takes."""
    it = engine()
    it.handle(*cluster(taken=6))
    for number in range(6):
        it.handle(*complete(f"evil{number}", 40, "evil"))
    searching = turns(it)
    next(searching)
    it.handle(*good_gang())
    waited = 0
    for decisions in searching:
        if "good/good" in outcomes(decisions):
            break
        waited += 1
    assert waited <= 1, "the gang waited for more than the turn of one search"
    found = it.outcome("good/good")
    assert found is not None and len(found.bindings) == 16


def test_no_turn_takes_more_steps_than_it_may() -> None:
    """The costliest application: every pair of its 60 workloads has a limit, and each pod another shape."""
    it = engine()
    it.handle(*cluster(taken=6), *complete("evil", 60, "evil"))
    taken = [it._tools.steps.taken for _ in turns(it)]
    assert 100_000 < max(taken) <= STEPS + BEYOND


def test_pods_of_many_shapes_that_fit_nowhere_let_others_go_first() -> None:
    """1,200 pods that no node takes, each of another shape, are all tried again at once."""
    it = engine()
    it.handle(*cluster(taken=8))
    shapes = [
        in_namespace(one, "evil")
        for number in range(1_200)
        for one in pods(None, 1, spec(gpu=1, cpu=1 + number), prefix=f"shape{number}")
    ]
    it.handle(*(PodUpserted(one) for one in shapes), Tick())
    it.handle(NodeUpserted(node("fresh", {}, {GPU: 16})), FlushUnschedulable())
    trying = turns(it)
    next(trying)
    it.handle(*good_gang())
    before = 0
    for decisions in trying:
        if "good/good" in outcomes(decisions):
            break
        before += 1
    assert before < 400, "the gang waited for all of them"


def test_what_failed_at_length_rests_at_length() -> None:
    """Whatever may help the application has it tried again: the longer that took, the less often."""
    it = engine()
    it.handle(*cluster(taken=6), *complete("evil", 40, "evil"))
    steps = sum(it._tools.steps.taken for _ in turns(it, 0.0))
    it.handle(FlushUnschedulable())
    tick = list(turns(it, 1.0))
    assert not tick and it.next_backoff_end is not None
    assert it.next_backoff_end >= min(steps * 1e-5, 60.0)


def test_a_pod_that_changes_again_and_again_does_not_shorten_the_rest() -> None:
    """Its owner changes a pod of an application that was refused at length, to have it tried again."""
    it = engine()
    it.handle(*cluster(taken=6))
    made = list(complete("evil", 40, "evil"))
    it.handle(*made)
    assert list(turns(it, 0.0))
    left = [one for one in made if isinstance(one, PodUpserted) and it.cluster.placement(one.pod.uid) is None]
    changed: Pod = replace(left[0].pod, labels={**left[0].pod.labels, "again": "1"})
    it.handle(PodUpserted(changed))
    assert not list(turns(it, 0.1))
    assert it.next_backoff_end is not None and list(turns(it, it.next_backoff_end))


@pytest.mark.parametrize("rooms", [2, 3])
def test_thousands_of_uneven_segments_end_no_search(rooms: int) -> None:
    """Two pods a segment fit on each of these nodes, of three all but one."""
    it, segments = engine(), 3_000
    it.handle(*(NodeUpserted(node(f"n{i}", {"rack": f"r{i % 60}"}, {GPU: rooms})) for i in range(segments)))
    layer = Layer(level="rack", counts=(2,) * (segments - 1) + (1,))
    members = pods("uneven", 2 * segments - 1)
    group = replace(gang("uneven", len(members)), layers=(layer,))
    it.handle(TopologyChanged(fabric("rack", HOSTNAME)), GroupChanged(group), *map(PodUpserted, members))
    decisions = list(it.handle(Tick()))
    it.validate_state()
    assert len(outcomes(decisions)["default/uneven"].bindings) == len(members)


def test_a_gang_of_many_kinds_is_judged_kind_by_kind() -> None:
    """Each of its pods asks for another amount, so that each is judged for all nodes by itself."""
    it = engine()
    it.handle(*cluster(), GroupChanged(gang("kinds", 400)))
    members = [
        replace(one, name=f"kinds-{number}", uid=f"kinds-{number}", spec=spec(cpu=1 + number))
        for number in range(400)
        for one in pods("kinds", 1)
    ]
    it.handle(*map(PodUpserted, members))
    steps = [it._tools.steps.taken for _ in turns(it)]
    assert max(steps) > 400 * 100
    found = it.outcome("default/kinds")
    assert found is not None and len(found.bindings) == 400


def test_what_was_placed_is_looked_at_once_while_kinds_are_placed_beside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang of 300 kinds of pods that only the whole cluster holds."""
    it, kinds = engine(), 300
    it.handle(*(NodeUpserted(node(f"n{i}", {"rack": f"r{i % 10}"}, {"cpu": 8000})) for i in range(100)))
    it.handle(TopologyChanged(fabric("rack", HOSTNAME)), GroupChanged(gang("kinds", kinds)))
    members = [replace(one, spec=spec(cpu=2000 + at)) for at, one in enumerate(pods("kinds", kinds))]
    it.handle(*map(PodUpserted, members))
    looked, since = 0, Statement.since

    def counting(self: Statement, checkpoint: int) -> Iterator[Batch]:
        nonlocal looked
        for batch in since(self, checkpoint):
            looked += 1
            yield batch

    monkeypatch.setattr(Statement, "since", counting)
    it.handle(Tick())
    found = it.outcome("default/kinds")
    assert found is not None and len(found.bindings) == kinds
    assert looked < 4 * kinds


def test_a_kind_that_is_in_use_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred kinds of pods in segments, of which a decision keeps eight when it is over."""
    it, size = engine(), 300
    it.handle(*(NodeUpserted(node(f"n{i}", {"rack": f"r{i % 10}"}, {"cpu": 8000})) for i in range(100)))
    it.handle(TopologyChanged(fabric("rack", HOSTNAME)))
    it.handle(GroupChanged(replace(gang("kinds", size), layers=(Layer(level="rack", size=30),))))
    members = [replace(one, spec=spec(cpu=1 + at)) for at, one in enumerate(pods("kinds", size))]
    it.handle(*map(PodUpserted, members))
    judged, compute = Counter[int](), ClassResults._compute

    def counting(self: ClassResults, pod_class: PodClass, nodes_changed: bool) -> None:
        judged[id(pod_class.pod.spec)] += 1
        compute(self, pod_class, nodes_changed)

    monkeypatch.setattr(ClassResults, "_compute", counting)
    monkeypatch.setattr("closeby.scheduling.judging.classes.CACHED_FIGURES", 800)
    for _, _ in zip(range(4), turns(it), strict=False):
        pass
    # Once one by one, when none is in use yet, and once all together.
    assert len(judged) == size and judged.total() < 3 * size


def test_terms_that_many_pods_have_are_kept_once() -> None:
    """Each of 20 pods keeps off 20 others, by 20 equal terms."""
    it = engine()
    terms = tuple(PodAffinityTerm("rack", selector_of({"app": f"a{number}"})) for number in range(3))
    needs = replace(spec(cpu=1), pod_affinity=PodAffinity(forbidden=terms))
    members = [
        replace(one, name=f"apart-{number}", uid=f"apart-{number}", labels={"app": f"b{number}"})
        for number in range(20)
        for one in pods("apart", 1, needs)
    ]
    it.handle(*cluster(), GroupChanged(gang("apart", 20)), *map(PodUpserted, members), Tick())
    plugin = next(one for one in it.profile.filters if isinstance(one, InterPodAffinity))
    assert len({id(mask) for one in members for mask in plugin.masks(one)}) == 3


def test_many_terms_that_no_other_pod_has_are_counted_together() -> None:
    """Each of twenty pods keeps off all others by twenty terms of its own, and is kept off by theirs."""
    it = engine()

    def terms(number: int) -> tuple[PodAffinityTerm, ...]:
        others = (LabelRequirement("app", "NotIn", (f"b{number}", f"c{index}")) for index in range(20))
        return tuple(PodAffinityTerm(ZONE, LabelSelector((one,))) for one in others)

    members = [
        replace(
            one,
            spec=replace(one.spec, pod_affinity=PodAffinity(forbidden=terms(number))),
            labels={"app": f"b{number}"},
        )
        for number, one in enumerate(pods(None, 20, spec(cpu=1)))
    ]
    it.handle(*cluster(), *map(PodUpserted, members), Tick())
    plugin = next(one for one in it.profile.filters if isinstance(one, InterPodAffinity))
    assert all(len(plugin.masks(one)) == 2 for one in members)
    zones = [
        it.cluster.node_at(slot).labels[ZONE]
        for one in members
        if (slot := it.cluster.placement(one.uid)) is not None
    ]
    assert len(zones) == len(set(zones)) > 1


@pytest.mark.parametrize("apart", [True, False], ids=["from-each-other", "from-others"])
def test_kinds_with_anti_affinity_are_compared_label_by_label(
    apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eighty pods of a gang with eighty terms want a zone of eight nodes.

    Where each keeps off all others, no search is begun: they are more than the nodes. Where they keep off
    pods that are not there, no two of them are compared.
    """
    it = engine()
    it.handle(*cluster(), TopologyChanged(fabric(ZONE, HOSTNAME)))

    def term(number: int) -> PodAffinityTerm:
        operator, app = ("NotIn", f"b{number}") if apart else ("In", f"c{number}")
        return PodAffinityTerm(HOSTNAME, LabelSelector((LabelRequirement("app", operator, (app,)),)))

    members = [
        replace(
            one,
            spec=replace(one.spec, pod_affinity=PodAffinity(forbidden=(term(number),))),
            labels={"app": f"b{number}"},
        )
        for number, one in enumerate(pods("train", 80, spec(cpu=1)))
    ]
    it.handle(GroupChanged(gang(min_member=80, required=ZONE)), *map(PodUpserted, members))
    compared = 0
    selects = LabelSelector.matches

    def counting(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return selects(selector, labels)

    monkeypatch.setattr(LabelSelector, "matches", counting)
    [found] = outcomes_of(it.handle(Tick()))
    assert len(found.bindings) == (0 if apart else 80)
    assert compared <= (2 * 80 * 80 if apart else 2 * 80)
    assert not apart or "80 of them keep off each other per kubernetes.io/hostname" in str(found.message)


def test_a_pod_with_many_preferences_costs_no_more_than_one_with_few() -> None:
    """Every pod has another label, and all have the same preferences, which select nearly all pods."""

    def calls(preferences: int) -> int:
        """Python calls to place 40 pods beside 40 others."""
        it, found = engine(), 0
        others = [LabelRequirement("app", "NotIn", (f"x{number}",)) for number in range(preferences)]
        terms = (PodAffinityTerm(ZONE, LabelSelector((one,))) for one in others)
        preferred = tuple(WeightedPodTerm(1, term) for term in terms)
        needs = replace(spec(cpu=1), pod_affinity=PodAffinity(preferred=preferred))
        made = [replace(one, labels={"app": one.name}) for one in pods(None, 80, needs)]
        it.handle(*cluster(nodes=16), *map(PodUpserted, made[:40]), Tick())
        it.handle(*map(PodUpserted, made[40:]))

        def count(frame: object, event: str, _: object) -> None:
            nonlocal found
            found += event == "call"

        sys.setprofile(count)
        it.handle(Tick())
        sys.setprofile(None)
        assert all(it.cluster.placement(one.uid) is not None for one in made)
        return found

    assert calls(800) < 1.5 * calls(4)


@pytest.mark.parametrize("kinds", [1, 300])
def test_tasks_of_many_roles_and_kinds_are_sorted_into_buckets(kinds: int) -> None:
    """Every role belongs together with 127 others, and each pod may be like no other."""
    roles = [f"r{number}" for number in range(300)]
    lists = ";".join(",".join(roles[at : at + 128]) for at in range(0, len(roles), 128))
    group = replace(gang("tasks", len(roles)), annotations={TASK_AFFINITY: lists})
    it, found = engine(), 0
    made = [
        replace(one, role=role, spec=spec(cpu=1 + at % kinds))
        for at, (one, role) in enumerate(zip(pods("tasks", len(roles)), roles, strict=True))
    ]
    it.handle(*cluster(), GroupChanged(group), *map(PodUpserted, made))

    def count(frame: object, event: str, _: object) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    list(turns(it))
    sys.setprofile(None)
    assert all(it.cluster.placement(one.uid) is not None for one in made)
    assert found < 3_000 * len(roles)


def test_host_ports_are_compared_with_the_same_ports_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pods have two hundred ports each, of which every pod shares ten with the next one."""
    compared = Counter[bool]()

    def counting(one: PortOrDisk, other: PortOrDisk) -> bool:
        found = conflict(one, other)
        compared[found] += 1
        return found

    monkeypatch.setattr("closeby.cluster.columns.conflict", counting)
    it = engine()
    it.handle(*(NodeUpserted(node(f"n{i}", {}, {GPU: 8})) for i in range(64)))
    members = [
        replace(
            one, spec=replace(one.spec, host_ports=tuple(HostPort(1_000 + 190 * i + k) for k in range(200)))
        )
        for i, one in enumerate(pods(None, 100))
    ]
    it.handle(*map(PodUpserted, members), Tick())
    assert all(it.cluster.placement(one.uid) is not None for one in members)
    assert compared.total() < 100_000


def test_looking_ahead_of_segments_of_many_sizes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 450 pods asks for another amount, and three of them go to one node."""
    it, size = engine(), 450
    it.handle(*(NodeUpserted(node(f"n{i}", {}, {GPU: 8, "cpu": 8000})) for i in range(300)))
    layer = Layer(level=HOSTNAME, size=3)
    members = [
        replace(one, spec=spec(gpu=1 + number % 8, cpu=1 + number * 7 % 3001))
        for number, one in enumerate(pods("sizes", size))
    ]
    it.handle(TopologyChanged(fabric(HOSTNAME)), GroupChanged(replace(gang("sizes", size), layers=(layer,))))
    it.handle(*map(PodUpserted, members))
    counted, rooms = 0, Search._rooms

    def counting(self: Search, share: Share, tree: Tree, level: int, scope: NodeSet) -> Counts:
        nonlocal counted
        counted += 1
        return rooms(self, share, tree, level, scope)

    monkeypatch.setattr(Search, "_rooms", counting)
    list(turns(it))
    assert counted < 16_000
