"""Filter by the risk that a link is too busy. Drawings give nodes, measurements and requests in Mbit/s."""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from closeby.cli.reading.measuring import measure_once
from closeby.cluster.columns import UNLIMITED
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.check_risk_node_bandwidth import (
    ROUNDING,
    BandwidthArguments,
    CheckRiskNodeBandwidth,
    deviation_risk,
    node_risk,
)
from closeby.plugins.registry import BUILT_IN
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.decoding.bandwidth import BANDWIDTH
from closeby.scheduling.extension import Handle
from closeby.scheduling.plugin_view import Nodes
from closeby.scheduling.services import Measurements, Reading
from tests.golden.fixture import Golden
from tests.measurements.watching import MEASURED, WINDOW, links
from tests.plugins.asking import STATE, allowed, handle_of, place, pod_of, room, why_not
from tests.worlds import World, gang, pods, spec, world

MBIT = 1_000_000
EXAMPLE = """
n1: 300 100
n2: 500 100
n3: 700 600
"""


def nodes(drawing: str) -> list[Node]:
    """Nodes of ``n1=1000``; without an amount they offer no bandwidth."""
    found = []
    for word in drawing.split():
        name, _, amount = word.partition("=")
        offer = {BANDWIDTH: int(amount) * MBIT} if amount else {}
        found.append(Node(name=name, labels={HOSTNAME: name}, allocatable=offer))
    return found


def asking(mbit: int, name: str = "p", **fields: Any) -> Pod:
    needs = PodSpec(requests=((BANDWIDTH, mbit * MBIT),) if mbit else ())
    return msgspec.structs.replace(pod_of(needs, name), **fields)


def running(mbit: int, name: str, on: str, created: float | None = None) -> tuple[Pod, str]:
    return asking(mbit, name, node_name=on, created=created), on


@pytest.fixture
def watcher(tmp_path: Path) -> Path:
    """Where a test may write what the load-watcher says."""
    return tmp_path / "watcher.json"


def plugin_on(
    handle: Handle, watcher: Path | None = None, measured: str = "", **arguments: Any
) -> CheckRiskNodeBandwidth:
    if watcher is not None:
        arguments["watcherAddress"] = str(watcher)
    plugin = CheckRiskNodeBandwidth(msgspec.convert(arguments, BandwidthArguments), handle)
    if watcher is not None:
        measure(plugin, watcher, measured)
    return plugin


def reading_of(plugin: CheckRiskNodeBandwidth) -> Reading:
    """What its source says now."""
    assert plugin.source is not None
    reading = plugin.source.read()
    assert isinstance(reading, Reading), reading
    return reading


def measure(plugin: CheckRiskNodeBandwidth, watcher: Path, measured: str, end: float = MEASURED) -> None:
    """The load-watcher says something else, and the plugin hears of it."""
    watcher.write_text(links(measured, end))
    assert plugin.take(Measurements(reading=reading_of(plugin), age=0.0))


def test_the_proposals_example(watcher: Path) -> None:
    """1 Gbit/s links and a pod of 100 Mbit/s: N3 is too risky with 0.787."""
    plugin = plugin_on(handle_of(nodes("n1=1000 n2=1000 n3=1000")), watcher, EXAMPLE)
    assert allowed(plugin, asking(100)) == "n1 n2"
    assert why_not(plugin, asking(100), "n3") == Rejection(
        Reason.BANDWIDTH_RISK,
        "risk 0.787 above 0.75: average 700M + 100M of 1G bits/s, deviation 600M",
    )


@pytest.mark.parametrize(
    ("average", "deviation", "request_", "margin", "sensitivity", "risk"),
    [
        (700, 600, 100, 1, 2, 0.787298),
        (800, 600, 0, 1, 2, 0.787298),
        (700, 600, 100, 1, 1, 0.7),
        (700, 600, 100, 0.5, 2, 0.593649),
        (700, 600, 100, 0, 2, 0.4),
        (700, 600, 100, 1, 0, 0.4),
        (700, 1000, 100, 1, 0, 0.4),
        (700, 600, 100, 9, 2, 0.9),
        (2000, 2000, 0, 1, 2, 1.0),
        (0, 0, 0, 1, 2, 0.0),
    ],
)
def test_the_formula(
    average: float, deviation: float, request_: float, margin: float, sensitivity: float, risk: float
) -> None:
    sigma = deviation_risk(deviation, 1000, margin, sensitivity)
    assert node_risk(average, request_, 1000, sigma) == pytest.approx(risk, abs=1e-6)


@pytest.mark.parametrize(
    ("threshold", "request_", "passes"),
    [(0.75, 400, True), (0.75, 401, False), (0.7, 300, True), (0.7, 301, False), (1, 9000, True)],
)
def test_a_risk_equal_to_the_threshold_passes(
    watcher: Path, threshold: float, request_: int, passes: bool
) -> None:
    """Used are 500 of 1000; the deviation makes a sigma of 0.6."""
    plugin = plugin_on(handle_of(nodes("n=1000")), watcher, "n: 500 360", RiskThreshold=threshold)
    assert allowed(plugin, asking(request_)) == ("n" if passes else "")


def test_a_risk_that_looks_equal_is_shown_with_more_digits(watcher: Path, golden: Golden) -> None:
    plugin = plugin_on(handle_of(nodes("n=1000")), watcher, "n: 500 360")
    pod = pod_of(PodSpec(requests=((BANDWIDTH, 400 * MBIT + 100),)))
    golden("plugins", why_not(plugin, pod, "n").message)


def test_equal_pods_are_counted_up_to_the_threshold(watcher: Path) -> None:
    """With a sigma of 0.6 up to 900 of 1000 are fine, with one of 1 up to 500."""
    handle = handle_of(nodes("busy=1000 idle=1000 rough=1000 none"))
    plugin = plugin_on(handle, watcher, "busy: 500 360\nidle: 0 360\nrough: 0 1000")
    assert room(plugin, asking(100)) == {"busy": 4, "idle": 9, "rough": 5, "none": 0}
    assert room(plugin, asking(0)) == dict.fromkeys(("busy", "idle", "rough", "none"), UNLIMITED)
    place(handle.cluster, asking(100, "first"), "busy")
    assert room(plugin, asking(100))["busy"] == 3
    assert room(plugin, asking(250))["busy"] == 1


def test_a_steady_link_may_be_full_where_the_threshold_is_half_or_more(watcher: Path) -> None:
    """As in the formula: traffic alone is a risk of at most 0.5. What is too much is left to the requests."""
    plugin = plugin_on(handle_of(nodes("n=1000")), watcher, "n: 2000 0", RiskThreshold=0.5)
    assert room(plugin, asking(100)) == {"n": UNLIMITED}


def test_a_pod_that_asks_for_nothing_stays_off_a_busy_link(watcher: Path, golden: Golden) -> None:
    plugin = plugin_on(handle_of(nodes("n=1000 busy=1000 none")), watcher, "n: 0 0\nbusy: 700 999\nnone: 9 9")
    assert plugin.concerns(asking(0))
    assert allowed(plugin, asking(0)) == "n none"
    golden("plugins", why_not(plugin, asking(0), "busy").message)


def test_where_no_bandwidth_is_offered_only_pods_pass_that_ask_for_none(golden: Golden) -> None:
    plugin = plugin_on(handle_of(nodes("none zero=0 some=1000")))
    assert allowed(plugin, asking(1)) == "some"
    assert allowed(plugin, asking(0)) == "none zero some"
    golden("plugins", why_not(plugin, asking(1), "none").message)


def test_without_measurements_the_requests_count_once(golden: Golden) -> None:
    """Half of the link at most: risk 0.25."""
    handle = handle_of(nodes("n=1000"), [running(200, "r", "n")])
    plugin = plugin_on(handle, RiskThreshold=0.25)
    assert room(plugin, asking(100)) == {"n": 3}
    place(handle.cluster, asking(300, "assumed"), "n")
    assert room(plugin, asking(100)) == {"n": 0}
    golden("plugins", why_not(plugin, asking(100), "n").message)


def test_pods_that_came_since_are_added_to_the_measurement(watcher: Path, golden: Golden) -> None:
    """Of the pods that run, `old` is in the measured 400; `young` was created after it was taken."""
    handle = handle_of(
        nodes("n=1000"),
        [running(300, "old", "n", MEASURED - WINDOW), running(100, "young", "n", MEASURED + 1.0)],
    )
    plugin = plugin_on(handle, watcher, "n: 400 360")
    assert room(plugin, asking(100)) == {"n": 4}
    place(handle.cluster, asking(200, "assumed"), "n")
    assert room(plugin, asking(100)) == {"n": 2}
    golden("plugins", why_not(plugin, asking(400), "n").message)


def test_a_pod_that_left_lowers_what_came_since_but_not_the_average(watcher: Path) -> None:
    """Its 300 make room for the next 300; one pod must still fit beside the measured 600."""
    handle = handle_of(nodes("n=1000"), [running(300, "r", "n")])
    plugin = plugin_on(handle, watcher, "n: 600 360")
    assert room(plugin, asking(100)) == {"n": 3}
    handle.cluster.forget_pod("default/r")
    assert room(plugin, asking(400)) == {"n": 0}
    assert room(plugin, asking(300)) == {"n": 2}
    place(handle.cluster, asking(300, "next"), "n")
    assert room(plugin, asking(300)) == {"n": 1}


def test_a_node_that_comes_later_is_measured_too(watcher: Path) -> None:
    handle = handle_of(nodes("n=1000"))
    plugin = plugin_on(handle, watcher, EXAMPLE)
    assert allowed(plugin, asking(100)) == "n"
    for node in nodes("n3=1000 n1=1000"):
        handle.cluster.add_node(node)
    assert allowed(plugin, asking(100)) == "n n1"
    handle.cluster.remove_node("n3")
    for node in nodes("n2=1000 n1=200"):
        handle.cluster.add_node(node)
    assert allowed(plugin, asking(100)) == "n n2"


def test_a_host_may_be_called_by_its_port_its_hostname_or_its_address(watcher: Path) -> None:
    handle = handle_of(
        [
            *nodes("n1=1000"),
            Node(
                name="n2",
                labels={HOSTNAME: "two.example"},
                allocatable={BANDWIDTH: 1000 * MBIT},
            ),
            Node(
                name="n3",
                annotations={"alpha.kubernetes.io/provided-node-ip": "fd00::3, 10.0.0.3"},
                allocatable={BANDWIDTH: 1000 * MBIT},
            ),
        ]
    )
    busy = "n1:9100: 900 900\ntwo.example: 900 900\n10.0.0.3:9100: 900 900"
    plugin = plugin_on(handle, watcher, busy)
    assert allowed(plugin, asking(0)) == ""
    assert plugin.conditions() == ()


def test_measurements_that_match_no_node_are_reported(watcher: Path) -> None:
    plugin = plugin_on(handle_of(nodes("n1=1000")), watcher, "10.0.0.3:9100: 900 900")
    assert allowed(plugin, asking(100)) == "n1"
    assert [(one.object, one.message) for one in plugin.conditions()] == [
        (f"BandwidthMetrics/{watcher}", "measured hosts match no node (1: 10.0.0.3:9100)"),
        (f"BandwidthMetrics/{watcher}", "nodes are not measured (1: n1)"),
    ]


def test_where_nothing_is_known_it_costs_nothing() -> None:
    plugin = plugin_on(handle_of(nodes("n")))
    assert not plugin.concerns(asking(0))
    assert plugin.shares_by_spec
    assert plugin.conditions() == ()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"safeVarianceSensitivity": -1}, "safeVarianceSensitivity must be a number from 0 up, not -1"),
        ({"safeVarianceMargin": -0.5}, "safeVarianceMargin must be a number from 0 up, not -0.5"),
        ({"safeVarianceMargin": float("inf")}, "safeVarianceMargin must be a number from 0 up, not inf"),
        ({"RiskThreshold": 75}, "RiskThreshold must be between 0 and 1, not 75"),
        ({"RiskThreshold": float("nan")}, "RiskThreshold must be between 0 and 1, not nan"),
        ({"timeoutSeconds": 0}, "timeoutSeconds must be a number above 0, not 0"),
        ({"staleAfterSeconds": -3}, "staleAfterSeconds must be a number above 0, not -3"),
        (
            {"watcherAddress": "a", "prometheusAddress": "http://b"},
            "watcherAddress and prometheusAddress are both given; keep one",
        ),
        ({"refreshSeconds": 0.5}, "refreshSeconds must be between 1 and 3600, not 0.5"),
        ({"refreshSeconds": 4000}, "refreshSeconds must be between 1 and 3600, not 4000"),
        ({"maxAgeSeconds": 20}, "maxAgeSeconds must be refreshSeconds (30) or more, not 20"),
        ({"windowSeconds": float("nan")}, "windowSeconds must be a number above 0, not nan"),
        ({"prometheusNodeLabel": "a-b"}, "prometheusNodeLabel must be the name of a label, not 'a-b'"),
        (
            {"prometheusDevices": "eth[0"},
            "prometheusDevices must be a regular expression, not 'eth[0': unterminated character set",
        ),
        ({"keyFile": "tls.key"}, "keyFile is given without certFile; name the certificate too"),
        ({"prometheusAddress": "prometheus:9090"}, "prometheusAddress must begin with http:// or https://"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plugin_on(handle_of([]), **arguments)


def test_both_names_of_the_proposal_are_known() -> None:
    assert BUILT_IN["CheckRiskNodebandwidth"] is BUILT_IN["CheckRiskNodeBandwidth"] is CheckRiskNodeBandwidth


def measured_world(entry: PluginEntry) -> World:
    """Three links of 1000, measured as the entry says."""
    (event,) = measure_once(Configuration(plugins=(entry,)), live=False)
    return world(nodes("n1=1000 n2=1000 n3=1000"), plugins=[entry]).tell(event)


def test_a_gang_never_exceeds_the_threshold(watcher: Path) -> None:
    """Up to 900 of 1000 are fine: 4 + 2 + 0 pods of 100 fit, and 7 do not."""
    watcher.write_text(links("n1: 500 360\nn2: 700 360\nn3: 850 360"))
    entry = PluginEntry(name="CheckRiskNodeBandwidth", arguments={"watcherAddress": str(watcher)})
    needs = spec(**{BANDWIDTH: 100 * MBIT})

    here = measured_world(entry)
    here.run(gang("six", 6), members=pods("six", 6, needs))
    assert here.used() == {"n1": 4, "n2": 2}

    here = measured_world(entry)
    here.run(gang("seven", 7), members=pods("seven", 7, needs))
    assert here.used() == {}
    assert here.reason("seven") is Reason.GANG_DOES_NOT_FIT
    refusals = here.engine.diagnosis.tally(STATE, pods(None, 1, spec(**{BANDWIDTH: 500 * MBIT}))[0])
    assert refusals == {Reason.BANDWIDTH_RISK: 3}


amounts = st.integers(0, 1200)


@given(amounts, amounts, amounts, amounts, st.floats(0, 4), st.floats(0, 4))
def test_risk_grows_with_average_deviation_and_request(
    average: int, deviation: int, request_: int, more: int, margin: float, sensitivity: float
) -> None:
    def risk(average: int, deviation: int, request_: int) -> float:
        return node_risk(average, request_, 1000, deviation_risk(deviation, 1000, margin, sensitivity))

    base = risk(average, deviation, request_)
    assert 0 <= base <= 1
    assert base <= risk(average + more, deviation, request_)
    assert base <= risk(average, deviation + more, request_)
    assert base <= risk(average, deviation, request_ + more)


@given(amounts, amounts, amounts, st.lists(amounts, max_size=3), st.floats(0, 1), st.floats(0, 3))
@example(average=500, deviation=250, request_=500, others=[], threshold=0.75, sensitivity=2)
@example(average=0, deviation=0, request_=100, others=[], threshold=0.05, sensitivity=2)
def test_capacity_is_what_the_formula_allows_pod_by_pod(
    tmp_path_factory: pytest.TempPathFactory,
    average: int,
    deviation: int,
    request_: int,
    others: list[int],
    threshold: float,
    sensitivity: float,
) -> None:
    """Pods are added until the formula says no; at each step the count says how many are still to come."""
    handle = handle_of(nodes("n=1000"))
    plugin = plugin_on(
        handle,
        tmp_path_factory.mktemp("w") / "w.json",
        f"n: {average} {deviation}",
        RiskThreshold=threshold,
        safeVarianceSensitivity=sensitivity,
    )
    plugin.capacity(STATE, asking(0), Nodes(handle.cluster))  # takes the measurements in
    for place_, mbit in enumerate(others):
        place(handle.cluster, asking(mbit, f"other-{place_}"), "n")
    sigma = deviation_risk(deviation, 1000, 1, sensitivity)
    used = average + sum(others)
    counts, allowed_ = [], []
    for step in range(16):
        risk = node_risk(used, request_, 1000, sigma)
        assume(abs(risk - threshold - ROUNDING) > ROUNDING / 10)
        allowed_.append(risk <= threshold + ROUNDING)
        counts.append(int(plugin.capacity(STATE, asking(request_), Nodes(handle.cluster))[0]))
        place(handle.cluster, asking(request_, f"p-{step}"), "n")
        used += request_
    assert [count > 0 for count in counts] == allowed_
    if request_ and counts[0] < UNLIMITED:
        assert counts == [max(counts[0] - step, 0) for step in range(16)]


def test_it_answers_for_many_nodes_at_once_as_for_each() -> None:
    generator = np.random.default_rng(7)
    drawn = " ".join(f"n{index}={generator.integers(0, 2000)}" for index in range(50))
    handle = handle_of(nodes(drawn), [running(int(generator.integers(1, 900)), "r", "n3")])
    plugin = plugin_on(handle, RiskThreshold=0.3)
    fitting = room(plugin, asking(200))
    for name, count in fitting.items():
        slot = handle.cluster.slot(name)
        assert slot is not None
        offered = handle.cluster.node_at(slot).allocatable[BANDWIDTH]
        used = int(handle.cluster.requested[handle.cluster.row_of[BANDWIDTH], slot])
        assert count == max((6 * offered // 10 - used) // (200 * MBIT), 0) if offered else count == 0


def test_what_was_measured_again_counts_from_then_on(watcher: Path) -> None:
    plugin = plugin_on(handle_of(nodes("n1=1000 n2=1000")), watcher, "n1: 300 100\nn2: 700 600")
    assert allowed(plugin, asking(100)) == "n1"
    measure(plugin, watcher, "n1: 700 600\nn2: 300 100", MEASURED + 30)
    assert allowed(plugin, asking(100)) == "n2"
    assert plugin.measured_nodes == 2
    measure(plugin, watcher, "n2: 700 600", MEASURED + 60)
    assert allowed(plugin, asking(100)) == "n1"
    assert plugin.measured_nodes == 1


def test_a_new_measurement_makes_no_room_before_it_can_have_seen_a_pod(watcher: Path, golden: Golden) -> None:
    """A pod of 500 was placed; after 30 s of its 900 the average has hardly seen any of it."""
    handle = handle_of(nodes("n=1000"))
    plugin = plugin_on(handle, watcher, "n: 0 360")
    assert room(plugin, asking(500)) == {"n": 1}
    # It was made long ago, and waited.
    place(handle.cluster, asking(500, "p", node_name="n", created=MEASURED - 9000.0), "n")
    assert room(plugin, asking(500)) == {"n": 0}
    measure(plugin, watcher, "n: 0 360", MEASURED + 30)
    assert room(plugin, asking(500)) == {"n": 0}
    golden("plugins", why_not(plugin, asking(500), "n").message)
    # Half of the window later half of it is in the average, and after all of it everything is.
    measure(plugin, watcher, "n: 250 360", MEASURED + 30 + WINDOW / 2)
    golden("plugins", why_not(plugin, asking(500), "n").message)
    measure(plugin, watcher, "n: 400 360", MEASURED + 30 + WINDOW)
    assert room(plugin, asking(500)) == {"n": 1}


def test_a_pod_whose_binding_is_on_the_way_is_not_covered(watcher: Path) -> None:
    handle = handle_of(nodes("n=1000"))
    plugin = plugin_on(handle, watcher, "n: 0 360")
    place(handle.cluster, asking(500, "assumed"), "n")
    measure(plugin, watcher, "n: 0 360", MEASURED + 10 * WINDOW)
    assert room(plugin, asking(500)) == {"n": 0}


def test_without_measurements_any_more_requests_count(watcher: Path, golden: Golden) -> None:
    """As if nothing had ever been measured, and somebody says so."""
    handle = handle_of(nodes("n=1000"), [running(200, "r", "n")])
    plugin = plugin_on(handle, watcher, "n: 900 600")
    assert plugin.concerns(asking(0)) and allowed(plugin, asking(0)) == ""
    assert plugin.take(Measurements(trouble="w can't be reached: Connection refused"))
    assert not plugin.concerns(asking(0))
    assert allowed(plugin, asking(100)) == "n"
    assert plugin.measured_nodes == 0
    (told,) = plugin.conditions()
    golden("plugins", told.sentence())


def test_old_measurements_are_used_and_their_age_is_reported(watcher: Path, golden: Golden) -> None:
    plugin = plugin_on(handle_of(nodes("n=1000")), watcher, "n: 700 600")
    known = Measurements(reading=reading_of(plugin), age=0.0)
    assert plugin.take(known)
    assert plugin.conditions() == ()
    assert not plugin.take(msgspec.structs.replace(known, age=95.2, trouble="w does not answer within 5 s"))
    (told,) = plugin.conditions()
    golden("plugins", told.sentence())
    golden("plugins", why_not(plugin, asking(100), "n").message)


def test_a_source_that_was_never_fetched_is_reported(watcher: Path) -> None:
    arguments = msgspec.convert({"watcherAddress": str(watcher)}, BandwidthArguments)
    plugin = CheckRiskNodeBandwidth(arguments, handle_of(nodes("n=1000")))
    assert [one.message for one in plugin.conditions()] == ["nothing was read yet"]


def test_an_unsafe_setting_is_reported(golden: Golden) -> None:
    plugin = plugin_on(handle_of([]), prometheusAddress="https://p:9090", insecureSkipVerify=True)
    golden("plugins", plugin.conditions()[0].sentence())
    plain = plugin_on(handle_of([]), prometheusAddress="http://p:9090", tokenFile="/token")
    golden("plugins", plain.conditions()[0].message)


def test_a_host_is_called_by_any_address_of_its_node(watcher: Path) -> None:
    node = Node(name="n", addresses=("10.0.0.7", "n.example"), allocatable={BANDWIDTH: 1000 * MBIT})
    for host in ("10.0.0.7:9100", "n.example"):
        plugin = plugin_on(handle_of([node]), watcher, f"{host}: 900 900")
        assert allowed(plugin, asking(0)) == ""


def test_a_refusal_ends_when_measurements_allow_it(watcher: Path) -> None:
    """Classes of pods that were judged before are judged anew, and what waits is looked at again."""
    watcher.write_text(links("n1: 900 500\nn2: 900 500\nn3: 900 500"))
    entry = PluginEntry(name="CheckRiskNodeBandwidth", arguments={"watcherAddress": str(watcher)})
    here = measured_world(entry)
    here.run(members=pods(None, 1, spec(**{BANDWIDTH: 100 * MBIT})))
    assert here.used() == {}
    assert here.engine.unschedulable
    here.run()
    assert here.used() == {}
    watcher.write_text(links("n1: 900 500\nn2: 100 50\nn3: 900 500"))
    here.tell(*measure_once(Configuration(plugins=(entry,)), live=False)).run()
    assert here.used() == {"n2": 1}


def test_a_node_is_matched_again_when_it_gets_its_address(watcher: Path) -> None:
    """A kubelet registers its node before it knows all addresses."""
    (bare,) = nodes("n=1000")
    handle = handle_of([bare])
    plugin = plugin_on(handle, watcher, "10.0.0.7:9100: 900 900")
    assert (allowed(plugin, asking(0)), plugin.measured_nodes) == ("n", 0)
    handle.cluster.add_node(msgspec.structs.replace(bare, addresses=("10.0.0.7",)))
    assert (allowed(plugin, asking(0)), plugin.measured_nodes) == ("", 1)
    handle.cluster.remove_node("n")
    assert plugin.measured_nodes == 0


def test_a_node_that_changes_keeps_what_came_since(watcher: Path) -> None:
    """Its measurement covers no more pods than before, however old they are."""
    (bare,) = nodes("n=1000")
    handle = handle_of([bare])
    plugin = plugin_on(handle, watcher, "n: 400 360")
    place(handle.cluster, asking(400, "p", node_name="n", created=0.0), "n")
    assert room(plugin, asking(100)) == {"n": 1}
    handle.cluster.add_node(msgspec.structs.replace(bare, labels={**bare.labels, "a": "b"}))
    assert room(plugin, asking(100)) == {"n": 1}
    handle.cluster.add_node(msgspec.structs.replace(bare, addresses=("10.0.0.7",)))
    assert room(plugin, asking(100)) == {"n": 1}


@pytest.mark.parametrize(("threshold", "judged"), [(0.4, True), (0.5, False), (0.75, False)])
def test_pods_that_ask_for_no_bandwidth_are_judged_where_traffic_alone_can_be_too_much(
    threshold: float, judged: bool, watcher: Path
) -> None:
    handle = handle_of(nodes("n1=1000"))
    assert plugin_on(handle, RiskThreshold=threshold).concerns(asking(0)) == judged
    assert plugin_on(handle, watcher, EXAMPLE, RiskThreshold=threshold).concerns(asking(0))


def test_a_pod_that_asks_for_none_keeps_off_a_link_that_is_full_of_requests() -> None:
    """With a threshold of 0.4 requests may take 80 % of a link."""
    handle = handle_of(nodes("n1=1000 n2=1000 n3"), [running(800, "a", "n1"), running(801, "b", "n2")])
    assert allowed(plugin_on(handle, RiskThreshold=0.4), asking(0)) == "n1 n3"


def test_what_was_measured_counts_though_the_pods_have_left(watcher: Path) -> None:
    """900 of 1000 Mbit/s were measured while a pod of 500 ran; nobody knows what it took along."""
    handle = handle_of(nodes("n1=1000 n2=1000"), [running(500, "old", "n1", created=0.0)])
    plugin = plugin_on(handle, watcher, "n1: 900 0\nn2: 700 0", RiskThreshold=0.4)
    assert allowed(plugin, asking(0)) == "n2"
    handle.cluster.forget_pod("default/old")
    assert allowed(plugin, asking(0)) == "n2"
