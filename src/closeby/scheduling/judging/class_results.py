"""What filters and scorers say of every node for one class of pods, updated incrementally.

Each class remembers how far it has read the cluster's change logs, so that touched slots alone are judged
again.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import inf

import numpy as np

from closeby.cluster.columns import UNLIMITED, Cluster
from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Filter, Scope
from closeby.scheduling.judging.figures import (
    DomainCounts,
    Weighted,
    active_scorers,
    cacheable,
    plugin_scores,
    total_scores,
)
from closeby.scheduling.judging.pod_classes import PodClass
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.tree import Tree

#: Cached node figures in all classes together (one figure is about 20 bytes).
CACHED_FIGURES = 8_000_000
#: Changes of a class without a request for its scores; after more, they are computed again as a whole.
REMEMBERED_CHANGES = 256
#: A larger part than this of all slots is recomputed as a whole; of a class that narrows others' figures,
#: which is little work for each slot.
WHOLE_FRACTION = 8
NARROWED_FRACTION = 128


class ClassResults:
    """Computes what is cached in classes, which the table owns, and answers from it."""

    def __init__(self, cluster: Cluster, scorers: Sequence[Weighted]) -> None:
        self._cluster = cluster
        self._normalised = tuple(
            one for one in scorers if not cacheable(one[0]) and one[0].score_scope is not Scope.PER_PLACEMENT
        )
        self._per_placement = tuple(
            one
            for one in scorers
            if one[0].score_scope is Scope.PER_PLACEMENT and not one[0].honoured_by_descent
        )
        self._cacheable = tuple(one for one in scorers if cacheable(one[0]))
        self._blank = CycleState()
        self._static_answers: OrderedDict[tuple[str, Hashable], tuple[int, Bools]] = OrderedDict()

    def forget(self) -> None:
        """A plugin judges by something else than before."""
        self._static_answers.clear()

    def refresh(self, pod_class: PodClass) -> None:
        """Bring a class up to date with the cluster."""
        cluster = self._cluster
        used, noted = cluster.usage_changes, cluster.node_changes
        if pod_class.usage_cursor == used.cursor and pod_class.node_cursor == noted.cursor:
            return
        base, most = pod_class.base, max(cluster.capacity // WHOLE_FRACTION, 64)
        if base is not None:
            self.refresh(base)
            most = cluster.capacity // NARROWED_FRACTION
        nodes = noted.since(pod_class.node_cursor) if pod_class.node_cursor >= 0 else None
        usage = used.since(pod_class.usage_cursor) if pod_class.usage_cursor >= 0 else None
        pod_class.node_cursor, pod_class.usage_cursor = noted.cursor, used.cursor
        if usage is not None and len(usage) > most:
            # The pods of a gang that left come one by one, each with its node.
            usage = _distinct(usage, cluster.capacity)
        for mask in pod_class.masks:
            flips = mask.follow(cluster)
            if flips is None:
                usage = None
            elif len(flips) and usage is not None and len(usage) <= most:
                moved = np.flatnonzero(flips.take(Nodes(cluster).label_codes(mask.key)))
                usage = np.concatenate([usage, moved])
        if nodes is None or usage is None or len(nodes) + len(usage) > most:
            self._compute(pod_class, nodes is None or len(nodes) > 0)
        elif len(nodes):
            pod_class.grow(cluster.capacity)
            touched = np.unique(np.concatenate([nodes, usage]))
            self._compute_static(pod_class, np.unique(nodes))
            self._update(pod_class, touched)
        else:
            self._update(pod_class, _distinct(usage, cluster.capacity))

    def usable(self, pod_class: PodClass, slots: Ints | None) -> Bools:
        """From which slots (of some, or of all) nothing but a lack of resources keeps such a pod.

        ``pod_class`` is up to date. Filters whose answer depends on what was placed elsewhere are not asked.
        """
        allowed: Bools = pod_class.static if slots is None else pod_class.static[slots]
        nodes = Nodes(self._cluster, slots)
        for plugin in pod_class.node_filters:
            allowed = allowed & plugin.filter(self._blank, pod_class.pod, nodes)
        return allowed

    def counts(self, pod_class: PodClass, tree: Tree) -> DomainCounts:
        """Pods that fit per domain of a tree; ``pod_class`` must be up to date."""
        counts = pod_class.counts.get(tree.name)
        if counts is None or counts.tree is not tree:
            counts = DomainCounts(tree, pod_class.fits)
            pod_class.counts[tree.name] = counts
        return counts

    def ranked(self, pod_class: PodClass) -> Scores:
        """Cacheable score totals where a pod fits, -inf elsewhere; ``pod_class`` must be up to date."""
        stale, ranked = pod_class.stale, pod_class.ranked
        others = self._notice_scorers(pod_class)
        if ranked is None or others or (stale and sum(map(len, stale)) > len(ranked) // WHOLE_FRACTION):
            pod_class.ranked = ranked = self._rank(pod_class, None)
        elif stale:
            several = len(stale) > 1
            slots = _distinct(np.concatenate(stale), self._cluster.capacity) if several else stale[0]
            if len(slots) == 1 and pod_class.base is None:
                ranked[slots.item()] = self._rank_one(pod_class, slots)
            else:
                ranked[slots] = self._rank(pod_class, slots)
        stale.clear()
        return ranked

    def wishes(self, pod_class: PodClass, state: CycleState) -> bool:
        """Whether something else than how much of them is used tells nodes apart for this class."""
        self._notice_scorers(pod_class)
        _, steady, normalised = pod_class.steady
        return (
            bool(normalised)
            or any(not plugin.scores_by_use for plugin, _ in steady)
            or bool(self._placing(pod_class, state))
        )

    def scores(self, pod_class: PodClass, state: CycleState, slots: Ints) -> Scores | None:
        """Score totals of slots on which the pod fits now, but for scores that a descent honours by itself.

        None where no scorer tells nodes apart for this class.
        """
        self.refresh(pod_class)
        self._notice_scorers(pod_class)
        _, steady, normalised = pod_class.steady
        fleeting = [*normalised, *self._placing(pod_class, state)]
        if not steady and not fleeting:
            return None
        if len(slots) > self._cluster.capacity // WHOLE_FRACTION:
            totals = self.ranked(pod_class)[slots]
        else:
            totals, fleeting = np.zeros(len(slots)), [*steady, *fleeting]
        if fleeting:
            totals = totals + total_scores(fleeting, state, pod_class.pod, Nodes(self._cluster, slots))
        return totals

    def _placing(self, pod_class: PodClass, state: CycleState) -> list[Weighted]:
        """The active ones of the scorers that depend on what was just placed."""
        any_of_them = [one for one in self._per_placement if one[0].scores_any]
        return active_scorers(any_of_them, state, pod_class.pod)

    def _compute(self, pod_class: PodClass, nodes_changed: bool) -> None:
        if nodes_changed:
            self._compute_static(pod_class, None)
        pod_class.fits = self._fits(pod_class, None)
        pod_class.total = int(pod_class.fits.sum())
        pod_class.counts.clear()
        pod_class.ranked = None

    def _update(self, pod_class: PodClass, slots: Ints) -> None:
        if pod_class.ranked is not None:
            pod_class.stale.append(slots)
            if len(pod_class.stale) > REMEMBERED_CHANGES:
                pod_class.ranked = None
        if len(slots) == 1 and pod_class.base is None:
            # A plain pod came to one node, or left it: plain numbers are quicker than arrays of one.
            slot = slots.item()
            more = self._fits_one(pod_class, slots) - pod_class.fits.item(slot)
            if not more:
                return
            pod_class.fits[slot] += more
            pod_class.total += more
            change = np.asarray([more], dtype=np.int64)
        else:
            fits = self._fits(pod_class, slots)
            change = fits - pod_class.fits[slots]
            pod_class.fits[slots] = fits
            if not change.any():
                return
            pod_class.total += int(change.sum())
        for counts in pod_class.counts.values():
            counts.add(slots, change)

    def _compute_static(self, pod_class: PodClass, slots: Ints | None) -> None:
        if pod_class.base is not None:
            pod_class.static = pod_class.base.static
            return
        cluster = self._cluster
        nodes = Nodes(cluster, slots)
        index = slice(0, cluster.capacity) if slots is None else slots
        answer: Bools = cluster.alive[index].copy()
        for plugin in pod_class.static_filters:
            if slots is None:
                answer &= self._static_answer(plugin, pod_class.pod)
            else:
                answer &= plugin.filter(self._blank, pod_class.pod, nodes)
        if slots is None:
            pod_class.static = answer
        else:
            pod_class.static[slots] = answer

    def _static_answer(self, plugin: Filter, pod: Pod) -> Bools:
        """A plugin's answer for all nodes, shared by the classes that have the same key for this plugin."""
        cluster = self._cluster
        key = (plugin.name, plugin.class_key(pod))
        known = self._static_answers.get(key)
        if known is not None and known[0] == cluster.node_changes.cursor:
            return known[1]
        answer = plugin.filter(self._blank, pod, Nodes(cluster))
        self._static_answers[key] = (cluster.node_changes.cursor, answer)
        if len(self._static_answers) > max(64, CACHED_FIGURES // max(cluster.capacity, 1)):
            self._static_answers.popitem(last=False)
        return answer

    def _fits(self, pod_class: PodClass, slots: Ints | None) -> Counts:
        nodes = Nodes(self._cluster, slots)
        if pod_class.base is not None:
            return _narrowed(pod_class, pod_class.base.fits[nodes.index], nodes)
        pod = pod_class.pod
        fits: Counts | None = None
        for plugin in pod_class.capacities:
            room = plugin.capacity(self._blank, pod, nodes)
            fits = room if fits is None else np.minimum(fits, room)
        if fits is None:
            fits = np.full(len(nodes), UNLIMITED, dtype=np.int64)
        allowed = pod_class.static if slots is None else pod_class.static[slots]
        for filtering in pod_class.node_filters:
            allowed = allowed & filtering.filter(self._blank, pod, nodes)
        return np.where(allowed, fits, 0)

    def _fits_one(self, pod_class: PodClass, slots: Ints) -> int:
        """The same for one slot of a class that narrows no other."""
        if not pod_class.static.item(slots.item()):
            return 0
        nodes, pod = Nodes(self._cluster, slots), pod_class.pod
        fits: int | None = None
        for plugin in pod_class.capacities:
            room: int = plugin.capacity(self._blank, pod, nodes).item()
            fits = room if fits is None else min(fits, room)
        for filtering in pod_class.node_filters:
            if not filtering.filter(self._blank, pod, nodes).item():
                return 0
        return UNLIMITED if fits is None else fits

    def _notice_scorers(self, pod_class: PodClass) -> bool:
        """Whether others than before tell nodes apart for this class, now that nodes have changed."""
        if pod_class.base is not None:
            totals = pod_class.base_ranked
            pod_class.base_ranked = self.ranked(pod_class.base)
            pod_class.steady = pod_class.base.steady
            return pod_class.base_ranked is not totals
        cursor = self._cluster.node_changes.cursor
        before = pod_class.steady
        if before[0] == cursor:
            return False
        active = [
            active_scorers(some, self._blank, pod_class.pod) for some in (self._cacheable, self._normalised)
        ]
        pod_class.steady = cursor, active[0], active[1]
        return pod_class.steady[1] != before[1]

    def _rank(self, pod_class: PodClass, slots: Ints | None) -> Scores:
        fitting = (pod_class.fits if slots is None else pod_class.fits[slots]) > 0
        if pod_class.base_ranked is not None:
            totals = pod_class.base_ranked if slots is None else pod_class.base_ranked[slots]
            return np.where(fitting, totals, -np.inf)
        scorers, nodes = pod_class.steady[1], Nodes(self._cluster, slots)
        total = np.zeros(len(nodes))
        for plugin, weight, scores in plugin_scores(scorers, self._blank, pod_class.pod, nodes, fitting):
            total += scores * (weight * 100.0 / plugin.max_score)
        return np.where(fitting, total, -np.inf)

    def _rank_one(self, pod_class: PodClass, slots: Ints) -> float:
        """The same for one slot of a class that narrows no other."""
        if pod_class.fits.item(slots.item()) <= 0:
            return -inf
        scorers, nodes = pod_class.steady[1], Nodes(self._cluster, slots)
        total = 0.0
        for plugin, weight, scores in plugin_scores(scorers, self._blank, pod_class.pod, nodes):
            total += float(scores[0] * (weight * 100.0 / plugin.max_score))
        return total


def _narrowed(pod_class: PodClass, fits: Counts, nodes: Nodes) -> Counts:
    """How many fit some nodes, of those that fit without the masks of the class, which are up to date."""
    for mask in pod_class.masks:
        fits = np.where(mask.allowed.take(nodes.label_codes(mask.key), mode="clip"), fits, 0)
    for key in pod_class.apart:
        fits = np.where(nodes.label_codes(key) > 0, np.minimum(fits, 1), fits)
    return fits


def _distinct(slots: Ints, capacity: int) -> Ints:
    """Slots without repeats, ascending; batches mostly come so, which is cheap to see."""
    if len(slots) < 2 or bool((slots[1:] > slots[:-1]).all()):
        return slots
    # Of few slots plain numbers take a fifth of the time.
    if len(slots) < 128:
        return np.asarray(sorted(set(slots.tolist())), dtype=np.intp)
    named = np.zeros(capacity, dtype=np.bool_)
    named[slots] = True
    return named.nonzero()[0]
