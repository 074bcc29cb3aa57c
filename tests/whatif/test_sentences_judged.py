"""Every sentence about a gang that waits, judged by counting on tiny clusters."""

import math
import os
import re

import pytest
from msgspec.structs import replace

from closeby.objects.pods import Pod, Toleration
from closeby.plugins.node_unschedulable import CORDON
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.prospects import prospect
from closeby.whatif.records import Counterfactual, Kind, ShortEntry
from closeby.whatif.relaxing import REQUIRED
from tests.whatif.tiny_worlds import KEY, Tiny, tiny_world

#: Set to look at more worlds than these.
WORLDS = int(os.environ.get("CLOSEBY_JUDGED_WORLDS", "240"))
BATCHES = 8


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_is_said_is_true_and_no_more_than_needed(batch: int) -> None:
    waited = 0
    for seed in range(batch, WORLDS, BATCHES):
        tiny = tiny_world(seed)
        if lacks(tiny):
            waited += 1
            judge(tiny, seed)
    assert waited


def lacks(tiny: Tiny) -> bool:
    """Whether it waits for room: not if enough of its members run already."""
    return len(tiny.own) < tiny.group.min_member and not tiny.fits(tiny.others)


def judge(tiny: Tiny, seed: int) -> None:
    run = simulate(tiny.manifests, Configuration())
    reason = run.gang_outcomes[KEY].reason
    assert reason is not None, seed
    found = counterfactuals(run, only=[KEY])[KEY]
    members = [one for one in run.pods if one.group == "train"]
    told = prospect(run, tiny.group, reason, members)
    assert told is not None, seed
    outlook = list(told.sentences)
    said = "\n".join((f"seed {seed}", *outlook, *(one.sentence for one in found)))
    assert told.ever_fits == tiny.fits(tiny.returning()), said
    judge_outlook(tiny, outlook, said)
    judge_short(tiny, [one for one in found if one.kind is Kind.SHORT], said)
    judge_ends(tiny, [one for one in found if one.kind is Kind.ENDED], said)
    judge_relaxed(tiny, [one for one in found if one.kind is Kind.RELAXED], said)


def judge_outlook(tiny: Tiny, outlook: list[str], said: str) -> None:
    first = outlook[0]
    cleared = tiny.room(tiny.returning())
    holding = sum(room >= tiny.needed for room in cleared.values())
    most = max(cleared.values(), default=0)
    ends = tiny.fits(tiny.for_ever())
    assert ("can start once enough" in first) == ends, said
    assert ("the end of jobs is not enough" in first) == (holding > 0 and not ends), said
    never_fits = ("Even if", "As the nodes are", "No node is large enough")
    assert first.startswith(never_fits) == (not holding), said
    requests = tiny.pod.spec.requests
    largest = {
        name: max((one.allocatable.get(name, 0) for one in tiny.nodes), default=0) for name, _ in requests
    }
    too_large = any(0 < largest[name] < amount for name, amount in requests)
    assert first.startswith("No node is large") == (too_large and not most), said
    if not holding:
        never = re.search(r"(?:more than|hold only) (\d) of its (\d) pods", first)
        assert (int(never[1]) if never else 0) == most, said
        assert (int(never[2]) if never else tiny.needed) == tiny.needed, said
        coarser: list[str | None] = [] if tiny.level is None else ["zone", None]
        would = any(tiny.fits(tiny.returning(), level) for level in coarser if level != tiny.level)
        advice = "\n".join(outlook)
        assert ("for a coarser level" in advice) == would, said
        assert ("for fewer pods" in advice) == (most > 0 and tiny.level is not None), said
        opened = max(all_open(tiny).room(tiny.returning()).values(), default=0)
        closed = {one.name for one in tiny.nodes if not tiny.open(one)}
        named = "none fits on" in first
        assert named == (opened > most) or (named and closed and tiny.pod.spec.host_ports), said
        if named and not tiny.pod.spec.host_ports:
            assert (f"it would hold {opened} of them" in advice) == (opened < tiny.needed), said
    elif tiny.level is not None:
        number = re.search(rf"(\d+) {tiny.level}s would", first)
        assert (int(number[1]) if number else 1) == holding, said


def all_open(tiny: Tiny) -> Tiny:
    """The same if every node took the gang's pods."""
    nodes = tuple(replace(one, taints=(), unschedulable=False, ready=True) for one in tiny.nodes)
    free = tuple(replace(one, spec=replace(one.spec, node_selector=())) for one in tiny.manifests.pods)
    return tiny._replace(manifests=replace(tiny.manifests, nodes=nodes, pods=free))


def judge_short(tiny: Tiny, found: list[Counterfactual], said: str) -> None:
    now, cleared = tiny.room(tiny.others), tiny.room(tiny.returning())
    if not now:
        assert not found, said
        return
    (one,) = found
    short = one.short
    assert isinstance(short, ShortEntry), said
    path = tuple(each or "-" for each in short.domain)
    able = [each for each in now if cleared[each] >= tiny.needed]
    closest = max(now[each] for each in able or now)
    assert path in (able or now), said
    assert (short.fits, short.needed, short.pods) == (closest, tiny.needed, tiny.needed - closest), said
    assert now[path] == closest, said
    if tiny.level is not None:
        told = re.search(r"^(No|Of (\d)|.* is the only)", one.sentence)
        assert told is not None, said
        number = 0 if told[1] == "No" else int(told[2] or 1)
        assert number == len(able), said
    nodes = tiny.domains(tiny.level)[path]
    each = max(tiny.on_node(node, [*tiny.returning(), *tiny.own]) for node in nodes)
    assert short.nodes == (math.ceil(short.pods / each) if each else None), said
    judge_lack(tiny, path, one, said)
    assert one.fits == bool(short.in_the_way) == bool(able), said
    if able:
        gone = [each for each in tiny.others if each.key in short.in_the_way]
        assert tiny.room(tiny.without(gone))[path] >= tiny.needed, said
        assert all(
            tiny.room(tiny.without([o for o in gone if o is not each]))[path] < tiny.needed for each in gone
        )
        least = [tiny.least(each) for each in able if now[each] == closest]
        assert tiny.weight(gone) == min(each for each in least if each is not None), said


def judge_lack(tiny: Tiny, path: tuple[str, ...], one: Counterfactual, said: str) -> None:
    assert isinstance(one.short, ShortEntry)
    ported = bool(tiny.pod.spec.host_ports)
    beside = [*tiny.others, *tiny.own]
    usable = [
        node
        for node in tiny.domains(tiny.level)[path]
        if tiny.open(node)
        and not (ported and any(o.spec.host_ports and o.node_name == node.name for o in beside))
    ]
    lack = {}
    for name, amount in tiny.pod.spec.requests:
        missing = amount * tiny.needed - sum(tiny.free(node, beside, name) for node in usable)
        if missing > 0:
            lack[name] = missing / 1000 if name == "cpu" else missing
    assert dict(one.short.resources) == lack, said
    assert ("enough in sum" in one.sentence) == (not lack), said
    if "no node has" in one.sentence:
        for node in usable:
            there = tiny.on_node(node, beside)
            named = [(name, amount) for name, amount in tiny.pod.spec.requests if name in one.sentence]
            assert any(tiny.free(node, beside, name) - there * amount < amount for name, amount in named), (
                said
            )


def judge_ends(tiny: Tiny, found: list[Counterfactual], said: str) -> None:
    jobs = tiny.jobs()
    enough = {name for name, gone in jobs.items() if tiny.fits(tiny.without(gone))}
    single = [one for one in found if one.fits and len(one.jobs or ()) == 1]
    told = {job.name for one in single for job in one.jobs or ()}
    assert told <= enough, said
    more = re.search(r"The end of (another one|any of (\d+) others) would do too", said)
    others = 0 if more is None else int(more[2] or 1)
    assert len(told) + others == len(enough), said
    if enough:
        return
    assert len(found) == bool(jobs and tiny.fits(tiny.returning())), said
    for one in found:
        names = [job.name for job in one.jobs or ()]
        if one.fits:
            assert len(names) > 1, said
            for left in (None, *names):
                gone = [pod for name in names if name != left for pod in jobs[name]]
                assert tiny.fits(tiny.without(gone)) == (left is None), said
        else:
            assert "No single job's end" in one.sentence, said


def judge_relaxed(tiny: Tiny, found: list[Counterfactual], said: str) -> None:
    helps = [dict(one.change) for one in found if one.fits and one.change]
    now = max(tiny.room(tiny.others).values(), default=0)
    members = [change["minMember"] for change in helps if "minMember" in change]
    assert members == ([len(tiny.own) + now] if tiny.needed > 1 and now else []), said
    if tiny.level is not None:
        levels = [change[REQUIRED] for change in helps if REQUIRED in change]
        zone = tiny.level == "rack" and tiny.fits(tiny.others, "zone")
        anywhere = tiny.fits(tiny.others, None)
        assert levels == (["zone"] if zone else [None] if anywhere else []), said
        assert ({REQUIRED: None} in [one.change for one in found if not one.fits]) == (not anywhere), said
    chosen = replace(tiny.pod, spec=replace(tiny.pod.spec, node_selector=()))
    loose = bool(tiny.pod.spec.node_selector) and tiny.fits(tiny.others, pod=chosen)
    assert any("nodeSelector" in change for change in helps) == loose, said
    tolerant = tolerating(tiny.pod, Toleration(operator="Exists"))
    would = any(node.taints or node.unschedulable for node in tiny.nodes)
    would = would and tiny.fits(tiny.others, pod=tolerant)
    taints = [str(change["tolerations"]).split(", ") for change in helps if "tolerations" in change]
    assert len(taints) == would, said
    for keys in taints:
        names = [key for key in keys if key not in ("all", CORDON.key)]
        assert enough_tolerated(tiny, names, CORDON.key in keys), said
        assert not names or not enough_tolerated(tiny, names[1:], CORDON.key in keys), said


def enough_tolerated(tiny: Tiny, keys: list[str], cordoned: bool) -> bool:
    """Whether it fits if it tolerates just that."""
    nodes = tuple(
        replace(
            one,
            taints=tuple(each for each in one.taints if each.key not in keys),
            unschedulable=one.unschedulable and not cordoned,
        )
        for one in tiny.nodes
    )
    other = Tiny(replace(tiny.manifests, nodes=nodes), tiny.group)
    return other.fits(other.others)


def tolerating(pod: Pod, *tolerations: Toleration) -> Pod:
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *tolerations)))


def test_the_worlds_are_of_all_kinds() -> None:
    """Those that wait and those that need not; daemons, services and members that run."""
    tinies = [tiny_world(seed) for seed in range(100)]
    kinds = {
        "wait": sum(not one.fits(one.others) for one in tinies),
        "daemons": sum(bool(one.returning()) for one in tinies),
        "endless": sum(len(one.for_ever()) > len(one.returning()) for one in tinies),
        "members": sum(bool(one.own) for one in tinies),
    }
    assert min(kinds.values()) >= 10, kinds
