"""The subgroups of gangs: how many of their pods hold a node, and where these are."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.pods import Pod
from closeby.report.documents.common import level_of, span_of
from closeby.report.documents.segments import SegmentEntry, segment_entries
from closeby.simulator.runs import Run
from closeby.whatif.records import DomainPath


class PartLine(Struct, frozen=True, kw_only=True):
    """One subgroup that holds pods."""

    name: str
    #: Its members.
    pods: int
    #: Its members that hold a node.
    placed: int
    #: The topology in which its place is given.
    topology: str | None
    #: The tightest domain that holds its placed members.
    domain: DomainPath


class SubGroupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One subgroup of a gang. A subgroup has either members of its own or subgroups."""

    name: str
    #: How many members it needs; null where it has subgroups of its own.
    min_member: int | None
    #: How many of its subgroups it needs; null where it has none, or needs all of them.
    min_subgroup: int | None
    #: Its members, and those of its subgroups.
    pods: int
    #: Those of them that hold a node, running ones too.
    scheduled: int
    #: The topology in which its place is given; null where there is none.
    topology: str | None
    #: Short name of the level of `domain`; null when only the whole cluster holds its members.
    level: str | None
    #: The tightest domain that holds its placed members, as a path of label values.
    domain: DomainPath
    #: Distinct domains used, by short level name, coarse to fine; `hostname` counts nodes.
    span: Mapping[str, int]
    #: Of a subgroup with layers: its segments of which members hold a node, layer by layer.
    segments: tuple[SegmentEntry, ...] | UnsetType = UNSET
    #: Its own subgroups, in declared order; only there when it has some.
    sub_groups: "tuple[SubGroupEntry, ...] | UnsetType" = UNSET

    def leaves(self) -> "Iterator[SubGroupEntry]":
        """The subgroups below it that hold pods; itself where it has none."""
        if isinstance(self.sub_groups, tuple):
            for one in self.sub_groups:
                yield from one.leaves()
        else:
            yield self


def sub_group_entries(run: Run, group: PodGroup, pods: Sequence[Pod]) -> tuple[SubGroupEntry, ...]:
    """The subgroups of a gang with these members, those without a parent first; in declared order."""
    names = {one.name for one in group.subgroups}
    children: dict[str | None, list[SubGroup]] = {}
    for one in group.subgroups:
        children.setdefault(one.parent if one.parent in names else None, []).append(one)

    def entry(subgroup: SubGroup) -> tuple[SubGroupEntry, list[Pod]]:
        below = [entry(child) for child in children.get(subgroup.name, ())]
        members = [pod for _, inner in below for pod in inner]
        if not below:
            members = [pod for pod in pods if pod.subgroup == subgroup.name]
        place = run.place_of(group, members, subgroup.name)
        found = SubGroupEntry(
            name=subgroup.name,
            min_member=None if below else subgroup.min_member,
            min_subgroup=subgroup.min_subgroups if below else None,
            pods=len(members),
            scheduled=sum(run.node_of(pod) is not None for pod in members),
            topology=None if place is None else place.topology or None,
            level=None if place is None else level_of(place),
            domain=() if place is None else place.path,
            span={} if place is None else span_of(place),
            segments=segment_entries(run, group, subgroup.name) or UNSET,
            sub_groups=tuple(one for one, _ in below) if below else UNSET,
        )
        return found, members

    return tuple(entry(one)[0] for one in children.get(None, ()))


def part_lines(entries: Sequence[SubGroupEntry]) -> tuple[PartLine, ...]:
    """The subgroups among them, and below them, that hold pods."""
    return tuple(
        PartLine(name=one.name, pods=one.pods, placed=one.scheduled, topology=one.topology, domain=one.domain)
        for top in entries
        for one in top.leaves()
    )
