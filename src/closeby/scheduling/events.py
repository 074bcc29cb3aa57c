"""The events that the engine takes in: what changed in the cluster, and the tick that makes it decide."""

from collections.abc import Hashable, Mapping

from msgspec import Struct

from closeby.applications.networks import NetworkScope
from closeby.cluster.volumes_by_class import VolumeFailure
from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass
from closeby.objects.reasons import ReasonToken
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import Topology
from closeby.objects.volumes import StorageObject
from closeby.scheduling.outcomes import Eviction, Preemption
from closeby.scheduling.services import Measurements
from closeby.scheduling.solving.program import Solution


class NodeUpserted(Struct, frozen=True):
    """A node was added or changed."""

    node: Node


class NodeDeleted(Struct, frozen=True):
    """A node was deleted, with the pods on it."""

    name: str


class PodUpserted(Struct, frozen=True):
    """A pod was added or changed; one with a node name runs (or is bound) there."""

    pod: Pod


class PodDeleted(Struct, frozen=True):
    """A pod was deleted."""

    uid: str


class GroupChanged(Struct, frozen=True):
    """A gang was added or changed."""

    group: PodGroup


class GroupDeleted(Struct, frozen=True):
    """A gang's object was deleted."""

    key: str


class PlacesAsked(Struct, frozen=True):
    """Places are asked for before the pods are there (``group.places``), or others than before."""

    group: PodGroup


class PlacesWithdrawn(Struct, frozen=True):
    """They are not asked for any more; ``key`` is that of the gang of those that stood in."""

    key: str


class TopologyChanged(Struct, frozen=True):
    """A topology appeared or changed; ``ignored`` as in ``Topologies.declare``."""

    topology: Topology
    ignored: Mapping[str, frozenset[str]] = {}


class TopologyDeleted(Struct, frozen=True):
    """A topology was deleted."""

    name: str


class AppGroupChanged(Struct, frozen=True):
    """An application's graph appeared or changed."""

    app_group: AppGroup


class AppGroupDeleted(Struct, frozen=True):
    """An application's graph was deleted; its pods are plain ones then."""

    key: str


class NetworkTopologyChanged(Struct, frozen=True):
    """Network costs appeared or changed."""

    network: NetworkTopology


class NetworkTopologyDeleted(Struct, frozen=True):
    """Network costs were deleted."""

    key: str


class NetworkScopeChanged(Struct, frozen=True):
    """Whose NetworkTopologies count; until this is said all do."""

    scope: NetworkScope


class PriorityClassChanged(Struct, frozen=True):
    """A priority class appeared or changed."""

    priority_class: PriorityClass


class PriorityClassDeleted(Struct, frozen=True):
    """A priority class was deleted."""

    name: str


class SelectionChanged(Struct, frozen=True):
    """A Namespace, or what default spread goes by, appeared, changed or went (``gone``)."""

    subject: Namespace | PodOwner
    gone: bool = False


class StorageChanged(Struct, frozen=True):
    """A claim, a volume, a storage class, or what a node or a driver says of volumes appeared or changed."""

    one: StorageObject


class StorageDeleted(Struct, frozen=True):
    """One was deleted; ``key`` is its name, after ``namespace/`` where it has one."""

    kind: type[StorageObject]
    key: str


class VolumeRefused(Struct, frozen=True):
    """The volume of a claim could not be had for a node: other nodes are tried before it."""

    failure: VolumeFailure


class PreemptionRestored(Struct, frozen=True):
    """A plan that an earlier process made and wrote down is carried on.

    ``counted`` are the gangs and owners whose evictions for it are among those of ``EvictionsRestored``.
    """

    plan: Preemption
    counted: tuple[str, ...] = ()


class EvictionsRestored(Struct, frozen=True):
    """What earlier processes evicted of a gang (``namespace/name``) or of the pods of an owner."""

    owner: str
    evictions: tuple[Eviction, ...]


class PreemptionGivenUp(Struct, frozen=True):
    """A plan can't be carried out; ``blocked`` are uids of victims that do not go.

    With ``strict`` later plans of that preemptor violate no PodDisruptionBudget, until it is placed or gone.
    """

    plan: Preemption
    why: str
    blocked: tuple[str, ...] = ()
    strict: bool = False


class VictimEvicted(Struct, frozen=True):
    """A victim of a plan was evicted, at this time in seconds since the epoch."""

    plan: Preemption
    uid: str
    when: float


PlacesEvent = PlacesAsked | PlacesWithdrawn
PreemptionEvent = PreemptionRestored | EvictionsRestored | PreemptionGivenUp | VictimEvicted


class BudgetChanged(Struct, frozen=True):
    """A PodDisruptionBudget appeared or changed."""

    budget: PodDisruptionBudget


class BudgetDeleted(Struct, frozen=True):
    """A PodDisruptionBudget was deleted."""

    key: str


class MeasurementsChanged(Struct, frozen=True, eq=False):
    """The values by which the plugin of this name decides were measured again, or are not known any more."""

    plugin: str
    measurements: Measurements


class BindFailed(Struct, frozen=True):
    """A binding of a decision did not happen; ``final`` when it never will."""

    uid: str
    why: str
    final: bool = False


class CannotBind(Struct, frozen=True):
    """These pods of one work item can't be bound where they were placed, which is why they wait until then.

    They keep their nodes until their bindings are given back.
    """

    uids: tuple[str, ...]
    reason: ReasonToken
    why: str


class BindingsWithdrawn(Struct, frozen=True):
    """Bindings of one work item were given up before they had any effect: they would not be decided so now.

    The pods wait again and are decided together.
    """

    uids: tuple[str, ...]
    why: str
    #: ``namespace/name`` of the gang that they are members of.
    gang: str | None = None


class FlushUnschedulable(Struct, frozen=True):
    """Try all unschedulable items again, in case no event reported what would help them."""


class ProblemSolved(Struct, frozen=True, eq=False):
    """What came of the problem of an item that was undecided: it is decided again, as things are then."""

    item: str
    program: Hashable
    solution: Solution


class Tick(Struct, frozen=True):
    """Decide now. ``limit`` bounds how many work items are taken (None: all that are ready).

    ``steps`` bounds how much is searched for one item, which is undecided then; namespaces whose items take
    many steps in vain take turns with the others. None: every search is run to its end, in the queue's order.

    ``now`` is in seconds, by any clock that only goes forward: with it an item that was refused backs off
    before it is tried again, longer with each refusal. Without it nothing backs off, and nothing is reserved.
    ``wall`` is the same moment in seconds since the epoch, if known: a gang has then waited since its first
    pod was created, else since it was first refused.
    """

    now: float | None = None
    limit: int | None = None
    steps: int | None = None
    wall: float | None = None


NetworkEvent = NetworkTopologyChanged | NetworkTopologyDeleted | NetworkScopeChanged
#: What may have happened in the cluster.
News = (
    NodeUpserted
    | NodeDeleted
    | PodUpserted
    | PodDeleted
    | GroupChanged
    | GroupDeleted
    | PlacesEvent
    | TopologyChanged
    | TopologyDeleted
    | AppGroupChanged
    | AppGroupDeleted
    | NetworkEvent
    | SelectionChanged
    | PriorityClassChanged
    | PriorityClassDeleted
    | StorageChanged
    | StorageDeleted
    | VolumeRefused
    | BudgetChanged
    | BudgetDeleted
    | PreemptionEvent
    | MeasurementsChanged
    | BindFailed
    | CannotBind
    | BindingsWithdrawn
    | FlushUnschedulable
    | ProblemSolved
)
Event = News | Tick
