import io
import json

from rich.console import Console

from closeby.objects.labels import HOSTNAME
from closeby.quality.model import DEFAULT_MODEL
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.report.documents.common import to_json
from closeby.report.documents.quality import QualityEntry
from closeby.report.documents.scheduling import SchedulingReport, scheduling_report
from closeby.report.views.quality import seconds_text
from closeby.report.views.scheduling import scheduling_views
from closeby.simulator.runs import simulate
from tests.worlds import draw, fabric, gang, pods, spec

#   rack-1 has four nodes, one of them taken; rack-2 two. A gang of four whole nodes would fit in rack-1 if it
#   were empty; now it needs a node of rack-2.
TWO_RACKS = "rack-1 : a=8 b=8 c=8 d=8\nrack-2 : e=8 f=8"


def report() -> SchedulingReport:
    return scheduling_report(
        simulate(
            Manifests(
                nodes=tuple(draw(TWO_RACKS, ("rack",))),
                pods=(
                    *pods("held", 1, spec(gpu=8), on="b"),
                    *pods("train", 4, spec(gpu=8)),
                    *pods("huge", 9, spec(gpu=8)),
                ),
                groups=(gang("held", 1), gang("train", 4, preferred="rack"), gang("huge", 9)),
                topologies=(fabric("rack", HOSTNAME),),
            ),
            Configuration(),
        ),
    )


def test_the_quality_of_placed_gangs() -> None:
    found = {group.name: group.quality for group in report().groups}
    quality = found["train"]
    assert isinstance(quality, QualityEntry)
    assert quality.excess_span == {"rack": 2.0, "hostname": 1.0}
    #   three of its pods are in rack-1, one in rack-2: 3 of 6 pairs; 3 pairs of 2 edges, 3 of 4
    assert quality.cross_pairs == {"rack": 3, "hostname": 6}
    assert quality.mean_distance == 3.0
    assert (quality.ring_hops, quality.least_ring_hops) == (12, 12)
    assert quality.slowdown is not None
    assert round(quality.slowdown, 2) == 1.19
    alone = found["held"]
    assert isinstance(alone, QualityEntry)
    assert (alone.mean_distance, alone.slowdown, alone.pairs) == (None, 1.0, 0)
    assert not isinstance(found["huge"], QualityEntry)


def test_the_constants_are_shown_once() -> None:
    document = json.loads(to_json(report()))
    assert document["model"]["communicationShare"] == 0.3
    assert len(document["model"]["tiers"]) == len(DEFAULT_MODEL.tiers)
    assert all(tier["source"] for tier in document["model"]["tiers"])
    assert ["quality" in group for group in document["groups"]] == [True, False, True]
    assert "model" not in json.loads(to_json(scheduling_report(simulate(Manifests(), Configuration()))))


def shown(quality: bool) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(*scheduling_views(report(), quality=quality), sep="\n")
    printed = console.file
    assert isinstance(printed, io.StringIO)
    return printed.getvalue()


def test_a_table_shows_quality_when_it_is_asked_for() -> None:
    assert "How close" not in shown(False)
    rows = [" ".join(line.split()) for line in shown(True).splitlines()]
    #   8 GPUs in one node: 14 steps of 3.4 µs and 14/8 GiB at 450 GB/s
    assert "held none – 0 4.22 ms ×1" in rows
    assert "train rack ×2 3 12 6.9 ms ×1.19" in rows
    assert any("one finest domain 9.6 µs 50 GB/s 1" in row for row in rows)


def test_short_times() -> None:
    assert [seconds_text(one) for one in (0.0, 3.4e-6, 1.5e-8, 4.1217e-3, 2.5)] == [
        "0",
        "3.4 µs",
        "0.015 µs",
        "4.12 ms",
        "2.5 s",
    ]
