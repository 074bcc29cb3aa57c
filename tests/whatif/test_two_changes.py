"""What is said where one change is not enough, and where other pods or claims stand against an item."""

from collections.abc import Sequence

from msgspec.structs import replace

from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, TopologySpreadConstraint, selector_of
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.records import Counterfactual, Kind
from tests.crowded import world
from tests.worlds import draw, gang, pods, spec

TAINT = Taint("team", "ml", "NoSchedule")


def said_of(
    key: str, members: Sequence[Pod], nodes: Sequence[Node], required: str | None = None
) -> list[Counterfactual]:
    count = sum(one.group == "train" for one in members)
    groups = [gang(min_member=count, required=required)] if count else []
    run = simulate(world(groups, members, nodes), Configuration())
    return [one for one in counterfactuals(run)[key] if one.kind is Kind.RELAXED]


def tainted(drawing: str, *names: str) -> list[Node]:
    return [replace(one, taints=(TAINT,)) if one.name in names else one for one in draw(drawing)]


def choosing(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_selector=(("disk", "ssd"),)))


def test_a_taint_and_a_node_selector() -> None:
    """No node has the label, and all are tainted."""
    nodes = tainted("a r1 : n1=2", "n1")
    (both,) = said_of("default/train", [choosing(one) for one in pods("train", 1)], nodes)
    assert both.fits
    assert both.change == {"tolerations": "team", "nodeSelector": None, "affinity.nodeAffinity": None}


def test_a_taint_and_a_level() -> None:
    """The racks hold one pod each, and both are tainted."""
    nodes = tainted("a r1 : n1=1\na r2 : n2=1", "n1", "n2")
    found = said_of("default/train", pods("train", 2), nodes, "rack")
    assert [dict(one.change) for one in found if one.fits and isinstance(one.change, dict)] == [
        {"topologyConstraint.requiredTopologyLevel": None, "tolerations": "team"}
    ]


def test_a_taint_and_what_runs_on_the_tainted_node() -> None:
    """n1 is tainted and full, n2 too small."""
    nodes = tainted("a r1 : n1=4 n2=1", "n1")
    running = pods(None, 2, prefix="old", on="n1", needs=spec(gpu=2))
    found = said_of("pod:default/new-0", [*pods(None, 1, prefix="new", needs=spec(gpu=2)), *running], nodes)
    (both,) = [one for one in found if one.fits]
    assert both.change == {"tolerations": "team"}
    assert isinstance(both.jobs, tuple)
    assert len(both.jobs) == 1


def test_nothing_of_the_kind_where_one_change_is_enough() -> None:
    nodes = tainted("a r1 : n1=2", "n1")
    assert all(" also " not in one.sentence for one in said_of("default/train", pods("train", 1), nodes))


def labelled(pod: Pod, affinity: PodAffinity | None = None, skew: int = 0) -> Pod:
    hard = TopologySpreadConstraint(topology_key="zone", max_skew=skew, selector=selector_of({"app": "x"}))
    spread = (hard,) if skew else ()
    changed = replace(pod.spec, pod_affinity=affinity, topology_spread=spread)
    return replace(pod, labels={"app": "x"}, spec=changed)


def test_what_a_pod_requires_of_other_pods() -> None:
    """It wants to be beside a pod that is not there."""
    near = PodAffinity(required=(PodAffinityTerm("zone", selector_of({"app": "none"})),))
    (pod,) = pods(None, 1, prefix="lone")
    (found,) = said_of("pod:default/lone-0", [labelled(pod, near)], draw("a r1 : n1=2"))
    assert found.fits
    assert found.change == {"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution": None}


def test_an_anti_affinity_that_all_pods_of_its_kind_have() -> None:
    """To drop it in one of them is not enough: the others' holds as well."""
    apart = PodAffinity(forbidden=(PodAffinityTerm("zone", selector_of({"app": "x"})),))
    members = [labelled(one, apart) for one in pods(None, 2, prefix="web")]
    (found,) = said_of("pod:default/web-1", members, draw("a r1 : n1=4"))
    assert not found.fits
    assert "zone" in found.sentence


def test_a_hard_spread() -> None:
    """Zone b takes no more, and zone a would have two more than it."""
    members = [labelled(one, skew=1) for one in pods(None, 2, prefix="web", needs=spec(gpu=2))]
    nodes = draw("a r1 : n1=8\nb r2 : n2=1")
    (found,) = said_of("pod:default/web-1", members, nodes)
    assert found.fits
    assert found.change == {"topologySpreadConstraints[*].whenUnsatisfiable": "ScheduleAnyway"}


def test_a_level_that_was_misspelt() -> None:
    first, *_ = said_of("default/train", pods("train", 2), draw("a r1 : n1=2"), "racks")
    assert first.fits
    assert first.change == {"topologyConstraint.requiredTopologyLevel": "rack"}


def test_a_topology_that_does_not_exist() -> None:
    nodes, members = draw("a r1 : n1=2"), pods("train", 2)
    group = gang(min_member=2, required="rack")
    assert group.constraint is not None
    lost = replace(group, constraint=replace(group.constraint, topology="none"))
    found = counterfactuals(simulate(world([lost], members, nodes), Configuration()))["default/train"]
    assert found[0].fits
    assert isinstance(found[0].change, dict)
    assert list(found[0].change) == ["topologyConstraint.topology"]
