import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth, Unavailable
from closeby.measurements.prometheus import Prometheus, Vector, combine, parse_vector
from closeby.measurements.promql import Queries
from tests.golden.fixture import Golden
from tests.measurements.serving import LONG, Answering, refusing, serving

NOW = 1_700_000_000.5
SOURCE = "http://prometheus/api/v1/query"


def vector(values: Mapping[str, object], label: str = "instance") -> str:
    """An instant vector as Prometheus answers it."""
    result = [{"metric": {label: host}, "value": [NOW, str(value)]} for host, value in values.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def usable(found: Vector | Unavailable) -> Vector:
    assert isinstance(found, Vector), found
    return found


def sentence(found: BandwidthReadings | Vector | Unavailable) -> str:
    assert isinstance(found, Unavailable), found
    return found.sentence()


def test_a_vector() -> None:
    found = usable(parse_vector(vector({"a:9100": 5, "b": "1e9"}).encode(), SOURCE))
    assert found == Vector({"a:9100": 5.0, "b": 1e9}, NOW)
    assert usable(parse_vector(vector({}).encode(), SOURCE)) == Vector({}, None)


def test_the_node_label_comes_before_the_instance() -> None:
    series = [
        {"metric": {"instance": "10.0.0.7:9100", "node": "n1"}, "value": [NOW, "5"]},
        {"metric": {"instance": "10.0.0.8:9100"}, "value": [NOW, "6"]},
        {"metric": {"job": "x"}, "value": [NOW, "7"]},
    ]
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}})
    found = usable(parse_vector(text.encode(), SOURCE))
    assert (found.values, found.nameless) == ({"n1": 5.0, "10.0.0.8:9100": 6.0}, 1)


def test_values_that_are_no_rates() -> None:
    found = usable(
        parse_vector(vector({"a": "NaN", "b": "+Inf", "c": -1, "d": "x", "e": 0}).encode(), SOURCE)
    )
    assert (found.values, found.bad) == ({"e": 0.0}, ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        (
            '{"status": "error", "errorType": "bad_data", "error": "parse error: unexpected end of input"}',
            "400 Bad Request",
            f"{SOURCE} answers 400 Bad Request: parse error: unexpected end of input; check the query",
        ),
        (
            '{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}',
            "200 OK",
            f"{SOURCE} answers a scalar; write a query that gives a vector",
        ),
        (
            "404 page not found",
            "404 Not Found",
            f"{SOURCE} answers 404 Not Found, not what Prometheus answers: Expected object, got int",
        ),
        (
            '{"status": "success", "data": {"resultType": "vector", "result": [{}]}}',
            "200 OK",
            f"{SOURCE} answers 200 OK, not what Prometheus answers: Object missing required field metric",
        ),
    ],
)
def test_what_is_no_vector(text: str, status: str, told: str) -> None:
    assert sentence(parse_vector(text.encode(), SOURCE, status)).startswith(told)


def test_vectors_are_combined_by_host(golden: Golden) -> None:
    found = combine(
        SOURCE,
        {
            "transmit_average": Vector({"a": 5.0, "b": 1.0}, NOW),
            "receive_average": Vector({"a": 9.0, "b": 2.0}, NOW),
            "transmit_deviation": Vector({"a": 3.0}, NOW),
            "receive_deviation": Vector({"a": 2.0}, NOW),
        },
        stale_after=300,
    )
    assert found.hosts == {
        "a": NodeBandwidth(average=9, deviation=3, measured=NOW),
        "b": NodeBandwidth(average=2, deviation=0, measured=NOW),
    }
    golden("measurements", [one.message for one in found.problems])


def test_hosts_that_are_not_scraped_any_more_are_left_out(golden: Golden) -> None:
    figures = dict.fromkeys(("fresh", "just", "stale", "gone"), 5.0)
    scraped = {"fresh": NOW, "just": NOW - 300, "stale": NOW - 301}
    found = combine(
        SOURCE,
        {
            "transmit_average": Vector(figures, NOW),
            "transmit_deviation": Vector(figures, NOW),
            "last_sample": Vector(scraped, NOW),
        },
        stale_after=300,
    )
    assert list(found.hosts) == ["fresh", "just"]
    golden("measurements", [one.sentence() for one in found.problems])


def test_unusable_answers_are_reported(golden: Golden) -> None:
    found = combine(SOURCE, {"transmit_average": Vector({}, NOW, ("a",), 2)}, stale_after=300)
    golden("measurements", [one.sentence() for one in found.problems])


def answering(by_query: Mapping[str, str]) -> Answering:
    def answer(path: str) -> tuple[int, str]:
        parts = urlsplit(path)
        assert parts.path == "/api/v1/query"
        query = parse_qs(parts.query)["query"][0]
        return next((200, body) for part, body in by_query.items() if part in query)

    return answer


def test_the_default_queries() -> None:
    rate = "max by (node, instance) (sum without (device) (8 * rate(node_network"
    answer = answering(
        {
            "max by (node, instance) (timestamp(": vector({"n1": NOW - 10}),
            f"stddev_over_time({rate}_transmit": vector({"n1": 4e8}),
            f"stddev_over_time({rate}_receive": vector({"n1": 6e8}),
            f"avg_over_time({rate}_transmit": vector({"n1": 7e8}),
            f"avg_over_time({rate}_receive": vector({"n1": 5e8}),
        }
    )
    with serving(answer) as address:
        found = Prometheus(f"{address}/", timeout=LONG).read()
    assert isinstance(found, BandwidthReadings)
    assert found.hosts == {"n1": NodeBandwidth(average=7e8, deviation=6e8, measured=NOW - 10)}
    assert (found.source, found.problems) == (f"{address}/api/v1/query", ())


def test_queries_can_be_replaced_and_left_out() -> None:
    queries = Queries(
        transmit_average="mine{a='b'}",
        receive_average="",
        transmit_deviation="spread",
        receive_deviation="",
        last_sample="",
    )
    with serving(answering({"mine{a='b'}": vector({"n1": 7}), "spread": vector({"n1": 1})})) as address:
        found = Prometheus(address, queries, timeout=LONG).read()
    assert isinstance(found, BandwidthReadings)
    assert found.hosts == {"n1": NodeBandwidth(average=7, deviation=1, measured=NOW)}


def test_a_server_that_refuses_a_query() -> None:
    refusal = '{"status": "error", "errorType": "bad_data", "error": "no such function"}'
    with serving(lambda path: (400, refusal)) as address:
        told = sentence(Prometheus(address, timeout=LONG).read())
    assert told == f"{address}/api/v1/query answers 400 Bad Request: no such function; check the query"


def test_a_server_that_is_gone() -> None:
    with refusing() as address:
        told = sentence(Prometheus(address, timeout=LONG).read())
    assert told == f"{address}/api/v1/query can't be reached: Connection refused"


@pytest.mark.parametrize(
    "head",
    [
        '{"data": ',
        '{"status": "success", "data": {"other": ',
        '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "x": ',
    ],
)
def test_an_answer_that_is_nested_without_end(head: str) -> None:
    found = parse_vector((head + "[" * 200_000).encode(), SOURCE)
    assert isinstance(found, Unavailable)
    assert "not what Prometheus answers" in found.message
