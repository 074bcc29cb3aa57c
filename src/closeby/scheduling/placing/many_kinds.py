"""Gangs of many kinds of pods: each kind is judged by itself, which counts as steps and may be suspended."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from closeby.objects.pods import Pod, all_alike, one_of_each_spec
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.pace import Pace

#: Kinds of pods that most gangs have at the most: work for these is in the steps of a decision as it is.
FEW: Final = 16
#: Steps for one more kind in each candidate.
PER_KIND: Final = 100
#: Steps for a kind that is judged for all nodes, for each term of a pod, and for as many nodes in one.
_JUDGING, _TERM, _NODES = 100, 10, 20
#: So many preferred terms cost as much as one that is required.
_PREFERRED: Final = 64
#: Steps for the room of one kind where groups are looked ahead of, and for how many domains one more.
_ROOM: Final = 4
_DOMAINS: Final = 64


def steps_beyond(kinds: int) -> int:
    """Steps for so many kinds in one candidate, beyond those of a gang with few."""
    return PER_KIND * max(0, kinds - FEW)


def steps_to_look_ahead(kinds: int, domains: int) -> int:
    """Steps to see whether groups of so many kinds fit into so many domains, beyond those of few kinds."""
    return (_ROOM + domains // _DOMAINS) * max(0, kinds - FEW)


def judge_one_by_one(table: ClassTable, pods: Sequence[Pod], nodes: int, pace: Pace) -> None:
    """Judge pods of many kinds one after another, suspended in between, before all are asked for at once.

    Of a gang with few kinds, and few terms a pod, nothing is done.
    """
    if len(pods) < 2 or table.are_equal(pods):
        return
    of_spec = Counter(id(pod.spec) for pod in pods)
    each = nodes // _NODES + _JUDGING
    terms = sum(of_spec[id(pod.spec)] * _terms(pod) for pod in one_of_each_spec(pods))
    if len(of_spec) <= FEW and (_TERM * terms <= FEW * each or all_alike(pods)):
        return
    seen: set[int] = set()
    for pod in pods:
        pace.take(_TERM * _terms(pod) + (0 if id(pod.spec) in seen else each))
        seen.add(id(pod.spec))
        table.of(pod)
    table.compare_terms(pods, pace)


def _terms(pod: Pod) -> int:
    affinity = pod.spec.pod_affinity
    terms = 0
    if affinity is not None:
        terms = len(affinity.required) + len(affinity.forbidden) + len(affinity.preferred) // _PREFERRED
    return terms + len(pod.spec.topology_spread)
