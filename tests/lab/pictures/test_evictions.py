"""A job that was evicted: its runs on the map, its evictions over time, and what the search tells of it."""

import csv
import io

from closeby.lab.pictures.album import maps_of
from closeby.lab.pictures.cdfs import delay_distributions
from closeby.lab.pictures.gang_marks import colours_of
from closeby.lab.pictures.lookup import index_of_history
from closeby.lab.pictures.paper import with_datasets
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.timeline import scrubbed_timeline, timeline
from closeby.lab.replay.history import History
from tests.lab.replay.small import jobs, leaves, run
from tests.lab.replay.test_evictions import keeping


def past() -> History:
    """low runs on both hosts until minute 40, then high on h1, then low for the hour that is left."""
    workload = jobs(("low", 0, 6_000, 2, 8), ("high", 2_400, 600, 1, 8), priorities=(0, 5))
    return run(workload, leaves(2), keeping(1_200))


def tables(document: dict[str, object]) -> list[list[dict[str, str]]]:
    datasets = with_datasets(document)["datasets"]
    return [list(csv.DictReader(io.StringIO(one))) for one in datasets.values()]


def test_the_map_has_each_run() -> None:
    scene = scene_of(past())
    assert [tenant.name for tenant in scene.tenants] == ["low", "high", "low"]
    assert [tenant.evicted for tenant in scene.tenants] == ["", "", "for high at 40 min"]
    assert scene.since.tolist() == [50, 40, 0]
    assert scene.until.tolist() == [110, 50, 40]
    rows = [row for table in tables(maps_of(scene)["rack-map"]) for row in table if "evicted" in row]
    assert [row["evicted"] for row in rows] == ["", "", "for high at 40 min"]


def test_a_job_keeps_its_colour() -> None:
    low, _, before = colours_of(scene_of(past()))
    assert low == before


def test_evictions_are_marked_over_time() -> None:
    history = past()
    for chart in (timeline, scrubbed_timeline):
        last = chart(history, scene_of(history).moments)["vconcat"][-1]
        mark, *_ = last["layer"]
        assert mark["mark"]["type"] == "rule"
        assert mark["encoding"]["y"]["title"] == "GPUs evicted"
        assert tables(last)[0] == [{"time": "40", "value": "16", "number": "0"}]


def test_without_evictions_there_is_no_panel_for_them() -> None:
    quiet = run(jobs(("a", 0, 60, 1, 8)), leaves(1))
    assert len(timeline(quiet, scene_of(quiet).moments)["vconcat"]) == 3


def test_the_search_finds_a_job_from_its_first_run_to_its_last() -> None:
    index = index_of_history(past(), scene_of(past()))
    low, high = index["jobs"]
    assert [index["stops"][at] for at in low[2:]] == [0, 50]
    assert "waited 10 min, was evicted, last ran for 1 h" in low[1]
    assert "evicted" not in high[1]


def test_a_job_counts_once_in_delays() -> None:
    small, large = delay_distributions([past()])
    assert (small.jobs, large.jobs) == (1, 1)
    assert (small.values.tolist(), large.values.tolist()) == ([0], [600])
