import pytest

from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth, Sample, host_part, readings_of
from tests.golden.fixture import Golden


def readings(*hosts: str) -> BandwidthReadings:
    """Each host's average is its place in the list, from 1."""
    return BandwidthReadings(
        "test", {host: NodeBandwidth(average=place) for place, host in enumerate(hosts, 1)}
    )


def sentences(found: BandwidthReadings, *nodes: str) -> list[str]:
    return [one.sentence() for one in found.of_nodes({node: (node,) for node in nodes}).problems]


@pytest.mark.parametrize(
    ("host", "part"),
    [
        ("node-1", "node-1"),
        ("node-1:9100", "node-1"),
        ("10.0.0.7:9100", "10.0.0.7"),
        ("[fd00::7]:9100", "fd00::7"),
        ("[fd00::7]", "fd00::7"),
        ("fd00::7", "fd00::7"),
        ("node-1:metrics", "node-1:metrics"),
    ],
)
def test_a_host_without_its_port(host: str, part: str) -> None:
    assert host_part(host) == part


def test_a_host_is_meant_by_its_name_then_by_what_stands_before_its_port() -> None:
    found = readings("a", "a:9100", "b:9100", "10.0.0.7:9100")
    assert found.host_of(["a"]) == "a"
    assert found.host_of(["b"]) == "b:9100"
    assert found.host_of(["c", "c.example.com", "10.0.0.7"]) == "10.0.0.7:9100"
    assert found.host_of(["d"]) is None


def test_nodes_get_the_figures_of_their_hosts() -> None:
    found = readings("a:9100", "10.0.0.7").of_nodes({"a": ("a",), "b": ("b", "10.0.0.7")})
    assert {node: link.average for node, link in found.of.items()} == {"a": 1, "b": 2}
    assert found.problems == ()


def test_what_does_not_match_is_said_once(golden: Golden) -> None:
    golden("measurements", sentences(readings("a", "a:9100", "x1:1", "x2:1", "x3:1", "x4:1"), "a", "b"))


def test_the_greater_direction_counts_for_each_figure() -> None:
    found = readings_of(
        "test",
        [
            Sample("a", "average", 5),
            Sample("a", "average", 7),
            Sample("a", "deviation", 3),
            Sample("a", "deviation", 2),
        ],
        measured=9.0,
    )
    assert found.hosts == {"a": NodeBandwidth(average=7, deviation=3, measured=9.0)}


def test_missing_figures_are_reported(golden: Golden) -> None:
    found = readings_of("test", [Sample("a", "average", 5), Sample("b", "deviation", 1)], None)
    assert found.hosts == {"a": NodeBandwidth(average=5)}
    golden("measurements", sentences(found, "a"))
