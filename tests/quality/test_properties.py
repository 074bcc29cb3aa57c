"""What holds for every placement, whatever the tree, the jobs and the names."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from closeby.quality.jobs import JobMeasures
from closeby.quality.summary import job_measures, summarise
from tests.quality.drawn import Drawn

Load = tuple[list[tuple[str, str]], dict[str, tuple[str, int, float, float, float]]]

GPUS = 8
LEVELS = ("block", "rack")


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Block and rack of each node."""
    return draw(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("rst")), min_size=1, max_size=9))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """A cluster, and jobs that each fit it alone, one after another."""
    nodes = draw(clusters())
    jobs = {}
    for number in range(draw(st.integers(1, 5))):
        each = draw(st.sampled_from((1, 3, 4, 8)))
        room = [node for node in range(len(nodes)) for _ in range(GPUS // each)]
        lying = draw(st.permutations(room))[: draw(st.integers(1, min(len(room), 12)))]
        wait, length = draw(st.floats(0, 50)), draw(st.floats(1, 50))
        start = number * 100 + wait
        on = " ".join(f"n{node}" for node in lying)
        jobs[f"j{number}"] = (on, each, number * 100.0, start, start + length)
    return nodes, jobs


def drawn_of(nodes: list[tuple[str, str]], rename: str = "{}") -> Drawn:
    paths = (f"{rename.format(block)} {rename.format(rack)}" for block, rack in nodes)
    return Drawn("\n".join(f"{path} : n{at}=8" for at, path in enumerate(paths)), LEVELS)


@given(loads())
def test_bounds(load: Load) -> None:
    nodes, jobs = load
    run = drawn_of(nodes).run(jobs, until=1000.0)
    found = job_measures(run)
    assert (found.span >= 1).all()
    assert (found.excess_span >= 1).all()
    assert (found.cross_pairs <= found.pairs[:, None]).all()
    assert (np.diff(found.cross_pairs, axis=1) >= 0).all(), "what is in different blocks is on two nodes"
    several = found.pairs > 0
    assert (found.mean_distance[several] <= found.diameter[several]).all()
    assert (found.ring_hops >= found.least_ring_hops).all()
    assert (found.ring_crossings >= np.where(found.span > 1, found.span, 0)).all()
    assert (found.spreads.greatest <= found.span).all()
    assert (found.spreads.mean <= found.spreads.greatest).all()
    assert (found.slowdown >= 1).all()
    assert (found.contended_slowdown >= 1 - 1e-9).all()
    assert (found.job_slowdown >= 1).all()
    assert (found.job_slowdown <= found.slowdown).all()
    whole = summarise(run)
    assert whole.goodput is not None
    assert whole.utilisation is not None
    assert 0 <= whole.goodput <= whole.utilisation <= 1
    assert whole.distance_gap is None or whole.distance_gap >= -1e-9
    assert all(level.span_gap is None or level.span_gap >= 0 for level in whole.levels)
    for level in whole.levels:
        assert level.largest_gang is None or 0 <= level.largest_gang <= 1
        assert level.stranded is None or 0 <= level.stranded <= 1


@given(loads())
def test_names_do_not_matter(load: Load) -> None:
    nodes, jobs = load
    assert same(
        job_measures(drawn_of(nodes).run(jobs)), job_measures(drawn_of(nodes, rename="other-{}").run(jobs))
    )


@given(loads(), st.randoms(use_true_random=False))
def test_all_but_the_ring_is_blind_to_the_order_of_ranks(load: Load, shuffle: Random) -> None:
    nodes, jobs = load
    mixed = {}
    for name, (lying, each, submitted, started, ended) in jobs.items():
        pods = lying.split()
        shuffle.shuffle(pods)
        mixed[name] = (" ".join(pods), each, submitted, started, ended)
    one, other = job_measures(drawn_of(nodes).run(jobs)), job_measures(drawn_of(nodes).run(mixed))
    assert one.span.tolist() == other.span.tolist()
    assert one.cross_pairs.tolist() == other.cross_pairs.tolist()
    assert one.all_reduce.tolist() == other.all_reduce.tolist()
    assert one.least_ring_hops.tolist() == other.least_ring_hops.tolist()


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 64))
def test_filling_an_even_empty_cluster_from_one_end_is_ideal(
    blocks: int, racks: int, hosts: int, pods: int
) -> None:
    nodes = [(f"b{b}", f"r{b}-{r}") for b in range(blocks) for r in range(racks) for _ in range(hosts)]
    lying = " ".join(f"n{pod}" for pod in range(min(pods, len(nodes))))
    found = job_measures(drawn_of(nodes).run({"j": (lying, 8, 0, 0, 1)}))
    assert (found.excess_span == 1).all()
    assert found.slowdown.tolist() == [1.0]
    assert found.job_slowdown.tolist() == [1.0]
    assert found.ring_hops.tolist() == found.least_ring_hops.tolist()


def same(one: JobMeasures, other: JobMeasures) -> bool:
    return all(
        np.array_equal(getattr(one, field), getattr(other, field), equal_nan=True)
        for field in one.__struct_fields__
        if field != "spreads"
    ) and np.array_equal(one.spreads.mean, other.spreads.mean)
