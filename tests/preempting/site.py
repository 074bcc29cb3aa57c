"""A small cluster on which items preempt each other, and short ways to ask."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec, ProtectionRequest
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import NoPreemption, Outcome, Preemption, bindings_of, outcomes_of
from closeby.scheduling.preemption.rule import Preemptible
from tests.worlds import draw, fabric, gang, pods, spec

NOW = 10_000.0
#: What a victim loses besides its work: ``restartCost``.
RESTART = 300.0

THREE_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : a3=2 a4=2
zone-b rack-3 : b1=2 b2=2
"""


class Site:
    """An engine that may preempt. Nobody is evicted until ``evict``."""

    def __init__(
        self,
        drawing: str | Iterable[Node] = THREE_RACKS,
        *,
        explain: bool = False,
        whose: Preemptible | None = None,
        configuration: Configuration | None = None,
        backoff: bool = False,
        **arguments: Any,
    ) -> None:
        """``backoff``: what is refused backs off, by the same clock.

        ``arguments`` are those of DefaultPreemption, unless there is a whole ``configuration``.
        """
        entry = PluginEntry(name="DefaultPreemption", arguments=arguments)
        chosen = Configuration(plugins=(entry,)) if configuration is None else configuration
        self.engine = Engine(lambda handle: profile_for(chosen, handle), explain=explain, backoff=backoff)
        self._backs_off = backoff
        self.engine.preempt(Preemptible() if whose is None else whose)
        nodes = draw(drawing) if isinstance(drawing, str) else drawing
        topology = TopologyChanged(fabric("zone", "rack", HOSTNAME))
        self.engine.handle(*map(NodeUpserted, nodes), topology)
        self.where: dict[str, str] = {}
        self.outcomes: dict[str, Outcome] = {}

    def running(
        self, name: str, on: Sequence[str], *, priority: int = 0, minimum: int | None = None, **fields: Any
    ) -> list[Pod]:
        """A gang that runs: one pod of one GPU for each node named, unless ``gpu`` says how many."""
        needs = self._needs(priority, fields)
        group: dict[str, Any] = fields.pop("group", {})
        made = [
            replace(pod, node_name=node)
            for pod, node in zip(
                pods(name, len(on), needs, on=on[0], **{"created": 0.0, **fields}), on, strict=True
            )
        ]
        record = replace(gang(name, len(on) if minimum is None else minimum), **group)
        self.tell(GroupChanged(record), *map(PodUpserted, made))
        return made

    def alone(self, name: str, on: str | None = None, *, priority: int = 0, **fields: Any) -> Pod:
        """A plain pod of one GPU, unless ``gpu`` says how many."""
        needs = self._needs(priority, fields)
        made = replace(pods(None, 1, needs, prefix=name, on=on, **{"created": 0.0, **fields})[0], name=name)
        self.tell(PodUpserted(made))
        return made

    def waiting(
        self, name: str, count: int, *, priority: int = 100, group: PodGroup | None = None, **fields: Any
    ) -> None:
        """A gang that looks for one rack, unless ``group`` asks for something else."""
        record = gang(name, count, required="rack") if group is None else group
        needs = self._needs(priority, fields)
        self.tell(GroupChanged(record), *map(PodUpserted, pods(name, count, needs, **fields)))

    def _needs(self, priority: int, fields: dict[str, Any]) -> PodSpec:
        """The spec of which ``fields`` tell (``gpu``, ``cpu``, ``needs``), which are taken from them."""
        asked = spec(gpu=fields.pop("gpu", 1), cpu=fields.pop("cpu", 0))
        return replace(asked, priority=priority, **fields.pop("needs", {}))

    def tell(self, *events: Event) -> None:
        """Pass events on without deciding."""
        self.engine.handle(*events)

    def tick(self, now: float = NOW) -> list[Preemption]:
        """Decide; the plans that are made."""
        before = self._columns()
        outputs = self.engine.handle(Tick(now if self._backs_off else None, wall=now))
        bound = bindings_of(outputs)
        self.where.update({one.pod.name: one.node for one in bound})
        found: list[Preemption] = []
        for outcome in outcomes_of(outputs):
            self.outcomes[outcome.key] = outcome
            found += outcome.preemptions
        self.engine.validate_state()
        if not bound:
            assert self._columns() == before, "a trial changed the cluster"
        return found

    def evict(self, *plans: Preemption, now: float = NOW) -> list[Preemption]:
        """The victims end; what is planned next."""
        self.tell(*(PodDeleted(pod.uid) for plan in plans for pod in plan.victims))
        return self.tick(now)

    def why(self, name: str) -> NoPreemption | None:
        """Why nobody makes room."""
        return self.outcomes[f"default/{name}"].no_preemption

    def _columns(self) -> tuple[object, ...]:
        cluster = self.engine.cluster
        placed = sorted((pod.uid, slot) for pod, slot in cluster.placed_pods())
        return cluster.requested.tobytes(), tuple(placed)


#: What a gang says of which members beyond the minimum alone may be evicted.
SEMI_PREEMPTIBLE = ProtectionRequest("spec.preemptibility=semi-preemptible", minimum_only=True)


def names(plan: Preemption) -> list[str]:
    """The names of a plan's victims."""
    return [pod.name for pod in plan.victims]


def ways(minimum: int, members: Sequence[Pod], *, minimum_stays: bool = False) -> Iterator[set[str]]:
    """All sets of a gang's members that may go together: none, so few that its minimum stays, or all."""
    yield set()
    if not minimum_stays:
        yield {pod.uid for pod in members}
    for count in range(1, len(members) - minimum + 1):
        yield from ({pod.uid for pod in some} for some in combinations(members, count))
