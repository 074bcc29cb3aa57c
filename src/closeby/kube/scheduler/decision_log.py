"""What the scheduler's log says of decisions: once, as long as the reason stays the same.

The details of a reason change with every pod that comes or goes; the conditions have the newest ones.
"""

import time
from collections.abc import Container
from typing import Final

from closeby.objects.process import Reported, Say, fields_of
from closeby.scheduling.outcomes import Decision, Outcome

#: Seconds for which no other pod is said to wait in the very same words: many equal ones may.
_AGAIN: Final = 60.0


class DecisionLog:
    """What was logged last of each work item."""

    def __init__(self, say: Say, *, dry_run: bool, refused: Container[str] = ()) -> None:
        """``refused``: uids of pods whose bindings the server refuses, which are placed again and again."""
        self._say = say
        self._refused = refused
        self._dry_run = dry_run
        #: By work item: why it waits, and the fault in deciding about it.
        self._waits: Reported[str] = Reported()
        self._faults: Reported[str] = Reported()
        #: By sentence about a pod: the minute in which it was said of any.
        self._sentences: Reported[str] = Reported()

    def decided(self, decision: Decision) -> None:
        """The lines of one decision: its fault, if there is one, and its outcome."""
        if decision.fault is not None:
            self._fault(decision.outcome, decision.fault)
        self._outcome(decision.outcome)

    def _fault(self, outcome: Outcome, fault: Exception) -> None:
        """One line with the traceback, as long as the fault stays the same."""
        item, fields = f"{outcome.kind.value}/{outcome.key}", fields_of(fault)
        if self._faults.changes(item, fields["error"]):
            self._say("decision failed", warning=True, item=item, **fields)

    def _outcome(self, outcome: Outcome) -> None:
        """One line when pods of an item were placed, and one when it waits for another reason than before."""
        item = f"{outcome.kind.value}/{outcome.key}"
        nodes = {one.node for one in outcome.bindings}
        if any(one.pod.uid not in self._refused for one in outcome.bindings):
            self._say(
                "would place" if self._dry_run else "placed",
                item=item,
                pods=len(outcome.bindings),
                nodes=len(nodes),
                node=min(nodes) if len(nodes) == 1 else None,
                domain=outcome.place and "/".join(value or "" for value in outcome.place.path),
            )
        left = outcome.leftover
        if not left:
            self._waits.over(item)
        elif self._waits.changes(item, left[0].reason):
            now = int(time.monotonic() // _AGAIN)
            if outcome.is_gang or self._sentences.changes(left[0].message, now):
                self._say("waits", item=item, pods=len(left), reason=left[0].reason, why=left[0].message)
