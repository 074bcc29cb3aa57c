"""One cycle for an application: its pods one after another, then all together, as near as they can be.

Not all or nothing: a pod without a place waits, the others are placed (network-aware scheduling KEP).
"""

from collections.abc import Sequence

import numpy as np

from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.extension import Traffic
from closeby.scheduling.nodes_view import Nodes
from closeby.scheduling.outcomes import Improvement, PodExplanation
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.local_search import improve
from closeby.scheduling.placing.sites import sites_of
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Attempt, Placed, Tools
from closeby.scheduling.state import CycleState

Left = tuple[Pod, Reason, str]


def place_application(tools: Tools, key: str, pods: tuple[Pod, ...]) -> Attempt:
    """Place the pods of an application, which come in its topological order."""
    return _ApplicationCycle(tools, key).run(pods)


class _ApplicationCycle:
    """One attempt at one application."""

    def __init__(self, tools: Tools, key: str) -> None:
        self._tools = tools
        self._explain = tools.explains(key)
        self._state = CycleState()
        self._statement: Statement = tools.statement()
        self._filler: Filler = tools.filler(self._statement, self._state)
        self._explanations: dict[str, PodExplanation] = {}

    def run(self, pods: tuple[Pod, ...]) -> Attempt:
        if not pods:
            return Attempt()
        refusal = self._tools.pre_filter(self._state, pods)
        if refusal is not None:
            return Attempt(refusal=refusal)
        traffic = self._tools.traffic(self._state, pods)
        left = self._one_by_one(pods)
        improvement = None
        if traffic is not None and self._state.placed:
            improvement = self._together(pods, traffic)
            left = self._one_by_one([pod for pod, _, _ in left])
        elif self._explain:
            self._assume_again(tuple(self._state.placed))
        placed = tuple(self._state.placed)
        refusal = self._tools.permit(self._state, placed) if placed else None
        if refusal is not None:
            self._statement.discard()
            return Attempt(refusal=refusal)
        self._statement.commit()
        if left:
            self._tools.post_filter(self._state, tuple(pod for pod, _, _ in left))
        explanations = tuple(self._explanations[pod.uid] for pod in pods if pod.uid in self._explanations)
        return Attempt(placed=placed, leftover=left, explanations=explanations, improvement=improvement)

    def _one_by_one(self, pods: Sequence[Pod]) -> tuple[Left, ...]:
        """Each pod to its best node; returns those that found none, with the reason."""
        left: list[Left] = []
        for pod in pods:
            slot = self._filler.best_node(pod, None)
            if slot is None:
                self._note(pod)
                left.append((pod, *self._tools.diagnosis.why_no_node(self._state, pod)))
            else:
                self._assume(pod, slot)
        return tuple(left)

    def _together(self, pods: tuple[Pod, ...], traffic: Traffic) -> Improvement:
        """Improve what is placed as a whole, and place it so."""
        before = {pod.uid: slot for pod, slot in self._state.placed}
        self._statement.rollback(0)
        self._state.placed.clear()
        sites = sites_of(self._tools.cluster, self._tools.table, traffic, pods, before.values())
        found = improve(traffic, sites, [before.get(pod.uid) for pod in pods])
        wanted = [(pod, slot) for pod, slot in zip(pods, found.slots, strict=True) if slot is not None]
        self._assume_again(wanted)
        least_cost = self._tools.least_cost
        return Improvement(
            greedy=found.cost_before,
            final=found.cost,
            evaluated=found.evaluated,
            spent=found.spent,
            # What is left out would make the rest cheaper than a placement of all of them.
            optimum=None if least_cost is None or len(before) < len(pods) else least_cost(traffic, sites),
        )

    def _assume_again(self, wanted: Sequence[Placed]) -> None:
        """Place pods on the nodes chosen for them, and look at each one's filters on the way.

        A choice that a filter refuses now (the search cannot know all of them) is left to the best node.
        """
        self._statement.rollback(0)
        self._state.placed.clear()
        for pod, slot in wanted:
            self._note(pod)
            allowed = self._allows(pod, slot)
            chosen = slot if allowed else self._filler.best_node(pod, None)
            if chosen is not None:
                self._assume(pod, chosen)

    def _allows(self, pod: Pod, slot: int) -> bool:
        pod_class = self._tools.table.of(pod)
        nodes = Nodes(self._tools.cluster, np.asarray([slot], dtype=np.intp))
        return bool(pod_class.fits[slot] > 0) and all(
            bool(plugin.filter(self._state, pod, nodes)[0]) for plugin in pod_class.blind_filters
        )

    def _note(self, pod: Pod) -> None:
        if self._explain:
            self._explanations[pod.uid] = self._tools.explain_pod(self._state, pod)

    def _assume(self, pod: Pod, slot: int) -> None:
        self._statement.assume((pod,), np.asarray([slot], dtype=np.intp))
        self._state.placed.append((pod, slot))
