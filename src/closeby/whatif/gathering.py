"""All counterfactuals of a run: of what waits for want of room, and of what was placed together."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from closeby.applications.registry import Application
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.scheduling.outcomes import APPLICATION, PLAIN, ItemKind, Outcome
from closeby.simulator.runs import Run
from closeby.whatif.ahead import AheadItem, items_placed, placed_before, shortest
from closeby.whatif.ends import ended
from closeby.whatif.in_the_way import in_the_way
from closeby.whatif.questions import Question
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.relaxing import farther, gang_relaxed, other_nodes, smaller
from closeby.whatif.room import Room
from closeby.whatif.traffic import ApplicationTraffic
from closeby.whatif.trials import DECISIONS, Trials, key_of

#: Items that wait, placed gangs and placed applications of which this is worked out where all are asked for:
#: the first ones.
ITEMS: Final = 50
#: Decisions that all of them may spend together, each no more than its own share of it.
TOGETHER: Final = 10_000
#: Kinds of members beyond a gang's minimum that are asked about.
KINDS: Final = 4
#: Answers that help only some of the pods of an application: so many are given.
SOME: Final = 3
#: What asking for less, or more room, can help.
_ROOM: Final = frozenset(
    {
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NODE_AFFINITY_MISMATCH,
        Reason.TAINT_NOT_TOLERATED,
        Reason.NODE_UNSCHEDULABLE,
        Reason.HOST_PORT_CONFLICT,
        Reason.VOLUME_IN_USE,
        Reason.VOLUME_NOT_BINDABLE,
        Reason.VOLUME_ZONE_MISMATCH,
        Reason.VOLUME_LIMIT_REACHED,
        Reason.BANDWIDTH_RISK,
        Reason.NETWORK_COST_TOO_HIGH,
        Reason.GANG_DOES_NOT_FIT,
        Reason.TOPOLOGY_PLACEMENT_FAILED,
        Reason.SEARCH_BUDGET_EXHAUSTED,
        Reason.DOMAIN_EXCLUSIVE,
    }
)
#: What only asking for something else can help.
_NAMES: Final = frozenset(
    {
        Reason.TOPOLOGY_NOT_FOUND,
        Reason.TOPOLOGY_LEVEL_NOT_FOUND,
        Reason.POD_AFFINITY_MISMATCH,
        Reason.POD_ANTI_AFFINITY_CONFLICT,
        Reason.TOPOLOGY_SPREAD_VIOLATION,
    }
)

#: By ``namespace/name``; those of applications and plain pods have a prefix.
Found = Mapping[str, tuple[Counterfactual, ...]]


def counterfactuals(run: Run, only: Collection[str] | None = None) -> Found:
    """What would have to be different for each gang, application or plain pod that waits, by the key of its
    work item.

    ``only`` names some by ``namespace/name``, else the first ``ITEMS`` are asked about. Empty where a change
    of this kind does not help.
    """
    waiting = [one for one in run.outcomes() if _lacks(one) and (only is None or one.key in only)]
    if not waiting:
        return {}
    reasons = {key_of(one): bool(one.reasons & _ROOM) for one in waiting}
    #: Gangs that have their minimum, of which more members wait.
    beyond = {one.key for one in waiting if one.is_gang and one.reason is None}
    trials = Trials(run, min(DECISIONS, TOGETHER // min(len(waiting), ITEMS)))
    found: dict[str, tuple[Counterfactual, ...]] = {}
    before = items_placed(trials)
    with trials.fork:
        # What comes later in the queue is no matter to what comes earlier, so the last is asked first.
        for key in reversed([key for key in trials.waiting if key in reasons][:ITEMS]):
            trials.forget_after(key)
            application = trials.engine.applications.get(key.removeprefix(APPLICATION))
            if not key.startswith(APPLICATION):
                group = trials.engine.state.groups.get(key)
                if group is not None and key in beyond:
                    found[key] = tuple(_of_members_beyond(trials, group, before))
                else:
                    found[key] = tuple(_of_waiting(trials, key, before, more_room=reasons[key]))
            elif application is not None:
                found[key] = tuple(_best(_of_waiting_application(trials, key, application)))
    return found


def _lacks(outcome: Outcome) -> bool:
    """Whether something of it waits for what another wish or more room can help."""
    parts = outcome.kind is ItemKind.APPLICATION or (outcome.is_gang and outcome.reason is None)
    reasons = outcome.reasons if parts else {outcome.reason}
    return bool(reasons & (_ROOM | _NAMES))


def _of_waiting(
    trials: Trials, key: str, before: Sequence[AheadItem], *, more_room: bool
) -> Iterator[Counterfactual]:
    """Of a gang or a plain pod; ``before`` was placed in the run; ``more_room``: that can help."""
    group = None if key.startswith(PLAIN) else trials.engine.state.groups.get(key)
    question = Question(trials=trials, key=key, group=group, waiting=trials.of(key))
    found = [] if group is None else list(gang_relaxed(question, group))
    found += other_nodes(question)
    room = Room(question) if more_room else None
    if (
        room is not None and room.ever_fits
    ):  # Else neither room that others took nor the end of anything helps.
        found += placed_before(question, room, before)
        found += ended(question, room)
    yield from found
    if room is not None:
        yield from shortest(question, room)


def _of_members_beyond(
    trials: Trials, group: PodGroup, before: Sequence[AheadItem]
) -> Iterator[Counterfactual]:
    """What would let members of a gang in that has its minimum; equal ones are asked about together."""
    kinds: dict[tuple[PodSpec, str | None], list[Pod]] = {}
    for pod in trials.of(group.key):
        kinds.setdefault((pod.spec, pod.subgroup), []).append(pod)
    alike = list(kinds.values())[:KINDS]
    for number, pods in enumerate(alike, start=1):
        trials.keep(1 - number / len(alike))
        question = Question(trials=trials, key=group.key, group=group, waiting=tuple(pods), beyond=True)
        relaxed = [*gang_relaxed(question, group), *other_nodes(question)]
        helps = [one for one in relaxed if one.fits or one.pods]
        yield from helps
        room = Room(question)
        if room.ever_fits:
            yield from placed_before(question, room, before)
            yield from ended(question, room)
        if room.ever_fits or not helps:
            yield from shortest(question, room)


def _of_waiting_application(trials: Trials, key: str, application: Application) -> Iterator[Counterfactual]:
    """What would let the pods fit that wait for want of room or nearness."""
    waiting = tuple(pod for pod in trials.of(key) if pod.uid not in trials.engine.state.gated)
    if not waiting:
        return
    question = _of_application(trials, key, application, waiting)
    room = Room(question)
    #: With the share of all trials that each must leave to those after it.
    questions = (
        (farther(question), 0.6),
        (other_nodes(question), 0.55),
        (ended(question, room), 0.4),
        (in_the_way(question, room), 0.2),
        (smaller(question), 0.0),
    )
    for one, kept in questions:
        trials.keep(kept)
        yield from one


def _of_application(trials: Trials, key: str, application: Application, waiting: tuple[Pod, ...]) -> Question:
    traffic = ApplicationTraffic(trials, application)
    return Question(trials=trials, key=key, waiting=waiting, application=application, traffic=traffic)


def _best(found: Iterable[Counterfactual]) -> Iterator[Counterfactual]:
    """By kind; where one lets all pods fit, without those of its kind that help only some of them."""
    answers = sorted(found, key=lambda one: tuple(Kind).index(one.kind))
    some = [one for one in answers if one.pods and not one.fits]
    some.sort(key=lambda one: -len(one.pods or ()))
    enough = {one.kind for one in answers if one.fits}
    never = any(one.kind is Kind.SHORT and not one.fits for one in answers)
    for one in answers:
        only_some = one in some and (one.kind in enough or one not in some[:SOME])
        # That no end helps goes without saying where no node would do.
        if not only_some and (one.pods or one.kind is not Kind.ENDED or not never):
            yield one
