"""What runs and may come to its end: gangs, Jobs and single pods."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from closeby.objects.natural import natural_key
from closeby.objects.ownership import is_long_running, is_pinned
from closeby.objects.pods import Pod
from closeby.objects.times import utc
from closeby.objects.words import names_text, plural
from closeby.whatif.fewest import fewest
from closeby.whatif.questions import Question, joined
from closeby.whatif.records import Counterfactual, JobEntry, Kind
from closeby.whatif.trials import TrialResult

#: Jobs of which one is enough that are named, and so many may end together.
NAMED = 3
TOGETHER = 8
#: Gangs, Jobs and pods in the way that are named.
OWNERS_NAMED = 4


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
        count = "" if self.reference.startswith("pod/") else plural(len(self.held), "pod")
        said = ", ".join(filter(None, (count, until)))
        return f"{self.name} ({said})" if said else self.name


def jobs_beside(question: Question) -> tuple[Job, ...]:
    """Everything that holds a node and may end, but for what is asked about; in natural order.

    Pods that are being deleted come first, as one. Those of Deployments and the like run for ever.
    """
    own = {pod.uid for pod in question.waiting}
    leaving: list[Pod] = []
    others: list[Pod] = []
    for pod in question.trials.pods:
        if pod.uid in own or is_pinned(pod):
            continue
        if pod.terminating and pod.node_name is not None:
            leaving.append(pod)
        elif is_long_running(pod) or (pod.group is None and question.owns(pod)):
            continue
        elif question.group is None or pod.group is None or f"{pod.namespace}/{pod.group}" != question.key:
            others.append(pod)
    jobs = [job for job in _jobs_of(others) if job.held]
    if leaving:
        jobs.insert(0, Job(name="what is being deleted", reference="", pods=tuple(leaving)))
    return tuple(jobs)


def job_of(pod: Pod) -> tuple[str, str]:
    """Reference and name of what a pod belongs to: its gang, else its Job, else itself."""
    if pod.group is not None:
        return f"podgroup/{pod.namespace}/{pod.group}", f"{pod.namespace}/{pod.group}"
    kind, _, name = pod.owner.partition("/")
    if kind == "Job":
        return f"job/{pod.namespace}/{name}", f"Job {pod.namespace}/{name}"
    return f"pod/{pod.key}", f"pod {pod.key}"


def _jobs_of(pods: Iterable[Pod]) -> list[Job]:
    """Pods by what they belong to, in natural order."""
    together: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        together.setdefault(job_of(pod), []).append(pod)
    jobs = [Job(name=name, reference=of, pods=tuple(members)) for (of, name), members in together.items()]
    return sorted(jobs, key=lambda job: natural_key(job.reference))


def shares(pods: Iterable[Pod]) -> tuple[JobEntry, ...]:
    """Which of whose pods: one entry for each job."""
    return tuple(job.entry for job in _jobs_of(pods))


def named_owners(pods: Iterable[Pod]) -> list[str]:
    """``default/train (train-0..3)``, ``pod default/p`` and so on; ``3 others`` after the first few."""
    named = [
        job.name
        if job.reference.startswith("pod/")
        else f"{job.name} ({names_text([pod.name for pod in job.pods])})"
        for job in _jobs_of(pods)
    ]
    if len(named) <= OWNERS_NAMED:
        return named
    return [*named[:OWNERS_NAMED], plural(len(named) - OWNERS_NAMED, "other")]


def enough_together(
    jobs: Iterable[Job], tried: Callable[[Sequence[Job]], TrialResult | None]
) -> tuple[list[Job], TrialResult] | None:
    """The first jobs whose ends are enough together (``tried`` says so), without those that may stay.

    One alone is not tried: that was done before.
    """
    chosen: list[Job] = []
    for job in islice(jobs, TOGETHER):
        chosen.append(job)
        result = tried(chosen) if len(chosen) > 1 else None
        if result is not None:
            return fewest(chosen, result, tried)
    return None


def no_end_helps(whom: str, *, complete: bool) -> Counterfactual:
    """No end of a single job makes room; not ``complete``: none of those that were tried."""
    tried = "No single job's end" if complete else "None of the ends of single jobs that were tried"
    return Counterfactual(
        kind=Kind.ENDED, fits=False, sentence=f"{tried} makes room for {whom}.", jobs=(), complete=complete
    )


def soonest(job: Job) -> tuple[object, ...]:
    """What is being deleted, then the first to end, then the smallest."""
    return bool(job.reference), job.ends is None, job.ends or 0.0, len(job.held)


def when(jobs: Sequence[Job]) -> str:
    """``when default/train (8 pods) ends``."""
    names = joined([job.text for job in jobs])
    if not jobs[0].reference:
        return f"once {names} is gone"
    return f"when {names} {'ends' if len(jobs) == 1 else 'end'}"
