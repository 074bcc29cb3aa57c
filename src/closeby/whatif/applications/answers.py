"""How the answers about an application are put: which of its pods fit then, where, and what talk costs."""

from msgspec.structs import replace

from closeby.scheduling.fork import Change
from closeby.whatif.applications.talking import Talk
from closeby.whatif.questions import Question, where_entry, where_text
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import TrialResult


class Answers:
    """Puts the results of trials for one application into words and data."""

    def __init__(self, question: Question, talk: Talk) -> None:
        self.question = question
        self.talk = talk

    def answer(self, kind: Kind, result: TrialResult, change: Change, condition: str) -> Counterfactual:
        """``a-0 fits now if …: on n1 (its traffic then costs 5).``; ``condition`` is what follows the
        verb."""
        there = self.talk.then(change, result)
        cost = "" if there is None else f" (its traffic then costs {there.figure:,})"
        found = Counterfactual(
            kind=kind,
            fits=self.question.whole(result),
            sentence=f"{self.question.fits(result)} {condition}: {where_text(result)}{cost}.",
            where=where_entry(result),
            pods=tuple(pod.key for pod in self.question.got(result)),
        )
        entry = None if there is None else self.talk.entry(there)
        return found if entry is None else replace(found, talk=entry)
