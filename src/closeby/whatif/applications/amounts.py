"""How much less the pods of an application would have to ask for, so that they fit now."""

from collections.abc import Iterator

from msgspec.structs import replace

from closeby.objects.pods import Pod, PodSpec
from closeby.objects.quantities import format_amount
from closeby.objects.words import names_text
from closeby.scheduling.fork import Change
from closeby.whatif.applications.answers import Answers
from closeby.whatif.questions import Question
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import TrialResult

#: Amounts are found to within this part of what is asked for now.
STEPS = 64


def smaller(question: Question, answers: Answers) -> Iterator[Counterfactual]:
    """For each set of equal pods and each resource, the greatest request found with which most fit."""
    equal: dict[PodSpec, list[Pod]] = {}
    for pod in question.waiting:
        equal.setdefault(pod.spec, []).append(pod)
    for spec, pods in equal.items():
        for resource, asked in spec.requests:
            if asked > 0:
                yield from _less(question, answers, pods, resource, asked)


def _less(
    question: Question, answers: Answers, pods: list[Pod], resource: str, asked: int
) -> Iterator[Counterfactual]:
    best = _tried(question, pods, resource, 0)
    if best is None:
        return
    number, amount = len(question.got(best[1])), 0
    unit = _unit(asked)
    fewest, most = 1, (asked - 1) // unit
    while fewest <= most:
        middle = (fewest + most) // 2
        found = _tried(question, pods, resource, middle * unit)
        if found is not None and len(question.got(found[1])) >= number:
            best, amount, fewest = found, middle * unit, middle + 1
        else:
            most = middle - 1
    change, result = best
    if not amount and _offered(question, resource):
        return
    everybody = len(pods) == len(question.waiting)
    names = "each" if everybody else f"each of {names_text([pod.name for pod in pods])}"
    if len(pods) == 1:
        names = "it" if everybody else pods[0].name
    less = f"only {format_amount(resource, amount)} {resource}" if amount else f"no {resource}"
    condition = f"now if {names} asks for {less} instead of {format_amount(resource, asked)}"
    said = answers.answer(Kind.RELAXED, result, change, condition)
    written = f"{amount}m" if resource == "cpu" else amount
    yield replace(said, change={f"pods[{one.name}].requests[{resource}]": written for one in pods})


def _tried(
    question: Question, pods: list[Pod], resource: str, amount: int
) -> tuple[Change, TrialResult] | None:
    change = Change(waiting=tuple(_asking(pod, resource, amount) for pod in pods))
    result = question.tried(change)
    return None if result is None or not question.got(result) else (change, result)


def _offered(question: Question, resource: str) -> bool:
    """Whether some node has any of it: to do without altogether is not advice then."""
    cluster = question.trials.engine.cluster
    row = cluster.row_of.get(resource)
    return row is not None and bool((cluster.allocatable[row] * cluster.alive > 0).any())


def _asking(pod: Pod, resource: str, amount: int) -> Pod:
    others = (one for one in pod.spec.requests if one[0] != resource)
    requests = tuple(sorted((*others, (resource, amount)))) if amount else tuple(others)
    return replace(pod, spec=replace(pod.spec, requests=requests))


def _unit(asked: int) -> int:
    """A round step: a power of ten of what is counted in thousands, of two for bytes, at most a 64th."""
    unit, base = 1, 2 if asked % 1024 == 0 else 10
    while unit * base * STEPS <= asked:
        unit *= base
    return unit
