"""Two changes at once, where none of them is enough for itself."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.scheduling.fork import Change
from closeby.whatif.ends import Job, jobs_beside, when
from closeby.whatif.questions import Fields, Question, fewest
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.relaxing import (
    REQUIRED,
    anywhere,
    only_preferred,
    taints_against,
    taints_text,
    tolerant,
)
from closeby.whatif.trials import TrialResult

#: Jobs on tainted nodes that may end together.
JOBS: Final = 16
_CHOICE: Final[Fields] = {"nodeSelector": None, "affinity.nodeAffinity": None}
_NO_CHOICE: Final = "has no node selector and no affinity"
_NO_LEVEL: Final = "requires no level"


def two_at_once(question: Question) -> Iterator[Counterfactual]:
    """What two changes together do of which none is enough for itself.

    Pods may tolerate taints, choose no nodes, and require no level; and what runs on the nodes whose taints
    keep them out may end. The first two that are enough.
    """
    tolerating = tuple(tolerant(pod, [""]) for pod in question.waiting)
    loose = _requiring_nothing(question.group)
    groups = () if loose is None else (loose,)
    chooses = any(
        pod.spec.node_selector or pod.spec.required_affinity is not None for pod in question.waiting
    )
    tainted = any(
        taints_against(question, [node.name]) for node in question.trials.engine.cluster.nodes if node
    )
    found: Iterable[Counterfactual] = ()
    if tainted and chooses:
        both = Change(waiting=tuple(map(anywhere, tolerating)))
        found = tuple(_tolerating_besides(question, both, _NO_CHOICE, _CHOICE))
    if not found and tainted and loose is not None:
        both = Change(waiting=tolerating, groups=groups)
        found = tuple(_tolerating_besides(question, both, _NO_LEVEL, {REQUIRED: None}))
    if not found and chooses and loose is not None:
        both = Change(waiting=tuple(map(anywhere, question.waiting)), groups=groups)
        condition = f"now if it {_NO_CHOICE} and also {_NO_LEVEL}"
        found = tuple(question.relaxed(both, condition, {**_CHOICE, REQUIRED: None}))
    if not found and tainted:
        found = _tolerant_after_an_end(question, tolerating)
    yield from found


def _tolerating_besides(
    question: Question, change: Change, besides: str, fields: Fields
) -> Iterator[Counterfactual]:
    result = question.tried(change)
    if result is None:
        return
    keys = taints_against(question, (one.node for one in result.bindings))
    condition = f"now if it tolerates {taints_text(keys)} and also {besides}"
    yield question.answer(
        Kind.RELAXED, change, result, condition, fields={**fields, "tolerations": ", ".join(keys)}
    )


def _tolerant_after_an_end(question: Question, tolerating: tuple[Pod, ...]) -> Iterator[Counterfactual]:
    """The least that has to end on tainted nodes, if it tolerated their taints."""

    def change(jobs: Sequence[Job]) -> Change:
        return Change(waiting=tolerating, gone=tuple(pod for job in jobs for pod in job.pods))

    def after(jobs: Sequence[Job]) -> TrialResult | None:
        return question.tried(change(jobs))

    closed = [
        job
        for job in jobs_beside(question)
        if taints_against(question, [pod.node_name for pod in job.held if pod.node_name])
    ]
    result = after(closed[:JOBS]) if closed else None
    if result is None:
        return
    jobs, least = fewest(closed[:JOBS], result, after)
    keys = taints_against(question, (one.node for one in least.bindings))
    condition = f"{when(jobs)} and it also tolerates {taints_text(keys)}"
    entries = tuple(job.entry for job in jobs)
    fields: Fields = {"tolerations": ", ".join(keys)}
    yield question.answer(Kind.RELAXED, change(jobs), least, condition, fields=fields, jobs=entries)


def _requiring_nothing(group: PodGroup | None) -> PodGroup | None:
    """The gang without its required level; None if it requires none."""
    constraint = None if group is None else group.constraint
    if group is None or constraint is None or constraint.required is None:
        return None
    return replace(group, constraint=only_preferred(constraint))
