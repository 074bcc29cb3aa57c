"""The table of pod classes: pods with equal needs are judged once.

It is the one owner of cached filter and score results. ``class_results`` says what these are, and keeps them
up to date.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod, all_alike, one_of_each_spec
from closeby.scheduling.by_domain import DomainFilter, DomainMask
from closeby.scheduling.extension import Filter, Scope, Score
from closeby.scheduling.judging.class_results import CACHED_FIGURES, ClassResults
from closeby.scheduling.judging.figures import (
    Weighted,
    cacheable,
)
from closeby.scheduling.judging.holds import Holds
from closeby.scheduling.judging.interactions import Interactions, KnownInteractions
from closeby.scheduling.judging.keys import ClassKeys, ToldApart, all_equal
from closeby.scheduling.judging.pod_classes import PodClass, Share, masks_of

#: Sets of pods of which it is remembered what classes they are of.
_REMEMBERED_PODS: Final = 64


class ClassTable:
    """All classes in use."""

    def __init__(
        self,
        cluster: Cluster,
        filters: Sequence[Filter],
        scorers: Sequence[Weighted],
        holds: Holds | None = None,
    ) -> None:
        """``holds``: pods that must keep off nodes are of other classes."""
        self._cluster = cluster
        self._filters = tuple(filters)
        #: Scorers whose scores are never kept: they depend on other nodes or on what was placed.
        self.fleeting = tuple(entry for entry in scorers if not cacheable(entry[0]))
        #: Scorers whose scores depend on what was just placed, of those that score members of gangs and that
        #: the descent does not honour by itself.
        self.per_placement = tuple(
            plugin
            for plugin, weight in scorers
            if weight
            and plugin.score_scope is Scope.PER_PLACEMENT
            and plugin.scores_members
            and not plugin.honoured_by_descent
        )
        self.domain_filters = tuple(one for one in self._filters if isinstance(one, DomainFilter))
        #: None: none are known.
        self._interactions: KnownInteractions | None = None
        self._holds = Holds() if holds is None else holds
        self._holds_version = 0
        #: By keys of pods, as long as they are in use.
        self._by_key: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: By their own keys those that are kept, whether in use or not.
        self._kept: OrderedDict[Hashable, PodClass] = OrderedDict()
        self._keys = ClassKeys(self._filters, [scorer for scorer, _ in scorers])
        self._told_apart = ToldApart()
        self._results = results = ClassResults(cluster, scorers)
        #: Brings a class up to date with the cluster; what it then answers.
        self.refresh: Final = results.refresh
        self.usable: Final = results.usable
        self.counts: Final = results.counts
        self.ranked: Final = results.ranked
        self.scores: Final = results.scores
        self.wishes: Final = results.wishes
        #: Pods that were found equal last, which a cycle asks about several times.
        self._equal: tuple[Pod, ...] = ()
        #: How often all was forgotten.
        self._epoch = 0
        #: By their id the pods that were sorted into classes last, with the result.
        self._sorted: dict[int, tuple[Sequence[Pod], Hashable, tuple[tuple[Pod, ...], ...]]] = {}

    @property
    def stamp(self) -> tuple[int, ...]:
        """Two equal stamps: nothing has changed between them that answers depend on."""
        cluster = self._cluster
        changes = cluster.usage_changes.cursor, cluster.node_changes.cursor
        apart = cluster.population.label_keys_version
        return *changes, self._epoch, apart, self._holds.version

    @property
    def capacity(self) -> int:
        """How many slots there are."""
        return self._cluster.capacity

    def key_of(self, pod: Pod) -> Hashable:
        """Pods with equal keys are judged alike."""
        self._notice_sharing()
        return self._keys.of(pod)

    def kind_of(self, pod: Pod) -> Hashable:
        """Plain pods that wait with equal kinds are of one class, as long as the stamp is the same."""
        if pod.spec.claims:
            return pod.uid  # What keeps it waiting may be its own claim.
        return pod.spec if self._keys.by_spec else self.waiting_key(pod)

    def waiting_key(self, pod: Pod) -> Hashable:
        """Pods with equal keys are judged alike now and for as long as they wait."""
        self._notice_sharing()
        return self._keys.waiting(pod)

    def told_apart(self, plugin: Score, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """Those of the pods that a scorer may treat differently; one for all that are alike to it."""
        if pods is self._equal and plugin.scores_by_spec:
            return pods[-1:]
        return self._told_apart.of(pods) if isinstance(plugin, DomainFilter) else pods

    def one_of_each_spec(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Of some pods one for each spec."""
        return pods[-1:] if pods is self._equal else one_of_each_spec(pods)

    def helped_by_pods(self, pods: Sequence[Pod]) -> bool:
        """Whether a pod that is placed may let one of these go where it could not before."""
        return any(plugin.helped_by_pods(pod) for plugin in self.domain_filters for pod in pods)

    def interactions(self, demand: Sequence[Share]) -> Interactions | None:
        """How pods that are placed together constrain each other; None: none of them has a constraint."""
        if not self._constrained(share.pods[0] for share in demand):
            return None
        if self._interactions is None:
            self._interactions = KnownInteractions(self._cluster.population, self.domain_filters)
        return self._interactions.among(demand)

    def affect_each_other(self, demand: Sequence[Share]) -> bool:
        """Whether a placement of one of these pods may change where others of them may go."""
        if len(demand) == 1 and len(demand[0].pods) == 1:
            return False
        found = self.interactions(demand)
        return found is not None and found.any

    def _constrained(self, pods: Iterable[Pod]) -> bool:
        return any(plugin.constrained(pod) for pod in pods for plugin in self.domain_filters)

    def shares(self, pods: Sequence[Pod]) -> tuple[Share, ...]:
        """Pods by class, in order of first appearance; the classes are up to date."""
        self._notice_sharing()
        if not pods:
            return ()
        if self.are_equal(pods):
            return (Share(self._class(self._keys.of(pods[0]), pods[0]), self._equal),)
        kinds = self._kinds(pods)
        return tuple(Share(self.of(members[0]), members) for members in kinds)

    def are_equal(self, pods: Sequence[Pod]) -> bool:
        """Whether pods (at least one) certainly are of one class; known at once of those asked for last."""
        if not self._keys.by_spec or not (pods is self._equal or all_equal(pods)):
            return False
        self._equal = tuple(pods)
        return True

    def _kinds(self, pods: Sequence[Pod]) -> tuple[tuple[Pod, ...], ...]:
        """Pods by class, in order of first appearance.

        The pods of a gang are asked for again with each candidate, and their keys mostly stay the same.
        """
        stamp = self._epoch, self._cluster.population.keys_stamp
        lasts = self._keys.by_domain
        known = self._sorted.get(id(pods))
        if known is not None and known[0] is pods and known[1] == stamp and lasts:
            return known[2]
        by_key: dict[Hashable, list[Pod]] = {}
        if lasts and all_alike(pods):
            by_key[self._keys.of(pods[0])] = list(pods)
        else:
            for pod in pods:
                by_key.setdefault(self._keys.of(pod), []).append(pod)
        kinds = tuple(tuple(members) for members in by_key.values())
        # Asking may have made selectors known.
        stamp = self._epoch, self._cluster.population.keys_stamp
        if isinstance(pods, tuple):
            if len(self._sorted) >= _REMEMBERED_PODS:
                self._sorted.clear()
            self._sorted[id(pods)] = pods, stamp, kinds
        return kinds

    def beside_each_other(self, pods: Sequence[Pod]) -> tuple[Share, ...]:
        """The same for pods that are placed together: masks that their own placing may widen are left out.

        Their figures then say what room there is at the most.
        """
        demand = self.shares(pods)
        if not any(share.pod_class.masks for share in demand):
            return demand
        among = self.interactions(demand)
        if among is None:
            return demand
        return tuple([self._widened(place, share, among) for place, share in enumerate(demand)])

    def asked_among(self, demand: Sequence[Share]) -> tuple[str, ...]:
        """What pods that are placed together ask of each other, for people."""
        found: dict[str, None] = {}
        among = self.interactions(demand)
        if among is not None and len(demand) > 1:
            for apart in among.apart:
                found[f"{sum(apart.pods.values())} of them keep off each other per {apart.key}"] = None
        for place, share in enumerate(demand):
            for mask in masks_of(self.domain_filters, share.pods[0]):
                helpers = () if among is None else among.helpers(place)
                if mask.apart or mask.gathers or any(map(mask.grows_with, helpers)):
                    found[mask.asks] = None
        return tuple(found)

    def _widened(self, place: int, share: Share, among: Interactions) -> Share:
        pod = share.pods[0]
        masks = masks_of(self.domain_filters, pod)
        kept = [mask for mask in masks if not any(map(mask.grows_with, among.helpers(place)))]
        if len(kept) == len(masks):
            return share
        places = tuple(place for place, mask in enumerate(masks) if mask in kept)
        return Share(self._class(_Widened(self.key_of(pod), places), pod, kept), share.pods)

    def of(self, pod: Pod) -> PodClass:
        """The pod's class, up to date."""
        return self._class(self.key_of(pod), pod)

    def _class(self, key: Hashable, pod: Pod, only: Sequence[DomainMask] | None = None) -> PodClass:
        if self._holds.version != self._holds_version:
            self._forget_those_kept_off()
        key = self._apart(key)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._made(key, pod, only)
        else:
            # Of pods that were of this class before, some may be of another one now.
            found.pod = pod
        self._keep(found)
        self.refresh(found)
        return found

    def _keep(self, found: PodClass) -> None:
        """Remember a class; those that were asked for longest ago may be forgotten."""
        # What others narrow is forgotten after them.
        for one in (found,) if found.base is None else (found, found.base):
            self._kept[one.key] = one
            self._kept.move_to_end(one.key)
        room = max(8, CACHED_FIGURES // max(self._cluster.capacity, 1))
        while len(self._kept) > room:
            self._kept.popitem(last=False)

    def _made(self, key: Hashable, pod: Pod, only: Sequence[DomainMask] | None) -> PodClass:
        """A class that has not been judged yet; pods to which no mask applies share one by their needs."""
        judged = self._cluster.volumes.stand_in(pod) if pod.spec.claims else pod
        masks = masks_of(self.domain_filters, pod) if only is None else only
        if not masks and only is not None:
            return PodClass(key, judged, self._filters, widened=True)
        plain = self._apart(_Unmasked(self._keys.unmasked(pod)))
        base = self._by_key.get(plain)
        if base is None:
            base = self._by_key[plain] = PodClass(plain, judged, self._filters)
        if not masks:
            return base
        return PodClass(key, judged, self._filters, masks, base, widened=only is not None)

    def _apart(self, key: Hashable) -> Hashable:
        """The key of a class, apart from that of pods that need not keep off nodes."""
        return _KeepsOff(key, self._holds.key) if self._holds.off else key

    def forget_pods(self) -> None:
        """The pods that were asked about are decided: they are not kept for that any longer."""
        self._equal = ()
        self._sorted.clear()
        self._interactions = None

    def forget_all(self) -> None:
        """A plugin judges by something else than before: all that is known of classes may be wrong."""
        self._clear()
        self._results.forget()

    def _forget_those_kept_off(self) -> None:
        """Other nodes are held than before."""
        self._holds_version = self._holds.version
        for classes in (self._by_key, self._kept):
            for key in [key for key in classes if isinstance(key, _KeepsOff)]:
                classes.pop(key, None)

    def _notice_sharing(self) -> None:
        if self._keys.follow():
            self._clear()

    def _clear(self) -> None:
        self._epoch += 1
        self._by_key.clear()
        self._kept.clear()
        self._interactions = None


class _Widened(NamedTuple):
    """Key of a class by which only some masks of domains judge."""

    key: Hashable
    masks: tuple[int, ...]


class _Unmasked(NamedTuple):
    """Key of a class whose pods are judged without masks of domains."""

    key: Hashable


class _KeepsOff(NamedTuple):
    """Key of a class whose pods must keep off nodes that are held."""

    key: Hashable
    holds: Hashable
