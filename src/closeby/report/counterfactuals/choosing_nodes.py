"""Which nodes an item could ask for instead, so that it fits now."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from closeby.objects.pods import Pod, Toleration
from closeby.report.counterfactuals.questions import Question, where_entry, where_text
from closeby.report.counterfactuals.records import Counterfactual, Kind
from closeby.simulator.trials import Change, Result


def other_nodes(question: Question) -> Iterator[Counterfactual]:
    """Without its choice of nodes, and if it tolerated all taints."""
    specs = {pod.spec for pod in question.waiting}
    if any(spec.node_selector or spec.required_affinity is not None for spec in specs):
        anywhere = tuple(_anywhere(pod) for pod in question.waiting)
        result = question.tried(Change(waiting=anywhere))
        if result is not None:
            change = {"nodeSelector": None, "affinity.nodeAffinity": None}
            yield _of_any(question, "without its node selector and affinity", change, result)
    nodes = question.trials.engine.cluster.nodes
    if any(node is not None and (node.taints or node.unschedulable) for node in nodes):
        result = question.tried(Change(waiting=tuple(_tolerant(pod) for pod in question.waiting)))
        if result is not None:
            used = {one.node for one in result.assigned}
            taints = sorted(
                {
                    taint.key
                    for node in nodes
                    if node is not None and node.name in used
                    for taint in node.taints
                    if taint.effect != "PreferNoSchedule"
                }
            )
            of = f" ({', '.join(taints)})" if taints else " or cordoned nodes"
            yield _of_any(question, f"if it tolerates taints{of}", {"tolerations": "all"}, result)


def _anywhere(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_selector=(), required_affinity=None))


def _tolerant(pod: Pod) -> Pod:
    return replace(
        pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, Toleration(operator="Exists")))
    )


def _of_any(
    question: Question, condition: str, change: Mapping[str, str | int | None], result: Result
) -> Counterfactual:
    """Also of an application, which may get nodes for some of its pods only."""
    told = Counterfactual(
        kind=Kind.RELAXED,
        fits=True,
        sentence=f"{question.fits(result)} now {condition}: {where_text(result)}.",
        change=change,
        where=where_entry(result),
    )
    if question.application is None:
        return told
    pods = tuple(pod.key for pod in question.got(result))
    return replace(told, fits=question.whole(result), pods=pods)
