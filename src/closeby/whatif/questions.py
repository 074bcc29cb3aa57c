"""What is asked about: an item, with what its trials have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from closeby.applications.registry import Application, app_group_key
from closeby.objects.groups import PodGroup
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod, gang_key
from closeby.objects.words import names_text, path_text, plural, span_text
from closeby.scheduling.fork import Change
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.placing.tools import Placed
from closeby.topology.constraints import Levels
from closeby.whatif.records import Counterfactual, JobEntry, Kind, WhereEntry
from closeby.whatif.traffic import ApplicationTraffic
from closeby.whatif.trials import TrialResult, Trials

#: Names of nodes that an entry holds.
NODES = 8

#: What would have to be written, by field.
Fields = Mapping[str, str | int | None]

T = TypeVar("T")
R = TypeVar("R")


class Question(Struct, frozen=True, kw_only=True):
    """An item that waits, or some of its pods. ``key`` is that of the work item."""

    trials: Trials
    key: str
    #: None for a plain pod, and for an application.
    group: PodGroup | None = None
    #: Without those that something else than want of room keeps out of the queue.
    waiting: tuple[Pod, ...]
    #: None for a plain pod, and for a gang.
    application: Application | None = None
    #: Whether the gang has its minimum, and only these members of it wait, which are all alike.
    beyond: bool = False
    #: What the application's traffic costs; there with the application.
    traffic: ApplicationTraffic | None = None

    def tried(self, change: Change) -> TrialResult | None:
        """What it gets then; None if nothing."""
        result = self.trials.try_out(self.key, change)
        return None if result is None or (self.waiting and not self.got(result)) else result

    def whole_without(self, gone: Sequence[Pod]) -> TrialResult | None:
        """What it gets without these pods; None unless that is all it needs."""
        result = self.tried(Change(gone=tuple(gone))) if gone else None
        return result if result is not None and self.whole(result) else None

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
    def there(self) -> int:
        """Members of the gang that hold a node, or have done their work."""
        state = self.trials.engine.state
        return len(state.placed(self.key)) + len(state.done(self.key))

    @property
    def needed(self) -> int:
        """Pods that must find a node together."""
        if self.has_parts:
            return len(self.waiting)
        return 1 if self.group is None else min(max(self.group.min_member - self.there, 1), len(self.waiting))

    @property
    def has_parts(self) -> bool:
        """Whether some of what waits may get a node although the rest does not."""
        return self.application is not None or self.beyond

    def owns(self, pod: Pod) -> bool:
        """Whether a pod belongs to the gang or the application that is asked about."""
        if self.application is not None:
            return app_group_key(pod) == self.application.key
        return self.group is not None and pod.group is not None and gang_key(pod) == self.key

    def got(self, result: TrialResult) -> tuple[Pod, ...]:
        """The pods that got a node of those that wait now."""
        assigned = {one.pod.uid for one in result.bindings}
        return tuple(pod for pod in self.waiting if pod.uid in assigned)

    def whole(self, result: TrialResult) -> bool:
        """Whether all that waits got a node; gangs and plain pods got what they need if they got any."""
        return not self.has_parts or len(self.got(result)) == len(self.waiting)

    @property
    def names(self) -> str:
        """The pods that wait, for sentences."""
        return names_text([pod.name for pod in self.waiting])

    @property
    def at_its_level(self) -> str:
        """``at rack level`` for those that require a level."""
        levels = self.levels
        if levels is None or levels.required is None:
            return ""
        return f" at {levels.tree.level_names[levels.required]} level"

    def relaxed(self, change: Change, condition: str, fields: Fields) -> Iterator[Counterfactual]:
        """The answer if the item fits with a change of what it asks for."""
        result = self.tried(change)
        if result is not None:
            yield self.answer(Kind.RELAXED, change, result, condition, fields=fields)

    def answer(
        self,
        kind: Kind,
        change: Change,
        result: TrialResult,
        condition: str,
        *,
        fields: Fields | None = None,
        jobs: tuple[JobEntry, ...] | UnsetType = UNSET,
    ) -> Counterfactual:
        """``It fits now if …: in zone-a/rack-1``; of parts of an item which pods fit, with
        the cost of their traffic in an application.

        ``condition`` is what follows the verb, ``fields`` what would have to be written.
        """
        found = Counterfactual(
            kind=kind,
            fits=self.whole(result),
            sentence=f"It fits {condition}: {where_text(result)}.",
            where=where_entry(result),
            jobs=jobs,
        )
        if fields is not None:
            found = replace(found, change=fields)
        if not self.has_parts:
            return found
        pods = self.got(result)
        left = len(self.waiting) - len(pods)
        fit = f"{names_text([pod.name for pod in pods])} {'fits' if len(pods) == 1 else 'fit'}"
        fit += f" ({plural(left, 'other')} would still wait)" if left else ""
        there = None if self.traffic is None else self.traffic.then(change, result)
        where = f"on {names_text(_nodes(result, pods))}" if self.beyond else where_text(result)
        cost = "" if there is None else f" (its traffic then costs {there.figure:,})"
        entry = None if there is None or self.traffic is None else self.traffic.entry(there)
        found = found if entry is None else replace(found, talk=entry)
        return replace(
            found,
            sentence=f"{fit} {condition}: {where}{cost}.",
            pods=tuple(pod.key for pod in pods),
        )


def fewest(enough: Sequence[T], result: R, tried: Callable[[Sequence[T]], R | None]) -> tuple[list[T], R]:
    """Without those that may stay: one after another is left out, from the last on, where the rest is enough.

    ``tried`` says what comes of some of them, None if they are not enough; ``result`` is what came of all.
    Returns those of which none could stay, as far as it was tried, and what came of them.
    """
    left = list(enough)
    for one in reversed(enough):
        fewer = [other for other in left if other is not one]
        less = tried(fewer) if fewer else None
        if less is not None:
            left, result = fewer, less
    return left, result


def farthest(steps: Sequence[T], tried: Callable[[T], R | None]) -> tuple[T, R] | None:
    """The last of some steps, each of which asks for more than the one before, that is found to work."""
    best: tuple[T, R] | None = None
    first, end = 0, len(steps)
    while first < end:
        middle = (first + end - 1) // 2
        result = tried(steps[middle])
        if result is None:
            end = middle
        else:
            best, first = (steps[middle], result), middle + 1
    return best


def _nodes(result: TrialResult, pods: Sequence[Pod]) -> list[str]:
    """The nodes that some pods got."""
    uids = {pod.uid for pod in pods}
    return sorted({one.node for one in result.bindings if one.pod.uid in uids}, key=natural_key)


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
    span = span_text(place.span, place.level, place.outside)
    where = f"in {path_text(place.path)}" if place.path else "across the cluster"
    return f"{where}, on {span}" if span else where


def joined(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
