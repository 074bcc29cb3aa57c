"""How far apart the workloads of an application would have to be allowed to lie, so that its pods fit now."""

import math
from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
from msgspec.structs import replace

from closeby.applications.registry import Edge
from closeby.objects.applications import AppGroup
from closeby.scheduling.fork import Change
from closeby.scheduling.plugin_view import CycleState
from closeby.whatif.applications.answers import Answers
from closeby.whatif.questions import Question, joined
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import TrialResult

#: Edges that are named, and edges that are tried one by one: those at which most pods wait.
NAMED = 4
EDGES = 16


def farther(question: Question, answers: Answers) -> Iterator[Counterfactual]:
    """For each edge the least ``maxNetworkCost`` with which most of what waits fits, else one for all edges.

    Where only places at an unknown distance are left, the limit would have to go.
    """
    limited = _limited(question)
    if len(limited) > EDGES:  # Too many to try each of them first.
        together = tuple(_raised(question, answers, limited))
        yield from together
        if not together or together[0].fits:
            return
    whole = len(limited) > EDGES
    for edge in limited[:EDGES]:
        for found in _raised(question, answers, (edge,)):
            whole |= found.fits
            yield found
    if len(limited) > 1 and not whole:
        yield from _raised(question, answers, limited)


def _limited(question: Question) -> tuple[Edge, ...]:
    """The edges with a limit at which something waits."""
    application = question.application
    if application is None:
        return ()
    ends = Counter(application.workload_of(pod) for pod in question.waiting)
    found = [edge for edge in application.edges if edge.limit is not None]
    found.sort(key=lambda edge: -(ends[edge.caller] + ends[edge.callee]))
    return tuple(edge for edge in found if ends[edge.caller] + ends[edge.callee])


def _raised(question: Question, answers: Answers, edges: tuple[Edge, ...]) -> Iterator[Counterfactual]:
    best = _tried(question, edges, None)
    if best is None:
        return
    number, limit = len(question.got(best[1])), None
    costs = _costs(question, min(edge.limit or 0 for edge in edges))
    first, end = 0, len(costs)
    while first < end:
        middle = (first + end) // 2
        found = _tried(question, edges, costs[middle])
        if found is not None and len(question.got(found[1])) >= number:
            best, limit, end = found, costs[middle], middle
        else:
            first = middle + 1
    change, result = best
    lifted = [edge for edge in edges if limit is None or (edge.limit or 0) < limit]
    said = answers.answer(Kind.RELAXED, result, change, f"now {_condition(lifted, limit)}")
    fields = {f"dependencies[{one.caller} -> {one.callee}].maxNetworkCost": limit for one in lifted}
    yield replace(said, change=fields)


def _condition(edges: Collection[Edge], limit: int | None) -> str:
    names = [f"{edge.caller} → {edge.callee}" for edge in edges]
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    if limit is None:
        return f"without the maxNetworkCost of {joined(names)}"
    asked = {edge.limit for edge in edges}
    instead = f" instead of {asked.pop():,}" if len(asked) == 1 else ""
    return f"if maxNetworkCost of {joined(names)} is {limit:,}{instead}"


def _tried(
    question: Question, edges: Collection[Edge], limit: int | None
) -> tuple[Change, TrialResult] | None:
    application = question.application
    if application is None:
        return None
    change = Change(applications=(_allowing(application.group, edges, limit),))
    result = question.tried(change)
    return None if result is None or not question.got(result) else (change, result)


def _allowing(group: AppGroup, edges: Collection[Edge], limit: int | None) -> AppGroup:
    """The application with limits that are at least so high on some edges; None: with none there."""
    ends = {(edge.caller, edge.callee) for edge in edges}
    return replace(
        group,
        workloads=tuple(
            replace(
                workload,
                dependencies=tuple(
                    replace(one, max_network_cost=None if limit is None else max(limit, one.max_network_cost))
                    if (workload.name, one.workload) in ends and one.max_network_cost is not None
                    else one
                    for one in workload.dependencies
                ),
            )
            for workload in group.workloads
        ),
    )


def _costs(question: Question, above: int) -> list[int]:
    """The costs between two nodes that are known and above a limit, in whole numbers."""
    offered = question.trials.engine.profile.dependency_costs
    answers = (plugin.traffic(CycleState(), question.waiting) for plugin in offered)
    traffic = next((one for one in answers if one is not None), None)
    if traffic is None:
        return []
    known = np.unique(traffic.between[~traffic.unknown])
    return sorted({math.ceil(cost) for cost in known[known > above].tolist()})
