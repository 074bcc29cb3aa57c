"""All counterfactuals of a run: of what waits for want of room, and of what was placed together."""

from collections.abc import Collection, Mapping
from typing import Final

from closeby.objects.reasons import Reason
from closeby.scheduling.outcomes import APPLICATION, PLAIN, ItemKind, Outcome
from closeby.simulator.runs import Run
from closeby.whatif.applications.gathering import (
    of_placed_application,
    of_waiting_application,
)
from closeby.whatif.gangs.elsewhere import runner_up
from closeby.whatif.gangs.ending import ended
from closeby.whatif.gangs.lacking import short
from closeby.whatif.gangs.relaxing import relaxed
from closeby.whatif.questions import Question
from closeby.whatif.records import Counterfactual
from closeby.whatif.rooms import Rooms
from closeby.whatif.trials import DECISIONS, Trials, key_of

#: Items that wait, placed gangs and placed applications of which this is worked out where all are asked for:
#: the first ones.
ITEMS: Final = 50
#: Decisions that all of them may spend together, each no more than its own share of it.
TOGETHER: Final = 10_000
#: What asking for less, or more room, can help.
_ROOM: Final = frozenset(
    {
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NODE_AFFINITY_MISMATCH,
        Reason.TAINT_NOT_TOLERATED,
        Reason.NODE_UNSCHEDULABLE,
        Reason.HOST_PORT_CONFLICT,
        Reason.BANDWIDTH_RISK,
        Reason.NETWORK_COST_TOO_HIGH,
        Reason.GANG_DOES_NOT_FIT,
        Reason.TOPOLOGY_PLACEMENT_FAILED,
        Reason.SEARCH_BUDGET_EXHAUSTED,
    }
)
#: What only asking for something else can help.
_NAMES: Final = frozenset({Reason.TOPOLOGY_NOT_FOUND, Reason.TOPOLOGY_LEVEL_NOT_FOUND})

#: By ``namespace/name``; those of applications and plain pods have a prefix.
Found = Mapping[str, tuple[Counterfactual, ...]]


def counterfactuals(
    run: Run, only: Collection[str] | None = None, scheduler_name: str | None = None
) -> Found:
    """What would have to be different for each gang, application or plain pod, by the key of its work item.

    ``only`` names some by ``namespace/name``, else the first ``ITEMS`` that wait and as many that were placed
    are asked about. Empty where a change of this kind does not help. ``scheduler_name``: pods of other
    schedulers would not be placed anew; None: all would.
    """
    placed = [
        group
        for group in run.groups
        if group.key in run.places and group.key in (run.gang_outcomes if only is None else only)
    ]
    together = [
        one
        for one in run.engine.applications
        if one.group.usable and one.key in (run.app_outcomes if only is None else only)
    ]
    waiting = [one for one in run.outcomes() if _lacks(one) and (only is None or one.key in only)]
    if not placed and not waiting and not together:
        return {}
    reasons = {key_of(one): bool(one.reasons & _ROOM) for one in waiting}
    items = min(len(waiting), ITEMS) + min(len(together), ITEMS)
    trials = Trials(run, min(DECISIONS, TOGETHER // max(items, 1)))
    found: dict[str, tuple[Counterfactual, ...]] = {}
    with trials.fork:
        # What comes later in the queue is no matter to what comes earlier, so the last is asked first.
        for key in reversed([key for key in trials.waiting if key in reasons][:ITEMS]):
            trials.forget_after(key)
            if not key.startswith(APPLICATION):
                found[key] = _of_waiting(trials, key, room=reasons[key])
            else:
                found[key] = of_waiting_application(trials, key, scheduler_name)
        for group in placed[:ITEMS]:
            trials.forget_after(None)
            if group.key not in found:
                found[group.key] = tuple(runner_up(trials, group, run.tree_of(group)))
        for application in together[:ITEMS]:
            trials.forget_after(None)
            key = f"{APPLICATION}{application.key}"
            if key not in found:
                found[key] = of_placed_application(trials, key, scheduler_name, jobs=only is not None)
    return found


def _lacks(outcome: Outcome) -> bool:
    """Whether something of it waits for what another wish or more room can help."""
    reasons = outcome.reasons if outcome.kind is ItemKind.APPLICATION else {outcome.reason}
    return bool(reasons & (_ROOM | _NAMES))


def _of_waiting(trials: Trials, key: str, *, room: bool) -> tuple[Counterfactual, ...]:
    """``room``: more room can help."""
    group = None if key.startswith(PLAIN) else trials.engine.state.groups.get(key)
    question = Question(trials=trials, key=key, group=group, waiting=trials.of(key))
    found = list(relaxed(question))
    if room:
        rooms = Rooms(question)
        found += [*ended(question, rooms), *short(question, rooms)]
    return tuple(found)
