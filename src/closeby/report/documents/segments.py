"""The segments of gangs with layers: which members each has, and where these are."""

from msgspec import Struct

from closeby.objects.groups import PodGroup
from closeby.objects.pods import gang_key
from closeby.scheduling.gangs.places import segment_places
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.gangs.segments import first_index
from closeby.scheduling.intake.members import member_order
from closeby.simulator.runs import Run
from closeby.whatif.records import DomainPath


class SegmentEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One segment of which some members hold a node."""

    #: Short name of the level of its layer.
    level: str
    #: Its number in the layer, from 0.
    segment: int
    #: Names of its members that hold a node, in the order of their index.
    pods: tuple[str, ...]
    #: The tightest domain that holds these, no finer than the layer's level, as a path of label values.
    domain: DomainPath
    #: Whether that is one domain of the level.
    together: bool
    #: Domains of the level that they are in.
    domains: int


def segment_entries(run: Run, group: PodGroup, leaf: str) -> tuple[SegmentEntry, ...]:
    """The segments of a gang (``leaf`` empty) or of one of its subgroups, layer by layer."""
    if not group.layers and not any(one.layers for one in group.subgroups):
        return ()
    engine = run.engine
    layerings = constraints_of(group, engine.topologies, engine.profile.close_by_default).layerings
    if leaf not in layerings:
        return ()
    own = [pod for pod in run.pods if gang_key(pod) == group.key]
    placed = [
        (pod, engine.cluster.placement(pod.uid)) for pod in own if not leaf or (pod.subgroup or "") == leaf
    ]
    members = [(pod, slot) for pod, slot in placed if slot is not None]
    ranks = {} if leaf else engine.state.ranks(group.key)
    others = [pod for pod in own if (pod.subgroup or "") != leaf] if leaf else []
    first = first_index([pod for pod, _ in members], others)
    return tuple(
        SegmentEntry(
            level=one.level,
            segment=one.number,
            pods=one.pods,
            domain=one.path,
            together=one.together,
            domains=one.domains,
        )
        for one in segment_places(layerings[leaf], members, member_order, ranks, first)
    )
