"""Measurements that change under an engine: it decides by the new ones, and who would fit does not wait."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.objects.nodes import Node
from closeby.reading.configuration import PluginEntry
from closeby.reading.decoding.bandwidth import BANDWIDTH
from closeby.scheduling.events import MeasurementsChanged, PodDeleted, PodUpserted
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.services import Measurements, Reading
from tests.worlds import World, gang, pods, spec, world

NAMES = ("n1", "n2", "n3")
#: Up to 80 of 100 may be in use on a steady link.
ENTRY = PluginEntry(
    name="CheckRiskNodeBandwidth",
    arguments={"prometheusAddress": "http://prometheus", "RiskThreshold": 0.4},
)


def links(*, threads: int = 8) -> World:
    return world(
        [Node(name=name, allocatable={BANDWIDTH: 100, "cpu": threads * 1000}) for name in NAMES],
        plugins=[ENTRY],
    )


def measured(averages: Sequence[int] | None, end: float = 0.0) -> MeasurementsChanged:
    """So much crosses the links, steadily; None: that is not known any more."""
    if averages is None:
        return MeasurementsChanged("CheckRiskNodeBandwidth", Measurements(trouble="it is gone"))
    hosts = {
        name: NodeBandwidth(average=average, measured=end)
        for name, average in zip(NAMES, averages, strict=True)
    }
    reading = Reading(values=BandwidthReadings("test", hosts, window=100.0), measured=end)
    return MeasurementsChanged("CheckRiskNodeBandwidth", Measurements(reading=reading, age=0.0))


def test_a_gang_that_was_refused_is_placed_when_traffic_falls() -> None:
    """Links carry up to 80: beside 70 none of 30 fits, beside 20 two do, beside 50 one."""
    here = links().tell(measured((70, 70, 70)))
    members = pods("train", 3, spec(**{BANDWIDTH: 30}))
    here.run(gang("train", 3), members=members)
    assert here.used() == {}
    here.tell(measured((70, 20, 70))).run()
    assert here.used() == {}
    here.tell(measured((50, 20, 70))).run()
    assert sorted(here.where.values()) == ["n1", "n2", "n2"]


def test_equal_pods_that_wait_are_placed_as_far_as_there_is_room_now() -> None:
    here = links().tell(measured((80, 80, 80)))
    here.run(members=pods(None, 6, spec(**{BANDWIDTH: 20})))
    assert here.where == {}
    here.tell(measured((40, 60, 80))).run()
    assert sorted(here.where.values()) == ["n1", "n1", "n2"]
    here.tell(measured(None)).run()
    assert len(here.where) == 6


def test_unchanged_measurements_wake_no_item() -> None:
    here = links()
    event = measured((80, 80, 80))
    (pod,) = pods(None, 1, spec(**{BANDWIDTH: 20}))
    here.tell(event).run(members=[pod])
    before = here.engine.story(pod.key)
    assert before[-1].outcome is not None
    older = msgspec.structs.replace(event.measurements, age=50.0, trouble="it is gone")
    here.tell(MeasurementsChanged(event.plugin, older)).run()
    assert here.engine.story(pod.key) == before


def test_measurements_for_an_absent_plugin_change_nothing() -> None:
    plain = world([Node(name=name, allocatable={BANDWIDTH: 100}) for name in NAMES])
    plain.tell(MeasurementsChanged("Mystery", Measurements())).run()
    assert plain.engine.unschedulable == ()


averages = st.none() | st.tuples(*[st.integers(0, 100)] * 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("measure"), averages),
        st.tuples(st.just("pod"), st.integers(0, 40)),
        st.tuples(st.just("gang"), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 9)),
    ),
    max_size=12,
)


@given(steps)
def test_no_pod_that_would_fit_waits(
    steps: list[tuple[str, object]],
) -> None:
    here = links()
    for number, (what, value) in enumerate(steps):
        match what, value:
            case "measure", tuple() | None:
                here.tell(measured(value if isinstance(value, tuple) else None, float(number)))
            case "pod", int(asked):
                (pod,) = pods(None, 1, spec(**({BANDWIDTH: asked} if asked else {"cpu": 1})))
                named = msgspec.structs.replace(pod, name=f"pod-{number}", uid=f"pod-{number}")
                here.tell(PodUpserted(named))
            case "gang", int(size):
                here.run(
                    gang(f"gang-{number}", size),
                    members=pods(f"gang-{number}", size, spec(**{BANDWIDTH: 25})),
                )
            case "end", int(which):
                placed = [pod for pod, _ in here.engine.cluster.placed_pods()]
                if placed:
                    here.tell(PodDeleted(placed[which % len(placed)].uid))
        here.run()
        for pod in here.engine.state.waiting_pods.values():
            refused = sum(len(one.slots) for one in here.engine.diagnosis.refusals(CycleState(), pod))
            assert refused == len(NAMES), f"{pod.name} waits, and would fit"
