"""How short the domain is that comes closest, and which pods stand in the way there."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.resources import COMMON
from closeby.objects.pods import Pod
from closeby.objects.quantities import format_amount
from closeby.report.counterfactuals.fewest import fewest
from closeby.report.counterfactuals.jobs import named_owners, shares, stays
from closeby.report.counterfactuals.questions import Question, joined
from closeby.report.counterfactuals.records import Counterfactual, Kind, ShortEntry, lack_entry
from closeby.report.counterfactuals.rooms import Rooms
from closeby.report.words import path_text, plural
from closeby.simulator.trials import Change, Result
from closeby.topology.natural import natural_key
from closeby.topology.tree import ROOT_LEVEL, Domain

Counts = NDArray[np.int64]


def short(question: Question, rooms: Rooms) -> Iterator[Counterfactual]:
    """The domain with the most room, by the engine's own count with every filter, for items of equal pods.

    Without the pods in the way it fits there, and none of them could stay.
    """
    if len({pod.spec for pod in question.waiting}) != 1 or (question.group and question.group.subgroups):
        return
    pod = question.waiting[0]
    fits = question.trials.engine.diagnosis.room(pod)
    owners = rooms.owners(rooms.tree.slot_at)
    held = np.zeros(rooms.tree.count(rooms.level), dtype=np.int64)
    np.add.at(held, owners, fits[rooms.tree.slot_at])
    if rooms.level > ROOT_LEVEL:
        held = np.where(rooms.tree.labelled[rooms.level], held, -1)
    if not len(held) or held.max() < 0 or held.max() >= rooms.needed:
        return
    empty = rooms.emptied()
    # Of the roomiest one that could hold all if it were empty.
    domain = int(np.lexsort((-held, empty < rooms.needed))[0])
    way = None if empty[domain] < rooms.needed else _in_the_way(question, rooms, domain, fits)
    if way is None and question.group is None and rooms.most_on_a_node(domain):
        return
    yield _told(question, rooms, domain, int(held[domain]), pod, way)


def _told(
    question: Question, rooms: Rooms, domain: int, fits: int, pod: Pod, way: tuple[Pod, ...] | None
) -> Counterfactual:
    tree, missing = rooms.tree, rooms.needed - fits
    at = Domain(rooms.level, domain)
    level = None if rooms.level == ROOT_LEVEL else tree.level_names[rooms.level]
    lack = {resource: amount * missing for resource, amount in pod.spec.requests if amount}
    each = rooms.most_on_a_node(domain)
    nodes = -(-missing // each) if each else None
    named = named_owners(way or ())
    if question.group is None:
        sentence = _on_a_node(way or (), named)
    else:
        sentence = _how_short(rooms, at, fits, level, nodes, lack)
        sentence += f" In the way there: {joined(named)}." if named else ""
    return Counterfactual(
        kind=Kind.SHORT,
        fits=way is not None,
        sentence=sentence,
        jobs=() if way is None else shares(way),
        short=ShortEntry(
            level=level,
            domain=tree.path(at),
            fits=fits,
            needed=rooms.needed,
            pods=missing,
            nodes=nodes,
            resources=lack_entry(lack),
            in_the_way=tuple(sorted((one.key for one in way or ()), key=natural_key)),
        ),
    )


def _on_a_node(way: Sequence[Pod], named: Sequence[str]) -> str:
    """Of a plain pod."""
    if not way:
        return "No node could hold it even if nothing else ran there."
    return f"On {way[0].node_name} {joined(named)} {'stands' if len(named) == 1 else 'stand'} in its way."


def _how_short(
    rooms: Rooms, at: Domain, fits: int, level: str | None, nodes: int | None, lack: Mapping[str, int]
) -> str:
    pods, where = plural(rooms.needed, "pod"), path_text(rooms.tree.path(at))
    could = int((rooms.emptied() >= rooms.needed).sum())
    if level is None:
        begin = f"The cluster takes {fits} of {pods}"
    elif not could:
        begin = f"No {level} could hold all {pods} even if nothing else ran there; {where} takes {fits}"
    elif could == 1:
        begin = f"{where} is the only {level} that could hold all {pods}, and takes {fits} now"
    else:
        begin = f"Of {plural(could, level)} that could hold all {pods} {where} comes closest and takes {fits}"
    parts = [plural(rooms.needed - fits, "pod"), *([plural(nodes, "node")] if nodes and level else [])]
    # What is scarce, if there is such a thing: cores and memory seldom are beside devices.
    devices = [one for one in lack if one not in COMMON]
    what = [f"{format_amount(one, lack[one])} {one}" for one in devices or sorted(lack)]
    amounts = f" ({', '.join(what)})" if what else ""
    return f"{begin}, {' or '.join(parts)} short{amounts}."


def _in_the_way(question: Question, rooms: Rooms, domain: int, fits: Counts) -> tuple[Pod, ...] | None:
    """Pods without which it fits there, on the nodes that win most for each; None if none are found."""
    cluster = question.trials.engine.cluster
    own = {pod.uid for pod in (*question.waiting, *question.trials.engine.books.placed(question.key))}
    on: dict[int, list[Pod]] = {}
    for pod in question.trials.pods:
        slot = cluster.placement(pod.uid)
        if slot is not None and pod.uid not in own and not stays(pod):
            on.setdefault(slot, []).append(pod)
    slots = np.asarray(sorted(on), dtype=np.intp)
    gains = []
    for slot in slots[rooms.owners(slots) == domain].tolist():
        gain = int(rooms.without(on[slot])[1][0] - fits[slot])
        if gain > 0:
            gains.append((len(on[slot]) / gain, -gain, natural_key(cluster.names[slot] or ""), slot))
    missing = rooms.needed - int(fits[rooms.slots(domain)].sum())

    def fits_without(pods: Sequence[Pod]) -> Result | None:
        return question.tried(Change(gone=tuple(pods))) if rooms.may_hold(pods) else None

    chosen: list[Pod] = []
    beyond, next_try = 0, 0
    for number, (_, gain, _, slot) in enumerate(sorted(gains), start=1):
        chosen += on[slot]
        missing += gain
        if missing > 0 or (beyond < next_try and number < len(gains)):
            beyond += missing <= 0
            continue
        result = question.tried(Change(gone=tuple(chosen)))
        if result is not None:
            return tuple(fewest(chosen, result, fits_without)[0])
        # Filters, or who waits before it, want more: twice as many beyond what should do, and so on.
        beyond, next_try = beyond + 1, 2 * next_try + 1
    return None
