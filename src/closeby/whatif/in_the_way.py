"""How short the place is that comes closest, and the least that stands in the way there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.cluster.claims import ClaimState
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.words import all_pods, names_text, path_text, plural
from closeby.scheduling.fork import Change
from closeby.topology.tree import ROOT_LEVEL, Domain
from closeby.whatif.ends import job_of, named_owners, shares
from closeby.whatif.questions import Question, fewest, joined
from closeby.whatif.records import Counterfactual, Kind, ShortEntry, lack_entry
from closeby.whatif.room import Alike, Room, Shortage, larger_than_any, shortage, usable_for
from closeby.whatif.trials import TrialResult

#: Domains that come equally close of which the one with the least in the way is looked for, and in how many
#: of them that is tried.
DOMAINS = 8
TRIED = 3
#: Nodes of a domain that are looked at one by one: those where most is won for what goes.
NODES = 256
#: Choices of pods of a node that are looked at one by one, and steps of the search over nodes.
CHOICES = 1024
STEPS = 200_000


def short(question: Question, room: Room) -> Iterator[Counterfactual]:
    """The domain with the most room, by the engine's own count with every filter, for items of equal pods.

    Without the pods in the way it fits there, and none of them could stay.
    """
    if len(room.alike) != 1 or (question.group and question.group.subgroups):
        return
    one, held, could = room.alike[0], room.held[0], room.could[0]
    if not len(held) or held.max() < 0 or held.max() >= room.needed:
        return
    knows_all = question.trials.fork.hypothetical.knows_all(one.pods[0])
    if not (could >= room.needed).any():
        if question.group is not None or not one.empty.max(initial=0):
            yield _shortage(room, int(np.argmax(held)), None)
        return
    domain, way = _closest(room)
    if way is not None or (question.group is not None and knows_all):
        yield _shortage(room, domain, way)


def _shortage(room: Room, domain: int, way: Sequence[Pod] | None) -> Counterfactual:
    question, one = room.question, room.alike[0]
    fits = int(room.held[0][domain])
    missing = room.needed - fits
    slots = room.slots(domain)
    each = int(one.empty[slots].max(initial=0))
    nodes = -(-missing // each) if each else None
    named = named_owners(way or ())
    if question.group is None:
        place = question.trials.engine.cluster.slot(way[0].node_name or "") if way else None
        slots = slots if place is None else np.asarray([place], dtype=np.intp)
        lack = shortage(room, slots, alone=True)
        sentence = _without_claims(room) or _on_no_node(room)
        if way:
            sentence = f"On {way[0].node_name} it would fit without {joined(named)}."
    else:
        lack = shortage(room, slots)
        sentence = _without_claims(room) or _how_short(room, domain, nodes, lack)
        who = question.names if question.beyond else "It"
        sentence += f" {who} would fit there without {joined(named)}." if named else ""
    return Counterfactual(
        kind=Kind.SHORT,
        fits=way is not None,
        sentence=sentence,
        jobs=() if way is None else shares(way),
        short=ShortEntry(
            level=_level_name(room),
            domain=room.tree.path(Domain(room.level, domain)),
            fits=fits,
            needed=room.needed,
            pods=missing,
            nodes=nodes,
            resources=lack_entry(lack.amounts),
            could_hold=int((room.could[0] >= room.needed).sum()),
            in_the_way=tuple(sorted((one.key for one in way or ()), key=natural_key)),
        ),
    )


def _level_name(room: Room) -> str | None:
    return None if room.level == ROOT_LEVEL else room.tree.level_names[room.level]


def _even_if(room: Room) -> str:
    """What would have to be gone, so that what is said holds: not what comes back at once."""
    if room.question.trials.fork.hypothetical.staying(pinned=True):
        return "even if nothing ran there but pods of DaemonSets and static pods"
    return "even if nothing else ran there"


def _on_no_node(room: Room) -> str:
    """Why no node could hold a pod if all that may go had gone: none is that large, or all are closed."""
    too_much = larger_than_any(room.question.trials.engine.cluster, room.alike[0].pods[0])
    if too_much:
        return f"No node is large enough: it asks for {too_much}."
    return f"As the nodes are, none could hold it {_even_if(room)}."


def _without_claims(room: Room) -> str:
    """What keeps the pods from every node, if claims do; else empty."""
    volumes, pod = room.question.trials.engine.cluster.volumes, room.alike[0].pods[0]
    needs = volumes.needs(pod) if pod.spec.claims else ()
    waits = [volumes.claim_key(pod, i) for i, one in enumerate(needs) if one.state is not ClaimState.READY]
    claims = [key for key in waits if key not in volumes.to_come]
    if not claims:
        return ""
    names = " ".join(one.partition("/")[2] for one in claims)
    which = joined([f"claim {one}" for one in claims])
    look = f"kubectl describe pvc {names} -n {pod.namespace}"
    it = "it" if room.question.group is None else "its pods"
    return f"No node takes {it} while {which} can't be used ({look})."


def _how_short(room: Room, domain: int, nodes: int | None, lack: Shortage) -> str:
    level, fits, beyond = _level_name(room), int(room.held[0][domain]), room.question.beyond
    holding = int((room.could[0] >= room.needed).sum())
    where, whole = path_text(room.tree.path(Domain(room.level, domain))), all_pods(room.needed)
    if beyond:
        where = "the cluster" if level is None else f"{where}, where its gang is,"
        if not holding:
            most = int(room.could[0].max())
            hold = f"could hold only {most} of" if most > 0 else "could not hold"
            return f"As the nodes are, {where} {hold} {room.question.names} {_even_if(room)}."
        begin = f"Of {room.question.names} {where} takes {fits}"
    elif level is None:
        begin = f"The cluster takes {fits} of {plural(room.needed, 'pod')}"
    elif not holding:
        begin = f"No {level} could hold {whole} {_even_if(room)}; {where} takes {fits}"
    elif holding == 1:
        begin = f"{where} is the only {level} that could hold {whole}, and takes {fits} now"
    else:
        begin = f"Of {plural(holding, level)} that could hold {whole} {where} comes closest and takes {fits}"
    parts = [plural(room.needed - fits, "pod"), *([plural(nodes, "node")] if nodes and level else [])]
    return f"{begin}, {' or '.join(parts)} short ({lack.text})."


# What stands in the way


class _Clearing(NamedTuple):
    """Pods that go, and how much they hold."""

    weight: int
    pods: tuple[Pod, ...]

    @property
    def size(self) -> tuple[int, int]:
        """By which the least is chosen."""
        return self.weight, len(self.pods)

    def and_also(self, other: "_Clearing") -> "_Clearing":
        """Both."""
        return _Clearing(self.weight + other.weight, (*self.pods, *other.pods))


def _closest(room: Room) -> tuple[int, Sequence[Pod] | None]:
    """Of the domains that come equally close the one where least stands in the way, and the pods that do.

    None of them if no pods are found without which it fits there.
    """
    one, held = room.alike[0], room.held[0]
    able = room.could[0] >= room.needed
    most = held[able].max()
    missing = room.needed - int(most)
    nodes = {
        domain: room.worth_clearing(one, room.slots(domain).tolist(), missing)
        for domain in np.flatnonzero(able & (held == most)).tolist()
    }
    closest = sorted(nodes, key=lambda domain: room.weight(_whole(room, one, nodes[domain], missing)))
    found = []
    for place, domain in enumerate(closest[:DOMAINS]):
        clearing = _least(room, one, nodes[domain], missing)
        if clearing is not None:
            found.append((*clearing.size, place, domain, clearing))
    for *_, domain, clearing in sorted(found, key=lambda one: one[:3])[:TRIED]:
        result = room.question.whole_without(clearing.pods)
        if result is not None:
            return domain, _none_could_stay(room, clearing.pods, result)[0]
    # Filters, or what waits before it, want more than arithmetic says.
    slots = nodes[closest[0]]
    cleared = _cleared(room, slots, len(_nodes_for(one, slots, missing)))
    return closest[0], None if cleared is None else cleared[0]


def _nodes_for(one: Alike, slots: Sequence[int], missing: int) -> Sequence[int]:
    """The first nodes that win as much as is missing if they are cleared as a whole."""
    won = np.cumsum([int(one.empty[slot] - one.fits[slot]) for slot in slots])
    return slots[: int(np.searchsorted(won, missing)) + 1]


def _whole(room: Room, one: Alike, slots: Sequence[int], missing: int) -> list[Pod]:
    return [pod for slot in _nodes_for(one, slots, missing) for pod in room.on.get(slot, ())]


def _least(room: Room, one: Alike, slots: Sequence[int], missing: int) -> _Clearing | None:
    """The least found without which as many more pods fit on some nodes; None if none are found."""
    options = [_options(room, one, slot, missing) for slot in slots[:NODES]]
    if len(options) * missing * max(map(len, options), default=0) > STEPS:
        return None  # Too many to search; nodes are cleared as a whole.
    best: list[_Clearing | None] = [_Clearing(0, ()), *[None] * missing]
    for of_node in options:
        for number in range(missing, 0, -1):
            for gain, clearing in enumerate(of_node, start=1):
                before = best[max(number - gain, 0)]
                both = None if before is None else before.and_also(clearing)
                now = best[number]
                if both is not None and (now is None or both.size < now.size):
                    best[number] = both
    return best[missing]


def _options(room: Room, one: Alike, slot: int, missing: int) -> list[_Clearing]:
    """The least that goes of a node to win one pod, two pods and so on."""
    base = int(one.fits[slot])
    found: list[_Clearing | None] = [None] * min(int(one.empty[slot]) - base, missing)
    for gone in _choices(room, slot):
        clearing = _Clearing(room.weight(gone), tuple(gone))
        for gain in range(min(room.after(one, slot, gone) - base, len(found))):
            other = found[gain]
            if other is None or clearing.size < other.size:
                found[gain] = clearing
    return [clearing for clearing in found if clearing is not None]


def _choices(room: Room, slot: int) -> Iterator[list[Pod]]:
    """Pods of a node that may go together: all choices of how many of equal ones, if these are few."""
    cluster = room.question.trials.engine.cluster
    equal: dict[tuple[object, ...], list[Pod]] = {}
    for pod in sorted(room.on.get(slot, ()), key=lambda one: (job_of(one), natural_key(one.name))):
        demand = cluster.demand(pod.spec)
        equal.setdefault((demand.rows, demand.amounts, demand.ports_and_disks), []).append(pod)
    kinds = list(equal.values())
    if prod(len(one) + 1 for one in kinds) <= CHOICES:
        for counts in product(*(range(len(one) + 1) for one in kinds)):
            yield [pod for kind, count in zip(kinds, counts, strict=True) for pod in kind[:count]]
        return
    left = sorted((pod for kind in kinds for pod in kind), key=lambda pod: room.weight([pod]))
    while left:
        yield list(left)
        left.pop()
    # And one alone.
    yield from ([kind[0]] for kind in kinds)


def _cleared(room: Room, slots: Sequence[int], number: int) -> tuple[list[Pod], TrialResult] | None:
    """Without so many nodes' pods, twice as many and so on, until all fits; then what may stay stays."""
    while slots:
        pods = [pod for slot in slots[:number] for pod in room.on.get(slot, ())]
        result = room.question.whole_without(pods)
        if result is not None:
            return _none_could_stay(room, pods, result)
        if number >= len(slots) or room.question.trials.spent:
            return None
        number *= 2
    return None


def _none_could_stay(room: Room, pods: Sequence[Pod], result: TrialResult) -> tuple[list[Pod], TrialResult]:
    """Without those that may stay, the largest first: node by node, then one after another."""

    def enough(gone: Sequence[Pod]) -> TrialResult | None:
        return room.question.whole_without(gone) if room.may_hold(gone) else None

    on: dict[str | None, list[Pod]] = {}
    for pod in pods:
        on.setdefault(pod.node_name, []).append(pod)
    nodes = sorted(on.values(), key=room.weight)
    if len(nodes) < len(pods):
        nodes, result = fewest(nodes, result, lambda some: enough(list(chain.from_iterable(some))))
    left = sorted(chain.from_iterable(nodes), key=lambda pod: room.weight([pod]))
    return fewest(left, result, enough)


# Applications


def in_the_way(question: Question, room: Room) -> Iterator[Counterfactual]:
    """Pods without which all of an application fits, none of which could stay; or what no node could hold."""
    never = [one for one in room.alike if not (one.near & (one.empty > 0)).any()]
    for within in (False, True):
        kinds = [one for one in never if bool((one.empty > 0).any()) == within]
        pods = [pod.name for one in kinds for pod in one.pods]
        if pods:
            which = pods[0] if len(pods) == 1 else f"any of {names_text(pods)}"
            limits = " within its limits of maxNetworkCost" if within else ""
            sentence = f"No node{limits} could hold {which} even if nothing else ran there."
            entry = _all_short(room, ())
            yield Counterfactual(kind=Kind.SHORT, fits=False, sentence=sentence, jobs=(), short=entry)
    if never:
        return
    first, order = 0, []
    for one in room.alike:
        slots = room.worth_clearing(one, room.on, len(one.pods))
        first += len(_nodes_for(one, slots, len(one.pods))) if slots else 0
        order += slots
    found = _cleared(room, list(dict.fromkeys(order)), max(first, 1))
    if found is None:
        return
    way, result = found
    named = named_owners(way)
    nodes = names_text(sorted({pod.node_name or "" for pod in way}, key=natural_key))
    answer = question.answer(Kind.SHORT, Change(gone=tuple(way)), result, "then", jobs=shares(way))
    yield replace(
        answer,
        sentence=f"On {nodes} {question.names} would fit without {joined(named)}.",
        short=_all_short(room, tuple(sorted((one.key for one in way), key=natural_key))),
    )


def _all_short(room: Room, way: tuple[str, ...]) -> ShortEntry:
    """What all pods of an application lack that wait."""
    cluster, waiting = room.question.trials.engine.cluster, room.question.waiting
    asked: Counter[str] = Counter()
    for pod in waiting:
        asked.update(dict(pod.spec.requests))
    everything = np.arange(cluster.capacity)
    usable = np.flatnonzero(np.logical_or.reduce([usable_for(room, one, everything) for one in room.alike]))
    free = {name: int(cluster.free(cluster.row_for(name), usable).sum()) for name in asked}
    return ShortEntry(
        level=None,
        domain=(),
        fits=0,
        needed=len(waiting),
        pods=len(waiting),
        nodes=None,
        resources=lack_entry({name: asked[name] - free[name] for name in asked if asked[name] > free[name]}),
        could_hold=None,
        in_the_way=way,
    )
