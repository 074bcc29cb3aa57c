"""Places unequal pods in segments that are alike, as a leader with its workers each time, by counting them.

Sums say how many segments a domain holds at the most. What is counted is then filled; a domain that turns out
to hold fewer is counted with these, and the choice of domains is made again.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.groups import Exclusive
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part, mean_scores, scoped_counts
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.figures import MeanScores
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.counted_segments import Proposes, SegmentedPart
from closeby.scheduling.placing.descent import fewest
from closeby.scheduling.placing.packing import first_of
from closeby.scheduling.placing.segment_bounds import (
    SegmentCounts,
    SegmentKind,
    classes_of,
    greatest_kind,
    most_segments,
)
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.segment_rules import SegmentPlacer
from closeby.scheduling.steps import HalfBudget
from closeby.topology.tree import Domain

#: After so many domains that hold fewer segments than sums say, mixtures of pods are judged.
MANY_FEWER: Final = 8


class _Filled(Struct, frozen=True, eq=False):
    """A domain that was filled: the class of each pod, and its slot."""

    classes: Ints
    slots: Ints


class _Like(Struct, frozen=True, eq=False):
    """A part with the kind that stands for its segments, and its pods in the order of their numbers."""

    part: Part
    layering: Layering
    kind: SegmentKind
    pods: tuple[Pod, ...]
    #: The class of each pod, by its place among those of the part.
    classes: Ints
    #: Domains that were filled once, as long as nothing else changes.
    filled: dict[Domain, _Filled]

    @property
    def rest(self) -> int:
        """Pods beyond whole segments of the coarsest layer."""
        return len(self.pods) % max(self.layering.layers[0].size, 1)

    @property
    def wanted(self) -> int:
        """Pods if all segments were whole."""
        return -(-len(self.pods) // self.kind.size) * self.kind.size


class LikeSegments(SegmentPlacer):
    """Places parts whose segments are alike, or nearly, on one statement."""

    def ways(
        self, part: Part, layering: Layering, scope: NodeSet, demand: Sequence[Share], proposes: Proposes
    ) -> Generator[None, None, bool]:
        """Each step places the part in another way, with all layers followed.

        Returns whether there certainly is no other way; else a search may find one.
        """
        like = self._like(part, layering, demand)
        if like is None:
            return False
        counts = self._counts(like, scope)
        view = SegmentedPart(self._group, part, scope, demand, self._table, self._statement.state)
        view.follow(self._room(like, counts), like.wanted)
        candidates = proposes(view)
        # The other half is left for the search.
        half = HalfBudget(self._budget)
        for candidate in (None,) if candidates is None else candidates:
            inside, same = self._within(scope, candidate, layering)
            mark = self._statement.checkpoint()
            own = like if same else replace(like, filled={})
            if self._place(own, inside, counts if same else self._counts(like, inside)):
                self._chosen[part.name] = (candidate, scope)
                half.suspend()
                yield
                half.resume()
            self._statement.rollback(mark)
        half.suspend()
        return like.kind.alike and not like.rest and not layering.prefers and not half.spent

    def _like(self, part: Part, layering: Layering, demand: Sequence[Share]) -> _Like | None:
        """The part as segments of one kind; None where they are too unlike, or a rest may be alone."""
        kind = greatest_kind(part, layering, demand)
        if kind is None:
            return None
        order = np.argsort(part.numbers[: len(part.core)], kind="stable")
        pods = tuple([part.core[at] for at in order.tolist()])
        like = _Like(part, layering, kind, pods, classes_of(pods, demand), {})
        alone = any(one.exclusive is not Exclusive.NONE for one in layering.layers)
        return None if like.rest and alone else like

    def _place(self, like: _Like, inside: NodeSet, counts: SegmentCounts) -> bool:
        """Place all segments inside some nodes; ``counts`` follow what is seen to fit."""
        tree, mark = like.layering.tree, self._statement.checkpoint()
        for level in range(like.layering.layers[-1].level + 1, tree.node_level + 1):
            # What finer domains hold is asked for while they are filled, when it would be less.
            if not counts.of(level).any():
                break
        fewer = 0
        while self._budget.take_candidate():
            shares = self._room(like, counts).share_out(
                inside.domain_in(tree), 0, like.wanted, self._group.strategy, self._means(like, inside)
            )
            if shares is None:
                return False
            lacking = self._fill(like, first_of(shares, len(like.pods)), inside, counts)
            if not lacking and self._rules.in_few(like.part, like.layering):
                return True
            self._statement.rollback(mark)
            if not lacking:
                break
            for domain, segments in lacking:
                counts.limit(domain, segments)
            fewer += len(lacking)
            if fewer >= MANY_FEWER:
                counts.look_closer()
        self._budget.spent = True
        return False

    def _fill(
        self, like: _Like, shares: Sequence[tuple[Domain, int]], inside: NodeSet, counts: SegmentCounts
    ) -> list[tuple[Domain, int]]:
        """Fill domains with their pods; those that hold fewer segments than that, with how many they hold.

        Where mixtures of pods were not judged, it ends once there are many.
        """
        lacking, at = [], 0
        for domain, count in shares:
            pods, classes, at = like.pods[at : at + count], like.classes[at : at + count], at + count
            if self._again(like, pods, classes, domain):
                continue
            if not self._at_once(like, pods, domain, inside, counts):
                held = self._one_by_one(like, pods, domain, inside)
                if held * like.kind.size < len(pods):
                    lacking.append((domain, held))
                    if not counts.close and len(lacking) == MANY_FEWER:
                        break
                    continue
            where = {pod.uid: slot for pod, slot in self._statement.state.placed[-len(pods) :]}
            slots = np.asarray([where[pod.uid] for pod in pods])
            like.filled[domain] = _Filled(classes, slots)
        return lacking

    def _again(self, like: _Like, pods: Sequence[Pod], classes: Ints, domain: Domain) -> bool:
        """Place pods in a domain as others of their classes were before, if there were any."""
        filled = like.filled.get(domain)
        if filled is None or not np.array_equal(filled.classes, classes):
            return False
        for one in np.unique(classes):
            places = np.flatnonzero(classes == one)
            self._statement.assume([pods[at] for at in places.tolist()], filled.slots[places])
        return True

    def _at_once(
        self, like: _Like, pods: Sequence[Pod], domain: Domain, inside: NodeSet, counts: SegmentCounts
    ) -> bool:
        """Place segments in one domain, each in one of a finer level where these hold them all."""
        mark, at, size = self._statement.checkpoint(), 0, like.kind.size
        means = self._means(like, inside)
        for finer, count in self._finer(like, domain, -(-len(pods) // size) * size, counts, means):
            if not self._into(like, pods[at : at + count], finer, inside):
                self._statement.rollback(mark)
                return False
            at += count
        return True

    def _finer(
        self, like: _Like, domain: Domain, count: int, counts: SegmentCounts, means: MeanScores
    ) -> Iterator[tuple[Domain, int]]:
        """The finest domains inside one that hold whole segments of so many pods, with their pods."""
        tree, level = like.layering.tree, domain.level + 1
        if level > tree.node_level:
            yield domain, count
            return
        first, end = tree.within(domain, level)
        if int(counts.of(level)[first:end].sum()) < count:
            yield domain, count
            return
        for child, share in sorted(fewest(counts, domain, level, count, self._group.strategy, means)):
            yield from self._finer(like, child, share, counts, means)

    def _one_by_one(self, like: _Like, pods: Sequence[Pod], domain: Domain, inside: NodeSet) -> int:
        """Place segments in one domain; returns how many fit, and has placed them if these are all."""
        mark, size = self._statement.checkpoint(), like.kind.size
        held, wanted = 0, -(-len(pods) // size)
        while held < wanted and self._into(like, pods[held * size : (held + 1) * size], domain, inside):
            held += 1
        while 0 < held < wanted:
            # One after another they may be in each other's way.
            self._statement.rollback(mark)
            if not self._into(like, pods[: (held + 1) * size], domain, inside):
                break
            held += 1
        return held

    def _into(self, like: _Like, pods: Sequence[Pod], domain: Domain, inside: NodeSet) -> bool:
        candidate = Candidate(tree=like.layering.tree, domain=domain)
        return self._budget.take_candidate() and self._filler.fill(
            pods, candidate, inside, self._group.strategy, self._budget
        )

    def _means(self, like: _Like, inside: NodeSet) -> MeanScores:
        tree, capacity = like.layering.tree, self._cluster.capacity
        demand = [
            (share, scoped_counts(self._table, share.pod_class, tree, inside, capacity))
            for share, _ in like.kind.shares
        ]
        return mean_scores(self._table, self._statement.state, demand)

    def _counts(self, like: _Like, inside: NodeSet) -> SegmentCounts:
        layering = like.layering
        level = layering.layers[-1].level
        return most_segments(self._cluster, self._table, like.kind, layering.tree, level, inside)

    def _room(self, like: _Like, counts: SegmentCounts) -> SegmentRoom:
        layering = like.layering
        used = self._rules.used(like.part, layering)
        return SegmentRoom(layering, counts, self._rules.barred(layering), strict=True, used=used)
