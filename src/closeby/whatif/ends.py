"""What runs and would have to come to its end so that an item fits: gangs, Jobs and single pods."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import is_for_places, workload_of
from closeby.objects.pods import Pod, gang_key
from closeby.objects.quantities import utc
from closeby.objects.words import joined, names_text, natural_key, plural
from closeby.objects.workloads import is_long_running, is_pinned
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import name_of
from closeby.whatif.records import Counterfactual, JobEntry, Kind
from closeby.whatif.room import Room
from closeby.whatif.trials import Question, TrialResult, smallest_sufficient

#: Jobs of an application that are tried one by one.
JOBS = 64
#: Jobs of which one is enough that are named, and so many may end together, in so many domains.
NAMED = 3
TOGETHER = 8
DOMAINS = 3
#: Gangs, Jobs and pods in the way that are named.
OWNERS_NAMED = 4
#: References of Workloads for which places are held begin so.
_PLACES = "workload/"


class Job(Struct, frozen=True, kw_only=True):
    """Pods that come and go together."""

    #: As users name it, without its kind.
    name: str
    #: ``podgroup/namespace/name`` and so on; empty for pods that have nothing in common.
    reference: str
    #: All its pods: those that hold a node, and those that wait, which would not come any more.
    pods: tuple[Pod, ...]

    @property
    def held(self) -> tuple[Pod, ...]:
        """Those that hold a node."""
        return tuple(pod for pod in self.pods if pod.node_name is not None)

    @property
    def ends(self) -> float | None:
        """When the last of those that hold a node will be done; None when that is not known of all."""
        ends = [pod.ends for pod in self.held]
        known = [one for one in ends if one is not None]
        return max(known) if known and len(known) == len(ends) else None

    @property
    def entry(self) -> JobEntry:
        """As data."""
        return JobEntry(
            name=self.reference or self.name,
            pods=len(self.held),
            ends_by=None if self.ends is None else utc(self.ends),
        )

    @property
    def text(self) -> str:
        """``default/train (8 pods, done by 2030-01-31T12:00:00Z)``."""
        until = "" if self.ends is None else f"done by {utc(self.ends)}"
        what = "place" if self.reference.startswith(_PLACES) else "pod"
        count = "" if self.reference.startswith("pod/") else plural(len(self.held), what)
        said = ", ".join(filter(None, (count, until)))
        return f"{self.name} ({said})" if said else self.name


def _jobs_beside(question: Question) -> list[Job]:
    """Everything that holds a node and may end, but for what is asked about; the first to end first.

    Pods that are being deleted come before all, as one.
    """
    own = {pod.uid for pod in question.waiting}
    leaving: list[Pod] = []
    others: list[Pod] = []
    for pod in question.trials.pods:
        if pod.uid in own or is_pinned(pod):
            continue
        if pod.terminating and pod.node_name is not None:
            leaving.append(pod)
        elif is_long_running(pod) or (question.owns(pod) and (pod.group is None or question.group)):
            continue
        else:
            others.append(pod)
    jobs = [job for job in _jobs_of(others) if job.held]
    jobs.sort(key=lambda job: (job.ends is None, job.ends or 0.0, len(job.held)))
    if leaving:
        jobs.insert(0, Job(name="what is being deleted", reference="", pods=tuple(leaving)))
    return jobs


def _job_of(pod: Pod) -> tuple[str, str]:
    """Reference and name of what a pod belongs to: its gang, else its Job, else itself.

    A placeholder belongs to the Workload for which its place is held.
    """
    if pod.group is not None and is_for_places(pod.group):
        key = f"{pod.namespace}/{workload_of(pod.group)}"
        return f"{_PLACES}{key}", f"Workload {key}"
    if pod.group is not None:
        return f"podgroup/{pod.namespace}/{pod.group}", gang_key(pod)
    kind, _, name = pod.owner.partition("/")
    if kind == "Job":
        return f"job/{pod.namespace}/{name}", f"Job {pod.namespace}/{name}"
    return f"pod/{pod.key}", f"pod {pod.key}"


def _jobs_of(pods: Iterable[Pod]) -> list[Job]:
    """Pods by what they belong to, in natural order."""
    together: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        together.setdefault(_job_of(pod), []).append(pod)
    jobs = [Job(name=name, reference=of, pods=tuple(members)) for (of, name), members in together.items()]
    return sorted(jobs, key=lambda job: natural_key(job.reference))


def shares(pods: Iterable[Pod]) -> tuple[JobEntry, ...]:
    """Which of whose pods: one entry for each job."""
    return tuple(job.entry for job in _jobs_of(pods))


def owners_text(pods: Iterable[Pod]) -> str:
    """``default/train (train-0..3) and pod default/p``; ``3 others`` after the first few."""
    return joined([_named_owner(job) for job in _jobs_of(pods)], OWNERS_NAMED, "other")


def _named_owner(job: Job) -> str:
    if job.reference.startswith("pod/"):
        return job.name
    if job.reference.startswith(_PLACES):
        are = "is" if len(job.pods) == 1 else "are"
        return f"{plural(len(job.pods), 'place')} that {are} held for {job.name}"
    return f"{job.name} ({names_text([pod.name for pod in job.pods])})"


def ended(question: Question, room: Room) -> Iterator[Counterfactual]:
    """The jobs of which one end is enough, the first to end first; else some that are enough together.

    Of an application else the one that helps most of its pods. Jobs that leave too little are not tried.
    """
    jobs = _jobs_beside(question)
    helpful = [job for job in jobs if room.helps(job.pods)]
    tries = len(helpful) if question.application is None else JOBS
    complete = len(helpful) <= tries
    enough: list[tuple[Job, TrialResult]] = []
    best: tuple[Job, TrialResult] | None = None
    for job in helpful[:tries]:
        if question.trials.spent:
            complete = False
            break
        result = question.tried(Change(gone=job.pods))
        if result is None:
            continue
        if question.whole(result):
            enough.append((job, result))
            if question.application is not None and len(enough) == NAMED:
                break
        elif best is None or len(question.got(result)) > len(question.got(best[1])):
            best = job, result
    for job, result in enough[:NAMED]:
        left = len(enough) - NAMED if job is enough[:NAMED][-1][0] else 0
        others = "another one" if left == 1 else f"any of {left} others"
        more = f" The end of {others} would do too." if left > 0 else ""
        yield _answer(
            question, (job,), result, complete=complete or question.application is not None, more=more
        )
    if enough:
        return
    together = _together(question, room, jobs)
    if together is not None:
        yield _answer(question, *together, complete=complete)
    elif best is not None:
        yield _answer(question, (best[0],), best[1], complete=complete)
    elif jobs:
        tried = "No single job's end" if complete else "None of the ends of single jobs that were tried"
        whom = f"it{question.at_its_level}{_before(question)}"
        whom = question.names if question.has_parts else whom
        sentence = f"{tried} makes room for {whom}."
        yield Counterfactual(kind=Kind.ENDED, fits=False, sentence=sentence, jobs=(), complete=complete)


def _before(question: Question) -> str:
    """Those that would get the room first."""
    before = [name_of(key) for key in question.trials.waiting[:-1]]
    if not before:
        return ""
    wait = "waits" if len(before) == 1 else "wait"
    return f"; {joined(before, NAMED)} {wait} before it and may take room first"


def _together(question: Question, room: Room, jobs: Sequence[Job]) -> tuple[list[Job], TrialResult] | None:
    """Jobs that are enough together, and none of which could stay; greedily, in the roomiest domains."""

    def enough(ended: Sequence[Job]) -> TrialResult | None:
        pods = [pod for job in ended for pod in job.pods]
        return question.whole_without(pods) if room.may_hold(pods) else None

    found: list[tuple[list[Job], TrialResult]] = []
    spread = [(job, room.domains_of(job.pods)) for job in jobs]
    for domain in room.best()[:DOMAINS]:
        here = [job for job, domains in spread if domain in domains]
        here.sort(key=lambda job: (-room.gain(job.pods, domain), len(job.held), natural_key(job.reference)))
        for number in range(2, min(len(here), TOGETHER) + 1):
            result = enough(here[:number])
            if result is not None:
                found.append(smallest_sufficient(here[:number], result, enough))
                break
    return min(found, key=lambda one: (len(one[0]), sum(len(job.held) for job in one[0])), default=None)


def _answer(
    question: Question, jobs: Sequence[Job], result: TrialResult, *, complete: bool, more: str = ""
) -> Counterfactual:
    change = Change(gone=tuple(pod for job in jobs for pod in job.pods))
    names = joined([job.text for job in jobs])
    when = f"when {names} {'ends' if len(jobs) == 1 else 'end'}"
    when = when if jobs[0].reference else f"once {names} is gone"
    level = "" if question.beyond else question.at_its_level
    entries = tuple(job.entry for job in jobs)
    found = question.answer(Kind.ENDED, change, result, f"{level} {when}".lstrip(), jobs=entries)
    return replace(found, sentence=f"{found.sentence}{more}", complete=complete)
