"""Plain pods that are refused without an attempt: one like them was, and nothing has changed since."""

from itertools import chain

from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import PLAIN, Decision, Outcome, Output
from closeby.scheduling.placing.tools import DECISION, POD
from closeby.scheduling.rounds.attempts import Attempts
from closeby.scheduling.rounds.outcome_handling import Tell
from closeby.scheduling.rounds.pending import PendingItems
from closeby.scheduling.rounds.refusals import Refused


class RefusedAlike:
    """Passes a refusal on to the pods that come next in the queue and are judged alike."""

    def __init__(self, state: SchedulingState, pending: PendingItems, attempts: Attempts, tell: Tell) -> None:
        self._state = state
        self._pending = pending
        self._attempts = attempts
        self._tell = tell

    def before(self, key: str) -> Refused | None:
        """The refusal of a plain pod like this one, since when nothing has changed; None if there is none."""
        pod = self._state.waiting_pods.get(key)
        if pod is None or pod.uid in self._state.gated or self._pending.reservations.current is not None:
            return None
        before = self._pending.refusals.like(pod)
        if before is None or self._may_preempt(before.outcome, pod) or self._attempts.has_places(key):
            return None
        return before if self._pending.queue.add_like(key, before.key) else None

    def refuse(
        self, before: Refused, outputs: list[Output], first: str, steps: int | None, most: float
    ) -> int:
        """Refuse a plain pod like one before it, and at ``most`` so many with those like it that come next.

        Each is charged as a decision where a turn has a number of ``steps``. Returns how many they are.
        Nothing changes meanwhile.
        """
        waiting, gated, kind_of = self._state.waiting_pods, self._state.gated, self._pending.refusals.kind_of
        kind, some_have_places = kind_of(waiting[first]), self._attempts.some_have_places
        #: Where pods of one spec are of one kind: the spec.
        spec = kind if isinstance(kind, PodSpec) else None

        def alike(key: str) -> bool:
            pod = waiting.get(key)
            if pod is None or (gated and pod.uid in gated):
                return False
            if pod.spec is not spec and (kind_of(pod) if spec is None else pod.spec) != kind:
                return False
            if some_have_places and self._attempts.has_places(key):
                return False
            return not self._may_preempt(before.outcome, pod)

        refused = 0
        for key in chain((first,), self._pending.queue.take_like(before.key, alike)):
            refused += 1
            outcome = before.shared.of_pod(key.removeprefix(PLAIN), waiting[key])
            outputs.append(Decision(outcome))
            self._tell(key, "decided", outcome)
            if steps is not None:
                self._pending.queue.charge(key, DECISION + POD, in_vain=True)
            if refused >= most:
                break
        return refused

    def _may_preempt(self, before: Outcome, pod: Pod) -> bool:
        """Whether a pod that is like one refused before may find victims."""
        preemptor = self._pending.preemptor
        if preemptor is None:
            return False
        return bool(before.preemptions) or not preemptor.refuses_alike(before.refused[0], pod)
