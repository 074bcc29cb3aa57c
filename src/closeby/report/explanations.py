"""Why a gang or pod waits, or why it lies where it lies (kind Explanation)."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.pods import Pod
from closeby.report.documents import (
    API_VERSION,
    ConditionEntry,
    DomainPath,
    GroupEntry,
    PodEntry,
    RejectionEntry,
    group_entries,
    pod_entry,
)
from closeby.report.parts import PartLine, parts_of
from closeby.report.prospects import prospect
from closeby.report.words import path_text, plural, plural_noun
from closeby.scheduling.outcomes import DomainFit, Outcome, PodExplanation
from closeby.simulator.runs import Run
from closeby.topology.natural import natural_key
from closeby.topology.tree import Tree

POD, GANG = "pod", "podgroup"


class DomainLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One domain as it looked before the decision. ``taken`` counts the members it got."""

    domain: DomainPath
    level: str | None
    fits: int
    wanted: int
    taken: int
    nodes: int
    #: Nodes that take none of the pods, by reason.
    blocked_by: Mapping[str, int]
    #: The resource it has least of, free and asked for; empty when it holds all.
    lack: str


class NodeLine(Struct, frozen=True, kw_only=True):
    """One node that passed the filters. ``scores`` by plugin, ``total`` the weighted sum."""

    node: str
    total: float
    scores: Mapping[str, float]


class Explanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything about one gang or pod; fields that do not concern it are empty."""

    api_version: str = API_VERSION
    kind: str = "Explanation"
    #: ``pod/namespace/name`` or ``podgroup/namespace/name``.
    subject: str
    #: What became of it, and why, in sentences.
    sentences: tuple[str, ...]
    reason: str | None
    gang: GroupEntry | None
    pods: tuple[PodEntry, ...]
    subgroups: tuple[PartLine, ...] = ()
    #: Best first; of a placed gang the taken ones and then the runner-up.
    domains: tuple[DomainLine, ...] = ()
    #: Of a single pod: the best first.
    nodes: tuple[NodeLine, ...] = ()
    rejected: Mapping[str, RejectionEntry] = {}
    conditions: tuple[ConditionEntry, ...] = ()


class Unclear(Struct, frozen=True):
    """A name that means nothing, or more than one thing; ``choices`` may be empty."""

    message: str
    choices: tuple[str, ...]


def find_subject(run: Run, name: str) -> tuple[str, str] | Unclear:
    """``(pod or podgroup, namespace/name)`` of a name as users write it.

    Accepts ``name``, ``namespace/name``, and both after ``pod/`` or ``podgroup/``.
    """
    kind, _, rest = name.partition("/")
    wanted = {"pod": POD, "pods": POD, "po": POD, "podgroup": GANG, "podgroups": GANG, "pg": GANG}.get(
        kind.lower()
    )
    known = _subjects(run)
    if wanted is not None and rest:
        exact = [entry for entry in known if entry[0] == wanted and _named(entry[1], rest)]
        if exact:
            return _only(exact, name)
    found = [entry for entry in known if _named(entry[1], name)]
    if found:
        return _only(found, name)
    return Unclear(f"there is no pod or gang called {name!r}", _near(name if wanted is None else rest, known))


def explain(run: Run, kind: str, key: str) -> Explanation:
    """Explain one gang or pod of a run that recorded explanations."""
    return _explain_gang(run, key) if kind == GANG else _explain_pod(run, key)


def _subjects(run: Run) -> list[tuple[str, str]]:
    gangs = {group.key for group in run.groups}
    gangs |= {f"{pod.namespace}/{pod.group}" for pod in run.pods if pod.group is not None}
    pods = {pod.key for pod in run.pods}
    return [(GANG, key) for key in sorted(gangs, key=natural_key)] + [
        (POD, key) for key in sorted(pods, key=natural_key)
    ]


def _named(key: str, name: str) -> bool:
    return name in (key, key.split("/", 1)[1])


def _only(found: Sequence[tuple[str, str]], name: str) -> tuple[str, str] | Unclear:
    if len(found) == 1:
        return found[0]
    return Unclear(f"{name!r} may mean several things", tuple(f"{kind}/{key}" for kind, key in found))


def _near(name: str, known: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    spelled: dict[str, str] = {}
    for kind, key in known:
        for spelling in (key, key.split("/", 1)[1]):
            spelled.setdefault(spelling, f"{kind}/{key}")
    close = get_close_matches(name, spelled, n=5, cutoff=0.5)
    return tuple(dict.fromkeys(spelled[spelling] for spelling in close))


def _explain_gang(run: Run, key: str) -> Explanation:
    entry = next(one for one in group_entries(run) if f"{one.namespace}/{one.name}" == key)
    pods = [pod for pod in run.pods if pod.group is not None and f"{pod.namespace}/{pod.group}" == key]
    outcome = run.gang_outcomes.get(key)
    group = next((one for one in run.groups if one.key == key), None)
    domains = _domains(run, group, outcome, pods)
    return Explanation(
        subject=f"{GANG}/{key}",
        sentences=(
            *_gang_sentences(entry, group, outcome, domains, pods),
            *_outlook(run, entry, group, pods),
        ),
        reason=entry.reason,
        gang=entry,
        pods=tuple(pod_entry(run, pod) for pod in pods),
        subgroups=() if group is None else parts_of(run, group, pods),
        domains=domains,
        conditions=entry.conditions,
    )


def _explain_pod(run: Run, key: str) -> Explanation:
    pod = next(one for one in run.pods if one.key == key)
    entry = pod_entry(run, pod)
    gang = None
    outcome = run.pod_outcomes.get(key)
    domains: tuple[DomainLine, ...] = ()
    sentences: list[str] = []
    if pod.group is not None:
        whole = _explain_gang(run, f"{pod.namespace}/{pod.group}")
        gang, domains = whole.gang, whole.domains
        outcome = run.gang_outcomes.get(f"{pod.namespace}/{pod.group}")
        rank = "" if entry.rank is None else f", as rank {entry.rank}"
        state = f"lies on {entry.node}{rank}" if entry.node else f"waits: {entry.message}"
        sentences = [f"{key} is a member of gang {pod.namespace}/{pod.group} and {state}."]
        sentences += [one for one in whole.sentences if one.rstrip(".") not in (entry.message or "")]
    shown = next((one for one in outcome.explanations if one.pod == key), None) if outcome else None
    nodes = _nodes(shown)
    if pod.group is None:
        sentences = list(_pod_sentences(entry, nodes))
    return Explanation(
        subject=f"{POD}/{key}",
        sentences=tuple(sentences),
        reason=entry.reason,
        gang=gang,
        pods=(entry,),
        domains=domains,
        nodes=nodes,
        rejected={}
        if shown is None
        else {
            node: RejectionEntry(plugin=one.plugin, reason=str(one.reason), message=one.message)
            for node, one in shown.rejected.items()
        },
        conditions=() if gang is None else gang.conditions,
    )


def _domains(
    run: Run, group: PodGroup | None, outcome: Outcome | None, pods: Sequence[Pod]
) -> tuple[DomainLine, ...]:
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
    blocked = {str(reason): count for reason, count in fit.blocked_by.items()}
    return DomainLine(
        domain=fit.path,
        level=fit.level,
        fits=fit.fits,
        wanted=fit.wanted,
        taken=taken,
        nodes=fit.nodes,
        blocked_by=dict(sorted(blocked.items(), key=lambda item: (-item[1], item[0]))),
        lack=fit.lack,
    )


def _taken(run: Run, tree: Tree | None, fit: DomainFit, pods: Iterable[Pod]) -> int:
    """Members of a gang that were placed in a domain in this run."""
    taken = 0
    for pod in pods:
        slot = run.engine.cluster.placement(pod.uid) if pod.uid in run.assignments else None
        domain = None if tree is None or slot is None else tree.node_domain(slot)
        if tree is not None and domain is not None:
            taken += tree.path(domain)[: len(fit.path)] == fit.path
    return taken


def _nodes(shown: PodExplanation | None) -> tuple[NodeLine, ...]:
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


# Sentences


def _gang_sentences(
    entry: GroupEntry,
    group: PodGroup | None,
    outcome: Outcome | None,
    domains: Sequence[DomainLine],
    pods: Sequence[Pod],
) -> Iterable[str]:
    key = f"{entry.namespace}/{entry.name}"
    if entry.reason is not None:
        yield f"{key} waits ({entry.reason}): {entry.message}."
        best = max(domains, key=lambda line: line.fits, default=None)
        if best is not None and not entry.scheduled and path_text(best.domain) not in (entry.message or ""):
            yield _why_not(best, len(domains))
        return
    if not entry.scheduled:
        yield f"{key} has no pods to schedule."
        return
    nodes = plural(entry.span.get("hostname", 0), "node")
    where = f"in {path_text(entry.domain)} ({entry.level})" if entry.domain else "across the cluster"
    count = f"all {entry.scheduled}" if entry.scheduled == len(pods) else f"{entry.scheduled} of {len(pods)}"
    yield (
        f"{count} pods of {key} lie {where}, on {nodes}.".capitalize()
        if count[0] == "a"
        else (f"{count} pods of {key} lie {where}, on {nodes}.")
    )
    if outcome is None:
        yield "They came with their nodes in the input; nothing had to be decided."
    elif domains:
        yield _why_here(domains, group)
    elif entry.topology is None:
        yield "No topology applies to it, so each pod went to the best node."


def _outlook(run: Run, entry: GroupEntry, group: PodGroup | None, pods: Sequence[Pod]) -> Iterable[str]:
    waiting = [pod for pod in pods if run.node_of(pod) is None]
    sentence = None if group is None or entry.scheduled else prospect(run, group, entry.reason, waiting)
    return () if sentence is None else (sentence,)


def _why_not(best: DomainLine, looked_at: int) -> str:
    level = best.level or "part of the cluster"
    lack = f" ({best.lack})" if best.lack else ""
    if best.fits >= best.wanted:
        where = path_text(best.domain)
        return f"{where} alone would hold all {best.wanted} pods, but not as the subgroups require."
    return (
        f"Of {plural(looked_at, level)} the roomiest, {path_text(best.domain)}, "
        f"holds {best.fits} of {best.wanted} pods{lack}."
    )


def _why_here(domains: Sequence[DomainLine], group: PodGroup | None) -> str:
    taken = [line for line in domains if line.taken]
    others = [line for line in domains if not line.taken]
    if not taken:
        return "It is the best place for the gang as a whole."
    level = taken[0].level or "part of the cluster"
    wanted = taken[0].wanted
    holding = [line for line in others if line.fits >= wanted]
    if len(taken) > 1:
        shares = ", ".join(f"{path_text(line.domain)} takes {line.taken}" for line in taken[:4])
        more = f" and {len(taken) - 4} more" if len(taken) > 4 else ""
        if any(line.fits >= wanted for line in domains):
            return f"It uses {plural(len(taken), level)}: {shares}{more}."
        return f"No {level} holds all {wanted} pods, so the gang uses {len(taken)} of them: {shares}{more}."
    here = taken[0]
    if group is not None and here.taken < wanted:
        return f"{path_text(here.domain)} takes {here.taken} of the {wanted} pods that looked for a place."
    if not holding:
        return _only_one(here, others, level)
    runner_up = holding[0]
    rule = _rule(here, runner_up, group)
    return (
        f"{len(holding) + 1} {plural_noun(level)} hold all {wanted} pods. {rule}: {path_text(here.domain)} "
        f"had room for {here.fits}, the runner-up {path_text(runner_up.domain)} for {runner_up.fits}."
    )


def _only_one(here: DomainLine, others: Sequence[DomainLine], level: str) -> str:
    if not others:
        return f"{path_text(here.domain)} is the only {level} there is."
    second = max(others, key=lambda line: line.fits)
    lack = f" ({second.lack})" if second.lack else ""
    return (
        f"{path_text(here.domain)} is the only {level} that holds all {here.wanted} pods; "
        f"the next, {path_text(second.domain)}, holds {second.fits}{lack}."
    )


def _rule(here: DomainLine, runner_up: DomainLine, group: PodGroup | None) -> str:
    strategy = Strategy.BINPACK if group is None else group.strategy
    if here.fits == runner_up.fits:
        return "Of equally full ones the first by name is taken"
    tighter = here.fits < runner_up.fits
    if strategy is Strategy.BINPACK and tighter:
        return "Strategy binpack takes the tightest"
    if strategy is Strategy.SPREAD and not tighter:
        return "Strategy spread takes the emptiest"
    return "Members that already run, or a tighter fit below, decided"


def _pod_sentences(entry: PodEntry, nodes: Sequence[NodeLine]) -> Iterable[str]:
    key = f"{entry.namespace}/{entry.name}"
    if entry.phase == "Running":
        yield f"{key} came with its node in the input ({entry.node}); nothing had to be decided."
        return
    if entry.node is None:
        reason = f" ({entry.reason})" if entry.reason else ""
        yield f"{key} waits{reason}: {entry.message}."
        return
    yield f"{key} went to {entry.node}."
    here = next((line for line in nodes if line.node == entry.node), None)
    others = [line for line in nodes if line.node != entry.node]
    if here is None:
        return
    if not others:
        yield "It is the only node that takes this pod."
        return
    second = others[0]
    if second.total == here.total:
        equal = sum(line.total == here.total for line in others)
        yield f"It scores {here.total:.1f}, as {plural(equal, 'other node')} did; the first by name is taken."
        return
    gaps = {name: here.scores[name] - second.scores.get(name, 0.0) for name in here.scores}
    by = ", ".join(
        f"{name} {gap:+.1f}" for name, gap in sorted(gaps.items(), key=lambda one: -abs(one[1])) if gap
    )
    yield f"It scores {here.total:.1f}; the runner-up {second.node} scores {second.total:.1f} ({by})."
