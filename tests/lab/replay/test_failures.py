"""Nodes that fail and come back, and jobs in segments: which jobs end, what counts, and what has no room."""

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import ReplaySettings
from closeby.lab.replay.event_queue import Checkpoints
from closeby.lab.replay.failures import FailureRate
from closeby.lab.replay.history import History, measure
from closeby.lab.replay.submitting import Segments, Wishes
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.quality.segments import SegmentMeasures
from tests.lab.pictures.histories import Job
from tests.lab.pictures.histories import history as by_hand
from tests.lab.replay.small import jobs, leaves, places, run

ONE_OF_A_LEAF = ReplaySettings(
    seed=1,
    failures=FailureRate(level="leaf", nodes=1, repair=500),
    checkpoints=Checkpoints(every=50, restart=0),
)
LONG = jobs(("a", 0, 2_000, 2, 8), ("b", 0, 2_000, 2, 8))


def layer(history: History) -> SegmentMeasures:
    found = measure(history).segments
    assert isinstance(found, tuple)
    return found[0]


def test_so_many_of_each_domain_are_out_of_order_at_any_time() -> None:
    history = run(LONG, leaves(3, 4), ONE_OF_A_LEAF)
    out = history.outages
    for time in np.linspace(0, history.until, 50, endpoint=False).tolist():
        slots = out.slots[(out.begin <= time) & (time < out.end)].tolist()
        assert sorted(slot < 3 for slot in slots) == [False, True]


def test_no_job_runs_on_a_node_that_is_out_of_order() -> None:
    history = run(LONG, leaves(3, 4), ONE_OF_A_LEAF)
    runs, out = history.each_run(), history.outages
    for job in range(len(runs.jobs)):
        for slot in runs.slots_of(job).tolist():
            late = np.nan_to_num(runs.ended[job], nan=history.until)
            assert not ((out.slots == slot) & (out.begin < late) & (out.end > runs.started[job])).any()


def test_a_job_that_loses_a_node_goes_on_from_its_checkpoint() -> None:
    history = run(LONG, leaves(3, 4), ONE_OF_A_LEAF)
    assert len(history.cut)
    assert (history.cut.by == -1).all()
    assert (history.cut.failed >= 0).all()
    assert (history.cut.lost <= 50).all()
    assert not np.isnan(history.ended).any()


def test_all_policies_get_the_same_failures() -> None:
    runs = [
        run(LONG, leaves(3, 4), ONE_OF_A_LEAF),
        run(jobs(("a", 0, 900, 1, 8)), leaves(3, 4), ONE_OF_A_LEAF),
    ]
    until = min(history.until for history in runs)
    first, second = (
        {
            (slot, begin)
            for slot, begin in zip(out.slots.tolist(), out.begin.tolist(), strict=True)
            if begin < until
        }
        for out in (history.outages for history in runs)
    )
    assert first == second


def test_use_is_a_share_of_what_is_in_order() -> None:
    """Two of three hosts are in order, and the job has both all the time but when one of them fails."""
    workload = jobs(("a", 0, 100, 2, 8), ("b", 10, 100, 2, 8))
    rare = replace(ONE_OF_A_LEAF, failures=FailureRate(level="leaf", nodes=1, repair=1e9))
    assert measure(run(workload, leaves(3), rare)).utilisation == pytest.approx(1.0)


def test_a_segment_larger_than_what_is_in_order_never_starts() -> None:
    workload = jobs(("whole", 0, 100, 3, 8), ("pair", 1, 100, 2, 8))
    settings = replace(ONE_OF_A_LEAF, wishes=Wishes(segments=(Segments(level="leaf", size=3),)))
    history = run(workload, leaves(3, 3), settings)
    assert np.isnan(history.started).tolist() == [True, False]
    assert "leaf" in history.refusals[0]


def test_segments_are_each_in_one_domain() -> None:
    """Four hosts in pairs: a leaf of three and one of two take a pair each; without segments 3 + 1."""
    workload = jobs(("a", 0, 100, 4, 8))
    paired = ReplaySettings(wishes=Wishes(segments=(Segments(level="leaf", size=2),)))
    history = run(workload, leaves(3, 3), paired)
    first, second, third, fourth = places(history)["a"]
    hosts = [int(host[1:]) > 3 for host in (first, second, third, fourth)]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert (layer(history).segments, layer(history).span, layer(history).split) == (2, 1.0, 0.0)


def test_the_last_segment_may_be_smaller() -> None:
    history = run(
        jobs(("a", 0, 100, 3, 8)),
        leaves(2, 1),
        ReplaySettings(wishes=Wishes(segments=(Segments(level="leaf", size=2),))),
    )
    assert len(places(history)["a"]) == 3
    assert layer(history).segments == 2


def test_how_far_segments_are_from_each_other() -> None:
    """One pod holds both leaves, so that segments by leaf are in one domain of the level above."""
    two_by_leaf = ReplaySettings(wishes=Wishes(segments=(Segments(level="leaf", size=2),)))
    assert layer(run(jobs(("a", 0, 100, 4, 8)), leaves(2, 2), two_by_leaf)).outer_span == 1.0
    # A job of one segment does not count, and there is no level above that of the pods.
    assert layer(run(jobs(("a", 0, 100, 2, 8)), leaves(2, 2), two_by_leaf)).outer_span is None
    two_by_pod = ReplaySettings(wishes=Wishes(segments=(Segments(level="pod", size=2),)))
    assert layer(run(jobs(("a", 0, 100, 4, 8)), leaves(2, 2), two_by_pod)).outer_span is None


def test_a_segment_that_no_domain_can_ever_hold_is_refused_at_once() -> None:
    settings = ReplaySettings(wishes=Wishes(segments=(Segments(level="leaf", size=4),)))
    history = run(jobs(("a", 0, 100, 4, 8)), leaves(3, 3), settings)
    assert history.impossible == (0,)


@pytest.mark.parametrize(
    "segments",
    [
        (Segments(level="leaf", size=2), Segments(level="pod", size=2)),
        (Segments(level="pod", size=3), Segments(level="leaf", size=2)),
        (Segments(level="rack", size=3),),
    ],
)
def test_segments_that_make_no_sense_are_refused(segments: tuple[Segments, ...]) -> None:
    with pytest.raises(UnrunnableError):
        run(jobs(("a", 0, 100, 4, 8)), leaves(3, 3), ReplaySettings(wishes=Wishes(segments=segments)))


def test_an_unknown_level_of_failures_is_refused() -> None:
    failures = FailureRate(level="rack", nodes=1, repair=10)
    with pytest.raises(UnrunnableError, match="rack"):
        run(LONG, leaves(3), ReplaySettings(failures=failures))


def test_nvl72_has_racks_of_eighteen() -> None:
    cluster = made_up("nvl72")
    racks = {node.labels["fabric.example.com/rack"] for node in cluster.nodes}
    assert (len(cluster.nodes), len(racks)) == (64 * 18, 64)
    assert all(node.allocatable[cluster.resource] == 4 for node in cluster.nodes)


def test_jobs_for_hosts_of_four_gpus_have_pods_of_four() -> None:
    options = WorkloadOptions(gpus_of_a_pod=4)
    small = generate("kalos", jobs=200, load=0.5, capacity=512, seed=1, options=options)
    usual = generate("kalos", jobs=200, load=0.5, capacity=512, seed=1)
    assert small.gpus.max() == 4
    assert small.sizes.tolist() == usual.sizes.tolist()


def test_jobs_of_several_segments_alone_count_for_their_distance() -> None:
    """Each zone has two leaves: one job has a segment in each zone, the other is a single segment."""
    drawing = "a l1 : n1=4 n2=4\na l2 : n3=4 n4=4\nb l3 : n5=4 n6=4"
    far = Job(nodes=("n1", "n2", "n5", "n6"), start=0.0, end=9.0)
    single = Job(nodes=("n3", "n4"), start=0.0, end=9.0)
    past = by_hand({"far": far, "single": single}, until=9.0, drawing=drawing)
    found = layer(replace(past, segments=((1, 2),)))
    assert (found.segments, found.span, found.outer_span) == (3, 1.0, 2.0)
