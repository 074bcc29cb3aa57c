"""The NetworkTopologies there are, cut down to what says which of them counts for which AppGroups."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from closeby.applications.networks import Choice, Counts, Judged, NetworkWish, choose_network
from closeby.controllers.counting import Counting
from closeby.controllers.running import News
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.resources import Resource
from closeby.objects.applications import NetworkTopology, WeightSet


class KnownNetworks:
    """Without their costs, which may be many."""

    def __init__(self, counting: Counting) -> None:
        self._scope = counting.scope
        #: By namespace and key: what the object of each kind is.
        self._judged: dict[str, dict[str, dict[Resource, Judged]]] = {}

    def observe(self, news: News) -> bool | None:
        """Takes in one change of a NetworkTopology.

        Returns whether something else counts now: True for the AppGroups of all namespaces, False for those
        of the object's own, None for none.
        """
        key, resource = news.change.key, news.resource
        namespace = key.partition("/")[0]
        kinds = self._judged.setdefault(namespace, {}).setdefault(key, {})
        before = kinds.pop(resource, None)
        after: Judged | None = None
        match news.read:
            case Decoded(record=NetworkTopology() as network) if network.usable:
                after = kinds[resource] = self._slim(network)
        if not kinds:
            del self._judged[namespace][key]
        if not self._judged[namespace]:
            del self._judged[namespace]
        if before == after:
            return None
        return any(one is not None and one.counts is Counts.EVERYWHERE for one in (before, after))

    def choice(self, namespace: str, wish: NetworkWish) -> Choice:
        """What counts for the AppGroups of a namespace."""
        return choose_network(self._for(namespace), self._scope, wish)

    def _for(self, namespace: str) -> Iterator[Judged]:
        namespaces: Iterable[str] = self._judged if self._scope.namespaces is None else self._scope.namespaces
        for one in sorted({*namespaces, namespace}):
            for _, kinds in sorted(self._judged.get(one, {}).items()):
                # Of one name in both shapes the KEP's counts, as for the scheduler.
                yield kinds[max(kinds, key=_precedence)]

    def _slim(self, network: NetworkTopology) -> Judged:
        counts = self._scope.counts(network)
        looked_at = counts in (Counts.EVERYWHERE, Counts.BESIDE)
        sets = tuple(WeightSet(name=one.name) for one in network.weight_sets if looked_at)
        return Judged(replace(network, weight_sets=sets, conditions=()), counts)


def _precedence(resource: Resource) -> bool:
    return resource.group == "scheduling.sigs.k8s.io"
