"""Every extension point is asked where upstream asks it, shown by one small plugin each."""

from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools, Scores
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason, Rejection
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.commit_points import Bind, Permit, PostBind, PreBind
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick
from closeby.scheduling.extension import (
    Candidate,
    Filter,
    PartView,
    Placement,
    PlacementGenerate,
    PlacementScore,
    PostFilter,
    PreFilter,
    Scope,
    Score,
)
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.worlds import gang, pods, spec, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=4 b2=4
"""


def plugin(kind: type) -> PluginEntry:
    return PluginEntry(name=f"{__name__}:{kind.__name__}")


class DearRackOne(PlacementScore):
    """Raw costs: nodes of rack-1 cost 10 each, others 1."""

    name: ClassVar[str] = "DearRackOne"

    def placement_cost(self, state: CycleState, placement: Placement) -> float:
        labels = [self.handle.cluster.node_at(slot).labels["rack"] for slot in placement.slots.tolist()]
        return float(sum(10 if rack == "rack-1" else 1 for rack in labels))


def test_placement_score_compares_candidates_by_raw_cost() -> None:
    gang_of_four = gang(min_member=4, required="rack")
    # Alone, binpack takes the tighter rack.
    assert world(TWO_RACKS).run(gang_of_four, members=pods("train", 4)).used() == {"a1": 2, "a2": 2}
    compared = world(TWO_RACKS, plugins=[plugin(DearRackOne)]).run(gang_of_four, members=pods("train", 4))
    assert compared.used() == {"b1": 4}


class OnlyB2(PlacementGenerate):
    """Proposes one plain node set."""

    name: ClassVar[str] = "OnlyB2"

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        return [Candidate(slots=np.asarray([self.handle.cluster.slot("b2")], dtype=np.intp))]


def test_placement_generate_may_propose_plain_node_sets() -> None:
    only = [PluginEntry(name="topology", enabled=False), plugin(OnlyB2)]
    assert world(TWO_RACKS, plugins=only).run(gang(min_member=3), members=pods("train", 3)).used() == {
        "b2": 3
    }
    too_many = world(TWO_RACKS, plugins=only).run(gang(min_member=5), members=pods("train", 5))
    assert too_many.where == {}
    assert too_many.outcome("train").reason is Reason.GANG_DOES_NOT_FIT


class NoNewPods(PreFilter):
    """Refuses everything."""

    name: ClassVar[str] = "NoNewPods"

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        return Condition(reason=Reason.UNSUPPORTED, object="Cluster", message="closed for maintenance")


class NoMoreThanTwo(Permit):
    """Takes back placements of more than two pods."""

    name: ClassVar[str] = "NoMoreThanTwo"

    def permit(self, state: CycleState, placements: tuple[tuple[Pod, int], ...]) -> Condition | None:
        if len(placements) <= 2:
            return None
        return Condition(reason=Reason.UNSUPPORTED, object="Cluster", message="two at most")


def test_pre_filter_and_permit_refuse_with_their_own_words() -> None:
    closed = world(TWO_RACKS, plugins=[plugin(NoNewPods)]).run(members=pods(None, 1))
    assert closed.outcome("pod-0").message == "closed for maintenance"
    permitted = world(TWO_RACKS, plugins=[plugin(NoMoreThanTwo)])
    free_before = permitted.engine.cluster.requested.copy()
    permitted.run(gang(min_member=3), members=pods("train", 3))
    assert permitted.outcome("train").message == "two at most"
    assert (permitted.engine.cluster.requested == free_before).all()
    assert permitted.run(gang("small", min_member=2), members=pods("small", 2)).used("small") != {}


class Lights(PostFilter, PreBind, Bind, PostBind):
    """Labels bindings, takes over those of pods named dark-…, and remembers what it was told."""

    name: ClassVar[str] = "Lights"
    told: ClassVar[list[str]] = []

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        self.told.append(f"no place for {pods[0].name}")

    def pre_bind(self, pod: Pod, slot: int) -> dict[str, str]:
        return {"example.com/light": "on"}

    def bind(self, pod: Pod, node_name: str) -> bool:
        return pod.name.startswith("dark")

    def post_bind(self, pod: Pod, node_name: str) -> None:
        self.told.append(f"{pod.name} bound to {node_name}")


def test_binding_points_label_take_over_and_hear_of_bindings() -> None:
    Lights.told.clear()
    lit = world(TWO_RACKS, plugins=[plugin(Lights)])
    (light,) = pods(None, 1, prefix="light")
    (dark,) = pods(None, 1, prefix="dark")
    (huge,) = pods(None, 1, spec(gpu=100), prefix="huge")
    decisions = lit.engine.handle(*map(PodUpserted, (light, dark, huge)), Tick())
    bindings = {one.pod.name: one for one in bindings_of(decisions)}
    assert bindings["light-0"].labels == {"example.com/light": "on"}
    assert bindings["light-0"].binder is None
    assert bindings["dark-0"].binder == "Lights"
    assert Lights.told == ["no place for huge-0"]
    (bound,) = pods(None, 1, prefix="light", on=bindings["light-0"].node)
    lit.engine.handle(PodUpserted(bound))
    assert Lights.told[1:] == [f"light-0 bound to {bindings['light-0'].node}"]


def test_bindings_of_a_gang_carry_rank_and_domain() -> None:
    two = world(TWO_RACKS)
    two.engine.handle(GroupChanged(gang(min_member=2, required="rack")))
    decisions = two.engine.handle(*map(PodUpserted, pods("train", 2)), Tick())
    first, second = bindings_of(decisions)
    assert [first.pod_labels, second.pod_labels] == [{"closeby.dev/rank": "0"}, {"closeby.dev/rank": "1"}]
    assert first.pod_annotations == {"closeby.dev/topology-domain": "zone-a/rack-1/a1"}


class ApartFromTheLast(Filter, Score):
    """A filter and a score that depend on what was placed a moment ago."""

    name: ClassVar[str] = "ApartFromTheLast"
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        last = state.placed[-1][1] if state.placed else -1
        return np.not_equal(nodes.slots, last)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection(Reason.UNSUPPORTED, "the last pod went there")

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        return np.zeros(len(nodes))


class NoNodeTwice(ApartFromTheLast):
    """Lets no two pods of a cycle onto one node, and the first onto the first node that it likes alone."""

    name: ClassVar[str] = "NoNodeTwice"

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        taken = np.asarray([slot for _, slot in state.placed], dtype=np.intp)
        return ~np.isin(nodes.slots, taken)


def test_where_a_filter_sees_placements_a_search_that_finds_none_proves_nothing() -> None:
    #   The first of two pods fits on both nodes and takes a1, the only one that the second fits on.
    by_name = PluginEntry(name="NodeResourcesFit", weight=0.0)
    apart = world("zone-a rack-1 : a1=2 a2=1", plugins=[plugin(NoNodeTwice), by_name])
    members = [*pods("train", 1, spec(gpu=1)), *pods("train", 1, spec(gpu=2), prefix="wide")]
    apart.run(gang(min_member=2, required="rack"), members=members)
    assert apart.where == {}
    assert apart.reason("train") is Reason.SEARCH_BUDGET_EXHAUSTED


def test_results_per_placement_are_asked_again_after_every_pod() -> None:
    apart = world(TWO_RACKS, plugins=[plugin(ApartFromTheLast)])
    apart.run(gang(min_member=4, required="rack"), members=pods("train", 4))
    order = [apart.where[f"train-{index}"] for index in range(4)]
    assert all(one != other for one, other in pairwise(order))
    assert {name[0] for name in order} in ({"a"}, {"b"})


class OfImages(Filter, Score):
    """Says nothing but of pods with images, which it lets go to one node."""

    name: ClassVar[str] = "OfImages"
    reads: ClassVar[tuple[str, ...]] = ("spec.images",)

    def class_key(self, pod: Pod) -> Hashable:
        assert pod.spec.images, "it is asked about a pod that has nothing for it"
        return pod.spec.images

    def concerns(self, pod: Pod) -> bool:
        return bool(self.class_key(pod))

    def scores(self, pod: Pod) -> bool:
        return self.concerns(pod)

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        return np.asarray([self.handle.cluster.node_at(slot).name == "b2" for slot in nodes.slots.tolist()])

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        return np.zeros(len(nodes))


def test_a_plugin_is_not_asked_about_pods_without_the_fields_that_it_reads() -> None:
    drawn = world(TWO_RACKS, plugins=[plugin(OfImages)])
    drawn.run(members=[*pods(None, 2, prefix="plain"), *pods(None, 1, replace(spec(gpu=1), images=("i:1",)))])
    assert len(drawn.where) == 3 and drawn.where["pod-0"] == "b2"


def test_what_the_plugins_read_decides_whether_they_have_anything_to_say() -> None:
    (plain,) = pods(None, 1)
    profile = world(TWO_RACKS).engine.profile
    silent = [one for one in (*profile.filters, *(one for one, _ in profile.scores)) if not one.minds(plain)]
    assert {one.name for one in silent} > {"NodePorts", "VolumeBinding", "NodeAffinity"}
    assert not any(one.concerns(plain) for one in silent if isinstance(one, Filter))
    assert not any(one.scores(plain) for one in silent if isinstance(one, Score))
