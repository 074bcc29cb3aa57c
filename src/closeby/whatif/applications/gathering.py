"""All counterfactuals of one application: of its pods that wait, and of those that lie badly."""

from collections.abc import Iterable, Iterator

from closeby.scheduling.outcomes import APPLICATION
from closeby.whatif.applications.amounts import smaller
from closeby.whatif.applications.anew import Anew
from closeby.whatif.applications.answers import Answers
from closeby.whatif.applications.ending import ended_for_all, in_the_way
from closeby.whatif.applications.limits import farther
from closeby.whatif.applications.reach import Reach
from closeby.whatif.applications.talking import Talk
from closeby.whatif.choosing_nodes import other_nodes
from closeby.whatif.questions import Question
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import Trials

#: What helps only some of the pods that wait: so many of that are told.
SOME = 3
#: In which order kinds are told.
_ORDER = tuple(Kind)


def of_waiting_application(
    trials: Trials, key: str, scheduler_name: str | None
) -> tuple[Counterfactual, ...]:
    """What would let the pods fit that wait for want of room or nearness.

    Where something lets all of them fit, nothing is said of what of its kind lets only some of them fit, and
    of that no more than the best few.
    """
    application = trials.engine.applications.get(key.removeprefix(APPLICATION))
    held = trials.engine.state.gated
    waiting = tuple(pod for pod in trials.of(key) if pod.uid not in held)
    if not waiting or application is None:
        return ()
    question = Question(trials=trials, key=key, group=None, waiting=waiting, application=application)
    answers = Answers(question, Talk(trials, application))
    reach = Reach(question)
    #: With the share of all trials that each must leave to those after it.
    questions = (
        (farther(question, answers), 0.6),
        (other_nodes(question), 0.55),
        (ended_for_all(question, answers, reach), 0.4),
        (in_the_way(question, answers, reach), 0.2),
        (Anew(question, answers, scheduler_name).makes_room(), 0.1),
        (smaller(question, answers), 0.0),
    )
    found: list[Counterfactual] = []
    for one, kept in questions:
        trials.keep(kept)
        found += one
    found.sort(key=lambda one: _ORDER.index(one.kind))
    return tuple(_best(found))


def of_placed_application(
    trials: Trials, key: str, scheduler_name: str | None, *, jobs: bool
) -> tuple[Counterfactual, ...]:
    """What its talk would cost if it were placed anew, and (``jobs``) once something else has ended."""
    application = trials.engine.applications.get(key.removeprefix(APPLICATION))
    if application is None:
        return ()
    question = Question(trials=trials, key=key, group=None, waiting=(), application=application)
    answers = Answers(question, Talk(trials, application))
    return tuple(Anew(question, answers, scheduler_name).makes_near(jobs=jobs))


def _best(found: Iterable[Counterfactual]) -> Iterator[Counterfactual]:
    answers = list(found)
    some = [one for one in answers if one.pods and not one.fits]
    some.sort(key=lambda one: -len(one.pods or ()))
    enough = {one.kind for one in answers if one.fits}
    never = any(one.kind is Kind.SHORT and not one.fits for one in answers)
    for one in answers:
        only_some = one in some and (one.kind in enough or one not in some[:SOME])
        # That no end helps goes without saying where no node would do.
        if not only_some and (one.pods or one.kind is not Kind.ENDED or not never):
            yield one
