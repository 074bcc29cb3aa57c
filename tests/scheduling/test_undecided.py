"""What a decision does not decide within its limit is solved elsewhere, and decided again by the answer."""

from collections.abc import Hashable

from closeby.kube.scheduler.live import STEPS
from closeby.objects.reasons import Reason
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, NodeDeleted, PodUpserted, ProblemSolved, Tick
from closeby.scheduling.outcomes import Output, Undecided, bindings_of, outcomes_of
from closeby.scheduling.solving.program import Solution, Verdict
from closeby.scheduling.steps import SOLVER_WITHOUT_LIMIT
from tests.attacks.crowds import PACKED, ROOM, exact_sizes
from tests.worlds import gang, pods, spec, world

DRAWING = "zone-a rack-1 : " + " ".join(f"a{index}={ROOM}" for index in range(PACKED))


def exact() -> list[PodUpserted | GroupChanged]:
    """A gang of twenty pods of different sizes, which fill five nodes to the last unit."""
    sizes = enumerate(exact_sizes())
    members = [pod for at, size in sizes for pod in pods("train", 1, spec(gpu=size), prefix=f"p{at}")]
    return [GroupChanged(gang(min_member=len(members), required="rack")), *map(PodUpserted, members)]


def undecided(engine: Engine) -> Undecided:
    """Too much for the limit of a live scheduler."""
    outputs: list[Output] = engine.handle(*exact(), Tick(limit=1, steps=STEPS))
    assert [one.reason for one in outcomes_of(outputs)] == [Reason.SEARCH_BUDGET_EXHAUSTED]
    (found,) = [one for one in outputs if isinstance(one, Undecided)]
    return found


#: What came of programs: that takes seconds.
_SOLUTIONS: dict[Hashable, Solution] = {}


def solved(found: Undecided) -> ProblemSolved:
    """As in another thread: of the engine it needs nothing."""
    key = found.program.key
    if key not in _SOLUTIONS:
        _SOLUTIONS[key] = found.program.solve(SOLVER_WITHOUT_LIMIT)
    assert _SOLUTIONS[key].verdict is Verdict.FEASIBLE
    return ProblemSolved(found.key, key, _SOLUTIONS[key])


def test_the_answer_places_what_the_limit_left_undecided() -> None:
    engine = world(DRAWING).engine
    outputs = engine.handle(solved(undecided(engine)), Tick(limit=1, steps=STEPS))
    assert len(bindings_of(outputs)) == len(exact_sizes())
    engine.validate_state()


def test_an_answer_to_what_was_is_none_to_what_is() -> None:
    engine = world(DRAWING).engine
    answer = solved(undecided(engine))
    outputs = engine.handle(NodeDeleted("a4"), answer, Tick(limit=1, steps=STEPS))
    assert [one.reason for one in outcomes_of(outputs)] == [Reason.GANG_DOES_NOT_FIT]
    engine.validate_state()


def test_without_a_limit_it_is_decided_at_once() -> None:
    outputs = world(DRAWING).engine.handle(*exact(), Tick())
    assert len(bindings_of(outputs)) == len(exact_sizes())
