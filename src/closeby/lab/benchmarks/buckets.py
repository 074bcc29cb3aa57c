"""Sorting the tasks of one large gang into buckets, and placing such a gang (Volcano task-topology)."""

from collections.abc import Iterator
from functools import partial
from random import Random

from closeby.applications.buckets import make_buckets
from closeby.applications.roles import RoleRules, read_rules
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.lab.benchmarks.placement import engine_of
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ANTI_AFFINITY
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, GroupDeleted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of

TASKS = 10_000
RUNS = 7
TARGET_MS = 100.0
#: Case -> roles with their share of the tasks, affinity, anti-affinity.
CASES = {
    "ps and workers, 100 buckets": ({"ps": 1, "worker": 99}, "ps,worker", "ps"),
    "ps and workers, 5,000 buckets": ({"ps": 1, "worker": 1}, "ps,worker", "ps"),
    "all apart, 10,000 buckets": ({"worker": 1}, "", "worker"),
    "ten roles, 1,000 buckets": (
        {f"role-{n}": 1 for n in range(10)},
        ",".join(f"role-{n}" for n in range(10)),
        "role-0",
    ),
}


def buckets() -> Iterator[Figure]:
    """10,000 tasks, in no order."""
    for case, (shares, affinity, anti_affinity) in CASES.items():
        group = _group("train", affinity, anti_affinity)
        pods = _tasks("train", shares, TASKS)
        Random(1).shuffle(pods)
        rules = read_rules(group, shares).rules or RoleRules()
        with quiet_collector():
            samples = [timed(partial(_sort, rules, pods)) for _ in range(RUNS)]
        yield summary("buckets", case, 0, TASKS, samples[1:], TARGET_MS)


def placed_by_buckets(nodes: tuple[int, ...] = (1_000, 5_000)) -> Iterator[Figure]:
    """The tick that places a gang of 256 tasks pod by pod, by its buckets."""
    for count in nodes:
        engine = engine_of(count)
        with quiet_collector():
            samples = [_place(engine, f"train-{run}") for run in range(4)]
        yield summary("placement, by buckets", "32 ps and 224 workers", count, 256, samples[1:])


def _sort(rules: RoleRules, pods: list[Pod]) -> int:
    return len(make_buckets(rules, pods).order)


def _place(engine: Engine, name: str) -> TimedSample:
    pods = _tasks(name, {"ps": 1, "worker": 7}, 256)
    engine.handle(GroupChanged(_group(name, "ps,worker", "ps")), *(PodUpserted(pod) for pod in pods))
    sample = timed(lambda: len(bindings_of(engine.handle(Tick()))))
    engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(f"default/{name}"))
    return sample


def _group(name: str, affinity: str, anti_affinity: str) -> PodGroup:
    return PodGroup(
        namespace="default",
        name=name,
        annotations={TASK_AFFINITY: affinity, TASK_ANTI_AFFINITY: anti_affinity},
        members_apart=True,
    )


def _tasks(group: str, shares: dict[str, int], count: int) -> list[Pod]:
    """So many tasks, with roles by their share; each role has needs of its own."""
    whole = sum(shares.values())
    pods = []
    for number, (role, share) in enumerate(shares.items(), start=1):
        needs = PodSpec(requests=(("cpu", 500 * number), ("memory", number << 28)))
        pods += [
            Pod(
                namespace="default",
                name=f"{group}-{role}-{index}",
                uid=f"{group}-{role}-{index}",
                spec=needs,
                group=group,
                role=role,
            )
            for index in range(count * share // whole)
        ]
    return pods
