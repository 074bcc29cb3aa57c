"""Why not there: what stands against one pod on each node, and how the domains look to a gang."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import EVERYTHING, Cluster
from closeby.objects.arrays import Bools, Ints
from closeby.objects.groups import Strategy
from closeby.objects.pods import Pod, one_of_each_spec
from closeby.objects.reasons import Reason, ReasonToken, Rejection
from closeby.scheduling.extension import Filter, Scope
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts, Weighted, active_scorers, plugin_scores
from closeby.scheduling.judging.holds import HeldNodes
from closeby.scheduling.judging.lookahead import LooksAhead
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.outcomes import DomainFit, PodExplanation
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.reasons.facts import (
    Example,
    ResourceLack,
    Shortfall,
    ShortOf,
    UnknownValue,
    Unlabelled,
)
from closeby.scheduling.reasons.lacking import lacks_of, unknown_value, unlabelled, wanted_labels
from closeby.scheduling.reasons.wording import domain_lack
from closeby.topology.labels import MISSING
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

_NO_SLOTS: Ints = np.zeros(0, dtype=np.intp)

#: Those of a pod's volumes.
OF_VOLUMES: Final = frozenset(
    {
        Reason.VOLUME_NOT_BINDABLE,
        Reason.VOLUME_ZONE_MISMATCH,
        Reason.VOLUME_IN_USE,
        Reason.VOLUME_LIMIT_REACHED,
    }
)
#: Reasons beside those that nodes have by themselves of which a message gives an example: the claim or term.
_WITH_EXAMPLE: Final = OF_VOLUMES | {
    Reason.POD_AFFINITY_MISMATCH,
    Reason.POD_ANTI_AFFINITY_CONFLICT,
    Reason.TOPOLOGY_SPREAD_VIOLATION,
}
#: Of so many reasons beside the one that is given, a message has an example too.
_MORE_EXAMPLES: Final = 2
#: With more nodes than this, only the best ones are explained one by one.
ALL_NODES_UP_TO = 200
BEST_NODES = 20


class Refusal(NamedTuple):
    """Slots that one filter refused."""

    plugin: Filter
    slots: Ints


class Diagnosis:
    """Answers from the present state of the cluster; changes nothing."""

    def __init__(
        self, cluster: Cluster, table: ClassTable, filters: Sequence[Filter], scorers: Sequence[Weighted]
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        #: The pod that was refused last, the stamp of the table then, and the reasons of all nodes.
        self._last: tuple[Pod | None, tuple[int, ...], frozenset[ReasonToken]] = (None, (), frozenset())

    def refusals(self, state: CycleState, pod: Pod, slots: Ints | None = None) -> list[Refusal]:
        """The slots that take no such pod (of all, or of ``slots``), by the first filter to say no."""
        cluster = self._cluster
        left = np.flatnonzero(cluster.alive[: cluster.capacity]) if slots is None else slots
        refused: list[Refusal] = []
        for plugin in (*self._filters, *state.more_filters):
            if not plugin.concerns(pod) or not len(left):
                continue
            passed = plugin.filter(state, pod, Nodes(cluster, left))
            if not passed.all():
                refused.append(Refusal(plugin, left[~passed]))
                left = left[passed]
        return refused

    def tally(self, state: CycleState, pod: Pod, slots: Ints | None = None) -> Counter[ReasonToken]:
        """Nodes that take no such pod, by reason."""
        return _count(state, pod, self.refusals(state, pod, slots))

    def kept_out(
        self, state: CycleState, pod: Pod, *, examples: bool
    ) -> tuple[dict[ReasonToken, int], tuple[Example, ...]]:
        """How many nodes take no such pod, by reason, the most frequent first, and an example of each.

        ``examples``: where the node itself, other pods or a claim are the reason. Such an example may become
        untrue while a gang waits, though nothing helps the gang. Of volumes there is one in any case.
        """
        refused = self.refusals(state, pod)
        instances: dict[ReasonToken, Example] = {}
        for plugin, slots in refused:
            if not examples and plugin.reason not in OF_VOLUMES:
                continue
            found = self._example(state, pod, plugin, slots)
            if plugin.filter_scope is Scope.STATIC or found.reason in _WITH_EXAMPLE:
                instances.setdefault(found.reason, found)
        return dict(_count(state, pod, refused).most_common()), tuple(instances.values())

    def why_no_node(self, state: CycleState, pod: Pod, slots: Ints | None = None) -> Shortfall:
        """The reason to give for a single pod that fits nowhere (of ``slots``), and nodes by reason.

        Nodes that would take the pod if they were not kept for others say more than nodes that could if they
        had room, and those more than nodes that never will; otherwise the most frequent reason wins.
        """
        refused = self.refusals(state, pod, slots)
        if not refused:
            return Shortfall(what=ShortOf.NODES, reason=Reason.INSUFFICIENT_RESOURCES)
        usage = _count(state, pod, [one for one in refused if one.plugin.filter_scope is not Scope.STATIC])
        tally = _count(state, pod, refused)
        if slots is None:
            self._last = pod, self._table.stamp, frozenset(tally)
        for_others = [one for one in refused if isinstance(one.plugin, HeldNodes | LooksAhead)]
        reason = (_count(state, pod, for_others) or usage or tally).most_common(1)[0][0]
        lacks: tuple[ResourceLack, ...] = ()
        if reason == Reason.INSUFFICIENT_RESOURCES:
            lacks = self.lacks(self._table.shares((pod,)), slots)
        by_labels = reason == Reason.NODE_AFFINITY_MISMATCH
        bare = self._unlabelled(pod, refused) if by_labels else None
        unknown = unknown_value(self._cluster, pod) if by_labels and bare is None else None
        #: One of the reason that is given, where nothing else says why, and of others the terms and claims.
        found: dict[ReasonToken, Example] = {}
        others: dict[ReasonToken, Example] = {}
        telling = {None, *_WITH_EXAMPLE, *(() if lacks or unknown is not None else (reason,))}
        for one in (*for_others, *refused):
            if one.plugin.reason in telling:
                example = self._example(state, pod, *one)
                if example.reason == reason:
                    found.setdefault(reason, example)
                elif example.reason in _WITH_EXAMPLE:
                    others.setdefault(example.reason, example)
        return Shortfall(
            what=ShortOf.NODES,
            reason=reason,
            blocked_by=dict(tally.most_common()),
            lacks=lacks,
            unlabelled=bare,
            unknown=unknown,
            examples=(*found.values(), *list(others.values())[:_MORE_EXAMPLES]),
        )

    def _example(self, state: CycleState, pod: Pod, plugin: Filter, slots: Ints) -> Example:
        found = plugin.rejection(state, pod, int(slots[0]))
        return Example(self._name(int(slots[0])), found.reason, found.message)

    def lacks_volumes(self, state: CycleState, pod: Pod, slots: Ints | None = None) -> Shortfall | None:
        """Why no node of some (None: all) takes a pod, as far as that is because of its volumes.

        None where it is not; the reason is empty where some nodes lack something else.
        """
        refused = self.refusals(state, pod, slots) if pod.spec.claims or pod.spec.attached_disks else ()
        for one in refused:
            if one.plugin.reason in OF_VOLUMES:
                example = self._example(state, pod, *one)
                tally = dict(_count(state, pod, refused).most_common())
                reason = example.reason if tally.keys() <= OF_VOLUMES else ""
                return Shortfall(what=ShortOf.VOLUMES, reason=reason, blocked_by=tally, examples=(example,))
        return None

    def reasons_of_nodes(self, pods: Sequence[Pod]) -> frozenset[ReasonToken]:
        """All reasons for which nodes take none of the pods; of those that differ in names alone, of one."""
        found = frozenset[ReasonToken]()
        for pod in one_of_each_spec(pods):
            last, stamp, reasons = self._last
            told = last is pod and stamp == self._table.stamp
            found |= reasons if told else self.tally(CycleState(), pod).keys()
        return found

    def lacks_attachments(self, pods: Sequence[Pod]) -> bool:
        """Whether what nodes say of their CSI drivers, or have attached, keeps one of the pods waiting.

        Some node would take it if it could attach more volumes, or if it reached what is made for another.
        """
        # Members with claims of their own mostly differ in the names alone.
        for pod in one_of_each_spec(pods):
            if not pod.spec.claims and not pod.spec.attached_disks:
                continue
            if any(need.shared and need.node for need in self._cluster.volumes.needs(pod)):
                return True
            full = self._cluster.volumes.full_for(pod)
            refused = self.refusals(CycleState(), pod, full) if len(full) else ()
            if any(one.plugin.reason == Reason.VOLUME_LIMIT_REACHED for one in refused):
                return True
        return False

    def lacks(self, demand: Sequence[Share], slots: Ints | None = None) -> tuple[ResourceLack, ...]:
        """The resources that pods lack, of all nodes or of some, the scarcest first."""
        cluster = self._cluster
        index = slice(0, cluster.capacity) if slots is None else slots
        usable = [self._table.usable(share.pod_class, slots) for share in demand]
        each = [(share.pods[0], len(share.pods)) for share in demand]
        if not each or not cluster.node_count:
            return ()
        alive: Bools = cluster.alive[index]
        any_of_them = usable[0] if len(usable) == 1 else np.logical_or.reduce(usable)
        found = lacks_of(cluster, each, index, alive, any_of_them)
        if found or len(each) == 1:
            return found
        single = (lacks_of(cluster, [one], index, alive, own) for one, own in zip(each, usable, strict=True))
        return next((lacks for lacks in single if lacks), ())

    def without_level(self, demand: Sequence[Share], tree: Tree, level: int) -> Unlabelled | None:
        """Nodes that could hold pods of a gang, were they empty, but carry no label of a level."""
        if level >= tree.node_level or tree.labelled[level].all():
            return None
        cluster, alive = self._cluster, tree.slot_at[self._cluster.alive[tree.slot_at]]
        able = np.zeros(len(alive), dtype=np.bool_)
        for share in demand:
            demanded = cluster.demand(share.pods[0].spec)
            able |= share.pod_class.static[alive] & (cluster.room(demanded, alive, without=EVERYTHING) > 0)
        bare = alive[able & ~tree.labelled[level][tree.owners_of_slots(alive, level)]]
        if not len(bare):
            return None
        label = tree.levels[level].node_label
        return unlabelled(cluster, label, bare, every=not tree.labelled[level].any())

    def label_lack(self, state: CycleState, pod: Pod) -> tuple[Unlabelled | None, UnknownValue | None]:
        """The label or value that nodes lack, if that keeps most of them from a pod."""
        refused = self.refusals(state, pod)
        (reason, _), *_ = _count(state, pod, refused).most_common(1) or [("", 0)]
        if reason != Reason.NODE_AFFINITY_MISMATCH:
            return None, None
        bare = self._unlabelled(pod, refused)
        return bare, unknown_value(self._cluster, pod) if bare is None else None

    def _unlabelled(self, pod: Pod, refused: Sequence[Refusal]) -> Unlabelled | None:
        """The label that most nodes lack of those that a pod's node selector or only affinity term names."""
        slots = [one.slots for one in refused if one.plugin.reason == Reason.NODE_AFFINITY_MISMATCH]
        if not slots:
            return None
        all_slots, found = np.concatenate(slots), {}
        for key, values in wanted_labels(pod):
            if key not in found:
                value, every = next(iter(values), None), self._is_unknown(key)
                found[key] = unlabelled(self._cluster, key, all_slots, value=value, every=every)
        return max(filter(None, found.values()), key=lambda one: one.nodes, default=None)

    def _is_unknown(self, label: str) -> bool:
        """Whether no node carries a label."""
        cluster = self._cluster
        codes = Nodes(cluster).label_codes(label)
        return not (codes[cluster.alive[: cluster.capacity]] != MISSING).any()

    def explain_pod(self, state: CycleState, pod: Pod, everything: bool) -> PodExplanation:
        """Scores of the nodes that pass, refusals of those that do not."""
        cluster = self._cluster
        refused = self.refusals(state, pod)
        alive = np.flatnonzero(cluster.alive[: cluster.capacity])
        feasible = alive[~np.isin(alive, np.concatenate([_NO_SLOTS, *(one.slots for one in refused)]))]
        by_plugin, total = self._scores(state, pod, feasible)
        few = everything or cluster.node_count <= ALL_NODES_UP_TO
        shown = np.arange(len(feasible)) if few else np.argsort(-total, kind="stable")[:BEST_NODES]
        scores: dict[str, Mapping[str, float]] = {}
        for index in shown.tolist():
            entry = {name: _figure(values[index]) for name, values in by_plugin.items()}
            scores[self._name(int(feasible[index]))] = entry | {"total": _figure(total[index])}
        by_slot = sorted(
            ((slot, one.plugin) for one in refused for slot in one.slots.tolist()), key=itemgetter(0)
        )
        rejected: dict[str, Rejection] = {}
        for slot, plugin in by_slot if few else by_slot[:BEST_NODES]:
            rejected[self._name(slot)] = plugin.why_not(state, pod, slot)
        return PodExplanation(
            pod=pod.key,
            scores=scores,
            rejected=rejected,
            feasible_nodes=len(feasible),
            rejected_by=dict(_count(state, pod, refused)),
        )

    def room(self, pod: Pod) -> NDArray[np.int64]:
        """How many such pods fit each slot now, with every filter; shape (slots,)."""
        pod_class = self._table.of(pod)
        self._table.refresh(pod_class)
        return pod_class.fits.copy()

    def survey(
        self, demand: Sequence[Share], tree: Tree, level: int, limit: int | None, strategy: Strategy
    ) -> tuple[DomainFit, ...]:
        """How the labelled domains of a level look to a gang.

        Those that hold it come first, in the strategy's order, then the others, the roomiest first.
        """
        wanted = sum(len(share.pods) for share in demand)
        counts = self._counts(demand, tree)
        room = self._room(demand, counts, tree, level)
        labelled = np.flatnonzero(tree.labelled[level]) if level > ROOT_LEVEL else np.zeros(1, dtype=np.intp)
        holds = room[labelled] >= wanted
        tightest_first = holds & (strategy is Strategy.BINPACK)
        size = np.where(tightest_first, room[labelled], -room[labelled])
        order = labelled[np.lexsort((size, ~holds))]
        return tuple(
            self._domain_fit(demand, tree, Domain(level, index), int(room[index]), wanted)
            for index in order[:limit].tolist()
        )

    def roomiest(
        self, demand: Sequence[Share], tree: Tree, level: int
    ) -> tuple[Domain, int, Shortfall | None] | None:
        """The labelled domain of a level with the most room for a gang, how many fit, and what it lacks."""
        counts = self._counts(demand, tree)
        room = np.where(tree.labelled[level], self._room(demand, counts, tree, level), -1)
        best = int(room.argmax()) if len(room) else 0
        if not len(room) or room[best] < 0:
            return None
        domain = Domain(level, best)
        return domain, int(room[best]), self._lack(demand, self._alive(tree, domain))

    def _alive(self, tree: Tree, domain: Domain) -> Ints:
        slots = tree.slots_in(domain)
        return slots[self._cluster.alive[slots]]

    def _counts(self, demand: Sequence[Share], tree: Tree) -> list[DomainCounts]:
        """Pods of each class that fit per domain as things are, after the trials of a search were undone."""
        for share in demand:
            self._table.refresh(share.pod_class)
        return [self._table.counts(share.pod_class, tree) for share in demand]

    def _room(
        self, demand: Sequence[Share], counts: Sequence[DomainCounts], tree: Tree, level: int
    ) -> NDArray[np.int64]:
        """Pods of the gang that fit each domain: every class up to what is asked of it."""
        room = np.zeros(tree.count(level), dtype=np.int64)
        for share, count in zip(demand, counts, strict=True):
            of = count.of(level)
            room += of if len(demand) == 1 else np.minimum(of, len(share.pods))
        return room

    def _domain_fit(
        self, demand: Sequence[Share], tree: Tree, domain: Domain, fits: int, wanted: int
    ) -> DomainFit:
        slots = self._alive(tree, domain)
        # Of a node that takes none of the pods, the reason is that of the first class of pods.
        full = np.logical_and.reduce([share.pod_class.fits[slots] == 0 for share in demand])
        blocked = self.tally(CycleState(), demand[0].pods[0], slots[full])
        return DomainFit(
            topology=tree.name,
            level=None if domain.level == ROOT_LEVEL else tree.level_names[domain.level],
            path=tree.path(domain),
            fits=fits,
            wanted=wanted,
            blocked_by=dict(blocked),
            nodes=len(slots),
            lack="" if fits >= wanted else domain_lack(self._lack(demand, slots)),
        )

    def _lack(self, demand: Sequence[Share], slots: Ints) -> Shortfall | None:
        """What keeps a gang from being held by a domain: resources that it lacks, else nodes by reason."""
        lacks = self.lacks(demand, slots)
        if lacks:
            return Shortfall(what=ShortOf.DOMAIN, reason=Reason.INSUFFICIENT_RESOURCES, lacks=lacks)
        for share in demand:
            if share.pod_class.fits[slots].sum() < len(share.pods):
                names, pod = tuple(one.name for one in share.pods), share.pods[0]
                volumes = self.lacks_volumes(CycleState(), pod, slots)
                tally = self.tally(CycleState(), pod, slots) if volumes is None else Counter()
                blocked = dict(tally.most_common())
                return Shortfall(
                    what=ShortOf.DOMAIN, reason="", pods=names, blocked_by=blocked, there=volumes
                )
        return None

    def _scores(
        self, state: CycleState, pod: Pod, feasible: Ints
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
        total = np.zeros(len(feasible))
        by_plugin: dict[str, NDArray[np.float64]] = {}
        scorers = active_scorers(self._scorers, state, pod)
        for plugin, weight, scores in plugin_scores(scorers, state, pod, Nodes(self._cluster, feasible)):
            by_plugin[plugin.name] = scores
            total += scores * (weight * 100.0 / plugin.max_score)
        return by_plugin, total

    def _name(self, slot: int) -> str:
        return self._cluster.node_at(slot).name


def _count(state: CycleState, pod: Pod, refused: Sequence[Refusal]) -> Counter[ReasonToken]:
    tally: Counter[ReasonToken] = Counter()
    for plugin, slots in refused:
        if plugin.reason is not None:
            tally[plugin.reason] += len(slots)
        else:
            tally.update(plugin.rejection(state, pod, slot).reason for slot in slots.tolist())
    return tally


def _figure(value: float) -> float:
    return round(float(value), 6)
