"""What it would help an application if pods of it that hold a node were deleted and placed once more."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from closeby.applications.registry import workload_name
from closeby.objects.ownership import is_pinned
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod
from closeby.objects.words import names_text, plural
from closeby.scheduling.fork import Change
from closeby.whatif.ends import Job, jobs_beside, when
from closeby.whatif.questions import Question, where_entry
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.room import Room
from closeby.whatif.traffic import ROUNDING, Cost
from closeby.whatif.trials import TrialResult, as_waiting

#: Pods that are tried alone, and jobs whose end is tried with all pods placed again.
ALONE = 64
JOBS = 24


class _Found(NamedTuple):
    """A trial in which every pod got a node again."""

    pods: tuple[Pod, ...]
    change: Change
    result: TrialResult
    cost: Cost | None


class PlacedAgain:
    """Asks with the pods that the scheduler named would place again."""

    def __init__(self, question: Question, scheduler_name: str | None) -> None:
        assert question.traffic is not None
        self._question = question
        self._traffic = traffic = question.traffic
        state = question.trials.engine.state
        #: Not those of gangs, nor those that come back to their node, nor those that go anyway.
        self.movable = tuple(
            pod
            for pod in traffic.pods
            if pod.node_name is not None
            and state.item_key(pod) == question.key
            and not (is_pinned(pod) or pod.terminating or state.is_on_unknown_node(pod.uid))
            and scheduler_name in (None, pod.spec.scheduler_name or DEFAULT_SCHEDULER)
        )

    def makes_room(self) -> Iterator[Counterfactual]:
        """The fewest found of the application's own pods that, placed again, let all fit that waits."""
        if not self.movable:
            return
        found = next((one for pod in self._unlike() if (one := self._tried((pod,)))), None)
        found = found or self._fewer(self._tried(self.movable))
        if found is None:
            return
        names = names_text([pod.name for pod in found.pods])
        condition = f"if {names} {'is' if len(found.pods) == 1 else 'are'} placed again too"
        said = self._question.answer(Kind.ANEW, found.change, found.result, condition)
        yield replace(said, anew=tuple(pod.key for pod in found.pods))

    def makes_near(self, *, jobs: bool) -> Iterator[Counterfactual]:
        """What talk would cost then; with one pod alone; and (``jobs``) once something else has ended."""
        here = self._traffic.now
        if here is None or not self.movable or not (here.over or here.talk > ROUNDING):
            return
        everything = self._tried(self.movable)
        best = here if everything is None or everything.cost is None else everything.cost
        if everything is not None and best.below(here):
            fewer = self._fewer(everything) or everything
            if len(fewer.pods) > 1:
                alone = self._best_alone(here)
                if alone is not None:
                    yield self._near(alone, here)
            yield self._near(fewer, here)
        elif not self._question.trials.spent:
            best = here
            yield self._no_nearer(everything, here)
        if jobs:
            yield from self._after_an_end(here, best)

    def _tried(self, pods: tuple[Pod, ...], gone: tuple[Pod, ...] = ()) -> _Found | None:
        """What becomes of it; None unless all of them, and all that wait, get a node."""
        change = Change(gone=gone, waiting=tuple(map(as_waiting, pods)))
        result = self._question.tried(change)
        if result is None or not self._question.whole(result):
            return None
        if {pod.uid for pod in pods} - {one.pod.uid for one in result.bindings}:
            return None
        return _Found(pods, change, result, self._traffic.then(change, result))

    def _fewer(self, found: _Found | None) -> _Found | None:
        """Only those that went elsewhere, if that does as well."""
        if found is None:
            return None
        moved = _moved(found.pods, found.result)
        fewer = self._tried(moved) if moved and len(moved) < len(found.pods) else None
        if fewer is None or (found.cost is not None and (fewer.cost is None or found.cost.below(fewer.cost))):
            return found
        return fewer

    def _unlike(self) -> tuple[Pod, ...]:
        """One of each that is alike: as needed, of one workload, on one node."""
        unlike: dict[Hashable, Pod] = {}
        for pod in self.movable:
            unlike.setdefault((_alike(pod), pod.node_name), pod)
        return tuple(unlike.values())[:ALONE]

    def _best_alone(self, here: Cost) -> _Found | None:
        best: _Found | None = None
        for pod in self._unlike():
            found = self._tried((pod,))
            if found is None or found.cost is None:
                continue
            if found.cost.below(here if best is None or best.cost is None else best.cost):
                best = found
        return best

    def _after_an_end(self, here: Cost, best: Cost) -> Iterator[Counterfactual]:
        """The job with whose end talk would cost least, if that is less than without."""
        room = Room(replace(self._question, waiting=tuple(map(as_waiting, self.movable))), limits=False)
        jobs = [job for job in jobs_beside(self._question) if room.helps(job.pods)]
        cheapest: tuple[Job, _Found] | None = None
        for job in jobs[:JOBS]:
            found = self._tried(self.movable, job.pods)
            if found is not None and found.cost is not None and found.cost.below(best):
                cheapest, best = (job, found), found.cost
        if cheapest is None:
            return
        job, found = cheapest
        yield replace(
            self._near(found, here, f"{when((job,))} and "),
            kind=Kind.ENDED,
            jobs=(job.entry,),
            complete=len(jobs) <= JOBS and not self._question.trials.spent,
        )

    def _near(self, found: _Found, here: Cost, before: str = "if ") -> Counterfactual:
        there = here if found.cost is None else found.cost
        many = len(found.pods) == len(self.movable) > 1
        names = names_text([one.name for one in found.pods])
        names = f"all its {plural(len(found.pods), 'pod')}" if many else names
        verb = "is" if len(found.pods) == 1 else "are"
        moved = len(_moved(found.pods, found.result))
        elsewhere = f"; {moved} would be elsewhere" if moved < len(found.pods) else ""
        costs = f"costs {there.figure:,} instead of {here.figure:,}"
        if here.over or there.over:
            costs += f", with {plural(there.over, 'pair')} beyond the limit instead of {here.over:,},"
        sentence = f"Its traffic {costs} {before}{names} {verb} placed again{elsewhere}."
        return self._said(sentence, found, there)

    def _no_nearer(self, found: _Found | None, here: Cost) -> Counterfactual:
        if found is None or found.cost is None:
            sentence = "If they were placed again, not all of its pods would find a node."
            return Counterfactual(kind=Kind.ANEW, fits=False, sentence=sentence)
        sentence = f"Placed again, its traffic would cost no less than {here.figure:,}."
        return self._said(sentence, found, found.cost)

    def _said(self, sentence: str, found: _Found, there: Cost) -> Counterfactual:
        entry = self._traffic.entry(there)
        said = Counterfactual(
            kind=Kind.ANEW,
            fits=True,
            sentence=sentence,
            where=where_entry(found.result),
            anew=tuple(pod.key for pod in found.pods),
        )
        return said if entry is None else replace(said, talk=entry)


def _moved(pods: Sequence[Pod], result: TrialResult) -> tuple[Pod, ...]:
    """The pods that went elsewhere. Of pods that are alike it is no matter which is where."""
    nodes = {one.pod.uid: one.node for one in result.bindings}
    stay = Counter((_alike(pod), nodes[pod.uid]) for pod in pods)
    moved = []
    for pod in pods:
        place = _alike(pod), pod.node_name or ""
        if stay[place]:
            stay[place] -= 1
        else:
            moved.append(pod)
    return tuple(moved)


def _alike(pod: Pod) -> Hashable:
    return pod.spec, workload_name(pod)
