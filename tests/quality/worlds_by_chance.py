"""Random small clusters with jobs on them, told without any of the records that are tested.

Nodes have 0 to 8 GPUs, some lack a label; jobs wait, start, end, are cut by the end of the run, take no time,
take no GPUs, or never start. Whatever runs has room.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from closeby.quality.moments import RunColumns
from tests.quality.drawn import Drawn

NAN = float("nan")
INFINITE = float("inf")


class Host(NamedTuple):
    """Labels (None: missing) and GPUs."""

    block: str | None
    rack: str | None
    gpus: int


class Job(NamedTuple):
    """``on`` has the hosts of its pods by rank, and none for a job that never started."""

    pods: int
    each: int
    submitted: float
    started: float
    ended: float
    on: tuple[int, ...]
    priority: int = 0

    @property
    def begin(self) -> float:
        """When it takes its GPUs; after everything if never."""
        return self.started if self.on else INFINITE

    @property
    def end(self) -> float:
        """When it gives them back; what was cut never does."""
        return INFINITE if np.isnan(self.ended) else self.ended

    @property
    def ranks(self) -> int:
        """GPUs; a pod without any counts as one."""
        return self.pods * max(1, self.each)


class World(NamedTuple):
    """A cluster and what happened on it until the run was stopped."""

    hosts: tuple[Host, ...]
    jobs: tuple[Job, ...]
    until: float

    def free(self, time: float, but: Job | None = None) -> list[int]:
        """Free GPUs of each host at a time, as if one of the jobs had never been."""
        free = [host.gpus for host in self.hosts]
        for job in self.jobs:
            if job is not but and job.begin <= time < job.end:
                for host in job.on:
                    free[host] -= job.each
        return free

    def domains(self, level: int) -> list[tuple[str | int, ...]]:
        """The block (0), rack (1) or node (2) of each host; a host that lacks a label is on its own there."""
        found: list[tuple[str | int, ...]] = []
        for number, host in enumerate(self.hosts):
            labels = (host.block, host.rack)[: level + 1]
            known = all(label is not None for label in labels) and level < 2
            found.append(tuple(label or "" for label in labels) if known else (number,))
        return found

    def drawing(self) -> str:
        """The hosts as text, called n0, n1, …"""
        paths = (f"{host.block or '-'} {host.rack or '-'}" for host in self.hosts)
        return "\n".join(
            f"{path} : n{at}={host.gpus}"
            for at, (path, host) in enumerate(zip(paths, self.hosts, strict=True))
        )

    def columns(self) -> RunColumns:
        """The same as the measures take it."""
        drawn = Drawn(self.drawing())
        return RunColumns(
            tree=drawn.tree,
            node_gpus=drawn.gpus,
            pods=np.asarray([job.pods for job in self.jobs], dtype=np.int64),
            gpus=np.asarray([job.each for job in self.jobs], dtype=np.int64),
            priorities=np.asarray([job.priority for job in self.jobs], dtype=np.int64),
            submitted=np.asarray([job.submitted for job in self.jobs], dtype=np.float64),
            started=np.asarray([job.started for job in self.jobs], dtype=np.float64),
            ended=np.asarray([job.ended for job in self.jobs], dtype=np.float64),
            offsets=np.cumsum([0, *(len(job.on) for job in self.jobs)]).astype(np.intp),
            slots=np.asarray([host for job in self.jobs for host in job.on], dtype=np.intp),
            until=self.until,
        )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A cluster of up to six nodes with up to six jobs."""
    label = st.sampled_from(("x", "y", None))
    hosts = tuple(
        Host(draw(label), draw(st.sampled_from(("r", "s", None))), draw(st.sampled_from((8, 8, 4, 0))))
        for _ in range(draw(st.integers(1, 6)))
    )
    until = 40.0
    world = World(hosts, (), until)
    for _ in range(draw(st.integers(1, 6))):
        pods, each = draw(st.integers(1, 5)), draw(st.sampled_from((8, 4, 3, 1, 0)))
        submitted, priority = float(draw(st.integers(0, 30))), draw(st.integers(0, 1))
        started = submitted + draw(st.integers(0, 10))
        ended = started + draw(st.sampled_from((0, 0.5, 7, 20)))
        fitting = [
            host
            for host in range(len(hosts))
            for _ in range(_room(world, host, started, each) if each else pods)
        ]
        lying = tuple(draw(st.permutations(fitting))[:pods])
        if len(lying) < pods or draw(st.integers(0, 4)) == 0:
            job = Job(pods, each, submitted, NAN, NAN, (), priority)
        else:
            job = Job(pods, each, submitted, started, ended if ended <= until else NAN, lying, priority)
        world = world._replace(jobs=(*world.jobs, job))
    return world


def _room(world: World, host: int, begin: float, each: int) -> int:
    """Pods that fit on a host from a time on, beside all that ever runs there later."""
    busy = sum(job.each * job.on.count(host) for job in world.jobs if job.on and job.end > begin)
    return max(0, world.hosts[host].gpus - busy) // each
