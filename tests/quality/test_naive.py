"""The measures in columns against the same in plain loops over pods, on random clusters and jobs."""

from collections.abc import Iterator
from itertools import combinations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.arrays import Floats
from closeby.quality.contention import JobRanks, contended_seconds
from closeby.quality.model import ring_seconds, rings
from closeby.quality.moments import RunColumns, during_of
from closeby.quality.placements import placements
from closeby.quality.summary import Measures, job_measures, summarise
from closeby.topology.tree import Domain, Tree
from tests.quality.drawn import ROUND, Drawn

Job = tuple[list[int], int, float, float]


@st.composite
def runs(draw: st.DrawFn) -> RunColumns:
    """Jobs anywhere and at any time: whether they fit does not matter here."""
    places = draw(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("rst")), min_size=1, max_size=7))
    drawing = "\n".join(f"{block} {rack} : n{at}=8" for at, (block, rack) in enumerate(places))
    node = st.integers(0, len(places) - 1)
    moments = st.integers(0, 20).map(float)
    jobs: list[Job] = draw(
        st.lists(
            st.tuples(
                st.lists(node, min_size=1, max_size=8), st.sampled_from((0, 1, 4, 8)), moments, moments
            ),
            min_size=1,
            max_size=6,
        )
    )
    return Drawn(drawing).run(
        {
            f"j{number}": (" ".join(f"n{at}" for at in on), gpus, 0.0, start, start + length)
            for number, (on, gpus, start, length) in enumerate(jobs)
        }
    )


def homes(run: RunColumns) -> Iterator[list[Domain]]:
    """The nodes of each job's pods by rank."""
    for begin, end in zip(run.offsets[:-1].tolist(), run.offsets[1:].tolist(), strict=True):
        yield [home for slot in run.slots[begin:end].tolist() if (home := run.tree.node_domain(slot))]


def ring_of(nodes: list[Domain]) -> list[tuple[Domain, Domain]]:
    return list(zip(nodes, [*nodes[1:], nodes[0]], strict=True)) if len(nodes) > 1 else []


@given(runs())
def test_spans_pairs_and_rings(run: RunColumns) -> None:
    found, tree = job_measures(run), run.tree
    for job, nodes in enumerate(homes(run)):
        levels = range(tree.node_level + 1)
        assert found.span[job].tolist() == [
            len({tree.ancestor(one, level) for one in nodes}) for level in levels
        ]
        distances = [tree.distance(one, other) for one, other in combinations(nodes, 2)]
        if distances:
            assert abs(found.mean_distance[job] - sum(distances) / len(distances)) < 1e-12
        assert found.diameter[job] == max(distances, default=0)
        assert found.ring_hops[job] == sum(tree.distance(one, other) for one, other in ring_of(nodes))


@given(runs())
def test_contention(run: RunColumns) -> None:
    found = placements(run.tree, run.offsets, run.slots)
    links = np.maximum(run.gpus, 1).astype(np.int64)
    climbed = np.asarray([climb(run.tree, nodes) for nodes in homes(run)])
    ranks_of_jobs = JobRanks(ranks=run.pods * links, links=links, climbed=climbed)
    during = during_of(run)
    seconds = contended_seconds(ROUND, found, rings(found), ranks_of_jobs, run.node_gpus, during)
    assert np.allclose(seconds, list(shared(run, ranks_of_jobs, during)), rtol=1e-9)


@given(runs())
def test_whatever_ran_has_a_summary_of_plain_numbers(run: RunColumns) -> None:
    found = summarise(run)
    # What is not a number would be written as null, and be another when it is read.
    assert msgspec.json.decode(msgspec.json.encode(found), type=Measures) == found


def climb(tree: Tree, nodes: list[Domain]) -> int:
    return max((tree.distance(one, other) // 2 for one, other in combinations(nodes, 2)), default=0)


def shared(run: RunColumns, ranks_of_jobs: JobRanks, during: Floats) -> Iterator[float]:
    """Seconds of each job's all-reduce, flow by flow."""
    tree = run.tree
    leaving = []
    for job, nodes in enumerate(homes(run)):
        flows: dict[Domain, int] = {}
        for here, there in ring_of(nodes):
            for level in range(tree.node_level + 1):
                up = tree.ancestor(here, level)
                if up != tree.ancestor(there, level):
                    flows[up] = flows.get(up, 0) + int(ranks_of_jobs.links[job])
        leaving.append(flows)
    for job, flows in enumerate(leaving):
        begin, end = during[job].tolist()
        rate = ROUND.tier(0).bytes_per_second
        for up, own in flows.items():
            mean = 0.0
            for other, others in enumerate(leaving):
                first, last = during[other].tolist()
                overlap = max(0.0, min(end, last) - max(begin, first))
                mean += others.get(up, 0) * (overlap / (end - begin) if end > begin else 0.0)
            low, high = tree.span(up)
            tier = ROUND.tier(tree.node_level - up.level + 1)
            room = (
                sum(max(1, int(run.node_gpus[slot])) for slot in tree.slot_at[low:high])
                / tier.oversubscription
            )
            rate = min(
                rate, tier.bytes_per_second * min(1.0, room / max(mean, own)) * int(ranks_of_jobs.links[job])
            )
        latency = max(
            ROUND.tier(number).latency_seconds for number in range(int(ranks_of_jobs.climbed[job]) + 1)
        )
        (seconds,) = ring_seconds(
            ranks_of_jobs.ranks[job : job + 1], ROUND.message_bytes, np.asarray([latency]), np.asarray([rate])
        )
        yield float(seconds)
