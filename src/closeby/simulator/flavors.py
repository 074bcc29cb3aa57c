"""The flavors of Kueue's queues: which ones work items may get, and each with those that it is tried in."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.nodes import keeps_off
from closeby.objects.pods import Pod, PodSpec, gang_key
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import ResourceFlavor
from closeby.reading.dialects.gangs import in_flavors
from closeby.reading.dialects.kueue import MOST_CHOICES, Choices
from closeby.scheduling.outcomes import PLAIN, Outcome

#: A pod set: its workload, and its position there.
Source = tuple[str, int]


class InFlavors(Struct, frozen=True, kw_only=True):
    """The pods of a work item, and its gang, with the node labels, tolerations and topology of flavors."""

    flavors: tuple[str, ...]
    group: PodGroup | None
    pods: tuple[Pod, ...]


class Flavors:
    """What pod sets may get, as they are read; then the work items with it."""

    def __init__(self) -> None:
        #: Of pods that go through a queue: their pod set.
        self._sources: dict[str, Source] = {}
        self._choices: dict[Source, Choices] = {}
        #: The subgroup of each pod set, by gang.
        self.members: dict[str, Mapping[int, str | None]] = {}
        self._specs: dict[tuple[PodSpec, tuple[ResourceFlavor, ...]], PodSpec] = {}

    def choose(
        self, source: Source, choices: Choices, members: Iterable[str], existing: Iterable[Pod]
    ) -> None:
        """Note the flavors that the pods of a set, named by their keys, may get: those that one of the
        ``existing`` pods of its workload was given, else any.
        """
        given = [
            one
            for one in choices
            for pod in existing
            if (labels := {pair for flavor in one for pair in flavor.node_labels})
            and not pod.finished
            and labels.issubset(pod.spec.node_selector)
        ]
        self._choices[source] = tuple(given[:1]) or choices
        self._sources.update(dict.fromkeys(members, source))

    def give(self, pods: dict[str, Pod], groups: dict[str, PodGroup]) -> dict[str, tuple[InFlavors, ...]]:
        """Give the waiting pods of queues their first flavors; returned are all choices of those work items
        that have several, by the items' keys.
        """
        items: dict[str, dict[str, Source]] = {}
        for key, source in self._sources.items():
            pod = pods[key]
            if pod.node_name is None and not pod.finished:
                items.setdefault(gang_key(pod) if pod.group else PLAIN + key, {})[key] = source
        found = {}
        for item, sources in items.items():
            sets = tuple(dict.fromkeys(sources.values()))
            members = {key: pods[key] for key in sources}
            ways = tuple(
                self._with(groups.get(item), item, members, sources, dict(zip(sets, chosen, strict=True)))
                for chosen in islice(product(*(self._choices[one] for one in sets)), MOST_CHOICES)
            )
            pods.update({pod.key: pod for pod in ways[0].pods})
            if ways[0].group is not None:
                groups[item] = ways[0].group
            if len(ways) > 1:
                found[item] = ways
        return found

    def _with(
        self,
        group: PodGroup | None,
        item: str,
        members: Mapping[str, Pod],
        sources: Mapping[str, Source],
        chosen: Mapping[Source, tuple[ResourceFlavor, ...]],
    ) -> InFlavors:
        if group is not None:
            subgroups = self.members.get(item) or {i: None for _, i in chosen}
            group = in_flavors(group, subgroups, {i: flavors for (_, i), flavors in chosen.items()})
        names = dict.fromkeys(flavor.name for flavors in chosen.values() for flavor in flavors)
        pods = tuple(self._flavored(pod, chosen[sources[key]]) for key, pod in members.items())
        return InFlavors(flavors=tuple(names), group=group, pods=pods)

    def _flavored(self, pod: Pod, flavors: tuple[ResourceFlavor, ...]) -> Pod:
        """A waiting pod with the node labels and tolerations that Kueue would give it."""
        spec = self._specs.get((pod.spec, flavors))
        if spec is None:
            spec = pod.spec
            for flavor in flavors:
                spec = _with_flavor(spec, flavor)
            self._specs[pod.spec, flavors] = spec
        return pod if spec == pod.spec else replace(pod, spec=spec)


def _with_flavor(spec: PodSpec, flavor: ResourceFlavor) -> PodSpec:
    selector = dict(spec.node_selector)
    # A pod that insists on other nodes than the flavor's would never be admitted to it.
    clashes = tuple(
        f'spec.nodeSelector["{key}"] against ResourceFlavor {flavor.name}'
        for key, value in flavor.node_labels
        if selector.get(key, value) != value
    )
    tolerations = (*spec.tolerations, *(one for one in flavor.tolerations if one not in spec.tolerations))
    clashes += tuple(
        f"spec.tolerations against taint {taint.key} of ResourceFlavor {flavor.name}"
        for taint in flavor.taints
        if keeps_off(taint, tolerations)
    )
    return replace(
        spec,
        node_selector=tuple(sorted({**dict(flavor.node_labels), **selector}.items())),
        tolerations=tolerations,
        unsupported=(*spec.unsupported, *clashes),
    )


#: No other flavor cures these.
_IN_ANY_FLAVOR: Final = frozenset({Reason.GANG_INCOMPLETE, Reason.INVALID_SPEC, Reason.SCHEDULING_GATED})


class InTurn:
    """One work item in one flavor of its queue after the other.

    As Kueue does by default (``whenCanPreempt: TryNextFlavor``), it makes others leave only where no flavor
    has room without that. In the end it is in the first one again.
    """

    def __init__(self, ways: Sequence[InFlavors], *, preempt: bool) -> None:
        self._left = [*map(_without_victims, ways if preempt else ()), *ways, ways[0]]
        self._refusals: dict[tuple[str, ...], Condition] = {}
        self.now = self._left.pop(0)

    def passes(self, outcome: Outcome) -> bool:
        """Whether the item was refused and is to be tried in another flavor, which is ``now`` then."""
        if not outcome.refused or outcome.preemptions or outcome.reason is None:
            return False
        if outcome.reason in _IN_ANY_FLAVOR or not self._left:
            return False
        said = f"ResourceFlavor {' and '.join(self.now.flavors)} is passed over: {outcome.message}"
        self._refusals[self.now.flavors] = Condition(
            reason=outcome.reason, object=f"PodGroup/{outcome.key}", message=said
        )
        into = self._left.pop(0)
        if into.group is not None:
            others = (one for flavors, one in self._refusals.items() if flavors != into.flavors)
            group = replace(into.group, conditions=(*into.group.conditions, *others))
            into = replace(into, group=group)
        self.now = into
        return True


def _without_victims(way: InFlavors) -> InFlavors:
    """The same, and no pod is to leave for it."""
    group = way.group
    if group is not None and group.preemption_policy:
        group = replace(group, preemption_policy="Never")
    pods = (replace(pod, spec=replace(pod.spec, preemption_policy="Never")) for pod in way.pods)
    return replace(way, group=group, pods=tuple(pods))
