"""The lines of an explanation: domains and nodes."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.words import path_text
from closeby.report.documents.scheduling import by_frequency
from closeby.scheduling.outcomes import DomainFit, Outcome, PodExplanation
from closeby.simulator.runs import Run
from closeby.topology.tree import Tree
from closeby.whatif.records import DomainPath


class DomainLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One domain as it looked before the decision."""

    #: Its path of label values.
    domain: DomainPath
    #: Short name of its level; null for the whole cluster.
    level: str | None
    #: Pods of the gang that fit there.
    fits: int
    #: Pods of the gang that look for a place.
    wanted: int
    #: Members that were placed there.
    taken: int
    #: Its nodes.
    nodes: int
    #: Nodes that take none of the pods, by reason.
    blocked_by: Mapping[str, int]
    #: The resource it has least of, free and asked for; empty when it holds all.
    lack: str


class NodeLine(Struct, frozen=True, kw_only=True):
    """One node that passed the filters."""

    #: Its name.
    node: str
    #: The weighted sum of the scores.
    total: float
    #: By plugin.
    scores: Mapping[str, float]


def domain_lines(
    run: Run, group: PodGroup | None, outcome: Outcome | None, pods: Sequence[Pod]
) -> tuple[DomainLine, ...]:
    """The domains that were looked at: the taken ones, then the best of the others."""
    if outcome is None or not outcome.domains:
        return ()
    tree = run.engine.topologies.tree(outcome.domains[0].topology)
    lines = [_domain_line(fit, _taken(run, tree, fit, pods)) for fit in outcome.domains]
    tight = group is None or group.strategy is Strategy.BINPACK

    def order(line: DomainLine) -> tuple[object, ...]:
        holds = line.fits >= line.wanted
        return (
            -line.taken,
            not holds,
            line.fits if holds and tight else -line.fits,
            natural_key(path_text(line.domain)),
        )

    return tuple(sorted(lines, key=order))


def _domain_line(fit: DomainFit, taken: int) -> DomainLine:
    return DomainLine(
        domain=fit.path,
        level=fit.level,
        fits=fit.fits,
        wanted=fit.wanted,
        taken=taken,
        nodes=fit.nodes,
        blocked_by=by_frequency(fit.blocked_by),
        lack=fit.lack,
    )


def _taken(run: Run, tree: Tree | None, fit: DomainFit, pods: Iterable[Pod]) -> int:
    """Members of a gang that were placed in a domain in this run."""
    taken = 0
    for pod in pods:
        slot = run.engine.cluster.placement(pod.uid) if pod.uid in run.bindings else None
        domain = None if tree is None or slot is None else tree.node_domain(slot)
        if tree is not None and domain is not None:
            taken += tree.path(domain)[: len(fit.path)] == fit.path
    return taken


def explanation_of(outcome: Outcome | None, key: str) -> PodExplanation | None:
    """How the nodes looked to a pod; None where that was not recorded."""
    return next((one for one in outcome.explanations if one.pod == key), None) if outcome else None


def node_lines(shown: PodExplanation | None) -> tuple[NodeLine, ...]:
    """The nodes that passed the filters, the best first."""
    if shown is None:
        return ()
    lines = [
        NodeLine(
            node=node,
            total=scores["total"],
            scores={name: value for name, value in scores.items() if name != "total"},
        )
        for node, scores in shown.scores.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.total, natural_key(line.node))))
