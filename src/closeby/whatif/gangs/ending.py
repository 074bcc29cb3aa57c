"""What would have to come to its end, so that an item fits where it wants to."""

from collections.abc import Iterator, Sequence

from closeby.objects.words import plural
from closeby.scheduling.fork import Change
from closeby.whatif.jobs import (
    NAMED,
    Job,
    enough_together,
    jobs_beside,
    no_end_helps,
    soonest,
    when,
)
from closeby.whatif.questions import Question, where_entry, where_text
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.rooms import Rooms
from closeby.whatif.trials import TrialResult

#: Domains in which it is tried whether jobs are enough together.
DOMAINS = 3


def ended(question: Question, rooms: Rooms) -> Iterator[Counterfactual]:
    """The jobs of which one end is enough, the first to end first; else some that are enough together.

    Jobs that leave too little even by resources alone are not tried, since that is in vain.
    """
    jobs = jobs_beside(question)
    if not jobs:
        return
    enough: list[tuple[Job, TrialResult]] = []
    complete = True
    for job in jobs:
        if not rooms.may_hold(job.pods):
            continue
        if question.trials.spent:
            complete = False
            break
        result = question.tried(Change(gone=job.pods))
        if result is not None:
            enough.append((job, result))
    enough.sort(key=lambda one: soonest(one[0]))
    for job, result in enough[:NAMED]:
        left = len(enough) - NAMED if job is enough[:NAMED][-1][0] else 0
        others = "another one" if left == 1 else f"any of {left} others"
        yield _fits(
            question, (job,), result, complete, f" The end of {others} would do too." if left > 0 else ""
        )
    if enough:
        return
    together = _together(question, rooms, jobs)
    if together is not None:
        yield _fits(question, *together, complete)
        return
    yield no_end_helps(f"it{question.at_its_level}{_others(question)}", complete=complete)


def _others(question: Question) -> str:
    """Those that would get the room first."""
    before = len(question.trials.waiting) - 1
    if not before:
        return ""
    return (
        f"; {plural(before, 'item')} {'waits' if before == 1 else 'wait'} before it and may take room first"
    )


def _together(question: Question, rooms: Rooms, jobs: Sequence[Job]) -> tuple[list[Job], TrialResult] | None:
    """Jobs that are enough together, and none of which could stay; greedily, in the roomiest domains."""
    found: list[tuple[list[Job], TrialResult]] = []
    for domain in rooms.best()[:DOMAINS].tolist():
        chosen = _in_domain(question, rooms, jobs, domain)
        if chosen is not None:
            found.append(chosen)
    return min(found, key=lambda one: (len(one[0]), sum(len(job.held) for job in one[0])), default=None)


def _in_domain(
    question: Question, rooms: Rooms, jobs: Sequence[Job], domain: int
) -> tuple[list[Job], TrialResult] | None:
    gains = []
    for number, job in enumerate(jobs):
        if not rooms.lie_in(job.pods, domain):
            continue
        slots, room = rooms.without(job.pods)
        inside = rooms.domains.owners(slots) == domain
        gain = int((room - rooms.at[slots])[inside].sum())
        gains.append((-gain, len(job.held), number))

    def fits_without(ended: Sequence[Job]) -> TrialResult | None:
        pods = tuple(pod for job in ended for pod in job.pods)
        return question.tried(Change(gone=pods)) if rooms.may_hold(pods) else None

    return enough_together((jobs[number] for _, _, number in sorted(gains)), fits_without)


def _fits(
    question: Question, jobs: Sequence[Job], result: TrialResult, complete: bool, more: str = ""
) -> Counterfactual:
    return Counterfactual(
        kind=Kind.ENDED,
        fits=True,
        sentence=f"It fits{question.at_its_level} {when(jobs)}: {where_text(result)}.{more}",
        jobs=tuple(job.entry for job in jobs),
        complete=complete,
        where=where_entry(result),
    )
