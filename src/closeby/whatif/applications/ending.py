"""What would have to come to its end so that the pods of an application fit, and who stands in their way."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from closeby.objects.natural import natural_key
from closeby.objects.ownership import is_pinned
from closeby.objects.pods import Pod
from closeby.objects.words import names_text
from closeby.scheduling.fork import Change
from closeby.whatif.applications.answers import Answers
from closeby.whatif.applications.reach import Kin, Reach
from closeby.whatif.fewest import fewest
from closeby.whatif.jobs import (
    NAMED,
    Job,
    enough_together,
    jobs_beside,
    named_owners,
    no_end_helps,
    shares,
    soonest,
    when,
)
from closeby.whatif.questions import Question, joined
from closeby.whatif.records import Counterfactual, Kind, ShortEntry, lack_entry
from closeby.whatif.trials import TrialResult
from closeby.whatif.weights import Weights

#: Jobs that are tried one by one.
JOBS = 64


def ended_for_all(question: Question, answers: Answers, reach: Reach) -> Iterator[Counterfactual]:
    """The first few jobs of which one end is enough; else some together, else what helps most."""
    jobs = sorted((job for job in jobs_beside(question) if reach.helps(job.pods)), key=soonest)
    complete = len(jobs) <= JOBS
    enough = 0
    best: tuple[Job, TrialResult] | None = None
    for job in jobs[:JOBS]:
        if question.trials.spent:
            complete = False
            break
        result = question.tried(Change(gone=job.pods))
        if result is None or not question.got(result):
            continue
        if question.whole(result):
            enough += 1
            yield _told(answers, (job,), result, complete=True)
            if enough == NAMED:
                return
        elif best is None or len(question.got(result)) > len(question.got(best[1])):
            best = job, result
    if enough:
        return
    together = _together(question, reach, jobs)
    if together is not None:
        yield _told(answers, *together, complete=complete)
    elif best is not None:
        yield _told(answers, (best[0],), best[1], complete=complete)
    elif jobs_beside(question):
        yield no_end_helps(_names(question.waiting), complete=complete)


def _told(answers: Answers, jobs: Sequence[Job], result: TrialResult, *, complete: bool) -> Counterfactual:
    change = Change(gone=tuple(pod for job in jobs for pod in job.pods))
    said = answers.answer(Kind.ENDED, result, change, when(jobs))
    return replace(said, jobs=tuple(job.entry for job in jobs), complete=complete)


def _together(question: Question, reach: Reach, jobs: Sequence[Job]) -> tuple[list[Job], TrialResult] | None:
    """The roomiest jobs that are enough together, and none of which could stay."""
    ordered = sorted(jobs, key=lambda job: (-reach.gain(job.pods), len(job.held)))

    def fit_without(ended: Sequence[Job]) -> TrialResult | None:
        return _all_fit(question, [pod for job in ended for pod in job.pods])

    return enough_together(ordered, fit_without)


def in_the_way(question: Question, answers: Answers, reach: Reach) -> Iterator[Counterfactual]:
    """Pods without which all that waits fits, and none of which could stay; or what no node could hold."""
    never = [kin for kin in reach.kin if not kin.on(kin.allowed)]
    for near in (False, True):
        pods = [kin.pods[0] for kin in never if kin.on(kin.possible) == near]
        if pods:
            yield _never(question, reach, pods, near=near)
    if never:
        return
    found = _cleared(question, reach)
    if found is None:
        return
    way, result = found
    named = named_owners(way)
    nodes = sorted({pod.node_name or "" for pod in way}, key=natural_key)
    verb = "stands" if len(named) == 1 else "stand"
    change = Change(gone=tuple(way))
    said = answers.answer(Kind.SHORT, result, change, "then")
    yield replace(
        said,
        sentence=f"On {names_text(nodes)} {joined(named)} {verb} in the way of {_names(question.waiting)}.",
        jobs=shares(way),
        short=_entry(question, reach, tuple(sorted((one.key for one in way), key=natural_key))),
    )


def _never(question: Question, reach: Reach, pods: Sequence[Pod], *, near: bool) -> Counterfactual:
    """``near``: it is for their limits."""
    where = " within its limits of maxNetworkCost" if near else ""
    return Counterfactual(
        kind=Kind.SHORT,
        fits=False,
        sentence=f"No node{where} could hold {_any(pods)} even if nothing else ran there.",
        jobs=(),
        short=_entry(question, reach, ()),
    )


def _entry(question: Question, reach: Reach, way: tuple[str, ...]) -> ShortEntry:
    asked: dict[str, int] = {}
    for pod in question.waiting:
        for resource, amount in pod.spec.requests:
            asked[resource] = asked.get(resource, 0) + amount
    cluster = question.trials.engine.cluster
    slots = np.flatnonzero(np.logical_or.reduce([kin.allowed for kin in reach.kin]))
    free = {resource: int(cluster.free(cluster.row_of[resource], slots).sum()) for resource in asked}
    return ShortEntry(
        level=None,
        domain=(),
        fits=0,
        needed=len(question.waiting),
        pods=len(question.waiting),
        nodes=None,
        resources=lack_entry(
            {one: amount - free[one] for one, amount in asked.items() if amount > free[one]}
        ),
        in_the_way=way,
    )


def _cleared(question: Question, reach: Reach) -> tuple[list[Pod], TrialResult] | None:
    """Nodes are cleared, those that win most for each pod first, until all fits; then what may stay stays."""
    cluster = question.trials.engine.cluster
    weights = Weights(cluster, {row for kin in reach.kin for row in kin.rooms.least})
    on: dict[int, list[Pod]] = {}
    for pod in question.trials.pods:
        slot = cluster.placement(pod.uid)
        if slot is not None and not is_pinned(pod) and not question.owns(pod):
            on.setdefault(slot, []).append(pod)
    held = {slot: sum(map(weights.of, pods)) for slot, pods in on.items()}
    chosen: list[int] = []
    needed = 0
    for kin in reach.kin:
        gains = [(int(room), slot) for slot in on if (room := _room(kin, slot, on[slot])) > 0]
        gains.sort(key=lambda one: (held[one[1]] / one[0], natural_key(cluster.names[one[1]] or "")))
        missing = len(kin.pods)
        for room, slot in gains:
            if missing > 0:
                needed += 1
            chosen.append(slot)
            missing -= room
    order = list(dict.fromkeys(chosen))
    number = max(needed, 1)
    while order:
        slots = order[:number]
        pods = [pod for slot in slots for pod in on[slot]]
        result = _all_fit(question, pods)
        if result is not None:
            return _fewest(question, weights, pods, result)
        if number >= len(order) or question.trials.spent:
            return None
        number *= 2
    return None


def _room(kin: Kin, slot: int, pods: Sequence[Pod]) -> int:
    if not kin.allowed[slot]:
        return 0
    _, room = kin.rooms.without(pods)
    return int(room.max(initial=0))


def _fewest(
    question: Question, weights: Weights, pods: Sequence[Pod], result: TrialResult
) -> tuple[list[Pod], TrialResult]:
    """Without those that may stay, the largest first: node by node, then one after another.

    As long as trials are left.
    """
    on: dict[str | None, list[Pod]] = {}
    for pod in pods:
        on.setdefault(pod.node_name, []).append(pod)

    def fit_without(nodes: Sequence[str | None]) -> TrialResult | None:
        return _all_fit(question, [pod for node in nodes for pod in on[node]])

    nodes, result = fewest(sorted(on, key=lambda node: sum(map(weights.of, on[node]))), result, fit_without)
    left = sorted((pod for node in nodes for pod in on[node]), key=weights.of)
    return fewest(left, result, partial(_all_fit, question))


def _all_fit(question: Question, gone: Sequence[Pod]) -> TrialResult | None:
    if not gone:
        return None
    result = question.tried(Change(gone=tuple(gone)))
    return result if result is not None and question.whole(result) else None


def _any(pods: Sequence[Pod]) -> str:
    """``a-0``; of several ``any of a-0, b-0``."""
    return pods[0].name if len(pods) == 1 else f"any of {_names(pods)}"


def _names(pods: Sequence[Pod]) -> str:
    return names_text([pod.name for pod in pods])
