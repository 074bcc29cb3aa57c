"""A pod whose volume is on one node waits for what that node lacks, and not for volumes alone."""

import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.selectors import Namespace, PodAffinity, PodAffinityTerm, selector_of
from closeby.objects.volumes import CSINode, NodeDriver, StorageObject, VolumeAttachment
from closeby.scheduling.events import Event, PodUpserted, SelectionChanged, StorageChanged, Tick
from closeby.scheduling.outcomes import outcomes_of
from tests.storage import DISKS, LOCAL, claim, naming, volume
from tests.worlds import World, gang, pods, spec, world

RACKS = """
a r1 : a1=4 a2=4 a3=4
b r2 : b1=4
"""


def stocked(drawing: str, *there: StorageObject) -> World:
    return world(drawing).tell(*(StorageChanged(one) for one in (LOCAL, DISKS, *there)))


def database(name: str, app: str = "db", on: str | None = None) -> Pod:
    """A pod of an application that goes to b1, if it is not there."""
    (pod,) = pods(None, 1, prefix=name, labels={"app": app}, on=on)
    return replace(pod, spec=replace(pod.spec, node_selector=((HOSTNAME, "b1"),)))


def near(pod: Pod, team: str | None = None) -> Pod:
    """It has to be in the zone of a database."""
    namespaces = None if team is None else selector_of({"team": team})
    term = PodAffinityTerm("zone", selector_of({"app": "db"}), namespace_selector=namespaces)
    return replace(pod, spec=replace(pod.spec, pod_affinity=PodAffinity(required=(term,))))


def decided(drawn: World, *events: Event) -> set[str]:
    """The items decided at the next tick."""
    found = {one.key.partition("/")[2] for one in outcomes_of(drawn.engine.handle(*events, Tick()))}
    drawn.engine.validate_state()
    return found


def placed(drawn: World, pod: Pod) -> bool:
    return drawn.engine.cluster.placement(pod.uid) is not None


@pytest.mark.parametrize("members", [None, "train"])
def test_a_pod_that_its_volume_keeps_from_most_nodes_waits_for_a_pod_on_the_last(members: str | None) -> None:
    drawn = stocked(RACKS, claim("mine"), volume("v", "b1"))
    (waits,) = (near(naming(pod, "mine")) for pod in pods(members, 1, prefix="waits"))
    drawn.run(*([gang(members)] if members else []), members=[waits])
    assert not placed(drawn, waits)
    # closeby places the other one itself.
    assert decided(drawn, PodUpserted(database("new"))) == {"new-0", members or "waits-0"}
    assert placed(drawn, waits)


def test_a_pod_that_its_volume_keeps_from_most_nodes_waits_for_a_namespace() -> None:
    drawn = stocked(RACKS, claim("mine"), volume("v", "b1"))
    drawn.tell(PodUpserted(database("there", on="b1")))
    (waits,) = (near(naming(pod, "mine"), "x") for pod in pods(None, 1, prefix="waits"))
    drawn.run(members=[waits])
    assert drawn.reason("waits-0") == Reason.VOLUME_NOT_BINDABLE
    assert decided(drawn, SelectionChanged(Namespace(name="default", labels={"team": "y"}))) == set()
    assert decided(drawn, SelectionChanged(Namespace(name="default", labels={"team": "x"}))) == {"waits-0"}
    assert placed(drawn, waits)


def test_a_pod_that_only_its_volume_keeps_away_is_not_tried_for_a_namespace() -> None:
    drawn = stocked(RACKS, claim("mine"))
    others = near(replace(database("other"), namespace="default"), "x")
    (waits,) = (naming(pod, "mine") for pod in pods(None, 1, prefix="waits"))
    drawn.run(members=[waits, others])
    assert decided(drawn, SelectionChanged(Namespace(name="default", labels={"team": "x"}))) <= {"other-0"}


def test_a_driver_that_says_which_nodes_reach_a_volume_wakes_who_shares_its_claim() -> None:
    shared = claim("shared", "disks", selected_node="a1")
    drawn = stocked("a r1 : a1=1 a2=4\nb r2 : b1=4", shared)
    first, second = (naming(pod, "shared") for pod in pods(None, 2, spec(gpu=1), prefix="p"))
    drawn.run(members=[first]).run(members=[second])
    assert drawn.where == {"p-0": "a1"}
    said = CSINode(name="a1", drivers=(NodeDriver(DISKS.provisioner, None, ("zone",)),))
    assert decided(drawn, StorageChanged(said)) == {"p-1"}
    assert placed(drawn, second)


def test_a_volume_that_is_known_later_than_its_attachment_counts() -> None:
    """The two come by different watches."""
    said = CSINode(name="a1", drivers=(NodeDriver(DISKS.provisioner, 1),))
    attached = VolumeAttachment(name="at", driver=DISKS.provisioner, node="a1", volume="v")
    drawn = stocked("a r1 : a1=4", said, attached, claim("mine", "disks", size=2), claim("none", "disks"))
    (first,) = (naming(pod, "none", "mine") for pod in pods(None, 1, prefix="first"))
    assert decided(drawn, PodUpserted(first)) == {"first-0"}  # Two, of which the node takes one.
    late = volume("v", storage_class="disks", driver=DISKS.provisioner, handle="h", available=False)
    (second,) = (naming(pod, "mine") for pod in pods(None, 1, prefix="second"))
    drawn.tell(StorageChanged(late))
    drawn.run(members=[second])
    assert drawn.reason("second-0") == Reason.VOLUME_LIMIT_REACHED


def test_what_a_class_makes_counts_for_the_driver_that_it_names_now() -> None:
    said = CSINode(name="a1", drivers=(NodeDriver(DISKS.provisioner, 1),))
    other = replace(DISKS, provisioner="other.example.com")
    claims = [claim(name, "disks") for name in ("first", "asks", "second")]
    drawn = stocked("a r1 : a1=4", said, other, CSINode(name="a2", drivers=said.drivers), *claims)
    first, asks, second = (naming(pod, one.name) for one in claims for pod in pods(None, 1, prefix=one.name))
    asks = replace(asks, spec=replace(asks.spec, requests=spec(gpu=9).requests))
    drawn.run(members=[first]).run(members=[asks])
    assert placed(drawn, first)
    drawn.tell(StorageChanged(DISKS)).run(members=[second])
    assert drawn.reason("second-0") == Reason.VOLUME_LIMIT_REACHED
