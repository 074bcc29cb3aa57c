"""One scheduling cycle: one work item is placed on a statement, and committed or discarded as a whole."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.classes import ClassTable
from closeby.scheduling.diagnosis import Diagnosis
from closeby.scheduling.extension import Reserve
from closeby.scheduling.fill import Filler
from closeby.scheduling.gangs import Constraints, Roster, parts
from closeby.scheduling.outcomes import DomainFit, PodExplanation
from closeby.scheduling.parts import Part, Scope, Share, shares
from closeby.scheduling.profiles import Profile
from closeby.scheduling.search import SEARCH_BUDGET, Budget, Search
from closeby.scheduling.state import CycleState
from closeby.scheduling.statement import Statement
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

Ints = NDArray[np.intp]


class Attempt(Struct, frozen=True, kw_only=True, eq=False):
    """What one cycle did. ``placed`` is empty when the item waits; it is assumed on the cluster otherwise."""

    placed: tuple[tuple[Pod, int], ...] = ()
    #: Elastic members that found no place, with the reason.
    leftover: tuple[tuple[Pod, Reason, str], ...] = ()
    refusal: Condition | None = None
    domains: tuple[DomainFit, ...] = ()
    explanations: tuple[PodExplanation, ...] = ()
    tree: Tree | None = None


class Cycle:
    """Places work items; owns nothing but its tools."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        topologies: Topologies,
        profile: Profile,
        explain: bool,
        explain_everything: bool,
    ) -> None:
        self._cluster = cluster
        self._topologies = topologies
        self._profile = profile
        self._listeners: tuple[Reserve, ...] = profile.reserves
        self.table = ClassTable(cluster, profile.filters, profile.scores)
        self.diagnosis = Diagnosis(cluster, self.table, profile.filters, profile.scores)
        self._explain = explain
        self._everything = explain_everything

    def pod(self, pod: Pod) -> Attempt:
        """Place one plain pod on the best node."""
        state = CycleState()
        refusal = self._pre_filter(state, (pod,))
        if refusal is not None:
            return Attempt(refusal=refusal)
        explanations = (
            (self.diagnosis.explain_pod(state, pod, self._everything),) if self._explain else ()
        )
        statement = Statement(self._cluster, self._listeners)
        slot = self._filler(statement, state).best_node(pod, None)
        if slot is None:
            self._post_filter(state, (pod,))
            reason, message = self.diagnosis.why_no_node(state, pod)
            return Attempt(refusal=_refusal(pod, reason, message), explanations=explanations)
        statement.assume((pod,), np.asarray([slot], dtype=np.intp))
        placed = ((pod, slot),)
        refusal = self._permit(state, placed)
        if refusal is not None:
            statement.discard()
            return Attempt(refusal=refusal, explanations=explanations)
        statement.commit()
        return Attempt(placed=placed, explanations=explanations)

    def gang(
        self, group: PodGroup, waiting: tuple[Pod, ...], members: Roster, constraints: Constraints
    ) -> Attempt:
        """Place a gang: its minimum in one go or nothing, then what fits of the rest."""
        tree = _tree_of(constraints)
        anchors = tuple(slot for slots in members.running.values() for slot in slots)
        state = CycleState(group, tree, anchors)
        refusal = self._pre_filter(state, waiting)
        if refusal is not None:
            return Attempt(refusal=refusal, tree=tree)
        attempt = _GangAttempt(self, group, members, constraints, state)
        return attempt.run(waiting)

    # Tools of the attempts

    def _filler(
        self, statement: Statement, state: CycleState, recorder: "dict[str, PodExplanation] | None" = None
    ) -> Filler:
        def record(pod: Pod) -> None:
            if recorder is not None:
                recorder[pod.uid] = self.diagnosis.explain_pod(state, pod, self._everything)

        return Filler(
            cluster=self._cluster,
            table=self.table,
            scorers=self._profile.scores,
            statement=statement,
            state=state,
            flat_tree=self._topologies.flat(),
            before_pod=None if recorder is None else record,
        )

    def _pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        for plugin in self._profile.pre_filters:
            refusal = plugin.pre_filter(state, pods)
            if refusal is not None:
                return refusal
        return None

    def _post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        for plugin in self._profile.post_filters:
            plugin.post_filter(state, pods)

    def _permit(self, state: CycleState, placed: tuple[tuple[Pod, int], ...]) -> Condition | None:
        for plugin in self._profile.permits:
            refusal = plugin.permit(state, placed)
            if refusal is not None:
                return refusal
        return None


class _GangAttempt:
    """One attempt at one gang, with what it gathers on the way."""

    def __init__(
        self, cycle: Cycle, group: PodGroup, members: Roster, constraints: Constraints, state: CycleState
    ) -> None:
        self._cycle = cycle
        self._group = group
        self._members = members
        self._constraints = constraints
        self._state = state
        self._recorded: dict[str, PodExplanation] | None = {} if cycle._explain else None
        self._statement = Statement(cycle._cluster, cycle._listeners)
        self._filler = cycle._filler(self._statement, state, self._recorded)
        self._budget = Budget(SEARCH_BUDGET)

    def run(self, waiting: tuple[Pod, ...]) -> Attempt:
        table = self._cycle.table
        minimum = parts(self._group, self._members, self._constraints, everyone=False)
        elastic = any(leaf.extra for leaf in minimum.leaves())
        demand = shares([pod for leaf in minimum.leaves() for pod in leaf.core], table)
        lacking = self._lacking(demand)
        domains = self._survey(shares(waiting, table)) if self._cycle._explain else ()
        search = None
        if lacking is None:
            if elastic:
                whole = parts(self._group, self._members, self._constraints, everyone=True)
                search = self._search(whole)
            search = search or self._search(minimum)
        if search is None:
            refusal = lacking or self._failure(demand)
            explanations = self._explanations(waiting)
            self._cycle._post_filter(self._state, waiting)
            return Attempt(
                refusal=refusal, domains=domains, explanations=explanations, tree=self._state.tree
            )
        leftover = self._place_extras(search, minimum) if elastic else ()
        placed = tuple(self._state.placed)
        refusal = self._too_few(placed) or self._cycle._permit(self._state, placed)
        if refusal is not None:
            self._statement.discard()
            return Attempt(refusal=refusal, domains=domains, tree=self._state.tree)
        explanations = self._explanations(waiting)
        self._statement.commit()
        return Attempt(
            placed=placed,
            leftover=leftover,
            domains=self._chosen_first(domains, placed),
            explanations=explanations,
            tree=self._state.tree,
        )

    def _search(self, part: Part) -> Search | None:
        search = Search(
            cluster=self._cycle._cluster,
            table=self._cycle.table,
            generators=self._cycle._profile.generators,
            filler=self._filler,
            statement=self._statement,
            state=self._state,
            group=self._group,
            budget=self._budget,
        )
        for _ in search.alternatives(part, Scope()):
            return search
        self._statement.discard()
        self._state.placed.clear()
        return None

    def _lacking(self, demand: Sequence[Share]) -> Condition | None:
        """Set when some class of pods has not enough room in the whole cluster, whatever the topology."""
        for share in demand:
            room = int(share.pod_class.fits.sum())
            if room < len(share.pods):
                tally = self._cycle.diagnosis.tally(self._state, share.pods[0])
                nodes = ", ".join(f"{count} nodes {reason}" for reason, count in tally.most_common())
                message = f"{room} of {len(share.pods)} pods fit in the whole cluster"
                if nodes:
                    message += f" ({nodes})"
                return self._condition(Reason.GANG_DOES_NOT_FIT, message)
        return None

    def _failure(self, demand: Sequence[Share]) -> Condition:
        if self._budget.spent:
            return self._condition(
                Reason.SEARCH_BUDGET_EXHAUSTED,
                "no place was found before the search budget was spent; there may be one",
                "ask for fewer subgroups, equal pods or a coarser level",
            )
        if not self._constraints.required:
            return self._condition(
                Reason.GANG_DOES_NOT_FIT, "the pods fit one by one, but not all beside each other"
            )
        levels = self._constraints.levels.get("")
        if levels is None or levels.required is None or self._group.subgroups:
            return self._condition(
                Reason.TOPOLOGY_PLACEMENT_FAILED,
                "there is room in the cluster, but no choice of domains holds all subgroups as they require",
            )
        name = levels.tree.level_names[levels.required]
        best = self._cycle.diagnosis.survey(demand, levels.tree, levels.required, 1)
        message = f"no {name} of topology {levels.tree.name} holds all {sum(len(s.pods) for s in demand)} pods"
        if self._state.anchors:
            message += " beside the members that already run"
        elif best:
            path = "/".join(value or "-" for value in best[0].path)
            message += f": the roomiest, {path}, takes {best[0].fits}"
            if best[0].lack:
                message += f" ({best[0].lack})"
        return self._condition(Reason.TOPOLOGY_PLACEMENT_FAILED, message)

    def _too_few(self, placed: tuple[tuple[Pod, int], ...]) -> Condition | None:
        """The gang's own minimum counts over all subgroups."""
        total = len(placed) + self._members.total_running
        if total >= self._group.min_member:
            return None
        return self._condition(
            Reason.GANG_DOES_NOT_FIT, f"{total} of at least {self._group.min_member} members find a place"
        )

    def _place_extras(
        self, search: Search, minimum: Part
    ) -> tuple[tuple[Pod, Reason, str], ...]:
        """Members beyond the minimum: near their subgroup, and in its domain where one is required."""
        placed = {pod.uid: slot for pod, slot in self._state.placed}
        leftover: list[tuple[Pod, Reason, str]] = []
        for leaf in minimum.leaves():
            waiting = [pod for pod in leaf.extra if pod.uid not in placed]
            if not waiting:
                continue
            chosen = search.chosen.get(leaf.name)
            anchors = [*leaf.anchors, *(placed[pod.uid] for pod in leaf.core if pod.uid in placed)]
            if chosen is None:  # The subgroup was left out as a whole.
                leftover += [(pod, Reason.GANG_DOES_NOT_FIT, "its subgroup found no place") for pod in waiting]
                continue
            for share in shares(waiting, self._cycle.table):
                left = self._grow(search, leaf, chosen[1], share, anchors)
                leftover += [(pod, *self._why_left(leaf, share)) for pod in left]
        return tuple(leftover)

    def _grow(
        self, search: Search, leaf: Part, scope: Scope, share: Share, anchors: list[int]
    ) -> list[Pod]:
        left = list(share.pods)
        while left:
            part = Part(
                name=leaf.name,
                levels=leaf.levels,
                core=(left[0],),
                extra=tuple(left[1:]),
                anchors=tuple(anchors),
            )
            candidates = search.candidates(part, scope)
            before = len(self._state.placed)
            for candidate in (None,) if candidates is None else candidates:
                inside = scope if candidate is None else scope.narrowed(candidate, self._cycle._cluster.capacity)
                allowed = inside.allowed(self._cycle._cluster.capacity)
                self._cycle.table.refresh(share.pod_class)
                fits = share.pod_class.fits
                room = int(fits.sum() if allowed is None else fits[allowed].sum())
                for count in {min(room, len(left)), 1} - {0}:
                    if self._filler.fill(left[:count], candidate, scope, self._group.strategy, self._budget):
                        break
                if len(self._state.placed) > before:
                    break
            grown = self._state.placed[before:]
            if not grown:
                break
            anchors.extend(slot for _, slot in grown)
            left = left[len(grown) :]
        return left

    def _why_left(self, leaf: Part, share: Share) -> tuple[Reason, str]:
        self._cycle.table.refresh(share.pod_class)
        if int(share.pod_class.fits.sum()) == 0:
            return Reason.INSUFFICIENT_RESOURCES, "no node has room for this member beyond the minimum"
        if leaf.levels is not None and leaf.levels.required is not None or self._constraints.required:
            return Reason.TOPOLOGY_PLACEMENT_FAILED, "the gang's domain has no room for this member"
        return Reason.GANG_DOES_NOT_FIT, "no allowed node has room for this member"

    def _survey(self, demand: Sequence[Share]) -> tuple[DomainFit, ...]:
        levels = self._constraints.levels.get("") or next(iter(self._constraints.levels.values()), None)
        if levels is None or not demand:
            return ()
        level = levels.required if levels.required is not None else levels.preferred
        if level is None or levels.by_default:
            level = max(levels.tree.node_level - 1, ROOT_LEVEL)
        limit = None if self._cycle._everything else 20
        return self._cycle.diagnosis.survey(demand, levels.tree, level, limit)

    def _chosen_first(
        self, domains: tuple[DomainFit, ...], placed: tuple[tuple[Pod, int], ...]
    ) -> tuple[DomainFit, ...]:
        """The domain taken, then the others in the order of the gang's strategy."""
        tree = self._state.tree
        if not domains or tree is None:
            return domains
        positions = tree.position_of[np.asarray([slot for _, slot in placed], dtype=np.intp)]
        path = tree.path(tree.tightest(positions))
        taken = [fit for fit in domains if path[: len(fit.path)] == fit.path or fit.path[: len(path)] == path]
        others = [fit for fit in domains if fit not in taken]
        holding = sorted((fit for fit in others if fit.fits >= fit.wanted), key=lambda fit: fit.fits)
        return (*taken, *holding, *(fit for fit in others if fit.fits < fit.wanted))

    def _explanations(self, waiting: tuple[Pod, ...]) -> tuple[PodExplanation, ...]:
        """What was recorded pod by pod; for a fill by descent the state before it, once per class."""
        if self._recorded is None:
            return ()
        if self._recorded:
            return tuple(self._recorded[pod.uid] for pod in waiting if pod.uid in self._recorded)
        batches = tuple(self._statement.since(0))
        placed = list(self._state.placed)
        self._statement.rollback(0)
        self._state.placed[:] = placed[:1]
        explanations = []
        for share in shares(waiting, self._cycle.table):
            shared = self._cycle.diagnosis.explain_pod(self._state, share.pods[0], self._cycle._everything)
            explanations += [
                PodExplanation(
                    pod=pod.key,
                    scores=shared.scores,
                    rejected=shared.rejected,
                    feasible_nodes=shared.feasible_nodes,
                    rejected_by=shared.rejected_by,
                )
                for pod in share.pods
            ]
        for batch in batches:
            self._statement.assume(batch.pods, batch.slots)
        self._state.placed[:] = placed
        return tuple(explanations)

    def _condition(self, reason: Reason, message: str, remedy: str = "") -> Condition:
        return Condition(
            reason=reason, object=f"PodGroup/{self._group.key}", message=message, remedy=remedy, blocking=True
        )


def _tree_of(constraints: Constraints) -> Tree | None:
    """The tree in which the gang's closeness is told: its own, else the only one its subgroups name."""
    own = constraints.levels.get("")
    if own is not None:
        return own.tree
    trees = {levels.tree.name: levels.tree for levels in constraints.levels.values()}
    return next(iter(trees.values())) if len(trees) == 1 else None


def _refusal(pod: Pod, reason: Reason, message: str) -> Condition:
    return Condition(reason=reason, object=f"Pod/{pod.key}", message=message, blocking=True)


def domain_of(tree: Tree, slots: Ints) -> Domain:
    """The tightest labelled domain of a tree that holds all slots; all must be in the tree."""
    return tree.tightest(tree.position_of[slots])
