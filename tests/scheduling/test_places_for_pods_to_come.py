"""Places are held for the pods of a Workload before they are there: placeholder pods hold them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import (
    POD_SET,
    WORKLOAD,
    AskedPlaces,
    Exclusive,
    Layer,
    PlaceSet,
    PodGroup,
    Remainder,
    TopologyConstraint,
)
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PlacesAsked,
    PlacesWithdrawn,
    PodDeleted,
    PodUpserted,
    StorageChanged,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import Outcome, outcomes_of
from tests.storage import DISKS, LOCAL, claim, naming, volume
from tests.worlds import draw, fabric, gang, pods, spec

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=2 b2=2
"""


def asked(count: int = 4, gpus: int = 1, *, name: str = "train", **fields: Any) -> PodGroup:
    """Places in one rack for the pods of a Workload."""
    places = AskedPlaces(namespace="default", workload=name, uid=f"uid-{name}", sets=())
    template = Pod(
        namespace="default",
        name="template",
        uid="template",
        spec=spec(gpu=gpus),
        labels={POD_SET: "main"},
        annotations={WORKLOAD: f"uid-{name}"},
        group=places.group,
    )
    places = replace(places, sets=(PlaceSet(name="main", count=count, template=template),))
    fields = {"constraint": TopologyConstraint(topology="fabric", required="rack"), **fields}
    return PodGroup(namespace="default", name=places.group, min_member=count, places=places, **fields)


def real(
    count: int, gpus: int = 1, *, name: str = "train", group: str | None = None, **fields: Any
) -> list[Pod]:
    """The pods of that Workload."""
    labels, annotations = {POD_SET: "main"}, {WORKLOAD: f"uid-{name}"}
    made = pods(
        group, count, spec(gpu=gpus), prefix=f"{name}-pod", labels=labels, annotations=annotations, **fields
    )
    return [replace(pod, index=index) for index, pod in enumerate(made)]


class Site:
    """An engine, and where pods and placeholders are."""

    def __init__(self, drawing: str = TWO_RACKS) -> None:
        self.engine = Engine(lambda handle: profile_for(Configuration(), handle))
        self.nodes = {one.name: one for one in draw(drawing)}
        topology = TopologyChanged(fabric("zone", "rack", HOSTNAME))
        self.engine.handle(*map(NodeUpserted, self.nodes.values()), topology)

    def take(self, *events: Event) -> list[Outcome]:
        found = outcomes_of(self.engine.handle(*events, Tick()))
        self.engine.validate_state()
        return found

    def where(self) -> dict[str, str]:
        """The node of each pod, by name."""
        cluster = self.engine.cluster
        return {pod.name: cluster.names[slot] or "" for pod, slot in cluster.placed_pods()}

    def free(self) -> int:
        cluster = self.engine.cluster
        row = cluster.row_of["example.com/gpu"]
        return int((cluster.allocatable[row] - cluster.requested[row]).sum())


def test_places_are_held_in_one_rack_and_nothing_else_goes_there() -> None:
    site = Site()
    (placed,) = site.take(PlacesAsked(asked()))
    assert placed.place is not None and placed.place.path == ("zone-a", "rack-1")
    site.take(*map(PodUpserted, pods(None, 8, prefix="other")))
    others = {node for name, node in site.where().items() if name.startswith("other")}
    assert others == {"b1", "b2"}
    assert site.free() == 0


def test_a_limit_that_counts_for_a_time_falls_for_places_too_and_stays_fallen() -> None:
    site = Site()
    layer = Layer(level="rack", size=1, max_domains=1, relax_after=60.0)
    group = asked(6, constraint=None, layers=(layer,), created=0.0)
    site.engine.handle(PlacesAsked(group), Tick(10.0))
    assert (site.where(), site.engine.next_relaxation) == ({}, 60.0)
    site.engine.handle(Tick(60.0))
    assert len(site.where()) == 6
    site.engine.handle(PodUpserted(real(1)[0]), Tick(61.0))
    assert "train-pod-0" in site.where()
    assert site.engine.state.groups[group.key].layers[0].max_domains is None


def test_places_that_are_withdrawn_leave_no_deadline_behind() -> None:
    site = Site()
    layer = Layer(level="rack", size=1, max_domains=1, relax_after=60.0)
    group = asked(6, constraint=None, layers=(layer,), created=0.0)
    site.engine.handle(PlacesAsked(group), Tick(10.0))
    site.take(PlacesWithdrawn(group.key))
    assert site.engine.next_relaxation is None
    assert not site.engine.state.relaxing.written


def test_a_pod_that_waits_takes_its_place_in_the_turn_in_which_places_are_found() -> None:
    site = Site()
    site.take(NodeDeleted("a2"), NodeDeleted("b1"))
    site.take(PlacesAsked(asked()))
    site.take(PodUpserted(real(1)[0]))
    assert site.where() == {}
    site.take(NodeUpserted(site.nodes["a2"]))
    assert site.where() == {
        "train-pod-0": "a1",
        "train-main-1": "a1",
        "train-main-2": "a2",
        "train-main-3": "a2",
    }


def test_a_workload_that_fits_in_no_rack_is_refused_and_holds_nothing() -> None:
    site = Site()
    (refused,) = site.take(PlacesAsked(asked(count=5)))
    assert refused.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
    assert site.where() == {}


def with_claim(group: PodGroup) -> PodGroup:
    """The same places for pods that all name one claim."""
    assert group.places is not None
    (one,) = group.places.sets
    template = naming(one.template, "data")
    return replace(group, places=replace(group.places, sets=(replace(one, template=template),)))


def test_places_are_held_where_the_volume_of_the_pods_is() -> None:
    site = Site()
    site.take(
        StorageChanged(LOCAL),
        StorageChanged(claim("data", volume="v", bound=True)),
        StorageChanged(volume("v", "b2", claim="default/data")),
    )
    site.take(PlacesAsked(with_claim(asked(2))))
    assert site.where() == {"train-main-0": "b2", "train-main-1": "b2"}
    come = [naming(pod, "data") for pod in real(2)]
    site.take(*map(PodUpserted, come))
    assert site.where() == {"train-pod-0": "b2", "train-pod-1": "b2"}
    site.take(*(PodDeleted(pod.uid) for pod in come))
    assert site.where() == {"train-main-0": "b2", "train-main-1": "b2"}


def test_places_wait_for_the_claim_that_their_pods_name() -> None:
    site = Site()
    site.take(StorageChanged(DISKS))
    (refused,) = site.take(PlacesAsked(with_claim(asked(2))))
    assert refused.reason == Reason.CLAIM_NOT_FOUND
    site.take(StorageChanged(claim("data", "disks")))
    assert set(site.where()) == {"train-main-0", "train-main-1"}


def test_pods_take_the_places_of_their_index() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    before = site.where()
    site.take(*map(PodUpserted, real(4)))
    assert site.where() == {f"train-pod-{i}": before[f"train-main-{i}"] for i in range(4)}


def test_pods_of_several_jobs_take_the_places_of_their_job_and_index() -> None:
    site = Site()
    group = asked()
    assert group.places is not None
    (places,) = group.places.sets
    numbered = replace(places, index_label="i", group_label="j", group_size=2)
    site.take(PlacesAsked(replace(group, places=replace(group.places, sets=(numbered,)))))
    before = site.where()
    # The controller counts the pods of each job from 0.
    members = [
        replace(pod, index=number % 2, labels={**pod.labels, "i": str(number % 2), "j": str(number // 2)})
        for number, pod in enumerate(real(4))
    ]
    for pod in reversed(members):
        site.take(PodUpserted(pod))
    assert site.where() == {f"train-pod-{i}": before[f"train-main-{i}"] for i in range(4)}
    # One that comes after it takes the same place.
    site.take(PodUpserted(replace(members[3], phase="Failed")))
    site.take(PodUpserted(replace(members[3], name="again", uid="again")))
    assert site.where()["again"] == before["train-main-3"]


def test_pods_of_a_gang_take_their_places_together() -> None:
    site = Site()
    # The rest of the first rack is taken: the gang could not start there.
    site.take(PlacesAsked(asked(count=3)), PodUpserted(pods(None, 1, prefix="other", on="a1")[0]))
    before = set(site.where().values())
    group = gang("job", 3, required="rack")
    members = real(3, group="job")
    waiting = site.take(GroupChanged(group), *map(PodUpserted, members[:2]))
    assert [one.reason for one in waiting] == [Reason.GANG_INCOMPLETE]
    (placed,) = site.take(PodUpserted(members[2]))
    assert len(placed.bindings) == 3
    assert set(site.where().values()) == before


def test_places_that_want_a_rack_for_themselves_keep_others_out_of_it() -> None:
    site = Site()
    alone = Layer(level="rack", size=2, exclusive=Exclusive.ALL)
    site.take(PlacesAsked(asked(count=2, layers=(alone,), constraint=None)))
    held = {site.nodes[node].labels["rack"] for node in site.where().values()}
    site.take(*map(PodUpserted, pods(None, 6, prefix="other")))
    others = {site.nodes[n].labels["rack"] for name, n in site.where().items() if name.startswith("other")}
    assert (len(held), len(others), held & others) == (1, 1, set())
    # Their own pods may come.
    site.take(GroupChanged(replace(gang("job", 2), layers=(alone,))), *map(PodUpserted, real(2, group="job")))
    mine = {site.nodes[n].labels["rack"] for name, n in site.where().items() if name.startswith("train-pod")}
    assert mine == held
    site.take(PlacesWithdrawn(asked().key), *(PodDeleted(pod.uid) for pod in real(2, group="job")))
    site.take(*map(PodUpserted, pods(None, 6, prefix="other")))
    assert len(site.where()) == 6


def test_pods_that_come_one_by_one_leave_the_other_places_held() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(PodUpserted(real(1)[0]), *map(PodUpserted, pods(None, 5, prefix="other")))
    others = [name for name in site.where() if name.startswith("other")]
    assert len(others) == 4
    assert len(site.where()) == 8


@pytest.mark.parametrize(("gpus", "reason"), [(3, Reason.TOPOLOGY_PLACEMENT_FAILED), (1, None)])
def test_room_that_a_pod_leaves_free_since_it_asks_for_more_or_less_is_for_others(
    gpus: int, reason: Reason | None
) -> None:
    site = Site("zone-a rack-1 : a1=2")
    site.take(PlacesAsked(asked(count=1, gpus=2)))
    site.take(PodUpserted(pods(None, 1, prefix="other")[0]))
    assert set(site.where()) == {"train-main-0"}
    decided = site.take(*map(PodUpserted, real(1, gpus=gpus)))
    assert {one.key: one.reason for one in decided} == {
        "default/train-pod-0": reason,
        "default/other-0": None,
    }


def test_a_pod_of_another_namespace_gets_no_place() -> None:
    site = Site(" zone-a rack-1 : a1=2")
    site.take(PlacesAsked(asked(count=2)))
    (stranger,) = real(1)
    site.take(PodUpserted(replace(stranger, namespace="elsewhere", uid="elsewhere")))
    assert sorted(site.where()) == ["train-main-0", "train-main-1"]


def test_a_pod_that_ends_leaves_its_place_to_the_next() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(*map(PodUpserted, real(4)))
    first = real(4)[0]
    node = site.where()[first.name]
    site.take(PodUpserted(replace(first, phase="Failed")), *map(PodUpserted, pods(None, 5, prefix="other")))
    again = replace(first, name="again", uid="again")
    site.take(PodDeleted(first.uid), PodUpserted(again))
    assert site.where()["again"] == node


@pytest.mark.parametrize(
    "ends", [BindFailed("default/train-pod-0", "no"), BindingsWithdrawn(("default/train-pod-0",), "no")]
)
def test_a_pod_that_could_not_be_bound_comes_back_to_its_place(ends: Event) -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(*map(PodUpserted, real(1)))
    node = site.where()["train-pod-0"]
    site.take(*map(PodUpserted, pods(None, 4, prefix="other")))
    site.take(ends)
    site.engine.handle(Tick(100.0))
    assert site.where()["train-pod-0"] == node


def test_places_are_given_up_when_they_are_withdrawn() -> None:
    site = Site()
    group = asked()
    site.take(PlacesAsked(group), PodUpserted(real(1)[0]))
    site.take(PlacesWithdrawn(group.key))
    assert sorted(site.where()) == ["train-pod-0"]
    assert group.key not in site.engine.state.groups


def test_nothing_is_kept_of_places_that_are_given_up_once_pods_had_them() -> None:
    site = Site()
    group = asked()
    site.take(PlacesAsked(group), *map(PodUpserted, real(4)))
    site.take(PlacesWithdrawn(group.key))
    assert not site.engine.placeholders._own and not site.engine.placeholders._invalidated


@pytest.mark.parametrize("named", [{}, {WORKLOAD: "uid-other"}])
def test_a_running_pod_that_names_the_workload_no_more_does_not_count_for_it(named: dict[str, str]) -> None:
    site = Site()
    site.take(PlacesAsked(asked()), *map(PodUpserted, real(4)))
    assert site.engine.placeholders.lost(asked().key) == 0
    changed = replace(real(4)[0], node_name=site.where()["train-pod-0"], annotations=named)
    site.take(PodUpserted(changed))
    assert site.engine.placeholders.lost(asked().key) == 1
    site.take(*(PodDeleted(pod.uid) for pod in real(4)))
    assert not site.engine.placeholders.started(asked().key)
    assert sorted(site.where()) == [f"train-main-{i}" for i in range(4)]


def test_fewer_places_are_held_for_fewer_pods() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(PlacesAsked(asked(count=3)))
    assert sorted(site.where()) == ["train-main-0", "train-main-1", "train-main-2"]
    site.take(PlacesAsked(asked(count=4)))
    assert len(site.where()) == 4


def test_more_places_that_fit_beside_no_others_are_looked_for_elsewhere_together() -> None:
    site = Site()
    written = {"uid-train/main/0": "a1", "uid-train/main/1": "a1"}
    site.take(*map(PodUpserted, pods(None, 1, prefix="other", on="a2")))
    (refused,) = site.take(PlacesAsked(replace(asked(), plan=written)))
    assert refused.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
    (placed,) = site.take()
    assert {one.node for one in placed.bindings} == {"b1", "b2"}


def test_the_places_of_other_pods_are_looked_for_again() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    (placed,) = site.take(PlacesAsked(asked(count=2, gpus=2)))
    assert len(placed.bindings) == 2
    assert sorted(site.where()) == ["train-main-0", "train-main-1"]


def test_places_on_a_node_that_goes_are_looked_for_elsewhere_together() -> None:
    site = Site(TWO_RACKS + "zone-a rack-1 : a3=2\n")
    site.take(PlacesAsked(asked()))
    gone = site.where()["train-main-0"]
    (placed,) = site.take(NodeDeleted(gone))
    assert placed.bindings
    assert {site.nodes[node].labels["rack"] for node in site.where().values()} == {"rack-1"}
    assert len(site.where()) == 4


def test_places_on_a_cordoned_node_that_fit_nowhere_else_are_lost() -> None:
    site = Site("zone-a rack-1 : a1=2 a2=2")
    site.take(PlacesAsked(asked()))
    (refused,) = site.take(NodeUpserted(replace(site.nodes["a1"], unschedulable=True)))
    assert refused.reason is not None


def test_once_a_pod_came_a_place_that_is_lost_is_not_asked_for_again() -> None:
    site = Site("zone-a rack-1 : a1=2 a2=2")
    site.take(PlacesAsked(asked()))
    site.take(*map(PodUpserted, real(2)))
    left = {node for name, node in site.where().items() if "main" in name}
    site.engine.placeholders.take_news()
    assert site.take(NodeDeleted(left.pop())) == []
    assert sorted(site.where()) == ["train-pod-0", "train-pod-1"]
    assert site.engine.placeholders.take_news() == {asked().key}, "the status says so"
    assert site.engine.placeholders.lost(asked().key) == 2
    assert site.engine.state.groups[asked().key].min_member == 0


def test_a_workload_that_starts_over_without_one_of_its_nodes_finds_places_in_another_rack() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(*map(PodUpserted, real(4)))
    gone = site.where()["train-pod-0"]
    site.take(NodeDeleted(gone))
    for pod in real(4):
        site.take(PodDeleted(pod.uid))
    held = {site.nodes[node].labels["rack"] for node in site.where().values()}
    assert held == {"rack-2"}
    for pod in real(4):
        site.take(PodUpserted(replace(pod, uid=f"{pod.uid}-again")))
    assert sorted(site.where()) == [f"train-pod-{one}" for one in range(4)]


@pytest.mark.parametrize(
    ("more", "node", "reason"),
    [
        # The rack of the pods that run has room besides the places that were held there.
        ("zone-a rack-1 : a3=1\nzone-a rack-2 : b1=8", "a3", None),
        ("zone-a rack-2 : b1=8", None, Reason.TOPOLOGY_PLACEMENT_FAILED),
    ],
)
def test_a_pod_whose_place_is_lost_goes_beside_those_that_run(
    more: str, node: str | None, reason: Reason | None
) -> None:
    site = Site(f"zone-a rack-1 : a1=2 a2=1\n{more}")
    site.take(PlacesAsked(asked(3)))
    come = real(3)
    places = site.where()
    site.take(*(PodUpserted(pod) for pod in come if places[f"train-main-{pod.index}"] == "a1"))
    site.take(NodeDeleted("a2"))
    assert sorted(site.where()) == ["train-pod-0", "train-pod-1"]
    (outcome,) = site.take(PodUpserted(come[2]))
    assert outcome.reason is reason
    assert site.where().get("train-pod-2") == node


@pytest.mark.parametrize("pods_first", [True, False])
def test_a_place_that_was_lost_is_not_looked_for_in_another_rack_after_a_restart(pods_first: bool) -> None:
    site = Site()
    site.take(NodeDeleted("a1"))
    running = [replace(pod, node_name="a2", phase="Running") for pod in real(4)[2:]]
    events: list[Event] = [PlacesAsked(asked()), *map(PodUpserted, running)]
    assert site.take(*(reversed(events) if pods_first else events)) == []
    assert set(site.where().values()) == {"a2"}
    # Nor when one less is needed.
    assert site.take(PlacesAsked(asked(count=3))) == []
    (waits,) = site.take(PodUpserted(real(1)[0]))
    assert waits.reason == Reason.TOPOLOGY_PLACEMENT_FAILED


def test_pods_that_are_ending_take_no_place_of_those_to_come() -> None:
    """The Workload was evicted, and has its quota for other nodes before its old pods are gone."""
    site = Site()
    site.take(PlacesAsked(asked()))
    site.take(*map(PodUpserted, real(4)))
    old = [replace(pod, node_name=site.where()[pod.name], terminating=True) for pod in real(4)]
    site.take(PlacesWithdrawn(asked().key), *map(PodUpserted, old))
    other = TopologyConstraint(topology="fabric", required="zone")
    (placed,) = site.take(PlacesAsked(asked(constraint=other)))
    assert len(placed.bindings) == 4
    new = [replace(pod, name=f"new-{pod.name}", uid=f"new-{pod.uid}") for pod in real(4)]
    site.take(*map(PodUpserted, new))
    assert {site.where()[pod.name] for pod in new} == {"b1", "b2"}
    site.take(*(PodDeleted(pod.uid) for pod in old))
    assert sorted(site.where()) == sorted(pod.name for pod in new)


def test_what_was_written_is_believed_after_a_restart() -> None:
    site = Site()
    written = {f"uid-train/main/{i}": node for i, node in enumerate(("b1", "b1", "b2", "b2"))}
    running = replace(real(2)[1], node_name="b1", phase="Running")
    # In any order: pods and nodes come by watches of their own.
    assert site.take(PodUpserted(running), PlacesAsked(replace(asked(), plan=written))) == []
    assert site.where() == {
        "train-main-0": "b1",
        "train-main-2": "b2",
        "train-main-3": "b2",
        running.name: "b1",
    }


def test_a_written_node_that_does_not_do_any_more_is_not_believed() -> None:
    site = Site()
    site.take(*map(PodUpserted, pods(None, 1, prefix="other", on="b1")))
    written = {f"uid-train/main/{i}": node for i, node in enumerate(("b1", "b1", "b2", "b2"))}
    site.take(PlacesAsked(replace(asked(), plan=written)))
    assert set(site.where().values()) - {"b1"} == {"a1", "a2"}


def plan_of(nodes: str) -> dict[str, str]:
    """A plan as it is written: the nodes of the places, by number."""
    return {f"uid-train/main/{number}": node for number, node in enumerate(nodes.split()) if node != "-"}


def test_a_replica_that_takes_over_holds_the_places_that_were_written_while_it_stood_by() -> None:
    site = Site()
    # It hears all and decides nothing.
    site.engine.handle(PlacesAsked(asked()))
    site.engine.handle(PlacesAsked(replace(asked(), plan=plan_of("b1 b1 b2 b2"))))
    site.take()
    assert set(site.where().values()) == {"b1", "b2"}
    # From then on what it decided itself counts.
    assert site.take(PlacesAsked(replace(asked(), plan=plan_of("a1 a1 a2 a2")))) == []
    assert set(site.where().values()) == {"b1", "b2"}


def test_places_are_written_until_their_pods_are_bound() -> None:
    site = Site()
    site.take(PlacesAsked(asked()))
    held = site.where()
    come = real(4)
    site.take(*map(PodUpserted, come[:2]))
    on_the_way = site.engine.placeholders.on_the_way(asked().key)
    assert {pod.name: node for pod, node in on_the_way} == {
        name: held[name] for name in ("train-main-0", "train-main-1")
    }
    site.engine.placeholders.take_news()
    bound = replace(come[0], node_name=site.where()["train-pod-0"])
    site.take(PodUpserted(bound))
    assert site.engine.placeholders.take_news() == {asked().key}
    site.take(PodDeleted(come[1].uid))
    assert site.engine.placeholders.on_the_way(asked().key) == []
    # A place on a node that is gone is none.
    site.take(PodUpserted(come[2]))
    site.take(NodeDeleted(held["train-main-2"]))
    assert site.engine.placeholders.on_the_way(asked().key) == []


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("lost", range(4))
def test_a_pod_that_ends_between_two_processes_leaves_its_place_to_the_next(lost: int, indexed: bool) -> None:
    first = Site()
    first.take(PlacesAsked(asked()))
    come = [one if indexed else replace(one, index=None) for one in real(4)]
    first.take(*map(PodUpserted, come))
    where = first.where()
    bound = [replace(one, node_name=where[one.name]) for one in come]
    first.take(*map(PodUpserted, bound))
    taken = first.engine.placeholders.taken(asked().key)
    assert sorted(node for _, node in taken) == sorted(where.values())
    plan = {place.uid: node for place, node in taken}
    second = Site()
    gone = bound.pop(lost)
    second.take(
        *map(PodUpserted, pods(None, 9, prefix="other")),
        *map(PodUpserted, bound),
        PlacesAsked(replace(asked(), plan=plan)),
    )
    again = replace(come[lost], name="again", uid="again")
    second.take(PodUpserted(again))
    assert second.where()["again"] == where[gone.name]


def test_a_pod_that_was_not_bound_before_a_restart_finds_its_place_in_its_segment() -> None:
    """Without its place nothing would be known of where it may go."""
    group = asked(constraint=None, layers=(Layer(level="rack", size=2),))
    site = Site()
    come = real(4)
    bound = [replace(come[0], node_name="a1"), replace(come[2], node_name="b1")]
    written = replace(group, plan=plan_of("a1 a2 b1 b2"))
    site.take(
        *map(PodUpserted, pods(None, 9, prefix="other")), *map(PodUpserted, bound), PlacesAsked(written)
    )
    site.take(PodUpserted(come[1]), PodUpserted(come[3]))
    assert {pod.name: site.where()[pod.name] for pod in come} == {
        "train-pod-0": "a1",
        "train-pod-1": "a2",
        "train-pod-2": "b1",
        "train-pod-3": "b2",
    }


@pytest.mark.parametrize("pods_first", [True, False])
def test_pods_without_an_index_leave_the_written_places_after_a_restart(pods_first: bool) -> None:
    site = Site()
    running = [replace(pod, index=None, node_name="a1", phase="Running") for pod in real(2)]
    events: list[Event] = [
        PlacesAsked(replace(asked(), plan=plan_of("- - a2 a2"))),
        *map(PodUpserted, running),
    ]
    assert site.take(*(reversed(events) if pods_first else events)) == []
    assert {name: node for name, node in site.where().items() if "main" in name} == {
        "train-main-2": "a2",
        "train-main-3": "a2",
    }


def test_places_that_were_written_before_the_pods_went_elsewhere_are_lost() -> None:
    site = Site()
    running = [replace(pod, node_name="b1", phase="Running") for pod in real(2)]
    site.take(*map(PodUpserted, running), PlacesAsked(replace(asked(), plan=plan_of("- - a1 a1"))))
    assert site.engine.placeholders.lost(asked().key) == 2
    site.take(*map(PodUpserted, real(4)[2:]))
    assert {site.where()[pod.name] for pod in real(4)} <= {"b1", "b2"}


def test_places_of_pods_that_were_apart_are_looked_for_together_when_these_have_left() -> None:
    site = Site()
    running = [
        replace(pod, node_name=node) for pod, node in zip(real(4), ("a1", "a1", "b1", "b1"), strict=True)
    ]
    site.take(*map(PodUpserted, running), PlacesAsked(asked()))
    site.take(*(PodDeleted(pod.uid) for pod in running))
    held = [site.nodes[node].labels["rack"] for node in site.where().values()]
    assert (len(held), len(set(held))) == (4, 1)


def test_a_pod_whose_place_is_lost_takes_none_of_another_segment() -> None:
    site = Site("zone-a rack-1 : a1=1 a2=1\nzone-a rack-2 : b1=1 b2=1")
    site.take(PlacesAsked(asked(constraint=None, layers=(Layer(level="rack", size=2),))))
    come = real(4)
    places = site.where()
    site.take(PodUpserted(come[0]))
    site.take(NodeDeleted(places["train-main-1"]))
    (waits,) = site.take(PodUpserted(come[1]))
    assert waits.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
    site.take(PodUpserted(come[2]), PodUpserted(come[3]))
    assert {site.where()[pod.name] for pod in come[2:]} == {places["train-main-2"], places["train-main-3"]}


def test_pods_that_are_done_leave_the_places_of_the_others() -> None:
    site = Site()
    layer = Layer(level="rack", size=2)
    site.take(PlacesAsked(asked(constraint=None, layers=(layer,))))
    held = site.where()
    smaller = replace(layer, remainder=Remainder.ALLOW)
    assert site.take(PlacesAsked(asked(3, constraint=None, layers=(smaller,)))) == []
    assert site.where().items() < held.items()


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "end", "node", "ask", "fewer", "withdraw", "other"]), st.integers(0, 7)
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(_STEPS)
def test_whatever_happens_no_node_is_overcommitted_and_no_more_is_held_than_was_asked_for(
    steps: list[tuple[str, int]],
) -> None:
    site = Site()
    count, there = 0, {pod.uid: pod for pod in real(4)}
    alive: dict[str, Pod] = {}
    for step, number in steps:
        match step:
            case "pod":
                pod = list(there.values())[number % 4]
                alive[pod.uid] = pod
                site.take(PodUpserted(pod))
            case "end" if alive:
                uid = sorted(alive)[number % len(alive)]
                del alive[uid]
                site.take(PodDeleted(uid))
            case "node":
                name = ("a1", "a2", "b1", "b2")[number % 4]
                if number < 4:
                    site.take(NodeDeleted(name))
                else:
                    site.take(NodeUpserted(site.nodes[name]))
            case "ask":
                count = 4
                site.take(PlacesAsked(asked()))
            case "fewer" if count:
                count = number % 4 + 1
                site.take(PlacesAsked(asked(count=count)))
            case "withdraw":
                count = 0
                site.take(PlacesWithdrawn(asked().key))
            case "other":
                other = replace(
                    pods(None, 1, prefix="other")[0], name=f"other-{number}", uid=f"other-{number}"
                )
                site.take(PodUpserted(other))
        cluster = site.engine.cluster
        assert (cluster.requested <= cluster.allocatable).all()
        held = sum(name.startswith("train-main") for name in site.where())
        took = sum(name.startswith("train-pod") for name in site.where())
        assert held <= max(count - took, 0)
