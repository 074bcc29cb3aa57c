from pathlib import Path

import pytest

from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth, Unavailable
from closeby.measurements.load_watcher import LoadWatcher, parse_watcher
from tests.golden.fixture import Golden
from tests.measurements.serving import LONG, refusing, serving, silent
from tests.measurements.watching import DROPPED, MEASURED, RECEIVED, document, links, metric


def parsed(text: str) -> BandwidthReadings:
    found = parse_watcher(text.encode(), "w")
    assert isinstance(found, BandwidthReadings), found
    return found


def failure(found: BandwidthReadings | Unavailable) -> str:
    assert isinstance(found, Unavailable)
    return found.sentence()


def test_values_are_hundredths_of_bytes() -> None:
    """87.5 MB/s are 700 Mbit/s; the document says 8,750,000,000."""
    text = '{"data": {"NodeMetricsMap": {"n1": {"metrics": [{"type": "Bandwidth", "operator": "AVG", %s}]}}}}'
    assert parsed(text % '"value": 8750000000').hosts == {"n1": NodeBandwidth(average=700e6)}


def test_the_greater_of_sent_and_received_counts_and_drops_do_not() -> None:
    text = document(
        {
            "n1": [
                metric("AVG", 300),
                metric("AVG", 200, RECEIVED),
                metric("AVG", 900, DROPPED),
                metric("STD", 10),
                metric("STD", 40, RECEIVED),
                metric("STD", 90, DROPPED),
                metric("AVG", 990, "instance:node_cpu:ratio", "CPU"),
            ]
        }
    )
    assert parsed(text).hosts == {"n1": NodeBandwidth(average=300, deviation=40, measured=MEASURED)}


def test_a_latest_value_stands_in_for_an_average() -> None:
    latest = [metric("Latest", 500), metric("", 400, RECEIVED), metric("STD", 0)]
    found = parsed(document({"a": latest, "b": [*latest, metric("AVG", 100)]}))
    assert {host: link.average for host, link in found.hosts.items()} == {"a": 500, "b": 100}


@pytest.mark.parametrize("bad", [-1.0, "fast", None, True, [1]])
def test_a_value_that_is_no_rate_is_left_out_and_reported(bad: object, golden: Golden) -> None:
    text = document({"a": [metric("AVG", bad), metric("AVG", 100, RECEIVED), metric("STD", 5)]})
    found = parsed(text)
    assert found.hosts["a"].average == 100
    golden("measurements", [one.sentence() for one in found.problems])


def test_a_host_without_network_metrics_is_reported(golden: Golden) -> None:
    cpu = metric("AVG", 50, "instance:node_cpu:ratio", "CPU")
    found = parsed('{"data": {"NodeMetricsMap": {"b": {}, "c": {"metrics": null}}}}')
    assert (found.hosts, len(found.problems)) == ({}, 1)
    golden("measurements", [one.message for one in parsed(document({"a": [cpu]})).problems])
    assert parsed('{"data": {"NodeMetricsMap": null}}').hosts == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Service not ready", "w is not JSON: JSON is malformed: invalid character (byte 0)"),
        ("[]", "w is not a /watcher document: expected object, got array"),
        ('{"status": "ok"}', "w is not a /watcher document: object missing required field data"),
        (
            '{"data": {"NodeMetricsMap": {"a": {"metrics": [7]}}}}',
            "w is not a /watcher document: expected object, got int - at data.NodeMetricsMap[...].metrics[0]",
        ),
    ],
)
def test_what_is_no_document(text: str, sentence: str) -> None:
    assert failure(parse_watcher(text.encode(), "w")) == sentence


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "watcher.json"
    path.write_text(links("n1: 700 600"))
    found = LoadWatcher(str(path)).read()
    assert isinstance(found, BandwidthReadings)
    assert found.hosts == {"n1": NodeBandwidth(average=700e6, deviation=600e6, measured=MEASURED)}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "watcher.json"
    assert failure(LoadWatcher(str(missing)).read()) == f"{missing} can't be read: No such file or directory"
    assert failure(LoadWatcher(str(tmp_path)).read()) == f"{tmp_path} can't be read: Is a directory"


def test_from_a_server() -> None:
    asked: list[str] = []

    def answer(path: str) -> tuple[int, str]:
        asked.append(path)
        return 200, links("n1: 700 600")

    with serving(answer) as address:
        for url in (address, f"{address}/", f"{address}/proxy/watcher?host=n1"):
            found = LoadWatcher(url, LONG).read()
            assert isinstance(found, BandwidthReadings)
            assert found.hosts["n1"].average == 700e6
    assert asked == ["/watcher", "/watcher", "/proxy/watcher?host=n1"]


def test_a_server_that_has_nothing() -> None:
    with serving(lambda path: (500, "")) as address:
        assert failure(LoadWatcher(address, LONG).read()) == (
            f"{address}/watcher answers 500 Internal Server Error; does the load-watcher run?"
        )
    with serving(lambda path: (200, "<html>")) as address:
        assert failure(LoadWatcher(address, LONG).read()).startswith(f"{address}/watcher is not JSON")


def test_a_server_that_is_gone_or_silent() -> None:
    with refusing() as address:
        told = failure(LoadWatcher(address, LONG).read())
        assert told == f"{address}/watcher can't be reached: Connection refused"
    with silent() as address:
        told = failure(LoadWatcher(address, timeout=2).read())
        assert told == f"{address}/watcher does not answer within 2 s"


def test_an_address_that_is_none(golden: Golden) -> None:
    golden("measurements", failure(LoadWatcher("http://[watcher").read()))
    golden("measurements", failure(LoadWatcher("http://watcher:port").read()))


def test_a_number_without_end_is_no_rate(golden: Golden) -> None:
    text = '{"data": {"NodeMetricsMap": {"n1": {"metrics": [{"type": "Bandwidth", "operator": "AVG", %s}]}}}}'
    found = parsed(text % ('"value": 1' + "0" * 400))
    assert found.hosts == {}
    golden("measurements", [one.message for one in found.problems])


def test_an_answer_that_is_nested_without_end() -> None:
    text = '{"data": {"NodeMetricsMap": {"n": {"metrics": [{"value": ' + "[" * 200_000
    assert failure(parse_watcher(text.encode(), "w")).startswith("w is not JSON: ")
