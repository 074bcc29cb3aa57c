"""The extension points. A plugin is a class that inherits those it takes part in.

The names are kube-scheduler's. What differs: Filter and Score judge many nodes at once and return arrays;
pods with equal needs form a class and share results; a plugin says how long its results stay true
(``Scope``). Authors who want simplicity start from ``closeby.scheduling.scalar``.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import ClassVar, Final, Protocol, final

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.registry import Applications
from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition, ReasonToken, Rejection
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.repeats import Repeats
from closeby.topology.constraints import Levels
from closeby.topology.registry import Topologies
from closeby.topology.tree import Domain, Tree

#: Undoes what a plugin noted about one pod.
Undo = Callable[[], None]


class Scope(Enum):
    """How long a result about a node stays true."""

    #: Until the Node object changes.
    STATIC = "static"
    #: Until a pod comes to or leaves that node.
    PER_NODE = "per_node"
    #: Until any pod is placed anywhere. A gang is then filled pod by pod.
    PER_PLACEMENT = "per_placement"


class NoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """For plugins that take no arguments."""


class Handle:
    """What a plugin may read besides what it is asked about."""

    def __init__(
        self,
        cluster: Cluster,
        topologies: Topologies,
        group_of: Callable[[Pod], PodGroup | None],
        applications: Applications | None = None,
    ) -> None:
        self.cluster = cluster
        self.topologies = topologies
        self.applications = Applications() if applications is None else applications
        #: The gang of a pod, None for a plain pod.
        self.group_of = group_of
        #: Whether all objects of a cluster are known: what is missing is missing there.
        self.whole = False
        #: Where a pod's node selector and required node affinity let it go; shape (len(nodes),).
        self.required_affinity: Callable[[Pod, Nodes], Bools] = _anywhere


def _anywhere(pod: Pod, nodes: Nodes) -> Bools:
    return nodes.all(True)


#: A pod without any field that plugins read.
_PLAIN: Final = Pod(namespace="", name="", uid="", spec=PodSpec())


@cache
def _readers(fields: tuple[str, ...]) -> tuple[tuple[Callable[[Pod], object], object], ...]:
    """How to read each of some fields of a pod, and what it is where it is absent."""
    found = map(attrgetter, fields)
    return tuple((of, of(_PLAIN)) for of in found)


class Plugin:
    """Base of all extension points."""

    #: Name in the configuration and in reports.
    name: ClassVar[str]
    #: Schema of the plugin's ``arguments``; unknown or ill-typed ones are errors.
    Arguments: ClassVar[type[Struct]] = NoArguments

    #: Fields of a pod, such as ``spec.claims``. It is asked nothing about a pod that has none of them, which
    #: then may go anywhere and is not scored. Empty: it may have something to say about every pod.
    reads: ClassVar[tuple[str, ...]] = ()
    #: True when answers also depend on whether a pod is a member of a gang, which the class key need not say.
    minds_membership: ClassVar[bool] = False

    def __init__(self, arguments: Struct, handle: Handle) -> None:
        self.handle = handle

    @final
    def minds(self, pod: Pod) -> bool:
        """Whether a pod has any of the fields that it reads."""
        return not self.reads or any(of(pod) != plain for of, plain in _readers(self.reads))

    def class_key(self, pod: Pod) -> Hashable:
        """What of a pod decides this plugin's answers. Pods with equal keys share them."""
        return None

    def lasting_key(self, pod: Pod) -> Hashable:
        """Where class keys change as other pods come and go: what of a pod decides at all times."""
        return None

    @property
    def shares_by_spec(self) -> bool:
        """True when ``class_key`` looks at nothing but ``pod.spec``, ``pod.node_name`` and a pod's claims.

        Saves asking for every pod. The answer may change between cycles, not within one.
        """
        return type(self).class_key is Plugin.class_key

    def conditions(self) -> tuple[Condition, ...]:
        """What is noteworthy about the plugin's own input, given the nodes that are there now."""
        return ()


class PreEnqueue(Plugin):
    """May keep a pod out of the queue."""

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        """None lets the pod in; a condition says why it waits."""
        raise NotImplementedError


class QueuedItem(Struct, frozen=True, kw_only=True, gc=False):
    """A gang or a single pod as the queue orders it."""

    #: ``namespace/name`` of the gang or pod.
    key: str
    priority: int
    #: Creation time of the first of its pods, seconds since the epoch; None when unknown.
    anchor: float | None
    #: The pending pods that are decided next: those whose own priority is at least the item's.
    pods: tuple[Pod, ...]
    group: PodGroup | None
    #: Whether ``pods`` are members that a start was written down for, which has not come to its end: they go
    #: before all that was not begun.
    begun: bool = False


class QueueSort(Plugin):
    """Exactly one is active: one total order over work items, fixed when the item appears."""

    def sort_key(self, item: QueuedItem) -> tuple[Hashable, ...]:
        """Smaller comes first; keys must be comparable with each other."""
        raise NotImplementedError


class MemberSort(Plugin):
    """Knows how the members of a gang belong together (Volcano's TaskOrderFn)."""

    def member_order(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[Pod, ...] | None:
        """The waiting members in the order in which to place them; None when there is nothing to say.

        ``running`` holds the members that have a node, with its slot. The order stands for the whole cycle,
        and the gang's minimum is made of the first ones.
        """
        raise NotImplementedError

    def gang_conditions(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[Condition, ...]:
        """What is wrong with what the gang asks of this plugin."""
        return ()

    def buckets(
        self, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[tuple[Pod, int]]
    ) -> tuple[tuple[Pod, ...], ...] | None:
        """Members that belong on one node, for explanations; None when the plugin makes no such sets."""
        return None


class PreFilter(Plugin):
    """Looks at a work item once, before any node."""

    #: Whether plain pods of one class are let in or refused alike, as long as nothing changes.
    judges_classes: ClassVar[bool] = False

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        """A condition makes the item wait with that reason."""
        raise NotImplementedError


class Filter(Plugin):
    """Says which nodes a pod may go to."""

    filter_scope: ClassVar[Scope] = Scope.STATIC
    #: The one reason of all its rejections, a ``Reason`` or a token of its own; None when they differ, so
    #: that each node must be asked.
    reason: ClassVar[ReasonToken | None] = None
    #: Of a filter per placement: whether it goes by placed pods alone, not by the cycle's state, and lets a
    #: pod go to ever fewer nodes the more are placed. What it refuses, it refuses until something leaves.
    only_narrows: ClassVar[bool] = False

    def concerns(self, pod: Pod) -> bool:
        """False when the plugin would let this pod go anywhere; saves the question."""
        return True

    def reaches_beyond(self, pod: Pod) -> bool:
        """Whether placing a pod changes where others like it may go beyond its own node.

        Of a filter per node: the members of a gang then go one by one.
        """
        return False

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        """True where the pod may go; shape (len(nodes),)."""
        raise NotImplementedError

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        """Why ``filter`` said no to this node, for people."""
        raise NotImplementedError

    @final
    def why_not(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        """The rejection, with the name of the plugin."""
        return replace(self.rejection(state, pod, slot), plugin=self.name)


class Capacity(Filter):
    """A filter that can count: how many pods like this one fit on each node."""

    filter_scope: ClassVar[Scope] = Scope.PER_NODE

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        """Pods like this one that still fit; shape (len(nodes),). 0 means the filter says no."""
        raise NotImplementedError

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        return self.capacity(state, pod, nodes) > 0


class PostFilter(Plugin):
    """Asked when a work item found no place."""

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        """May note what would help; it cannot place anything."""
        raise NotImplementedError


class Candidate(Struct, frozen=True, kw_only=True, eq=False):
    """A set of nodes in which a gang (or a part of it) may be placed.

    Either a domain of a tree, or (``tree`` None) plain ``slots``. ``fill_level`` asks that inside the domain
    the fewest domains of that level be used; None descends level by level. ``outward_from`` names a domain
    where members already are: it is filled first, then the domains around it.
    """

    tree: Tree | None = None
    domain: Domain | None = None
    fill_level: int | None = None
    outward_from: Domain | None = None
    slots: Ints | None = None


class PartView(Protocol):
    """What a PlacementGenerate plugin sees of the gang, or part of one, that looks for a place."""

    group: PodGroup
    #: Name of the subgroup; empty for the whole gang.
    name: str
    #: Its constraint in terms of a tree; None when it asks for nothing.
    levels: Levels | None
    #: Pods that must find a place, not counting parts that may stay out; how many there are in all, with
    #: those beyond the minimum.
    needed: int
    wanted: int
    #: Slots of members that already hold a node.
    anchors: tuple[int, ...]

    def domain_in(self, tree: Tree) -> Domain:
        """The domain of ``tree`` inside which the part must stay."""
        ...

    def room(self, tree: Tree, level: int) -> Counts:
        """How many pods of the part fit each domain of a level; shape (tree.count(level),)."""
        ...

    def pieces(self, tree: Tree, level: int) -> Counts | None:
        """Domains of its coarsest layer that the part needs in each domain of a level that has room for it.

        Those with the fewest come first. None for a part without layers.
        """
        ...

    def mean_scores(self, tree: Tree, level: int, domains: Ints) -> Scores | None:
        """How well pods of the part score in some domains of a level, all active scorers counted.

        Of domains that are equally tight the best one comes first. None where nothing tells nodes apart.
        """
        ...


class PlacementGenerate(Plugin):
    """Proposes node sets for a gang, best first."""

    #: Whether gangs that ask for nothing should still prefer the tightest domain of the only topology.
    close_by_default: bool = False
    #: Whether the members of a gang go one by one to the node that scores best inside a candidate.
    pod_by_pod: bool = False
    #: Whether gangs that ask for nothing wait rather than go beyond a domain that the plugin chose for them.
    requires_by_itself: bool = False

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Candidates in the order they should be tried; None when the plugin has nothing to say."""
        raise NotImplementedError

    def tried_first(self, pods: Sequence[Pod]) -> Bools | None:
        """Where a gang of these pods is tried before all nodes, shape (slots,); None: no nodes come first."""
        return None


class Placement(Struct, frozen=True, kw_only=True, eq=False):
    """Pods and the slots they would go to, in the same order."""

    pods: tuple[Pod, ...]
    slots: Ints
    #: The tree in which the gang's closeness is judged, None when there is none.
    tree: Tree | None = None


class PlacementScore(Plugin):
    """Compares whole placements. Sees raw costs; the lowest sum over all such plugins wins."""

    #: How many successful candidates it wants to compare.
    placements_to_compare: ClassVar[int] = 4

    def placement_cost(self, state: CycleState, placement: Placement) -> float:
        """Cost of a placement that is assumed on the cluster right now."""
        raise NotImplementedError


class PreScore(Plugin):
    """Looks at a pod once, before it is scored."""

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        """False leaves this plugin's Score out for this pod (upstream's Skip)."""
        raise NotImplementedError


class Score(Plugin):
    """Says how good each node is for a pod."""

    score_scope: ClassVar[Scope] = Scope.STATIC
    #: Greatest value of the score after normalising, the least is 0; totals weigh value x 100 / maximum. What
    #: is outside is a fault of the plugin, and raised as such.
    max_score: ClassVar[float] = 100.0
    #: True where a rule gives scores that are not scaled: any finite one is taken, also below 0, and
    #: ``max_score`` is what counts as much as the whole range of another plugin.
    unbounded: ClassVar[bool] = False
    #: Weight in totals unless the configuration gives one.
    default_weight: ClassVar[float] = 1.0
    #: Of a score per node: whether all that it goes by of the pods there is what ``Nodes`` says is requested,
    #: so that it can be asked as if more pods were there.
    scores_by_use: ClassVar[bool] = False
    #: True when a gang's fill by descent already honours this score.
    honoured_by_descent: ClassVar[bool] = False
    #: False when no member of a gang is scored; saves asking for each.
    scores_members: ClassVar[bool] = True

    @property
    def scores_any(self) -> bool:
        """False while ``scores`` would be False for every pod; saves asking for each."""
        return True

    @property
    def scores_by_spec(self) -> bool:
        """True while ``scores`` looks at nothing but ``pod.spec``; saves asking for each of equal pods.

        The answer may change between cycles, not within one.
        """
        return False

    def scores(self, pod: Pod) -> bool:
        """False when every node would get the same score for this pod.

        Unless ``score_scope`` is per placement, the answer may depend on the pod's class and on Node objects
        alone: it is kept with the scores.
        """
        return True

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Higher is better; shape (len(nodes),). 0..``max_score`` unless ``unbounded`` or normalised."""
        raise NotImplementedError

    def repeats(self, state: CycleState, pod: Pod, nodes: Nodes) -> Repeats | None:
        """Of a score per placement: its scores while pods like this one come to these nodes one by one.

        ``UNSCORED`` for pods that it does not score; None: it must be asked again after each pod.
        """
        return None


class NormalizeScore(Score):
    """A score that depends on the other nodes that passed the filters."""

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        """Map raw scores of the feasible nodes to 0..``max_score``."""
        raise NotImplementedError


class Reserve(Plugin):
    """Tracks placed pods; its state is undone exactly with the statement."""

    @property
    def idle(self) -> bool:
        """True while it has nothing to note about pods of the present cycle: it is called for none then."""
        return False

    def notes_any(self, pods: Sequence[Pod]) -> bool:
        """Whether it has anything to note about any of these pods: else a statement calls it for none."""
        return True

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        """A pod took a slot. Returns how to undo what was noted (None: nothing was)."""
        raise NotImplementedError

    def pod_forgotten(self, pod: Pod, slot: int) -> Undo | None:
        """A pod left a slot for good (finished, deleted, or its binding failed)."""
        raise NotImplementedError
