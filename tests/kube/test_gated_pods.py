"""Pods that another scheduler binds: which are ours, what the engine sees of them, what is said of them."""

import msgspec
import pytest

from closeby.kube.state.feed import Feed
from closeby.kube.state.gated_pods import SILENT_AFTER, GatedPods
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.kube.watch.resources import PODS
from closeby.kube.writing.placements import narrowed
from closeby.objects.labels import RANK
from closeby.objects.pods import NodeSelectorTerm, Pod, Requirement
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from closeby.scheduling.events import PodDeleted, PodUpserted
from tests.kube.test_feed import put

Object = dict[str, object]
PIN: Object = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE: Object = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def pod(
    *,
    gates: tuple[str, ...] = (),
    terms: list[Object] | None = None,
    placed_on: str = "",
    node: str = "",
    said: str = "",
    gang: str = "g",
    rank: str = "",
) -> Object:
    spec: Object = {"containers": [{"name": "c"}], "schedulingGates": [{"name": one} for one in gates]}
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if node:
        spec["nodeName"] = node
    conditions = [{"type": "PodScheduled", "status": "False", "message": said}] if said else []
    return {
        "metadata": {
            "name": "p",
            "namespace": "a",
            "uid": "uid-p",
            "labels": {"closeby.dev/pod-group": gang} | ({RANK: rank} if rank else {}),
            "annotations": {PLACED_ON: placed_on} if placed_on else {},
        },
        "spec": spec,
        "status": {"phase": "Pending", "conditions": conditions},
    }


class Process:
    """What one process knows."""

    def __init__(self) -> None:
        self.gated = GatedPods()
        self.feed = Feed(self.gated)
        self.seen: Pod | None = None

    def take(self, seen: Object) -> list[str]:
        """The pod as it is now: what is said, and ``pod`` is what the engine knows."""
        changes = [put(PODS, seen)]
        for event in self.feed.take(changes).events:
            self.seen = event.pod if isinstance(event, PodUpserted) else None
        return [one.why for one in self.gated.take(changes)]

    @property
    def pod(self) -> Pod:
        """As the engine knows it."""
        assert self.seen is not None
        return self.seen

    @property
    def terms(self) -> tuple[NodeSelectorTerm, ...] | None:
        return self.pod.spec.required_affinity


GATED = (PLACEMENT_GATE,)


def test_the_gate_makes_a_pod_ours_whatever_scheduler_it_names() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    assert not process.pod.spec.scheduling_gates
    process.take(pod(gates=(*GATED, "quota")))
    assert process.pod.spec.scheduling_gates == ("quota",)


def test_a_pod_without_the_gate_is_not_ours() -> None:
    process = Process()
    process.take(pod())
    assert process.seen is None
    assert process.feed.foreign.wait_in("a/g")


def test_a_pod_whose_gate_a_user_removes_is_forgotten() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    assert process.feed.take([put(PODS, pod())]).events == (PodDeleted("uid-p"),)
    assert process.feed.foreign.wait_in("a/g")


@pytest.mark.parametrize("terms", [[], [ZONE], [ZONE, {}]])
def test_the_engine_sees_no_difference_once_a_pod_was_placed(terms: list[Object]) -> None:
    process = Process()
    process.take(pod(gates=GATED, terms=terms))
    decided = process.pod
    process.gated.sending("uid-p", "n1")
    process.take(pod(terms=narrowed(terms, "n1"), placed_on="n1"))
    assert process.pod.spec is decided.spec
    process.gated.placed(decided, "n1", 0.0)
    assert process.take(pod(terms=narrowed(terms, "n1"), placed_on="n1", node="n1")) == [""]
    assert process.pod.spec is decided.spec
    assert process.pod.node_name == "n1"
    assert not process.gated.of_gang("a/g")


def test_what_an_earlier_process_placed_can_go_to_its_node_alone() -> None:
    process = Process()
    process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1"))
    assert process.terms == (NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n1",)),)),)


@pytest.mark.parametrize(
    ("node", "took_over", "begun"), [("", False, True), ("n1", False, False), ("", True, False)]
)
def test_what_an_earlier_process_placed_comes_first_until_this_one_places_pods(
    node: str, took_over: bool, begun: bool
) -> None:
    process = Process()
    if took_over:
        process.gated.took_over()
    process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1", node=node))
    assert process.pod.begun is begun


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize("took_over", [False, True])
def test_the_rank_of_a_pod_that_an_earlier_process_placed_is_known(node: str, took_over: bool) -> None:
    process = Process()
    if took_over:
        process.gated.took_over()
    process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1", node=node, rank="3"))
    assert process.pod.labelled_rank == 3


@pytest.mark.parametrize("rank", ["", "-1", "x", "1_0", "²", "9" * 40])
def test_what_is_no_rank_is_none(rank: str) -> None:
    process = Process()
    process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1", rank=rank))
    assert process.pod.labelled_rank is None


@pytest.mark.parametrize(
    ("gates", "terms", "placed_on", "node"),
    [
        (GATED, [{"matchFields": [PIN]}], "n1", ""),
        ((), [ZONE], "n1", ""),
        ((), [{"matchFields": [PIN]}], "n1", "n2"),
        ((), [{"matchFields": [PIN]}], "", "n1"),
    ],
)
def test_the_label_of_a_pod_that_we_did_not_place_is_no_rank(
    gates: tuple[str, ...], terms: list[Object], placed_on: str, node: str
) -> None:
    process = Process()
    process.take(pod(gates=gates, terms=terms, placed_on=placed_on, node=node, rank="3"))
    assert process.pod.labelled_rank is None


def test_an_annotation_alone_binds_the_engine_to_nothing() -> None:
    """The author of a pod may write it: such a pod waits, and goes where its affinity lets it."""
    process = Process()
    process.take(pod(terms=[ZONE], placed_on="n1"))
    assert process.pod.node_name is None
    assert not process.pod.begun
    assert process.terms == (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)


def test_a_pod_that_was_placed_elsewhere_keeps_its_terms() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.sending("uid-p", "n2")
    process.gated.not_sent("uid-p")
    process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1"))
    assert process.terms is not None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", []),
        ("InsufficientResources: 0 of 3 nodes have room: for cpu", []),
        ("Scheduling is blocked due to non-empty scheduling gates", []),
        ("0/3 nodes are available: 1 Insufficient cpu.", ["0/3 nodes are available: 1 Insufficient cpu."]),
        ("running PreBind plugin: no", ["running PreBind plugin: no"]),
    ],
)
def test_what_another_scheduler_says_is_no_word_of_ours(said: str, why: list[str]) -> None:
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.placed(process.pod, "n1", 0.0)
    found = pod(terms=[{"matchFields": [PIN]}], placed_on="n1", said=said)
    assert process.take(found) == why
    assert process.take(found) == []
    assert len(process.gated.not_bound("a/g")) == len(why)
    assert process.gated.of_gang("a/g") == {"uid-p"}


def test_what_a_scheduler_says_before_our_write_is_answered_is_not_lost() -> None:
    """It says so once, and is quicker than the answer where much else is going on."""
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.sending("uid-p", "n1")
    said = "0/3 nodes are available: 1 Insufficient cpu."
    assert process.take(pod(terms=[{"matchFields": [PIN]}], placed_on="n1", said=said)) == []
    assert process.gated.placed(process.pod, "n1", 0.0).why == said
    assert len(process.gated.not_bound("a/g")) == 1
    assert not process.gated.silent(SILENT_AFTER + 1)


def test_a_scheduler_that_says_nothing_is_said_once() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.placed(process.pod, "n1", 0.0)
    assert not process.gated.silent(SILENT_AFTER)
    (found,) = process.gated.silent(SILENT_AFTER + 1)
    assert "default-scheduler can't bind a/p to n1" in found.sentence
    assert not process.gated.silent(SILENT_AFTER + 2)


def test_a_pod_that_is_gone_is_forgotten() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.placed(process.pod, "n1", 0.0)
    process.gated.take([(PODS, Deleted("a/p", "uid-p"))])
    assert not process.gated.of_gang("a/g")


def test_an_answer_that_can_not_be_read_says_nothing() -> None:
    process = Process()
    process.take(pod(gates=GATED))
    process.gated.placed(process.pod, "n1", 0.0)
    raw = msgspec.json.encode({"spec": 1})
    assert not process.gated.take([(PODS, Upserted("a/p", "uid-p", "2", raw))])
    assert process.gated.of_gang("a/g")


def test_a_term_that_asks_for_nothing_stays_as_it_is() -> None:
    """It matches no node, and with a field it would match one."""
    assert narrowed([{}, ZONE], "n1") == [{}, {**ZONE, "matchFields": [PIN]}]
    assert narrowed([], "n1") == [{"matchFields": [PIN]}]
    once = narrowed([ZONE], "n1")
    assert narrowed(once, "n1") == once
