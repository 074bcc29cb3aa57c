"""The lines of an explanation: domains and nodes."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key, path_text
from closeby.report.documents.scheduling import by_frequency
from closeby.scheduling.outcomes import DomainFit, Outcome, PodExplanation
from closeby.scheduling.reasons.wording import labelling
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


#: Fields of a lack that are amounts of its resource, and the others.
_AMOUNTS = ("asked", "each", "free", "largest", "barred")
_OTHERS = ("resource", "nodes", "barred_nodes", "offered", "known")


class LackEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource of which more is asked for than is free where the pods may go; ``cpu`` in cores."""

    #: Its name.
    resource: str
    #: What all pods ask for together.
    asked: float
    #: What one of them asks for at the most.
    each: float
    #: What is free on nodes that they may use.
    free: float
    #: The number of nodes that they may use with some of it free.
    nodes: int
    #: The most that is free on one of these nodes.
    largest: float
    #: What is free on nodes that they may not use.
    barred: float
    #: The number of nodes that they may not use with some of it free.
    barred_nodes: int
    #: False where no node has any of it.
    offered: bool
    #: Names of resources that nodes have, the nearest first; only there where no node offers this one.
    known: tuple[str, ...]


class MissingLabelEntry(Struct, frozen=True, kw_only=True):
    """Nodes that carry no label which a level or a pod asks for, and how they get it."""

    #: The label's key.
    label: str
    #: How many nodes do not carry it.
    nodes: int
    #: Their names; empty where there are many.
    names: tuple[str, ...]
    #: The command that labels them; for a tier of HyperNodes, that they become members of one.
    remedy: str


def lack_entries(outcome: Outcome | None) -> tuple[LackEntry, ...]:
    """The resources that a refused item lacks, the scarcest first."""
    short = None if outcome is None else outcome.shortfall
    entries = []
    for lack in () if short is None else short.lacks:
        unit = 1000 if lack.resource == "cpu" else 1
        values = {name: getattr(lack, name) for name in _AMOUNTS}
        amounts = {name: value / unit if value % unit else value // unit for name, value in values.items()}
        others = {name: getattr(lack, name) for name in _OTHERS}
        entries.append(LackEntry(**amounts, **others))
    return tuple(entries)


def unlabelled_entry(outcome: Outcome | None) -> MissingLabelEntry | None:
    """The nodes without a label that a refused item needs."""
    short = None if outcome is None else outcome.shortfall
    bare = None if short is None else short.unlabelled
    if bare is None:
        return None
    return MissingLabelEntry(label=bare.label, nodes=bare.nodes, names=bare.names, remedy=labelling(bare))


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


def node_weights(run: Run, nodes: Sequence[NodeLine]) -> dict[str, float]:
    """What the scores of each plugin count in the totals of these nodes."""
    scored = {name for line in nodes for name in line.scores}
    return {plugin.name: weight for plugin, weight in run.engine.profile.scores if plugin.name in scored}
