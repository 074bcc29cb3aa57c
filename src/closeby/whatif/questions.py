"""What is asked about: an item that waits, with what its trials have in common."""

from collections.abc import Sequence

from msgspec import Struct

from closeby.applications.registry import Application, app_group_key
from closeby.objects.groups import PodGroup
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.words import names_text, path_text, plural, span_text
from closeby.scheduling.fork import Change
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.placing.tools import Placed
from closeby.topology.constraints import Levels
from closeby.whatif.records import WhereEntry
from closeby.whatif.trials import TrialResult, Trials

#: Names of nodes that an entry holds.
NODES = 8


class Question(Struct, frozen=True, kw_only=True):
    """An item that waits. ``key`` is that of the work item."""

    trials: Trials
    key: str
    #: None for a plain pod, and for an application.
    group: PodGroup | None
    #: Without those that something else than want of room keeps out of the queue.
    waiting: tuple[Pod, ...]
    #: None for a plain pod, and for a gang.
    application: Application | None = None

    def tried(self, change: Change) -> TrialResult | None:
        """What it gets then."""
        return self.trials.try_out(self.key, change)

    @property
    def own(self) -> tuple[Placed, ...]:
        """The gang's members that hold a node, with its slot."""
        state, cluster = self.trials.engine.state, self.trials.engine.cluster
        placed = ((pod, cluster.placement(pod.uid)) for pod in state.placed(self.key))
        return tuple((pod, slot) for pod, slot in placed if slot is not None)

    @property
    def levels(self) -> Levels | None:
        """The gang's own constraint; None when it asks for none, or for what there is not."""
        if self.group is None:
            return None
        return constraints_of(self.group, self.trials.engine.topologies, False).levels.get("")

    @property
    def needed(self) -> int:
        """Pods that must find a node together."""
        if self.application is not None:
            return len(self.waiting)
        if self.group is None:
            return 1
        state = self.trials.engine.state
        there = len(state.placed(self.key)) + len(state.done(self.key))
        return min(max(self.group.min_member - there, 1), len(self.waiting))

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is one of the application that is asked about."""
        return self.application is not None and app_group_key(pod) == self.application.key

    def got(self, result: TrialResult) -> tuple[Pod, ...]:
        """The pods that got a node of those that wait now."""
        assigned = {one.pod.uid for one in result.bindings}
        return tuple(pod for pod in self.waiting if pod.uid in assigned)

    def whole(self, result: TrialResult) -> bool:
        """Whether all that waits got a node; gangs and plain pods got what they need if they got any."""
        return self.application is None or len(self.got(result)) == len(self.waiting)

    def fits(self, result: TrialResult) -> str:
        """``It fits``; of an application which of its pods do, and how many do not."""
        if self.application is None:
            return "It fits"
        pods = self.got(result)
        left = len(self.waiting) - len(pods)
        said = f"{names_text([pod.name for pod in pods])} {'fits' if len(pods) == 1 else 'fit'}"
        return f"{said} ({plural(left, 'other')} would still wait)" if left else said

    @property
    def at_its_level(self) -> str:
        """``at rack level`` for those that require a level."""
        levels = self.levels
        if levels is None or levels.required is None:
            return ""
        return f" at {levels.tree.level_names[levels.required]} level"


def where_entry(result: TrialResult) -> WhereEntry:
    """The place that a trial ended in."""
    nodes = sorted({one.node for one in result.bindings}, key=natural_key)
    place = result.place
    if place is None:
        return WhereEntry(nodes=tuple(nodes[:NODES]))
    return WhereEntry(
        topology=place.topology or None,
        level=place.level,
        domain=place.path,
        span=place.span,
        nodes=tuple(nodes[:NODES]),
    )


def where_text(result: TrialResult) -> str:
    """``in zone-a/rack-1, on 3 nodes``; ``on n-1`` where no topology applies."""
    nodes = sorted({one.node for one in result.bindings}, key=natural_key)
    place = result.place
    if place is None or not place.topology:
        return f"on {names_text(nodes)}" if len(nodes) <= NODES else f"on {plural(len(nodes), 'node')}"
    span = span_text(place.span, len(place.path))
    where = f"in {path_text(place.path)}" if place.path else "across the cluster"
    return f"{where}, on {span}" if span else where


def joined(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
