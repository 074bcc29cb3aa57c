"""How short the domain is that comes closest, and which pods stand in the way there."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.words import all_pods, path_text, plural
from closeby.scheduling.fork import Change
from closeby.topology.tree import ROOT_LEVEL, Domain
from closeby.whatif.fewest import fewest
from closeby.whatif.gangs.clearing import Clearings
from closeby.whatif.gangs.missing import MissingRoom, lack_of, lack_text
from closeby.whatif.jobs import named_owners, shares
from closeby.whatif.questions import Question, joined
from closeby.whatif.records import Counterfactual, Kind, ShortEntry, lack_entry
from closeby.whatif.rooms import Rooms
from closeby.whatif.trials import TrialResult

Counts = NDArray[np.int64]

#: Domains that come equally close of which the one with the least in the way is looked for, and in how many
#: of them that is tried.
DOMAINS = 8
TRIED = 3


class _View(Struct, frozen=True, eq=False):
    """One item of equal pods: how many of them find room, now and if all went that may."""

    question: Question
    rooms: Rooms
    #: By slot.
    fits: Counts
    empty: Counts
    #: By domain; -1 where the item may not lie.
    held: Counts
    could: Counts

    @property
    def holding(self) -> int:
        """How many domains could hold all."""
        return int((self.could >= self.rooms.needed).sum())

    @property
    def level(self) -> str | None:
        """The required one; None for the cluster."""
        rooms = self.rooms
        return None if rooms.level == ROOT_LEVEL else rooms.tree.level_names[rooms.level]


def short(question: Question, rooms: Rooms) -> Iterator[Counterfactual]:
    """The domain with the most room, by the engine's own count with every filter, for items of equal pods.

    Without the pods in the way it fits there, and none of them could stay.
    """
    if len({pod.spec for pod in question.waiting}) != 1 or (question.group and question.group.subgroups):
        return
    engine, pod = question.trials.engine, question.waiting[0]
    fits = engine.diagnosis.room(pod)
    hypothetical = question.trials.fork.hypothetical
    with hypothetical.emptied(question.own, pinned=True) as diagnosis:
        empty = diagnosis.room(pod)
    held, could = rooms.domains.room(fits), rooms.domains.room(empty)
    if not len(held) or held.max() < 0 or held.max() >= rooms.needed:
        return
    view = _View(question, rooms, fits, empty, held, could)
    if not view.holding:
        if question.group is not None or not empty.max(initial=0):
            yield _told(view, int(np.argmax(held)), None)
        return
    domain, way = _in_the_way(view)
    if way is None and (question.group is None or not hypothetical.knows_all(pod)):
        return
    yield _told(view, domain, way)


def _told(view: _View, domain: int, way: tuple[Pod, ...] | None) -> Counterfactual:
    question, rooms = view.question, view.rooms
    fits = int(view.held[domain])
    missing = rooms.needed - fits
    at = Domain(rooms.level, domain)
    slots = rooms.domains.slots(domain)
    each = int(view.empty[slots].max(initial=0))
    nodes = -(-missing // each) if each else None
    named = named_owners(way or ())
    if question.group is None:
        place = question.trials.engine.cluster.slot(way[0].node_name or "") if way else None
        slots = slots if place is None else np.asarray([place], dtype=np.intp)
        lack = lack_of(question, view.fits, slots, rooms.needed, alone=True)
        sentence = _on_a_node(view, way or (), named)
    else:
        lack = lack_of(question, view.fits, slots, rooms.needed)
        sentence = _how_short(view, at, fits, nodes, lack)
        sentence += f" In the way there: {joined(named)}." if named else ""
    return Counterfactual(
        kind=Kind.SHORT,
        fits=way is not None,
        sentence=sentence,
        jobs=() if way is None else shares(way),
        short=ShortEntry(
            level=view.level,
            domain=rooms.tree.path(at),
            fits=fits,
            needed=rooms.needed,
            pods=missing,
            nodes=nodes,
            resources=lack_entry(lack.amounts),
            in_the_way=tuple(sorted((one.key for one in way or ()), key=natural_key)),
        ),
    )


def _on_a_node(view: _View, way: Sequence[Pod], named: Sequence[str]) -> str:
    """Of a plain pod."""
    if not way:
        return f"No node could hold it {_even_if(view)}."
    return f"On {way[0].node_name} {joined(named)} {'stands' if len(named) == 1 else 'stand'} in its way."


def _even_if(view: _View) -> str:
    """What would have to be gone, so that what is said holds: not what comes back at once."""
    if view.question.trials.fork.hypothetical.staying(pinned=True):
        return "even if nothing ran there but pods of DaemonSets and static pods"
    return "even if nothing else ran there"


def _how_short(view: _View, at: Domain, fits: int, nodes: int | None, lack: MissingRoom) -> str:
    rooms, level = view.rooms, view.level
    pods, where = plural(rooms.needed, "pod"), path_text(rooms.tree.path(at))
    whole = all_pods(rooms.needed)
    if level is None:
        begin = f"The cluster takes {fits} of {pods}"
    elif not view.holding:
        begin = f"No {level} could hold {whole} {_even_if(view)}; {where} takes {fits}"
    elif view.holding == 1:
        begin = f"{where} is the only {level} that could hold {whole}, and takes {fits} now"
    else:
        begin = (
            f"Of {plural(view.holding, level)} that could hold {whole} {where} comes closest and takes {fits}"
        )
    parts = [plural(rooms.needed - fits, "pod"), *([plural(nodes, "node")] if nodes and level else [])]
    return f"{begin}, {' or '.join(parts)} short ({lack_text(lack)})."


def _in_the_way(view: _View) -> tuple[int, tuple[Pod, ...] | None]:
    """Of the domains that come equally close the one where least stands in the way, and the pods that do.

    None of them if no pods are found without which it fits there.
    """
    rooms, question = view.rooms, view.question
    clearings = Clearings(question, rooms, view.fits, view.empty)
    able = view.could >= rooms.needed
    closest = np.flatnonzero(able & (view.held == view.held[able].max()))
    missing = rooms.needed - int(view.held[closest[0]])
    about = clearings.about(np.maximum(rooms.needed - view.held, 0))
    closest = closest[np.argsort(about[closest], kind="stable")][:DOMAINS]
    found = []
    for place, domain in enumerate(closest.tolist()):
        clearing = clearings.least(domain, missing)
        if clearing is not None:
            found.append((*clearing.size, place, domain, clearing))
    for *_, domain, clearing in sorted(found, key=lambda one: one[:3])[:TRIED]:
        result = question.tried(Change(gone=clearing.pods))
        if result is not None:
            return domain, _least(view, clearings, list(clearing.pods), result)
    domain = int(closest[0])
    return domain, _whole_nodes(view, clearings, domain, missing)


def _whole_nodes(view: _View, clearings: Clearings, domain: int, missing: int) -> tuple[Pod, ...] | None:
    """The same where filters, or who waits before it, want more than arithmetic says.

    Nodes are cleared as a whole, twice as many beyond what should do, and so on.
    """
    slots = clearings.nodes(domain, missing)
    chosen: list[Pod] = []
    beyond, next_try = 0, 0
    for number, slot in enumerate(slots, start=1):
        chosen += clearings.on.get(slot, ())
        missing -= int(view.empty[slot] - view.fits[slot])
        if missing > 0 or (beyond < next_try and number < len(slots)):
            beyond += missing <= 0
            continue
        result = view.question.tried(Change(gone=tuple(chosen)))
        if result is not None:
            return _least(view, clearings, chosen, result)
        beyond, next_try = beyond + 1, 2 * next_try + 1
    return None


def _least(view: _View, clearings: Clearings, pods: list[Pod], result: TrialResult) -> tuple[Pod, ...]:
    """Without those that may stay, the largest of them first."""

    def fits_without(gone: Sequence[Pod]) -> TrialResult | None:
        return view.question.tried(Change(gone=tuple(gone))) if view.rooms.may_hold(gone) else None

    return tuple(fewest(sorted(pods, key=clearings.weights.of), result, fits_without)[0])
