"""Keys of equivalence classes, by what the plugins look at, and which pods are alike."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from closeby.objects.pods import Pod, PodSpec, all_alike
from closeby.scheduling.by_domain import DomainFilter
from closeby.scheduling.extension import Filter, Plugin, Score
from closeby.scheduling.judging.figures import cacheable

#: Specs whose key is remembered.
REMEMBERED_SPECS = 1 << 17
#: Sets of pods of which it is remembered what tells them apart.
REMEMBERED_PODS = 64


class ClassKeys:
    """What makes pods of one class, as the plugins say."""

    def __init__(self, filters: Sequence[Filter], scorers: Sequence[Score]) -> None:
        """``filters`` and ``scorers`` are all that judge pods."""
        plugins: dict[int, Plugin] = {id(one): one for one in (*filters, *scorers)}
        self._keyed = tuple(p for p in plugins.values() if type(p).class_key is not Plugin.class_key)
        self._members_apart = any(p.minds_membership for p in plugins.values())
        self._lasting = tuple(one for one in filters if type(one).lasting_key is not Plugin.lasting_key)
        #: Those whose word on whether they look at the spec alone may change with the events.
        self._varying = tuple(p for p in self._keyed if isinstance(type(p).shares_by_spec, property))
        self._sharing: list[bool] | None = None
        self._keyed_by_spec: tuple[Plugin, ...] = ()
        self._keyed_by_pod: tuple[Plugin, ...] = ()
        self._by_spec: dict[PodSpec, Hashable] = {}

    def follow(self) -> bool:
        """Notice which plugins look at the spec alone; True if keys made before stand for other questions."""
        sharing = [plugin.shares_by_spec for plugin in self._varying]
        if sharing == self._sharing:
            return False
        self._sharing = sharing
        self._keyed_by_spec = tuple(plugin for plugin in self._keyed if plugin.shares_by_spec)
        self._keyed_by_pod = tuple(plugin for plugin in self._keyed if not plugin.shares_by_spec)
        self._by_spec.clear()
        return True

    @property
    def by_spec(self) -> bool:
        """Whether pods of one spec have one key, as far as is known."""
        return self._sharing is not None and not self._keyed_by_pod

    @property
    def by_domain(self) -> bool:
        """Whether only filters by domain look beyond the spec."""
        return all(isinstance(plugin, DomainFilter) for plugin in self._keyed_by_pod)

    def of(self, pod: Pod) -> Hashable:
        """Pods with equal keys are judged alike."""
        key = self._of_spec(pod)
        if not self._keyed_by_pod:
            return key
        return key, _asked(self._keyed_by_pod, pod)

    def unmasked(self, pod: Pod) -> Hashable:
        """Pods with equal keys are judged alike by all that is no mask of a filter by domain."""
        others = _asked([plugin for plugin in self._keyed_by_pod if not _only_masks(plugin)], pod)
        return self._of_spec(pod), others

    def _of_spec(self, pod: Pod) -> Hashable:
        key = self._by_spec.get(pod.spec)
        if key is None:
            key = _asked(self._keyed_by_spec, pod)
            if len(self._by_spec) > REMEMBERED_SPECS:
                self._by_spec.clear()
            if not pod.spec.claims:  # Pods of one spec have different claims, and these change.
                self._by_spec[pod.spec] = key
        if self._members_apart and pod.group is not None:
            key = _OfMembers(key)
        if pod.node_name is not None:
            key = (key, pod.node_name)
        return key

    def waiting(self, pod: Pod) -> Hashable:
        """Pods with equal keys are judged alike now and for as long as they wait."""
        key = self.of(pod)
        return (key, *[plugin.lasting_key(pod) for plugin in self._lasting]) if self._lasting else key


def _asked(plugins: Sequence[Plugin], pod: Pod) -> tuple[Hashable, ...]:
    return tuple([plugin.class_key(pod) if plugin.minds(pod) else None for plugin in plugins])


def _only_masks(plugin: Plugin) -> bool:
    """Whether no more of a plugin's answers is kept than its masks."""
    return isinstance(plugin, DomainFilter) and not (isinstance(plugin, Score) and cacheable(plugin))


class ToldApart:
    """Of some pods one of each kind that terms of affinity and spread can tell apart."""

    def __init__(self) -> None:
        #: By the id of some pods: these, and one of each kind.
        self._known: dict[int, tuple[tuple[Pod, ...], tuple[Pod, ...]]] = {}

    def of(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """One of each kind; a gang's pods are asked for again with each candidate."""
        known = self._known.get(id(pods))
        if known is None or known[0] is not pods:
            if pods and all_alike(pods):
                kinds = pods[-1:]
            else:
                kinds = tuple(
                    {
                        (id(pod.spec), pod.namespace, pod.owner, pod.group, *pod.labels.items()): pod
                        for pod in pods
                    }.values()
                )
            if len(self._known) >= REMEMBERED_PODS:
                self._known.clear()
            known = self._known[id(pods)] = pods, kinds
        return known[1]


class _OfMembers(NamedTuple):
    """Key of a class of members of gangs."""

    key: Hashable


def all_equal(pods: Sequence[Pod]) -> bool:
    """Whether all pods have one spec, without claims, and none is bound to a node."""
    spec, count = pods[0].spec, len(pods)
    if spec.claims:  # Those may be in different states.
        return False
    return [pod.spec for pod in pods].count(spec) == count and not [pod for pod in pods if pod.node_name]
