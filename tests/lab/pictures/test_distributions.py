"""What the distributions of a run are made of."""

import json
from typing import Any

import pytest

from closeby.lab.pictures.cdfs import (
    _span_scale,
    delay_cdfs,
    delay_distributions,
    span_distributions,
    talk_distributions,
)
from closeby.lab.pictures.paper import with_datasets
from closeby.lab.replay.history import measure
from closeby.quality.delays import ALL
from tests.lab.pictures.histories import STORY, UNTIL, Job, applications, history, story


def test_delays_of_the_story_by_size() -> None:
    """half (2 GPUs), other (3) and later (8) wait 0, 300 and 600 s; wide (12) 0 s, never (36) 1500 s."""
    found = {one.group: one for one in delay_distributions([story()])}
    assert list(found) == ["2-8", "9-64"]
    assert (found["2-8"].jobs, found["2-8"].values.tolist()) == (3, [0.0, 300.0, 600.0])
    assert found["2-8"].shares.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert (found["9-64"].jobs, found["9-64"].values.tolist()) == (2, [0.0, 1500.0])


def test_the_jobs_of_the_pictures_are_those_of_the_tables() -> None:
    """never is too large for the cluster, and late comes after the run was stopped: neither waited."""
    jobs = {**STORY, "late": Job(pods=2, gpus=4, submitted=UNTIL + 60.0)}
    past = history(jobs, UNTIL, impossible=["never"])
    told = {delay.size: delay.jobs for delay in measure(past).delays if delay.jobs and delay.size != ALL}
    assert told == {"2-8": 3, "9-64": 1}
    assert {one.group: one.jobs for one in delay_distributions([past])} == told
    assert [one.jobs for one in span_distributions([past])] == [2, 2]
    legend = {"ours": [past]}
    assert "9-64 GPUs (1 job)" in json.dumps(with_datasets(delay_cdfs(legend)))


def test_sizes_are_reported_in_pods_where_only_a_job_that_does_not_count_asks_for_gpus() -> None:
    jobs = {"small": Job(nodes=("n1",), gpus=0, start=0.0, end=9.0), "huge": Job(pods=99, gpus=4)}
    past = history(jobs, until=9.0, impossible=["huge"])
    assert measure(past).size_unit == "pod"
    assert not past.told_in_gpus
    assert "1 pod (1 job)" in json.dumps(with_datasets(delay_cdfs({"ours": [past]})))


def test_excess_spans_are_weighted_by_gpu_time() -> None:
    """Two pods of 4 GPUs fit one leaf. near is in one for 100 s, far in two for 300 s: a quarter of the
    GPU-time is ideal. single is no larger than a node and does not count."""
    past = history(
        {
            "near": Job(nodes=("n1", "n2"), start=0.0, end=100.0),
            "far": Job(nodes=("n3", "n7"), start=0.0, end=300.0),
            "single": Job(nodes=("n4",), start=0.0, end=900.0),
        },
        until=900.0,
    )
    found = {one.group: one for one in span_distributions([past])}
    assert list(found) == ["zone", "leaf"]
    for one in found.values():
        assert (one.jobs, one.values.tolist(), one.shares.tolist()) == (2, [1.0, 2.0], [0.25, 1.0])


def test_several_runs_count_as_one() -> None:
    once, twice = delay_distributions([story()]), delay_distributions([story(), story()])
    assert [one.jobs * 2 for one in once] == [one.jobs for one in twice]
    assert [one.shares.tolist() for one in once] == [one.shares.tolist() for one in twice]


def test_talk_counts_by_the_time_that_an_application_ran() -> None:
    """shop: 4 pairs that cost 8 in all, for 100 s; bank: 2 pairs on one node, for 300 s.

    lone has no pairs, and nobody knows what far costs.
    """
    found = {one.group: one for one in talk_distributions([applications()])}
    assert list(found) == ["cost of a pair", "pairs on one node", "pairs in one zone", "pairs in one region"]
    cost, node = found["cost of a pair"], found["pairs on one node"]
    assert (cost.jobs, cost.values.tolist(), cost.shares.tolist()) == (2, [0.0, 2.0], [0.75, 1.0])
    assert (node.jobs, node.values.tolist(), node.shares.tolist()) == (3, [0.0, 0.5, 1.0], [0.2, 0.4, 1.0])


def test_gangs_have_no_talk() -> None:
    assert talk_distributions([story()]) == ()


def axes(panel: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Where the axes of a panel begin and end: values, and shares."""
    encoding = panel["encoding"]
    return encoding["x"]["scale"]["domain"], encoding["y"]["scale"]["domain"]


def test_axes_have_no_room_for_what_nothing_had() -> None:
    """19 of 20 jobs wait for nothing, one for 50 minutes: from 10 minutes on, and from 90 %."""
    jobs = {f"quick-{number}": Job(nodes=("n1",), start=0.0, end=9.0) for number in range(19)}
    past = history({**jobs, "late": Job(nodes=("n2",), start=3000.0, end=4000.0)}, until=4000.0)
    (panel,) = delay_cdfs({"ours": [past]})["hconcat"]
    values, shares = axes(panel)
    assert (values[0], shares[0]) == (600, 0.9)
    assert "≤10 min" in panel["encoding"]["x"]["axis"]["labelExpr"]
    assert "from 90%" in panel["encoding"]["y"]["title"]


def test_an_outlier_does_not_set_the_axis_of_spans() -> None:
    """A span of 8 beside many of 1: the axis is logarithmic; with all below 4 it is not."""
    assert _span_scale(8.2) == {"type": "log", "base": 2, "domain": [1, 8.2], "nice": False}
    assert _span_scale(3.0) == {"domain": [1, 3.0], "nice": False}


def test_lines_that_coincide_are_all_seen() -> None:
    """Each is narrower than those below it, and has dashes of its own."""
    both = {name: [story(name)] for name in ("one", "other", "third")}
    for panel in delay_cdfs(both)["hconcat"]:
        widths = panel["encoding"]["strokeWidth"]["scale"]["range"]
        assert widths == sorted(set(widths), reverse=True)
        dashes = panel["encoding"]["strokeDash"]["scale"]["range"]
        assert len({tuple(dash) for dash in dashes}) == 3
