"""All that the author of a policy needs, in one place.

The names in ``__all__`` stay what they are; modules below may move. ``docs/writing-a-plugin.md`` shows how a
policy is written, ``closeby.errors`` holds the exceptions.
"""

from closeby.applications.registry import Application, Applications, Edge
from closeby.applications.traffic import EdgeCost, Replicas
from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.groups import PodGroup, Strategy, SubGroup, TopologyConstraint
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.reasons import Condition, Reason, ReasonToken, Rejection
from closeby.scheduling.commit_points import Bind, Permit, PostBind, PreBind
from closeby.scheduling.extension import (
    Candidate,
    Capacity,
    Filter,
    Handle,
    MemberSort,
    NoArguments,
    NormalizeScore,
    PartView,
    Placement,
    PlacementGenerate,
    PlacementScore,
    Plugin,
    PostFilter,
    PreEnqueue,
    PreFilter,
    PreScore,
    QueuedItem,
    QueueSort,
    Reserve,
    Scope,
    Score,
    Undo,
)
from closeby.scheduling.plugin_view import CycleState, NodeChanges, NodeColumn, Nodes
from closeby.scheduling.scalar import ScalarCost, ScalarFilter, ScalarScore, Verdict
from closeby.scheduling.services import (
    DependencyCost,
    Measured,
    Measurements,
    Reading,
    Source,
    Traffic,
    TrafficCost,
)
from closeby.topology.constraints import Levels
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

__all__ = [
    "ROOT_LEVEL",
    "Application",
    "Applications",
    "Bind",
    "Bools",
    "Candidate",
    "Capacity",
    "Cluster",
    "Condition",
    "Counts",
    "CycleState",
    "DependencyCost",
    "Domain",
    "Edge",
    "EdgeCost",
    "Filter",
    "Handle",
    "Ints",
    "Levels",
    "Measured",
    "Measurements",
    "MemberSort",
    "NoArguments",
    "Node",
    "NodeChanges",
    "NodeColumn",
    "Nodes",
    "NormalizeScore",
    "PartView",
    "Permit",
    "Placement",
    "PlacementGenerate",
    "PlacementScore",
    "Plugin",
    "Pod",
    "PodGroup",
    "PodSpec",
    "PostBind",
    "PostFilter",
    "PreBind",
    "PreEnqueue",
    "PreFilter",
    "PreScore",
    "QueueSort",
    "QueuedItem",
    "Reading",
    "Reason",
    "ReasonToken",
    "Rejection",
    "Replicas",
    "Reserve",
    "ScalarCost",
    "ScalarFilter",
    "ScalarScore",
    "Scope",
    "Score",
    "Scores",
    "Source",
    "Strategy",
    "SubGroup",
    "Taint",
    "Toleration",
    "Topologies",
    "TopologyConstraint",
    "Traffic",
    "TrafficCost",
    "Tree",
    "Undo",
    "Verdict",
]
