"""The scheduling report as data."""

import msgspec
from msgspec.structs import replace

from closeby.objects.groups import SubGroup, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import TopologyLevel
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.report.documents.common import to_json, to_yaml
from closeby.report.documents.scheduling import SchedulingReport, scheduling_report
from closeby.simulator.runs import Asked, simulate
from tests.worlds import draw, fabric, gang, pods, spec

NODES = """
    a r1 : a1=4 a2=4
    a r2 : a3=4
    b r1 : b1=8
"""


def report_of(manifests: Manifests, *, explain: bool = False) -> SchedulingReport:
    return scheduling_report(simulate(manifests, Configuration(), Asked(explain=explain)), explain=explain)


def drawn() -> Manifests:
    return Manifests(nodes=tuple(draw(NODES)), topologies=(fabric("zone", "rack", HOSTNAME),))


def test_it_reads_back_as_what_it_was() -> None:
    found = report_of(
        replace(drawn(), pods=tuple(pods("train", 2)), groups=(gang(min_member=2, required="rack"),)),
        explain=True,
    )
    assert msgspec.json.decode(to_json(found), type=SchedulingReport) == found
    assert msgspec.yaml.decode(to_yaml(found), type=SchedulingReport) == found


def test_single_nodes_are_called_hostname_whatever_their_alias() -> None:
    """The alias names the level in constraints; tools look for one fixed word."""
    topology = fabric("zone", "rack")
    aliased = replace(topology, levels=(*topology.levels, TopologyLevel(HOSTNAME, "node")))
    manifests = replace(
        drawn(),
        topologies=(aliased,),
        pods=tuple(pods("train", 2)),
        groups=(gang(min_member=2, required="node"),),
    )
    (group,) = report_of(manifests).groups
    assert (group.level, group.span) == ("hostname", {"zone": 1, "rack": 1, "hostname": 1})
    assert group.domain == ("a", "r1", "a1")


def test_elastic_members_that_find_no_room_say_why_themselves() -> None:
    """Two of three are needed and placed; the gang is fine, the third pod waits."""
    manifests = replace(
        drawn(), pods=tuple(pods("train", 3, spec(gpu=4))), groups=(gang(min_member=2, required="rack"),)
    )
    found = report_of(manifests)
    (group,) = found.groups
    assert (group.scheduled, group.min_member, group.reason) == (2, 2, None)
    assert [(pod.phase, pod.reason) for pod in found.pods] == [
        ("Scheduled", None),
        ("Scheduled", None),
        ("Pending", "TopologyPlacementFailed"),
    ]
    assert found.waiting


def test_an_unknown_level_is_a_condition_with_field_and_remedy() -> None:
    manifests = replace(drawn(), pods=tuple(pods("train", 2)), groups=(gang(min_member=2, required="row"),))
    (group,) = report_of(manifests).groups
    assert (group.reason, group.scheduled) == ("TopologyLevelNotFound", 0)
    (condition,) = group.conditions
    assert (condition.reason, condition.blocking) == ("TopologyLevelNotFound", True)
    assert condition.field == "spec.topologyConstraint.requiredTopologyLevel"
    assert "zone, rack" in condition.remedy


def test_a_preferred_unknown_level_is_reported_and_does_not_stop_the_gang() -> None:
    manifests = replace(drawn(), pods=tuple(pods("train", 2)), groups=(gang(min_member=2, preferred="row"),))
    (group,) = report_of(manifests).groups
    assert (group.reason, group.scheduled) == (None, 2)
    assert [condition.blocking for condition in group.conditions] == [False]


def test_an_invalid_topology_is_reported_once_and_disables_itself_alone() -> None:
    broken = Condition(
        reason=Reason.INVALID_SPEC,
        object="Topology/rows",
        field="spec.levels",
        message="is empty",
        blocking=True,
    )
    rows = replace(fabric("row", name="rows"), conditions=(broken,))
    manifests = replace(
        drawn(),
        topologies=(*drawn().topologies, rows),
        pods=tuple(pods("train", 2)),
        groups=(gang(min_member=2, required="rack"),),
    )
    found = report_of(manifests)
    assert [entry.object for entry in found.conditions] == ["Topology/rows"]
    assert found.groups[0].scheduled == 2


def test_gangs_whose_subgroups_differ_in_topology_have_none_of_their_own() -> None:
    rack = TopologyConstraint(topology="fabric", required="rack")
    zone = TopologyConstraint(topology="zones", required="zone")
    group = gang(
        min_member=2, subgroups=[SubGroup(name="x", constraint=rack), SubGroup(name="y", constraint=zone)]
    )
    members = (*pods("train", 1, subgroup="x"), *pods("train", 1, subgroup="y"))
    manifests = replace(
        drawn(), topologies=(*drawn().topologies, fabric("zone", name="zones")), pods=members, groups=(group,)
    )
    (entry,) = report_of(manifests).groups
    assert (entry.topology, entry.level, entry.domain, entry.scheduled) == (None, None, (), 2)
    assert list(entry.span) == ["hostname"]
