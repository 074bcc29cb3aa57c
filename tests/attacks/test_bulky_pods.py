"""A tenant's objects hold as much as the API server takes: thousands of keys, thousands of resources.

Reading one may take no longer than in proportion to its size, and what is told of it stays short. Work is
counted by what is done for each entry, not by a clock.
"""

import difflib
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.cluster import volumes_by_class
from closeby.cluster.volumes_by_class import serves
from closeby.kube.state.feed import Feed
from closeby.kube.watch.resources import PODS
from closeby.objects import words
from closeby.objects.pods import ClaimRequest
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import MOST_CONDITIONS, Reason
from closeby.objects.volumes import PersistentVolume
from closeby.reading.decoding.keys import SWITCH_LEVEL, SWITCHES
from closeby.reading.dialects import slurm
from closeby.scheduling.events import GroupChanged, NodeUpserted, PodUpserted, StorageChanged, Tick
from tests.attacks.crowds import cluster, engine
from tests.kube.test_feed import METADATA, OURS, Object, pod, put
from tests.storage import LOCAL, claim, naming, volume
from tests.worlds import gang, node, pods, spec

KEYS = {f"closeby.dev/pod-grup{number}": "1" for number in range(5_000)}


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys for which the nearest known one is looked for, a fraction of a millisecond each."""
    asked: list[str] = []
    found = difflib.get_close_matches

    def watched(word: str, possibilities: Sequence[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
        asked.append(word)
        return found(word, possibilities, n, cutoff)

    monkeypatch.setattr(words, "get_close_matches", watched)
    return asked


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_pod_with_thousands_of_misspelt_keys(part: str, guesses: list[str]) -> None:
    made = pod("bulky")
    made["metadata"] = {**METADATA, part: KEYS}
    fed = Feed("closeby").take([put(PODS, made)])
    assert [type(event) for event in fed.events] == [PodUpserted]
    assert len(fed.problems) == MOST_CONDITIONS + 1
    assert len(guesses) == MOST_CONDITIONS


def test_a_gang_with_thousands_of_misspelt_keys(guesses: list[str]) -> None:
    made: Object = {"metadata": {**METADATA, "annotations": KEYS}, "spec": {"minMember": 2}}
    fed = Feed("closeby").take([put(OURS, made)])
    assert [type(event) for event in fed.events] == [GroupChanged]
    assert len(fed.problems) == MOST_CONDITIONS
    assert len(guesses) == MOST_CONDITIONS


def test_a_pod_that_asks_for_thousands_of_resources_waits_and_leaves_no_trace() -> None:
    """Each resource is a column over all nodes."""
    it = engine()
    it.handle(*cluster(nodes=8))
    before = it.cluster.resources
    (bulky,) = pods(None, 1, spec(**{f"example.com/r{number}": 1 for number in range(5_000)}), prefix="bulky")
    it.handle(PodUpserted(bulky), Tick())
    outcome = it.outcome("default/bulky-0")
    assert outcome is not None and outcome.reason is Reason.UNSUPPORTED
    assert it.cluster.resources == before


def test_many_pods_that_ask_for_resources_of_their_own_share_one_column() -> None:
    """2,000 names in all, a few for each pod."""
    it = engine()
    it.handle(*cluster(nodes=8))
    for number in range(100):
        names = (f"example.com/r{number}-{of}" for of in range(20))
        (one,) = pods(None, 1, spec(**dict.fromkeys(names, 1)), prefix=f"odd{number}")
        it.handle(PodUpserted(one))
    it.handle(Tick())
    found = [it.outcome(f"default/odd{number}-0") for number in range(100)]
    assert {one and one.reason for one in found} == {Reason.INSUFFICIENT_RESOURCES}
    assert len(it.cluster.resources) < 80
    it.validate_state()


def test_many_pods_that_ask_for_labels_of_their_own_share_one_column() -> None:
    """2,000 labels that no node carries; one that a node gets then is found all the same."""
    it = engine()
    it.handle(*cluster(nodes=8))
    for number in range(100):
        selector = tuple((f"example.com/l{number}-{of}", "yes") for of in range(20))
        (one,) = pods(
            None,
            1,
            replace(spec(cpu=1), node_selector=selector[:1] if number == 7 else selector),
            prefix=f"odd{number}",
        )
        it.handle(PodUpserted(one))
    it.handle(Tick())
    columns = {
        id(it.cluster.labels.column(f"example.com/l{number}-{of}"))
        for number in range(100)
        for of in range(20)
    }
    assert len(columns) == 1
    it.handle(NodeUpserted(node("n3", {"example.com/l7-0": "yes"}, {"cpu": 8000})), Tick())
    assert it.cluster.placement("default/odd7-0") == it.cluster.slot_of("n3")
    it.validate_state()


@pytest.mark.parametrize("unit", ["", "h"])
def test_spans_of_time_that_do_not_end(unit: str) -> None:
    """A number was looked for at each digit, to the end: minutes for an annotation of 250,000 digits."""
    assert parse_duration("9" * 250_000 + unit) is None
    (problem,) = slurm.ask(
        {SWITCHES: "1@" + "9" * 250_000 + unit, SWITCH_LEVEL: "rack"}, "Job/d/j"
    ).conditions
    assert len(problem.message) < 1_024


def test_claims_that_ask_for_the_same_are_compared_with_each_volume_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang of 80 pods with a claim each, on 80 nodes with a volume each."""
    it, compared = engine(), 0

    def counting(one: PersistentVolume, request: ClaimRequest) -> bool:
        nonlocal compared
        compared += 1
        return serves(one, request)

    monkeypatch.setattr(volumes_by_class, "serves", counting)
    members = [naming(one, f"c{at}") for at, one in enumerate(pods("many", 80, spec(cpu=8_000)))]
    it.handle(*(NodeUpserted(node(f"n{at}", {}, {"cpu": 8_000})) for at in range(80)))
    it.handle(StorageChanged(LOCAL), *(StorageChanged(claim(f"c{at}")) for at in range(80)))
    it.handle(*(StorageChanged(volume(f"v{at}", f"n{at}")) for at in range(80)))
    it.handle(GroupChanged(gang("many", 80)), *map(PodUpserted, members), Tick())
    assert len({it.cluster.placement(one.uid) for one in members} - {None}) == 80
    assert compared < 4 * 80
    it.validate_state()
