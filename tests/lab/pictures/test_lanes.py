"""Who is drawn on which part of which node, at which moment: what the history says, and nothing else."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.lab.pictures.album import bars_note
from closeby.lab.pictures.gang_marks import Pieces, pieces_of
from closeby.lab.pictures.scene import Scene, scene_of
from closeby.lab.replay.history import History
from tests.golden.fixture import Golden
from tests.lab.pictures.histories import Job, applications, history, story, who_holds

Parts = dict[str, list[tuple[float, float, str]]]


def drawn_at(scene: Scene, moment: float, pieces: Pieces | None = None) -> Parts:
    """Per node the parts that are drawn at a moment: from, to (in GPUs), and whose."""
    pieces = pieces or pieces_of(scene)
    found: Parts = {}
    for slot, low, high, tenant in zip(
        pieces.slots.tolist(), pieces.low.tolist(), pieces.high.tolist(), pieces.tenants.tolist(), strict=True
    ):
        if scene.since[tenant] <= moment < scene.until[tenant]:
            capacity = float(scene.capacity[slot])
            name = scene.tenants[tenant].name
            found.setdefault(scene.nodes[slot], []).append((low * capacity, high * capacity, name))
    return {node: sorted(parts) for node, parts in found.items()}


def check(past: History, scene: Scene) -> None:
    """At every stop each job has as many lanes as it holds GPUs, and no lane is drawn twice."""
    pieces = pieces_of(scene)
    for stop in range(scene.moments.count):
        moment = scene.moments.at(stop)
        drawn = drawn_at(scene, moment, pieces)
        held: dict[str, dict[str, int]] = {}
        for node, parts in drawn.items():
            for (_, end, _), (begin, _, _) in pairwise(parts):
                assert end <= begin
            for low, high, name in parts:
                here = held.setdefault(node, {})
                here[name] = here.get(name, 0) + round(high - low)
        assert held == who_holds(past, moment * scene.moments.seconds)


def test_the_story_is_drawn_as_it_happened() -> None:
    """n4 has 4 GPUs: half takes two until minute 10, other takes three from then on."""
    past = story()
    scene = scene_of(past)
    assert scene.moments.unit == "min"
    assert drawn_at(scene, 5.0) == {
        "n1": [(0, 4, "wide")],
        "n2": [(0, 4, "wide")],
        "n3": [(0, 4, "wide")],
        "n4": [(0, 2, "half")],
    }
    assert drawn_at(scene, 10.0)["n4"] == [(0, 3, "other")]
    assert drawn_at(scene, 20.0)["n1"] == [(0, 4, "later")]
    check(past, scene)


def test_what_still_runs_is_there_at_the_last_stop() -> None:
    scene = scene_of(story())
    assert drawn_at(scene, scene.moments.last) == {"n1": [(0, 4, "later")], "n2": [(0, 4, "later")]}
    assert [tenant.name for tenant in scene.tenants] == ["wide", "half", "other", "later"]


def test_a_pod_keeps_together_where_it_can() -> None:
    """One, one and two GPUs; when the first and the last end, a pod of two takes the gap of two."""
    past = history(
        {
            "a": Job(nodes=("n1",), gpus=1, start=0.0, end=10.0),
            "b": Job(nodes=("n1",), gpus=1, start=0.0, end=30.0),
            "c": Job(nodes=("n1",), gpus=2, start=0.0, end=10.0),
            "d": Job(nodes=("n1",), gpus=2, start=10.0, end=30.0),
            "e": Job(nodes=("n1",), gpus=1, start=10.0, end=30.0),
        },
        until=30.0,
    )
    assert drawn_at(scene_of(past), 10.0) == {"n1": [(0, 1, "e"), (1, 2, "b"), (2, 4, "d")]}


def test_a_pod_is_split_where_no_gap_holds_it() -> None:
    past = history(
        {
            "a": Job(nodes=("n1",), gpus=1, start=0.0, end=10.0),
            "b": Job(nodes=("n1",), gpus=2, start=0.0, end=30.0),
            "c": Job(nodes=("n1",), gpus=1, start=0.0, end=10.0),
            "d": Job(nodes=("n1",), gpus=2, start=10.0, end=30.0),
        },
        until=30.0,
    )
    assert drawn_at(scene_of(past), 0.0)["n1"] == [(0, 1, "a"), (1, 3, "b"), (3, 4, "c")]
    assert drawn_at(scene_of(past), 10.0)["n1"] == [(0, 1, "d"), (1, 3, "b"), (3, 4, "d")]


def test_pods_of_one_gang_on_one_node_are_one_piece() -> None:
    past = history({"a": Job(nodes=("n1", "n1", "n1"), gpus=1, start=0.0, end=10.0)}, until=10.0)
    scene = scene_of(past)
    assert drawn_at(scene, 0.0) == {"n1": [(0, 3, "a")]}
    assert len(pieces_of(scene).slots) == 1


def test_without_gpus_pods_are_drawn_against_the_fullest_node() -> None:
    """n1 has three pods at most, so a pod is a third of a bar everywhere."""
    past = history(
        {
            "a": Job(nodes=("n1", "n1", "n2"), gpus=0, start=0.0, end=10.0),
            "b": Job(nodes=("n1",), gpus=0, start=5.0, end=10.0),
            "c": Job(nodes=("n1",), gpus=0, start=10.0),
        },
        until=20.0,
        with_gpus=False,
    )
    scene = scene_of(past)
    assert (scene.resource, scene.capacity.tolist()) == ("pod", [3.0] * 7)
    assert drawn_at(scene, 5.0) == {"n1": [(0, 2, "a"), (2, 3, "b")], "n2": [(0, 1, "a")]}
    assert drawn_at(scene, 20.0) == {"n1": [(0, 1, "c")]}


def test_applications_are_drawn_by_their_cores(golden: Golden) -> None:
    """A pod asks for one of a node's four cores; the two of bank are on n5, beside one of far at first."""
    scene = scene_of(applications())
    assert (scene.resource, scene.unit, set(scene.capacity[:7].tolist())) == ("cpu", "cores", {4.0})
    found = pieces_of(scene)
    parts = {
        (scene.nodes[slot], scene.tenants[tenant].name, low, high)
        for slot, tenant, low, high in zip(
            found.slots.tolist(), found.tenants.tolist(), found.low.tolist(), found.high.tolist(), strict=True
        )
    }
    assert parts == {
        *(("n1", "shop", 0.0, 0.25), ("n2", "shop", 0.0, 0.25), ("n1", "far", 0.25, 0.5)),
        *(("n5", "bank", 0.0, 0.5), ("n5", "far", 0.5, 0.75), ("n3", "lone", 0.0, 0.25)),
    }
    assert {one.name: one.asks for one in scene.tenants}["bank"] == "2 pods, 2 cores"
    golden("pictures", bars_note(scene))


def test_jobs_between_two_stops_are_left_out_and_counted() -> None:
    """At most eight pods are drawn: the slider gets few stops, and most short jobs fall between them."""
    jobs = {
        f"short-{number}": Job(nodes=("n1",), start=float(number), end=number + 1.0) for number in range(100)
    }
    past = history({**jobs, "long": Job(nodes=("n2",), start=0.0, end=100.0)}, until=100.0)
    scene = scene_of(past, most_pods=8)
    assert len(scene.slots) <= 8
    assert scene.tenants[-1].name == "long"
    check_subset(past, scene)
    (sentence,) = scene.left_out
    assert f"{101 - len(scene.tenants)} of 101 jobs" in sentence
    assert scene_of(past).left_out == ()


def check_subset(past: History, scene: Scene) -> None:
    for stop in range(scene.moments.count):
        moment = scene.moments.at(stop)
        expected = who_holds(past, moment * scene.moments.seconds)
        assert {node: {name for *_, name in parts} for node, parts in drawn_at(scene, moment).items()} == {
            node: set(jobs) for node, jobs in expected.items()
        }


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_history_is_drawn_as_it_happened(data: st.DataObject) -> None:
    """Jobs at random, each started where and when there is room for it."""
    free = {f"n{number}": np.full(20, 4) for number in range(1, 8)}
    jobs = {}
    for number in range(data.draw(st.integers(1, 15))):
        gpus = data.draw(st.integers(1, 4))
        start = data.draw(st.integers(0, 18))
        end = data.draw(st.integers(start + 1, 20))
        roomy = [node for node, left in free.items() if (left[start:end] >= gpus).all()]
        nodes = data.draw(st.lists(st.sampled_from(roomy), max_size=4, unique=True)) if roomy else []
        for node in nodes:
            free[node][start:end] -= gpus
        jobs[f"j{number}"] = Job(
            nodes=nodes,
            gpus=gpus,
            pods=max(len(nodes), 1),
            start=float(start) if nodes else None,
            end=float(end) if nodes else None,
        )
    past = history(jobs, until=20.0)
    check(past, scene_of(past))
