"""Pods with affinity and spread terms: 50 terms, 5,000 nodes in ten zones and 30,000 pods that carry them."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodTerm,
)
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, GroupChanged, GroupDeleted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of

NODES = 5_000
ZONES = 10
#: Each application has a term of its own.
APPLICATIONS = 50
RUNNING = 600
ARRIVING = 20
MEMBERS = 256
RUNS = 7
#: CPU milliseconds that we aim at: 3,000 pods a second, and a gang.
SINGLE_MS = APPLICATIONS * ARRIVING / 3.0
GANG_MS = 5.0

_REQUESTS = (("cpu", 500), ("memory", clusters.GIB))


def terms() -> Iterator[Figure]:
    """Single pods of all applications in turn, and gangs of 256 of each kind of term."""
    engine = engine_with_terms()
    specs = [spec_of(application) for application in range(APPLICATIONS)]
    arriving = [
        _pod(f"new-{index}-{application}", _labels(application), specs[application])
        for index in range(ARRIVING)
        for application in range(APPLICATIONS)
    ]
    with quiet_collector():
        samples = [_placed(engine, arriving) for _ in range(RUNS)]
        case = f"{len(arriving):,} single pods of {APPLICATIONS} applications"
        yield summary("terms", case, NODES, len(arriving), samples[1:], round(SINGLE_MS, 1))
        both = {"one to a node, preferably in one zone": _both("one to a node", "preferably in one zone")}
        for name, spec in (kinds("train") | both).items():
            samples = [_placed_gang(engine, spec, run) for run in range(RUNS)]
            yield summary("terms", f"a gang of {MEMBERS}, {name}", NODES, MEMBERS, samples[1:], GANG_MS)


def engine_with_terms() -> Engine:
    """The cluster of these benchmarks, full of pods with terms."""
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    events: list[Event] = []
    for application in range(APPLICATIONS):
        spec, labels = spec_of(application), _labels(application)
        for index in range(RUNNING):
            at = (index * NODES // RUNNING + application * 97) % NODES
            pod = _pod(f"old-{application}-{index}", labels, spec)
            events.append(PodUpserted(replace(pod, node_name=f"node-{at}", phase="Running")))
    clusters.fill(engine, zoned(clusters.nodes(NODES)), clusters.topology("block", "rack"), iter(()))
    engine.handle(*events)
    return engine


def zoned(members: Sequence[Node]) -> list[Node]:
    """The same nodes in ten zones."""
    return [
        replace(node, labels={**node.labels, ZONE: f"zone-{index * ZONES // len(members)}"})
        for index, node in enumerate(members)
    ]


def spec_of(application: int) -> PodSpec:
    """The needs of an application's pods: each kind of affinity goes with each kind of spread."""
    made = kinds(f"app-{application}")
    affinities = [one.pod_affinity for one in made.values() if one.pod_affinity is not None]
    spreads = [one.topology_spread for one in made.values() if one.pod_affinity is None]
    return PodSpec(
        requests=_REQUESTS,
        pod_affinity=affinities[application % len(affinities)],
        topology_spread=spreads[application % len(spreads)],
    )


def kinds(app: str) -> dict[str, PodSpec]:
    """What pods may ask about those of one application."""
    selector = LabelSelector((LabelRequirement("app", "In", (app,)),))
    near, apart = PodAffinityTerm(ZONE, selector), PodAffinityTerm(HOSTNAME, selector)
    even = TopologySpreadConstraint(topology_key=ZONE, max_skew=1, selector=selector)
    soft = (replace(even, hard=False), replace(even, hard=False, topology_key=HOSTNAME))
    return {
        "no term": _spec(),
        "one to a node": _spec(PodAffinity(forbidden=(apart,))),
        "preferably one to a node": _spec(PodAffinity(preferred=(WeightedPodTerm(-100, apart),))),
        "in one zone": _spec(PodAffinity(required=(near,))),
        "preferably in one zone": _spec(PodAffinity(preferred=(WeightedPodTerm(100, near),))),
        "spread over zones": _spec(spread=(even,)),
        "preferably spread over zones": _spec(spread=soft),
    }


def _both(hard: str, soft: str) -> PodSpec:
    """Pods with two kinds of terms."""
    first, second = (kinds("train")[one].pod_affinity or PodAffinity() for one in (hard, soft))
    return _spec(PodAffinity(forbidden=first.forbidden, preferred=second.preferred))


def _spec(affinity: PodAffinity | None = None, spread: tuple[TopologySpreadConstraint, ...] = ()) -> PodSpec:
    return PodSpec(requests=_REQUESTS, pod_affinity=affinity, topology_spread=spread)


def _labels(application: int) -> dict[str, str]:
    return {"app": f"app-{application}", "tier": "web"}


def _pod(name: str, labels: dict[str, str], spec: PodSpec) -> Pod:
    return Pod(namespace="bench", name=name, uid=name, spec=spec, labels=labels)


def _placed(engine: Engine, pods: Sequence[Pod]) -> TimedSample:
    engine.handle(*map(PodUpserted, pods))
    sample = timed(partial(_decide, engine))
    engine.handle(*(PodDeleted(pod.uid) for pod in pods))
    return sample


def _placed_gang(engine: Engine, spec: PodSpec, run: int) -> TimedSample:
    group = PodGroup(namespace="bench", name=f"train-{run}", min_member=MEMBERS)
    pods = [replace(pod, labels={"app": "train"}) for pod in clusters.gang_pods(group.name, MEMBERS, spec)]
    engine.handle(GroupChanged(group))
    sample = _placed(engine, pods)
    engine.handle(GroupDeleted(group.key))
    return sample


def _decide(engine: Engine) -> int:
    return len(bindings_of(engine.handle(Tick())))
