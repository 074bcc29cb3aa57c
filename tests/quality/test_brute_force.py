"""The measures of whole runs against the slowest way to work them out, on random small worlds.

Nothing here calls what it checks: domains come from the labels, times from the formulas of the sources, and
what is best is found by trying everything.
"""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import ceil

import pytest
from hypothesis import given, settings

from closeby.quality.summary import job_measures, summarise
from tests.quality.drawn import ROUND
from tests.quality.worlds_by_chance import Job, World, worlds

LEVELS = (0, 1, 2)


def spread(world: World, on: tuple[int, ...], level: int) -> int:
    """Domains of a level that these hosts are in."""
    return len({world.domains(level)[host] for host in on})


def edges(world: World, one: int, other: int) -> int:
    """Tree edges between two hosts: up to the first domain that holds both, and down."""
    return 2 * sum(world.domains(level)[one] != world.domains(level)[other] for level in LEVELS)


def fewest(world: World, job: Job, level: int) -> int | None:
    """Domains that could hold a job if nothing else were there; None if none takes any pod of it."""
    if not job.each:
        return 1
    held: dict[object, int] = {}
    for host, domain in zip(world.hosts, world.domains(level), strict=True):
        held[domain] = held.get(domain, 0) + host.gpus // job.each
    most = max(held.values())
    return ceil(job.pods / most) if most else None


def all_reduce(job: Job, climbed: int) -> float:
    """t = 2(n - 1) alpha + 2(n - 1)/n S/B, alpha and B those of the worst tier that the ring passes."""
    tiers = [ROUND.tiers[min(number, 2)] for number in range(climbed + 1)]
    links = max(1, job.each)
    rates = [
        (links if number else 1) * tier.bytes_per_second / tier.oversubscription
        for number, tier in enumerate(tiers)
    ]
    steps, ranks = 2 * (job.ranks - 1), job.ranks
    return steps * max(tier.latency_seconds for tier in tiers) + steps / ranks * 1000 / min(rates)


def slowdown(world: World, job: Job) -> float | None:
    """Of communication; None where no placement is ideal."""
    least = [fewest(world, job, level) for level in LEVELS]
    if not job.on or None in least:
        return None
    here = all_reduce(job, sum(spread(world, job.on, level) > 1 for level in LEVELS))
    ideal = all_reduce(job, sum(count is not None and count > 1 for count in least))
    return here / ideal if ideal else 1.0


def groups(job: Job) -> Iterator[tuple[int, ...]]:
    """Jobs of up to 256 GPUs are one stage: all pods are a data-parallel group, each one a pipeline group."""
    yield job.on
    for host in job.on:
        yield (host,)


@settings(deadline=None)
@given(worlds())
def test_where_each_job_lies(world: World) -> None:
    found = job_measures(world.columns(), ROUND)
    for row, job in enumerate(world.jobs):
        span = [spread(world, job.on, level) for level in LEVELS]
        assert found.span[row].tolist() == span
        for level in LEVELS:
            least = fewest(world, job, level)
            excess = span[level] / least if least and job.on else float("nan")
            assert found.excess_span[row, level] == pytest.approx(excess, nan_ok=True)
            touched = [spread(world, group, level) for group in groups(job)] if job.on else [float("nan")]
            assert found.spreads.greatest[row, level] == pytest.approx(max(touched), nan_ok=True)
            assert found.spreads.mean[row, level] == pytest.approx(sum(touched) / len(touched), nan_ok=True)
        apart = [edges(world, one, other) for one, other in combinations(job.on, 2)]
        mean = sum(apart) / len(apart) if apart else float("nan")
        assert found.mean_distance[row] == pytest.approx(mean, nan_ok=True)
        assert found.diameter[row] == max(apart, default=0)
        assert found.ring_hops[row] == around(world, job.on)
        orders = permutations(job.on[1:])
        assert found.least_ring_hops[row] == min(around(world, (*job.on[:1], *rest)) for rest in orders)
        here = all_reduce(job, sum(one > 1 for one in span)) if job.on else float("nan")
        assert found.all_reduce[row] == pytest.approx(here, nan_ok=True)
        times = slowdown(world, job)
        assert found.slowdown[row] == pytest.approx(float("nan") if times is None else times, nan_ok=True)


def around(world: World, on: tuple[int, ...]) -> int:
    """Tree edges of a ring."""
    return sum(edges(world, one, other) for one, other in zip(on, (*on[1:], *on[:1]), strict=True))


@settings(deadline=None)
@given(worlds())
def test_time_use_and_means(world: World) -> None:
    found = summarise(world.columns(), model=ROUND)
    jobs, until = world.jobs, world.until
    waits = [(job.started if job.on else until) - job.submitted for job in jobs]
    assert found.delays[0].mean == pytest.approx(sum(waits) / len(jobs))
    assert found.delays[0].unstarted == sum(not job.on for job in jobs)
    begin, end = min(job.submitted for job in jobs), max(job.submitted for job in jobs)
    last = max(min(job.end, until) for job in jobs)
    assert found.makespan == last - begin
    end = last if end == begin else end
    capacity = sum(host.gpus for host in world.hosts) * (end - begin)
    used = worked = 0.0
    for job in jobs:
        inside = max(0.0, min(job.end, end) - max(job.begin, begin)) if job.on else 0.0
        used += job.pods * job.each * inside
        worked += job.pods * job.each * inside / (0.75 + 0.25 * (slowdown(world, job) or 1.0))
    assert found.utilisation == (pytest.approx(used / capacity) if capacity else None)
    assert found.goodput == (pytest.approx(worked / capacity) if capacity else None)
    for level in LEVELS:
        weighed = [
            (job.ranks * (min(job.end, until) - job.begin), spread(world, job.on, level) / least)
            for job in jobs
            if job.on and (least := fewest(world, job, level)) and (fewest(world, job, 2) or 0) > 1
        ]
        total = sum(weight for weight, _ in weighed)
        mean = sum(weight * excess for weight, excess in weighed) / total if total else None
        assert found.levels[level].weighted_excess_span == (None if mean is None else pytest.approx(mean))


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_fragmentation(world: World) -> None:
    found = summarise(world.columns())
    begin, end = found.window.begin, found.window.end
    moments = [begin + (number + 0.5) / 200 * (end - begin) for number in range(200)] if end > begin else []
    for level in LEVELS:
        largest, stranded = [], []
        for time in moments:
            free = world.free(time)
            if not sum(free):
                continue
            sums = domain_sums(world, free, level)
            largest.append(max(sums.values()) / sum(free))
            shares = []
            for job in coming(world, time):
                if job.each and fewest(world, job, level) == 1:
                    rooms = domain_sums(world, [one // job.each for one in free], level)
                    shares.append(sum(sums[at] for at, room in rooms.items() if room < job.pods) / sum(free))
            if shares:
                stranded.append(sum(shares) / len(shares))
        for told, values in (
            (found.levels[level].largest_gang, largest),
            (found.levels[level].stranded, stranded),
        ):
            assert told == (pytest.approx(sum(values) / len(values)) if values else None)


def domain_sums(world: World, amounts: list[int], level: int) -> dict[object, int]:
    found: dict[object, int] = {}
    for domain, amount in zip(world.domains(level), amounts, strict=True):
        found[domain] = found.get(domain, 0) + amount
    return found


def coming(world: World, time: float) -> list[Job]:
    """The ten gangs that are next: those that wait, by priority and submission, then those to come."""
    gangs = [job for job in world.jobs if job.pods > 1]
    waiting = [job for job in gangs if job.submitted <= time < job.begin]
    later = [job for job in gangs if job.submitted > time]
    ordered = sorted(waiting, key=lambda job: (-job.priority, job.submitted))
    return [*ordered, *sorted(later, key=lambda job: job.submitted)][:10]


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_the_best_place_is_found_by_trying_all(world: World) -> None:
    found = summarise(world.columns())
    gaps = [gap for job in world.jobs if (gap := gaps_of(world, job)) is not None]
    assert found.compared == len(gaps)
    for level in LEVELS:
        mean = pytest.approx(sum(gap[level] for gap in gaps) / len(gaps)) if gaps else None
        assert found.levels[level].span_gap == mean
    assert found.distance_gap == (pytest.approx(sum(gap[3] for gap in gaps) / len(gaps)) if gaps else None)


def gaps_of(world: World, job: Job) -> tuple[float, ...] | None:
    """How far above the best a job of several nodes were, by level and in mean distance."""
    if not job.on or not job.each or (fewest(world, job, 2) or 0) <= 1:
        return None
    # A job of no time may have left its room to others at the very moment.
    room = [
        max(free // job.each, job.on.count(host))
        for host, free in enumerate(world.free(job.started, but=job))
    ]
    ways = [
        tuple(host for host, count in enumerate(counts) for _ in range(count))
        for counts in product(*(range(min(one, job.pods) + 1) for one in room))
        if sum(counts) == job.pods
    ]
    spans = (
        spread(world, job.on, level) / min(spread(world, way, level) for way in ways) - 1 for level in LEVELS
    )
    return (*spans, apart(world, job.on) / min(apart(world, way) for way in ways) - 1)


def apart(world: World, on: tuple[int, ...]) -> int:
    """Sum of the edges between all pairs."""
    return sum(edges(world, one, other) for one, other in combinations(on, 2))
