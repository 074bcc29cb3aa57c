"""What the engine puts out: a record of each decision and each reservation, and the story of each item."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import inf, isfinite
from operator import methodcaller
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from closeby.cluster.claims import ClaimedVolume
from closeby.objects.bounds import line
from closeby.objects.labels import RANK, TOPOLOGY_DOMAIN
from closeby.objects.pods import Pod
from closeby.objects.process import brief
from closeby.objects.reasons import Condition, Reason, ReasonToken, Rejection
from closeby.objects.recorded import PreemptionCost, ReservationStatus
from closeby.objects.words import time_text
from closeby.scheduling.reasons.facts import Shortfall
from closeby.scheduling.solving.program import Program


class EvictionCost(NamedTuple):
    """What a set of victims costs. Compared in the order of the fields; the least is the best."""

    #: 2 where another pod of a victim's owner did not end in time of late, 1 where one of its namespace
    #: did not.
    last_choice: int = 0
    #: Victims whose eviction a PodDisruptionBudget does not allow.
    pdb_violations: int = 0
    #: The highest priority of a victim; -inf without victims.
    highest: float = -inf
    #: Whether a victim's grace is too long.
    slow: bool = False
    #: Accelerator-seconds since each victim's start or its last checkpoint, and until it is back there.
    lost: float = 0.0
    #: Gangs that are left with fewer members than their minimum.
    gangs_broken: int = 0
    #: Accelerators of the victims, and of those of them that are outside the domain. Thousandths of a CPU
    #: where no node has an accelerator.
    accelerators: int = 0
    outside: int = 0
    #: Until the last victim is gone: the longest grace.
    seconds: int = 0
    pods: int = 0
    #: Nodes that lose a victim and keep another pod.
    partly_free: int = 0

    @property
    def highest_priority(self) -> int | None:
        """The highest priority of a victim; None without victims."""
        return int(self.highest) if isfinite(self.highest) else None

    @property
    def status(self) -> PreemptionCost:
        """As it stands in the plan of a gang's status."""
        return PreemptionCost(
            pdb_violations=self.pdb_violations,
            highest_priority=self.highest_priority,
            gangs_broken=self.gangs_broken,
            lost_accelerator_seconds=self.lost,
            accelerators=self.accelerators,
            outside=self.outside,
            pods=self.pods,
            seconds_to_end=self.seconds,
        )


class Eviction(NamedTuple):
    """When pods of one gang or owner were evicted, and for which priority."""

    #: Seconds since the epoch.
    when: float
    priority: int


class KeptPods(Struct, frozen=True, kw_only=True):
    """Pods of one gang, or a pod by itself, that can't be evicted for an item."""

    #: ``namespace/name`` of the gang or the pod.
    name: str
    is_gang: bool
    #: How many pods there are of it in the domain.
    pods: int
    #: A token, and the same for people.
    reason: str
    message: str


class DomainCost(Struct, frozen=True, kw_only=True):
    """What clearing one domain (of a plain pod: one node) would cost, or why that does not help."""

    path: tuple[str | None, ...]
    #: None where it was not worked out, or does not help.
    cost: EvictionCost | None = None
    victims: tuple[Pod, ...] = ()
    #: Why not, for people; empty where there is a cost.
    why_not: str = ""
    #: Pods that hold room there and can't be evicted, and the first of them by gang or pod.
    kept_pods: int = 0
    kept: tuple[KeptPods, ...] = ()


class Preemption(Struct, frozen=True, kw_only=True):
    """The plan of one preemptor."""

    #: Key of its work item, and ``namespace/name`` of the gang or the pod that gets the room.
    item: str
    preemptor: str
    is_gang: bool
    priority: int
    #: Of a plain pod: its node. Of a gang: topology, level and path of the domain that is cleared; level None
    #: and path empty for the whole cluster.
    node: str | None = None
    topology: str | None = None
    level: str | None = None
    path: tuple[str | None, ...] = ()
    #: Where the pods are to go: uid and node. The nodes are kept free for them.
    places: tuple[tuple[str, str], ...] = ()
    #: By namespace and name. Some may be terminating already: they are not evicted again.
    victims: tuple[Pod, ...] = ()
    cost: EvictionCost = EvictionCost()
    #: Whether no cheaper set of victims exists in any domain, or the search had to take short cuts.
    exact: bool = True
    #: All domains that were looked at, the cheapest first; only where the item is explained.
    domains: tuple[DomainCost, ...] = ()
    #: Whether this is only said, and no pod is evicted.
    observed: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are kept free for the preemptor."""
        return tuple(dict.fromkeys(node for _, node in self.places))


class PreemptionEnded(Struct, frozen=True, kw_only=True):
    """A plan is in force no more."""

    plan: Preemption
    #: Why it was given up; empty where the preemptor got its place.
    why: str = ""


class NoPreemption(Struct, frozen=True, kw_only=True):
    """Why an item that may preempt has no plan; all but ``budgets`` only where the item is explained."""

    why: str = ""
    domains: tuple[DomainCost, ...] = ()
    #: The PodDisruptionBudgets without which pods would make room, for people; said in any case.
    budgets: str = ""
    #: Above this priority that domain would be cleared; None where no priority helps.
    above: int | None = None
    path: tuple[str | None, ...] = ()
    #: Whose ``preemptionPolicy: Never`` forbids that the domain is cleared: ``PriorityClass/…``,
    #: ``PodGroup/…`` or ``pod``.
    policy_of: str = ""


class DomainFit(Struct, frozen=True, kw_only=True):
    """How one domain looked to a gang before it was placed."""

    topology: str
    #: Short name of the level; None for the whole cluster.
    level: str | None
    path: tuple[str | None, ...]
    #: Pods of the gang that fit there, and pods that look for a place.
    fits: int
    wanted: int
    #: Nodes of the domain that take none of the pods, by reason.
    blocked_by: Mapping[ReasonToken, int]
    nodes: int
    #: What the lack amounts to, for people, such as ``nvidia.com/gpu: 24 free, 64 requested``.
    lack: str = ""


class PodExplanation(Struct, frozen=True, kw_only=True):
    """How the nodes looked to one pod when it was decided."""

    pod: str
    #: node -> plugin -> score, and ``total``; nodes that passed the filters.
    scores: Mapping[str, Mapping[str, float]] = {}
    rejected: Mapping[str, Rejection] = {}
    #: All nodes counted, also those left out above.
    feasible_nodes: int = 0
    rejected_by: Mapping[ReasonToken, int] = {}


class Binding(Struct, frozen=True, gc=False):
    """One pod, its node, and what is to be written with the binding."""

    pod: Pod
    node: str
    #: Place in the order of scheduling.
    order: int = 0
    #: Place in topology order inside the gang; None for a plain pod.
    rank: int | None = None
    #: Path of the gang's domain.
    domain: tuple[str | None, ...] = ()
    #: What PreBind plugins add.
    labels: Mapping[str, str] = {}
    #: Name of the plugin that writes the binding itself; None leaves it to the caller of the engine.
    binder: str | None = None
    #: What the pod's claims have or get, in the order of their names.
    volumes: tuple[ClaimedVolume, ...] = ()

    @property
    def pod_labels(self) -> dict[str, str]:
        """Labels to write with the binding: the plugins', and the pod's rank in its gang."""
        rank = {} if self.rank is None else {RANK: str(self.rank)}
        return {**self.labels, **rank}

    @property
    def pod_annotations(self) -> dict[str, str]:
        """Annotations to write with the binding: the domain's path, whose values a label could not hold."""
        return {TOPOLOGY_DOMAIN: "/".join(value or "" for value in self.domain)} if self.domain else {}


class Leftover(Struct, frozen=True):
    """One pod that got no node; why is one line of bounded length."""

    pod: Pod
    reason: ReasonToken
    message: str

    def __post_init__(self) -> None:
        """Cuts the message."""
        force_setattr(self, "message", line(self.message))


class Place(Struct, frozen=True, kw_only=True):
    """Where a gang is placed: the tightest domain that holds all placed members."""

    topology: str
    #: Short name of the domain's level, None when only the whole cluster holds them.
    level: str | None
    path: tuple[str | None, ...]
    #: Number of distinct domains used, by short level name, coarse to fine; without levels of which no node
    #: carries the label. A node without a level's label is in no domain of it.
    span: Mapping[str, int]
    #: How many of the nodes carry no label of any level.
    outside: int = 0


class ItemKind(Enum):
    """What a work item is."""

    GANG = "gang"
    APPLICATION = "application"
    POD = "pod"


class Improvement(Struct, frozen=True, kw_only=True):
    """What was gained by placing an application as a whole rather than pod by pod."""

    #: Cost of traffic among the pods placed together and with those placed before: at first, and in the end.
    greedy: float
    final: float
    #: Moves and swaps that were evaluated.
    evaluated: int
    #: True when the search ended because its budget was spent.
    spent: bool


class Outcome(Struct, frozen=True, kw_only=True):
    """All that one cycle decided about one work item. The message is one line of bounded length."""

    key: str
    kind: ItemKind
    #: The pods that got a node, in the order of scheduling.
    bindings: tuple[Binding, ...] = ()
    #: Pods that wait for the item's own reason, and pods that wait for a reason of their own.
    refused: tuple[Pod, ...] = ()
    left: tuple[Leftover, ...] = ()
    #: Why the item (as a whole) waits; None when it was placed.
    reason: ReasonToken | None = None
    message: str | None = None
    place: Place | None = None
    #: The domains looked at, best first; of a placed gang the first is taken, the second the runner-up.
    domains: tuple[DomainFit, ...] = ()
    conditions: tuple[Condition, ...] = ()
    explanations: tuple[PodExplanation, ...] = ()
    #: Members of a gang that belong on one node, as pod names in the order the sets were made; None without.
    buckets: tuple[tuple[str, ...], ...] | None = None

    #: The facts that the message words, where no place was found.
    shortfall: Shortfall | None = None
    #: How an application's placement was improved; None when its pods have no traffic.
    improvement: Improvement | None = None
    #: Nodes that are kept free for the item while it waits.
    reservation: "Reservation | None" = None
    #: Which of its requirements falls next, and when.
    relaxation: "Relaxation | None" = None
    #: Who must go so that the item, or these pods of an application, find a place.
    preemptions: tuple[Preemption, ...] = ()
    #: Why no pod does; None unless the item is explained.
    no_preemption: NoPreemption | None = None

    def __post_init__(self) -> None:
        """Cuts the message."""
        if self.message is not None:
            force_setattr(self, "message", line(self.message))

    def of_pod(self, key: str, pod: Pod) -> "Outcome":
        """The same refusal of another plain pod."""
        twin: Outcome = _copied(self)
        # A message is long to cut, and this one is.
        force_setattr(twin, "key", key)
        force_setattr(twin, "refused", (pod,))
        return twin

    @property
    def is_gang(self) -> bool:
        """Whether the item is a gang."""
        return self.kind is ItemKind.GANG

    @property
    def reasons(self) -> frozenset[ReasonToken]:
        """All reasons for which something of the item waits."""
        own = () if self.reason is None else (self.reason,)
        return frozenset((*own, *(leftover.reason for leftover in self.left)))

    @property
    def full_message(self) -> str | None:
        """Why the item waits, and which nodes are kept free for it meanwhile."""
        if self.reservation is None:
            return self.message
        return line(f"{self.message}; {self.reservation.sentence()}")

    @property
    def leftover(self) -> tuple[Leftover, ...]:
        """All pods of the item that got no node."""
        if self.reason is None:
            return self.left
        return (*self.left, *(Leftover(pod, self.reason, self.full_message or "") for pod in self.refused))


#: Of a record; ``copy`` asks for this too, after looking for other ways to copy.
_copied: Final = methodcaller("__copy__")


class Decision(Struct, frozen=True):
    """One decision about one work item: bind its ``bindings``, and report its outcome."""

    outcome: Outcome
    #: The exception in which deciding ended, of closeby or of a plugin; the outcome is a refusal then.
    fault: Exception | None = None

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The pods to bind, with their nodes."""
        return self.outcome.bindings


class Undecided(Struct, frozen=True, eq=False):
    """An item waits as this problem was not decided within the limit: it may be solved elsewhere."""

    #: The item's in the queue.
    key: str
    program: Program


class Relaxation(Struct, frozen=True, kw_only=True):
    """A requirement of a gang that counts for a time only, and when it falls."""

    #: Such as ``the limit of 2 racks``.
    what: str
    #: A time as RFC 3339, or ``second 600`` of a clock without a date.
    at: str
    #: Seconds from the decision on.
    left: float

    def sentence(self) -> str:
        """For the gang; the same at each decision."""
        return f"{self.what} falls at {self.at}"

    def from_now(self) -> str:
        """The same for someone who asks at the time of the decision."""
        return f"In {time_text(self.left)} {self.what} falls."


class Reservation(Struct, frozen=True, kw_only=True):
    """Nodes that are kept free for a gang that has waited long."""

    #: ``namespace/name`` of the gang.
    key: str
    nodes: tuple[str, ...]
    #: The tightest domain that holds them.
    topology: str
    #: Short name of the domain's level; None for the whole cluster.
    level: str | None
    path: tuple[str | None, ...]
    #: Pods of the gang without room on these nodes when they were chosen.
    missing: int
    #: Since when the gang keeps nodes: a time as RFC 3339, or ``second 600`` of a clock without a date.
    since: str
    #: By when it is expected to have the room on them; None where no one knows when pods end.
    expected: str | None = None
    #: Once its budget is spent: that, and from when on the gang may keep nodes again, as ``since``.
    reason: Reason | None = None
    resumes: str | None = None

    @property
    def status(self) -> ReservationStatus:
        """As it stands in the gang's status."""
        return ReservationStatus(
            nodes=len(self.nodes),
            topology=self.topology,
            level=self.level,
            domain=tuple(value or "" for value in self.path),
            since=self.since,
            expected=self.expected,
            missing=self.missing,
            reason=self.reason,
            resumes=self.resumes,
        )

    @property
    def where(self) -> str:
        """Such as ``16 nodes of zone-a/rack-1``."""
        return self.status.where

    def sentence(self) -> str:
        """For the gang."""
        return self.status.sentence()

    def released(self, why: str) -> str:
        """For the gang, once they are not kept free any more."""
        return self.status.released(why)


class Reserved(Struct, frozen=True):
    """From now on these nodes are reserved for a gang, and no others."""

    reservation: Reservation


class Released(Struct, frozen=True):
    """A reservation ended."""

    reservation: Reservation
    why: str


#: What ``Engine.handle`` returns, in the order in which it happened.
Output = Decision | Undecided | Reserved | Released | PreemptionEnded


def outcomes_of(outputs: Iterable[Output]) -> list[Outcome]:
    """The outcomes of all decisions, in order."""
    return [one.outcome for one in outputs if isinstance(one, Decision)]


def bindings_of(outputs: Iterable[Output]) -> list[Binding]:
    """The bindings of all decisions, in order."""
    return [binding for one in outputs if isinstance(one, Decision) for binding in one.outcome.bindings]


#: Begins the key of a plain pod's work item. No namespace holds a colon, so no gang has such a key.
PLAIN: Final = "pod:"
#: Begins the key of an application's work item.
APPLICATION: Final = "app:"

_PREFIXES: Final = {ItemKind.GANG: "", ItemKind.APPLICATION: APPLICATION, ItemKind.POD: PLAIN}


def item_key(kind: ItemKind, name: str) -> str:
    """The key of the item of that kind that is called ``namespace/name``."""
    return f"{_PREFIXES[kind]}{name}"


def kind_of(key: str) -> ItemKind:
    """What a work item is, by its key."""
    if key.startswith(PLAIN):
        return ItemKind.POD
    return ItemKind.APPLICATION if key.startswith(APPLICATION) else ItemKind.GANG


def namespace_of(key: str) -> str:
    """The namespace of a work item, by its key."""
    return name_of(key).partition("/")[0]


def name_of(key: str) -> str:
    """``namespace/name`` of a work item, by its key."""
    return key.removeprefix(PLAIN).removeprefix(APPLICATION)


#: Entries kept of each item.
ENTRIES: Final = 32


class StoryEntry(Struct, frozen=True, gc=False):
    """One thing that happened; ``stimulus`` counts the events that the engine had handled by then.

    ``wall``: when it was decided, in seconds since the epoch, if the tick said so.
    """

    stimulus: int
    what: str
    outcome: Outcome | None = None
    wall: float | None = None


class Stories:
    """Stories by work item: of each item that waits, of each gang with members, and of the last others."""

    def __init__(self, needed: Callable[[str], bool]) -> None:
        """Stories that are ``needed`` (by key) are kept beyond the limit."""
        self._needed = needed
        #: Stories beyond which the oldest are forgotten.
        self.limit = 20_000
        self._entries: OrderedDict[str, list[StoryEntry]] = OrderedDict()
        #: uid -> why a pod that has a node is not bound there: decisions that give it one say so too.
        self.refused: dict[str, Leftover] = {}

    def refuse(self, key: str, refused: Sequence[Leftover], entry: StoryEntry) -> None:
        """Pods of the item can't be bound where they were placed; that is the newest decision about them."""
        now = {one.pod.uid: one for one in refused}
        if all(self.refused.get(uid) == one for uid, one in now.items()):
            return
        self.refused.update(now)
        newest = self.newest(key) or Outcome(key=name_of(key), kind=kind_of(key))
        others = tuple(one for one in newest.left if one.pod.uid not in now)
        self.tell(key, replace(entry, outcome=replace(newest, left=(*refused, *others))))

    def accept(self, key: str, uid: str, entry: StoryEntry) -> None:
        """What ``refuse`` said of a pod is over: it is bound, or gone."""
        newest = self.newest(key)
        if self.refused.pop(uid, None) is not None and newest is not None:
            left = tuple(one for one in newest.left if one.pod.uid != uid)
            self.tell(key, replace(entry, outcome=replace(newest, left=left)))

    def newest(self, key: str) -> Outcome | None:
        """The newest decision about an item."""
        return next((one.outcome for one in reversed(self._entries.get(key, ())) if one.outcome), None)

    def _with_refused(self, key: str, outcome: Outcome) -> Outcome:
        """With those of its pods, and of those before, that have a node and can't be bound there."""
        newest = self.newest(key)
        before = [] if newest is None else [one.pod.uid for one in newest.left]
        uids = dict.fromkeys((*(one.pod.uid for one in outcome.bindings), *before))
        own = {*(pod.uid for pod in outcome.refused), *(one.pod.uid for one in outcome.left)}
        left = tuple(self.refused[uid] for uid in uids if uid in self.refused and uid not in own)
        return replace(outcome, left=(*left, *outcome.left)) if left else outcome

    def tell(self, key: str, entry: StoryEntry) -> None:
        """Add to an item's story."""
        if entry.outcome is not None and self.refused:
            entry = replace(entry, outcome=self._with_refused(key, entry.outcome))
        entries = self._entries.get(key)
        if entries is None:
            self._entries[key] = [entry]
            if len(self._entries) > self.limit:
                self._forget()
            return
        self._entries.move_to_end(key)
        entries.append(entry)
        del entries[:-ENTRIES]

    def of(self, key: str) -> tuple[StoryEntry, ...]:
        """An item's story, oldest entry first."""
        return tuple(self._entries.get(key, ()))

    def __len__(self) -> int:
        return len(self._entries)

    def _forget(self) -> None:
        # Two are looked at for each that comes, so at most as many are kept in excess as are needed.
        for _ in range(2):
            if len(self._entries) <= self.limit:
                return
            oldest = next(iter(self._entries))
            if self._needed(oldest):
                self._entries.move_to_end(oldest)
            else:
                del self._entries[oldest]


def failed(key: str, waiting: tuple[Pod, ...], error: Exception) -> Decision:
    """The refusal of an item because of a fault."""
    why = f"deciding about it ended in a fault of closeby or of a plugin: {brief(error)}"
    outcome = Outcome(
        key=name_of(key),
        kind=kind_of(key),
        refused=waiting,
        reason=Reason.SCHEDULER_ERROR,
        message=f"{why}; the scheduler's log has more",
    )
    return Decision(outcome, error)
