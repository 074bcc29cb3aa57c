"""All counterfactuals of one application: of its pods that wait, and of those that lie badly."""

from collections.abc import Iterable, Iterator

from closeby.report.counterfactuals.amounts import smaller
from closeby.report.counterfactuals.anew import Anew
from closeby.report.counterfactuals.answers import Answers
from closeby.report.counterfactuals.app_ending import ended_for_all, in_the_way
from closeby.report.counterfactuals.limits import farther
from closeby.report.counterfactuals.questions import Question
from closeby.report.counterfactuals.reach import Reach
from closeby.report.counterfactuals.records import Counterfactual, Kind
from closeby.report.counterfactuals.relaxing import other_nodes
from closeby.report.counterfactuals.talking import Talk
from closeby.scheduling.intake.books import APPLICATION
from closeby.simulator.trials import Trials

#: In which order kinds are told.
_ORDER = tuple(Kind)


def of_waiting_application(
    trials: Trials, key: str, scheduler_name: str | None
) -> tuple[Counterfactual, ...]:
    """What would let the pods fit that wait for want of room or nearness.

    What takes many trials comes last, as long as some are left. Where all would fit, nothing is said of what
    lets only some of them fit.
    """
    application = trials.engine.applications.get(key.removeprefix(APPLICATION))
    held = trials.engine.books.held
    waiting = tuple(pod for pod in trials.of(key) if pod.uid not in held)
    if not waiting or application is None:
        return ()
    question = Question(trials=trials, key=key, group=None, waiting=waiting, application=application)
    answers = Answers(question, Talk(trials, application))
    reach = Reach(question)
    found = [
        *farther(question, answers),
        *other_nodes(question),
        *ended_for_all(question, answers, reach),
        *in_the_way(question, answers, reach),
        *Anew(question, answers, scheduler_name).makes_room(),
        *smaller(question, answers),
    ]
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
    enough = {one.kind for one in answers if one.fits}
    never = any(one.kind is Kind.SHORT and not one.fits for one in answers)
    for one in answers:
        only_some = one.pods and not one.fits and one.kind in enough
        # That no end helps goes without saying where no node would do.
        if not only_some and (one.pods or one.kind is not Kind.ENDED or not never):
            yield one
