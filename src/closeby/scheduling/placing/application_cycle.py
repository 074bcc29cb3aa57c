"""One cycle for an application: its pods one after another, then all together, as near as they can be.

Not all or nothing: a pod without a place waits, the others are placed (network-aware scheduling KEP).
"""

from collections.abc import Hashable, Sequence

from closeby.objects.pods import Pod
from closeby.objects.reasons import ReasonToken
from closeby.scheduling.judging.lookahead import look_ahead
from closeby.scheduling.judging.needs import need_of_any
from closeby.scheduling.moving.layout import sites_of, traffic_cost
from closeby.scheduling.moving.local_search import Searched, improve, place_all
from closeby.scheduling.outcomes import Improvement, PodExplanation
from closeby.scheduling.placing.tools import Attempt, Left, Placed, Tools
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.reasons.wording import message
from closeby.scheduling.services import Traffic


def place_application(tools: Tools, key: str, pods: tuple[Pod, ...]) -> Attempt:
    """Place the pods of an application, which come in its topological order."""
    return _ApplicationCycle(tools, key).run(pods)


class _ApplicationCycle:
    """One attempt at one application."""

    def __init__(self, tools: Tools, key: str) -> None:
        self._tools = tools
        self._explain = tools.explains(key)
        self._state = CycleState()
        self._statement = tools.statement(self._state)
        self._filler = tools.filler(self._statement)
        self._explanations: dict[str, PodExplanation] = {}

    def run(self, pods: tuple[Pod, ...]) -> Attempt:
        if not pods:
            return Attempt()
        refusal = self._tools.pre_filter(self._state, pods)
        if refusal is not None:
            return Attempt(refusal=refusal)
        finding = self._finding(pods)
        # Where none finds a place there is nothing to move about.
        traffic = self._tools.traffic(self._state, pods) if any(finding) else None
        left, improvement = self._place(pods, traffic, fits_empty=all(finding))
        if traffic is not None and left and self._looks_ahead(traffic, pods):
            self._statement.discard()
            left, improvement = self._place(pods, traffic, fits_empty=False)
        placed = tuple(self._state.placed)
        refusal = self._tools.permit(self._state, placed) if placed else None
        if refusal is not None:
            self._statement.discard()
            return Attempt(refusal=refusal)
        self._statement.commit()
        if left:
            self._tools.post_filter(self._state, tuple(pod for pod, _, _ in left))
        explanations = tuple(self._explanations[pod.uid] for pod in pods if pod.uid in self._explanations)
        waiting = [pod for pod, _, _ in left]
        lasting = bool(waiting) and not any(pod.spec.claims for pod in waiting)  # Claims may change.
        return Attempt(
            placed=placed,
            leftover=left,
            need=need_of_any(self._tools.table, waiting) if lasting else None,
            explanations=explanations,
            improvement=improvement,
        )

    def _place(
        self, pods: tuple[Pod, ...], traffic: Traffic | None, *, fits_empty: bool
    ) -> tuple[tuple[Left, ...], Improvement | None]:
        """As many as possible, as near as they can be; ``fits_empty``: each would find a node if first."""
        left = self._one_by_one(pods, note=traffic is None)
        improvement = None
        while traffic is not None and self._state.placed:
            improvement = self._together(pods, traffic)
            # Pods that moved may have made room; then the whole is more than what was looked at.
            missing, left = len(pods) - len(self._state.placed), self._one_by_one(self._missing(pods))
            if len(left) == missing:
                break
        # What takes no pod of a kind when nothing is placed takes none when all are.
        if traffic is not None and left and fits_empty:
            whole = self._all_at_once(pods, traffic)
            improvement, left = (improvement, left) if whole is None else (whole, ())
        return left, improvement

    def _looks_ahead(self, traffic: Traffic, pods: tuple[Pod, ...]) -> bool:
        """Whether some of those that were placed must wait instead, so that others have a node at all."""
        tools = self._tools
        return look_ahead(self._state, tools.cluster, tools.table, traffic, pods)

    def _finding(self, pods: tuple[Pod, ...]) -> list[bool]:
        """Of each kind of pod, whether any node may take one now."""
        tools = self._tools
        seen: set[Hashable] = set()
        for pod in pods:
            kind = tools.table.key_of(pod)
            if kind not in seen:
                seen.add(kind)
                tools.steps.take(50 + tools.cluster.capacity // 100)
                tools.table.of(pod)
        kinds = need_of_any(tools.table, pods).some
        return [tools.rooms.takes(want) for want in kinds]

    def _missing(self, pods: tuple[Pod, ...]) -> list[Pod]:
        found = {pod.uid for pod, _ in self._state.placed}
        return [pod for pod in pods if pod.uid not in found]

    def _one_by_one(self, pods: Sequence[Pod], *, note: bool = False) -> tuple[Left, ...]:
        """Each pod to its best node; returns those that found none, with the reason.

        What is seen of the nodes is noted for pods that find none, with ``note`` for all.
        """
        left: list[Left] = []
        #: What kept pods out since the last one was placed, by kind: equal ones need not be asked again.
        kept_out: dict[Hashable, tuple[ReasonToken, str]] = {}
        for pod in pods:
            kind = self._tools.table.key_of(pod)
            slot = None if kind in kept_out else self._filler.best_node(pod, None)
            if slot is None or note:
                self._note(pod)
            if slot is not None:
                self._statement.assume_one(pod, slot)
                kept_out.clear()
                continue
            if kind not in kept_out:
                self._state.steps.take(100 + self._tools.cluster.capacity // 50)
                why = self._tools.diagnosis.why_no_node(self._state, pod)
                kept_out[kind] = why.reason, message(why)
            left.append((pod, *kept_out[kind]))
        return tuple(left)

    def _all_at_once(self, pods: tuple[Pod, ...], traffic: Traffic) -> Improvement | None:
        """Place everybody where some found no place after the others; None (nothing changed) if it fails."""
        tools = self._tools
        before = tuple(self._state.placed)
        self._statement.discard()
        slots, flat = [slot for _, slot in before], tools.topologies.flat()
        sites = sites_of(tools.cluster, tools.table, traffic, pods, slots, flat)
        start = place_all(traffic, sites, tools.steps)
        if start is not None:
            found = improve(traffic, sites, start, tools.steps)
            wanted = [(pod, slot) for pod, slot in zip(pods, found.slots, strict=True) if slot is not None]
            if self._assume_again(wanted):
                return _improvement(found, found.cost)
        self._assume_again(before)
        return None

    def _together(self, pods: tuple[Pod, ...], traffic: Traffic) -> Improvement:
        """Improve what is placed as a whole, and place it so."""
        tools = self._tools
        before = tuple(self._state.placed)
        home, flat = {pod.uid: slot for pod, slot in before}, tools.topologies.flat()
        self._statement.discard()
        sites = sites_of(tools.cluster, tools.table, traffic, pods, home.values(), flat)
        found = improve(traffic, sites, [home.get(pod.uid) for pod in pods], tools.steps)
        wanted = [(pod, slot) for pod, slot in zip(pods, found.slots, strict=True) if slot is not None]
        final = found.cost
        if not self._assume_again(wanted):
            now = {pod.uid: slot for pod, slot in self._state.placed}
            final = traffic_cost(traffic, [now.get(pod.uid) for pod in pods])
            if len(now) < len(before) or final > found.cost_before:
                self._assume_again(before)
                final = found.cost_before
        return _improvement(found, final)

    def _assume_again(self, wanted: Sequence[Placed]) -> bool:
        """Place pods on the nodes chosen for them, and look at each one's filters on the way.

        A choice that a filter refuses now (the search cannot know all of them) is left to the best node, if
        there is one; then the answer is False.
        """
        self._statement.discard()
        as_wanted = True
        for pod, slot in wanted:
            self._state.steps.take(50 + self._tools.cluster.capacity // 500)
            self._note(pod)
            allowed = self._tools.allows(self._state, pod, slot)
            as_wanted &= allowed
            chosen = slot if allowed else self._filler.best_node(pod, None)
            if chosen is not None:
                self._statement.assume_one(pod, chosen)
        return as_wanted

    def _note(self, pod: Pod) -> None:
        if self._explain:
            self._explanations[pod.uid] = self._tools.explain_pod(self._state, pod)


def _improvement(found: Searched, final: float) -> Improvement:
    return Improvement(greedy=found.cost_before, final=final, evaluated=found.evaluated, spent=found.spent)
