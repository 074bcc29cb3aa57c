"""What the scheduler's log says of decisions: once, as long as it stays the same."""

from typing import Final

from closeby.objects.saying import Say
from closeby.objects.unexpected import fields_of
from closeby.scheduling.outcomes import Decision, Outcome

#: Items of which is remembered what was said last; items that are gone are among them.
_REMEMBERED: Final = 10_000


class DecisionLines:
    """What was said last about each work item."""

    def __init__(self, say: Say, *, dry_run: bool) -> None:
        self._say = say
        self._dry_run = dry_run
        #: By work item: what was last said about it.
        self._said: dict[str, str] = {}
        #: By work item: the fault in deciding about it that was told last.
        self._faults: dict[str, str] = {}

    def decided(self, decision: Decision) -> None:
        """The lines of one decision: its fault, if there is one, and its outcome."""
        if decision.fault is not None:
            self._fault(decision.outcome, decision.fault)
        self._outcome(decision.outcome)

    def _fault(self, outcome: Outcome, fault: Exception) -> None:
        """One line with the traceback, as long as the fault stays the same."""
        item, told = f"{outcome.kind.value}/{outcome.key}", fields_of(fault)
        if self._faults.get(item) == told["error"]:
            return
        if len(self._faults) >= _REMEMBERED:
            self._faults.clear()
        self._faults[item] = told["error"]
        self._say("decision failed", warning=True, item=item, **told)

    def _outcome(self, outcome: Outcome) -> None:
        """One line when pods of an item were placed, and one when it waits for another reason than before."""
        item = f"{outcome.kind.value}/{outcome.key}"
        nodes = {one.node for one in outcome.bindings}
        if nodes:
            self._say(
                "would place" if self._dry_run else "placed",
                item=item,
                pods=len(outcome.bindings),
                nodes=len(nodes),
                node=min(nodes) if len(nodes) == 1 else None,
                domain=outcome.place and "/".join(value or "" for value in outcome.place.path),
            )
        left = outcome.leftover
        text = left[0].message if left else None
        if text is None:
            self._said.pop(item, None)
        elif self._said.get(item) != text:
            if len(self._said) >= _REMEMBERED:
                self._said.clear()
            self._said[item] = text
            self._say("waits", item=item, pods=len(left), reason=left[0].reason, why=text)
