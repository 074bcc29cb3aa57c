"""How short the place is that comes closest, and what stands in the way there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from closeby.cluster.claims import ClaimState
from closeby.objects.pods import Pod
from closeby.objects.words import all_pods, joined, names_text, natural_key, path_text, plural
from closeby.scheduling.fork import Change
from closeby.topology.tree import ROOT_LEVEL, Domain
from closeby.whatif.ends import owners_text, shares
from closeby.whatif.records import Counterfactual, Kind, ShortEntry
from closeby.whatif.room import EqualPods, Room, Shortage, larger_than_any, shortage
from closeby.whatif.trials import Question, TrialResult, smallest_sufficient

#: Domains that come equally close of which the one with the least in the way is looked for, and in how many
#: of them that is tried.
DOMAINS = 8
TRIED = 3


def short(question: Question, room: Room) -> Iterator[Counterfactual]:
    """The domain with the most room, by the engine's own count with every filter, for items of equal pods.

    Without the pods in the way it fits there, and none of them could stay.
    """
    if len(room.equal) != 1 or (question.group and question.group.subgroups):
        return
    one = room.equal[0]
    if not len(one.held) or one.held.max() < 0 or one.held.max() >= room.needed:
        return
    if not (one.could >= room.needed).any():
        if question.group is not None or not one.empty.max(initial=0):
            yield _shortage(room, int(np.argmax(one.held)), None)
        return
    domain, way = _closest(room)
    if way is not None or (question.group is not None and question.trials.fork.trial.knows_all(one.pods[0])):
        yield _shortage(room, domain, way)


def _shortage(room: Room, domain: int, way: Sequence[Pod] | None) -> Counterfactual:
    question, one, slots = room.question, room.equal[0], room.slots(domain)
    fits = int(one.held[domain])
    missing = room.needed - fits
    each = int(one.empty[slots].max(initial=0))
    nodes = -(-missing // each) if each else None
    if question.group is None and way:
        slots = np.asarray([question.trials.engine.cluster.slot_of(way[0].node_name or "")], dtype=np.intp)
    lack = shortage(room, slots, alone=question.group is None)
    sentence = _without_claims(room)
    if question.group is None:
        sentence = sentence or _on_no_node(room)
        if way:
            sentence = f"On {way[0].node_name} it would fit without {owners_text(way)}."
    else:
        sentence = sentence or _how_short(room, domain, nodes, lack)
        who = question.names if question.beyond else "It"
        sentence += f" {who} would fit there without {owners_text(way)}." if way else ""
    return Counterfactual(
        kind=Kind.SHORT,
        fits=way is not None,
        sentence=sentence,
        jobs=shares(way or ()),
        short=ShortEntry(
            level=_level_name(room),
            domain=room.tree.path(Domain(room.level, domain)),
            fits=fits,
            needed=room.needed,
            pods=missing,
            nodes=nodes,
            resources=_in_units(lack.amounts),
            could_hold=int((one.could >= room.needed).sum()),
            in_the_way=_keys(way or ()),
        ),
    )


def _in_units(lack: dict[str, int]) -> dict[str, float]:
    """Cores for cpu, not thousandths."""
    return {name: amount / 1000 if name == "cpu" else amount for name, amount in lack.items()}


def _keys(way: Sequence[Pod]) -> tuple[str, ...]:
    return tuple(sorted((one.key for one in way), key=natural_key))


def _level_name(room: Room) -> str | None:
    return None if room.level == ROOT_LEVEL else room.tree.level_names[room.level]


def _even_if(room: Room) -> str:
    """What would have to be gone, so that what is said holds: not what comes back at once."""
    if room.question.trials.fork.trial.staying(pinned=True):
        return "even if nothing ran there but pods of DaemonSets and static pods"
    return "even if nothing else ran there"


def _on_no_node(room: Room) -> str:
    """Why no node could hold a pod if all that may go had gone: none is that large, or all are closed."""
    too_much = larger_than_any(room.question.trials.engine.cluster, room.equal[0].pods[0])
    if too_much:
        return f"No node is large enough: it asks for {too_much}."
    return f"As the nodes are, none could hold it {_even_if(room)}."


def _without_claims(room: Room) -> str:
    """What keeps the pods from every node, if claims do; else empty."""
    volumes, pod = room.question.trials.engine.cluster.volumes, room.equal[0].pods[0]
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
    one, level = room.equal[0], _level_name(room)
    fits, holding = int(one.held[domain]), int((one.could >= room.needed).sum())
    where, whole = path_text(room.tree.path(Domain(room.level, domain))), all_pods(room.needed)
    if room.question.beyond:
        where = "the cluster" if level is None else f"{where}, where its gang is,"
        if not holding:
            most = int(one.could.max())
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


def _closest(room: Room) -> tuple[int, Sequence[Pod] | None]:
    """Of the domains that come equally close the one where least stands in the way, and the pods that do.

    None of them if no pods are found without which it fits there.
    """
    one = room.equal[0]
    able = one.could >= room.needed
    most = one.held[able].max()
    missing = room.needed - int(most)
    nodes = {
        domain: room.worth_clearing(one, room.slots(domain).tolist(), missing)
        for domain in np.flatnonzero(able & (one.held == most)).tolist()
    }
    closest = sorted(nodes, key=lambda at: room.weight(_of_whole_nodes(room, one, nodes[at], missing)))
    ways = {domain: _way(room, one, nodes[domain], missing) for domain in closest[:DOMAINS]}
    for domain in sorted(ways, key=lambda at: (room.weight(ways[at]), len(ways[at])))[:TRIED]:
        result = room.question.whole_without(ways[domain])
        if result is not None:
            return domain, _none_could_stay(room, ways[domain], result)[0]
    # Filters, or what waits before it, want more than arithmetic says.
    slots = nodes[closest[0]]
    cleared = _cleared(room, slots, len(_first_nodes(one, slots, missing)))
    return closest[0], None if cleared is None else cleared[0]


def _first_nodes(one: EqualPods, slots: Sequence[int], missing: int) -> Sequence[int]:
    """The first nodes that win as much as is missing if they are cleared as a whole."""
    won = np.cumsum([int(one.empty[slot] - one.fits[slot]) for slot in slots])
    return slots[: int(np.searchsorted(won, missing)) + 1]


def _of_whole_nodes(room: Room, one: EqualPods, slots: Sequence[int], missing: int) -> list[Pod]:
    return [pod for slot in _first_nodes(one, slots, missing) for pod in room.on.get(slot, ())]


def _way(room: Room, one: EqualPods, slots: Sequence[int], missing: int) -> list[Pod]:
    """Pods without which as many more fit on some nodes: of each node the smallest that are enough for that,
    and of the nodes those first where least has to go for each pod that is won.
    """
    options = []
    for slot in slots:
        want = min(missing, int(one.empty[slot] - one.fits[slot]))

        def enough(gone: Sequence[Pod], slot: int = slot, want: int = want) -> bool | None:
            return room.won(one, slot, gone) >= want or None

        here = sorted(room.on.get(slot, ()), key=lambda pod: (room.weight([pod]), natural_key(pod.name)))
        own, _ = smallest_sufficient(here, True, enough)
        options.append((room.weight(own) / want, len(own), want, own))
    found: list[Pod] = []
    for *_, want, own in sorted(options, key=lambda option: option[:2]):
        if missing > 0:
            found += own
            missing -= want
    return found


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
        nodes, result = smallest_sufficient(
            nodes, result, lambda some: enough(list(chain.from_iterable(some)))
        )
    left = sorted(chain.from_iterable(nodes), key=lambda pod: room.weight([pod]))
    return smallest_sufficient(left, result, enough)


# Applications


def in_the_way(question: Question, room: Room) -> Iterator[Counterfactual]:
    """Pods without which all of an application fits, none of which could stay; or what no node could hold."""
    never = [one for one in room.equal if not (one.near & (one.empty > 0)).any()]
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
    for one in room.equal:
        slots = room.worth_clearing(one, room.on, len(one.pods))
        first += len(_first_nodes(one, slots, len(one.pods))) if slots else 0
        order += slots
    found = _cleared(room, list(dict.fromkeys(order)), max(first, 1))
    if found is None:
        return
    way, result = found
    nodes = names_text(sorted({pod.node_name or "" for pod in way}, key=natural_key))
    answer = question.answer(Kind.SHORT, Change(gone=tuple(way)), result, "then", jobs=shares(way))
    sentence = f"On {nodes} {question.names} would fit without {owners_text(way)}."
    yield replace(answer, sentence=sentence, short=_all_short(room, _keys(way)))


def _all_short(room: Room, way: tuple[str, ...]) -> ShortEntry:
    """What all pods of an application lack that wait."""
    cluster, waiting = room.question.trials.engine.cluster, room.question.waiting
    asked: Counter[str] = Counter()
    for pod in waiting:
        asked.update(dict(pod.spec.requests))
    slots = np.arange(cluster.capacity)
    usable = np.unique(np.concatenate([room.usable(one, slots) for one in room.equal]))
    free = {name: int(cluster.free(cluster.row_for(name), usable).sum()) for name in asked}
    return ShortEntry(
        level=None,
        domain=(),
        fits=0,
        needed=len(waiting),
        pods=len(waiting),
        nodes=None,
        resources=_in_units({name: asked[name] - free[name] for name in asked if asked[name] > free[name]}),
        could_hold=None,
        in_the_way=way,
    )
