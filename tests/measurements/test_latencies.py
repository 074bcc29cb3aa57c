"""Latencies out of Prometheus' answers: which are usable, and what is said when there are none."""

import contextlib
import json
import random
import threading
import time
import tracemalloc
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec import Struct

from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.measurements.fetching import RequestSettings, fetch
from closeby.measurements.latencies import (
    LONGEST,
    METRICS,
    Latencies,
    PrometheusLatencies,
    is_metric,
    latency_query,
    parse_latencies,
)
from closeby.measurements.links import Latency, Links
from closeby.measurements.series import SLICE, SeriesStream
from tests.measurements.serving import LONG, handled_by, left_in_the_end, serving, streaming


def answer(*series: tuple[dict[str, str], str]) -> str:
    result = [{"metric": labels, "value": [1_700_000_000.5, value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


class _Told(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


def between(origin: str, destination: str) -> dict[str, str]:
    return {"origin": origin, "destination": destination}


def read(text: str) -> list[Latency]:
    found = parse_latencies(text.encode(), "prometheus")
    assert isinstance(found, Latencies), found
    return list(found.links)


def test_the_keps_example() -> None:
    text = answer((between("worker-4", "worker-2"), "302"), (between("worker-3", "worker-1"), "270"))
    assert read(text) == [Latency("worker-4", "worker-2", 302.0), Latency("worker-3", "worker-1", 270.0)]


def test_series_that_are_no_latencies_are_counted() -> None:
    text = answer(
        (between("a", "b"), "NaN"),
        (between("a", "c"), "-1"),
        (between("a", "d"), "+Inf"),
        (between("a", "e"), "x"),
        (between("a", "f"), "1e300"),
        ({"origin": "a"}, "1"),
        ({}, "1"),
        (between("a", "b"), "0.5"),
    )
    found = parse_latencies(text.encode(), "prometheus")
    assert isinstance(found, Latencies)
    assert (list(found.links), found.unusable) == ([Latency("a", "b", 0.5)], 7)


def test_the_query_takes_the_median_over_the_time_range() -> None:
    queries = []

    def answering(path: str) -> tuple[int, str]:
        parts = urlsplit(path)
        assert parts.path == "/api/v1/query"
        queries.append(parse_qs(parts.query)["query"])
        return 200, answer((between("a", "b"), "7"))

    with serving(answering) as address:
        found = PrometheusLatencies(address + "/", minutes=30, metric=METRICS[1], timeout=LONG).read()
    assert isinstance(found, Latencies) and list(found.links) == [Latency("a", "b", 7.0)]
    over_time = "quantile_over_time(0.5, netperf_p90_latency_microseconds[30m])"
    assert queries == [[f"quantile by (origin, destination) (0.5, {over_time})"]]


def test_no_measurements_are_reported() -> None:
    with serving(lambda path: (200, answer())) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read()
    assert isinstance(found, Unavailable)
    query = latency_query(METRICS[0], 5)
    assert found.sentence() == f"{address}/api/v1/query has no latencies for {query}; do the probes run?"


def test_an_error_of_prometheus_is_reported() -> None:
    text = '{"status": "error", "errorType": "timeout", "error": "query timed out"}'
    with serving(lambda path: (503, text)) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read()
    assert isinstance(found, Unavailable)
    assert found.message == f"{address}/api/v1/query answers 503 Service Unavailable: query timed out"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("netperf_p50_latency_microseconds", True),
        ("job:latency:p90", True),
        ("", False),
        ("9lives", False),
        ("up) or vector(1", False),
        ("up\n", False),
    ],
)
def test_names_of_metrics(name: str, good: bool) -> None:
    assert is_metric(name) == good


def test_the_token_is_for_the_server_that_was_asked_alone() -> None:
    """A server sends us on to another one, which must not learn the token."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            first = self.path == "/first"
            self.send_response(302 if first else 200)
            if first:
                self.send_header("Location", f"http://localhost:{self.server.server_port}/second")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        server: HTTPServer

    with handled_by(Handler) as address:
        fetch(f"{address}/first", RequestSettings(timeout=LONG, token="secret"))
    assert seen == ["Bearer secret", None]


def test_an_answer_without_end_is_given_up() -> None:
    with serving(lambda path: (200, "x" * 2000)) as address:
        found = fetch(address, RequestSettings(timeout=LONG, longest=1000))
        assert found == Unavailable(f"{address} answers more than 1,000 bytes", "ask for less")
        exact = fetch(address, RequestSettings(timeout=LONG, longest=2000))
    assert not isinstance(exact, Unavailable) and len(exact.body) == 2000


def test_a_server_that_never_stops_to_answer_is_left() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.02)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        found = left_in_the_end(address, 0.1)
    assert found == Unavailable(f"{address} is not done with its answer after 0.6 s", cause=Cause.LATE)


# Answers that are long, and streams


def chunks(text: bytes, chance: random.Random) -> list[bytes]:
    found = []
    while text:
        size = chance.choice([1, 7, 1 << 10, 1 << 16, 1 << 19])
        found.append(text[:size])
        text = text[size:]
    return found


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n\t", " :\n ")])
@pytest.mark.parametrize("seed", range(3))
def test_a_long_answer_reads_the_same_in_whatever_pieces_it_comes(
    separators: tuple[str, str], seed: int
) -> None:
    """Names with boundaries, escapes and letters of several bytes; fields before and after the list."""
    chance = random.Random(seed)
    names = ["a", "b", "},{", '"},{"', "\\", "ünï", "]}}", '"result":[', "n" * 300]
    values = {(one, other): float(chance.randrange(1, 9999)) for one in names for other in names}
    pairs = [chance.choice(list(values)) for _ in range(9000)]
    vector = {
        "resultType": "vector",
        "result": [{"metric": between(*pair), "value": [1.5, str(values[pair])]} for pair in pairs],
    }
    body = {"status": "success", "isPartial": False, "data": vector, "stats": {"x": [{}, {}]}}
    text = json.dumps(body, separators=separators, ensure_ascii=bool(seed % 2)).encode()
    assert len(text) > 3 * SLICE
    taken: list[tuple[str, str, str]] = []

    def take(series: Sequence[_Told]) -> None:
        taken.extend((one.metric["origin"], one.metric["destination"], one.value[1]) for one in series)

    stream: SeriesStream[_Told] = SeriesStream("prometheus", tuple[_Told, ...], take)
    for chunk in chunks(text, chance):
        assert stream.feed(chunk) is None
    assert stream.end("200 OK") is None
    assert taken == [(*pair, str(values[pair])) for pair in pairs], f"seed {seed}"


@pytest.mark.parametrize(
    "text",
    [
        b'{"status": "success", "data": {"resultType": "vector", "result": [' + b'"' + b"x" * (1 << 22),
        b'{"status": "success", "data": {"resultType": "vector", "result": [' + b"[" * (1 << 22),
        b"{" * (1 << 22),
        b"x" * (1 << 22),
        b'"result":[' * (1 << 19),
        b'{"status": "success", "data": {"resultType": "vector", "result": [' + b"},{" * (1 << 20),
    ],
)
def test_an_answer_without_series_is_given_up_early(text: bytes) -> None:
    stream: SeriesStream[Any] = SeriesStream("prometheus", tuple[_Told, ...], lambda series: None)
    fed = 0
    for start in range(0, len(text), 1 << 16):
        fed += 1 << 16
        refused = stream.feed(text[start : start + (1 << 16)])
        if refused is not None:
            break
    assert isinstance(refused, Unavailable) and "a series without end" in refused.message
    assert fed <= 1 << 21


def test_what_breaks_off_in_the_middle_is_no_answer() -> None:
    text = answer(*[(between("a", "b"), "1")] * 9000).encode()
    for cut in (len(text) - 1, len(text) - 40, len(text) // 2):
        found = parse_latencies(text[:cut], "prometheus")
        assert isinstance(found, Unavailable) and found.cause is Cause.UNUSABLE


def test_only_latencies_between_known_nodes_are_kept() -> None:
    series = [(between(f"stranger-{number}", "a"), "1") for number in range(3000)]
    text = answer((between("a", "b"), "5"), *series, (between("b", "a"), "6"))
    with serving(lambda path: (200, text)) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read({"a", "b"})
    assert isinstance(found, Latencies)
    assert sorted(found.links) == [Latency("a", "b", 5.0), Latency("b", "a", 6.0)]
    assert (len(found.unknown_names), found.more_unknown) == (1000, 2000)


def test_of_the_same_pair_the_greatest_counts_in_16_bytes() -> None:
    links = Links.of(Latency("a", "b", float(number)) for number in range(1000))
    assert list(links) == [Latency("a", "b", 999.0)]
    assert links.size < 300


@pytest.mark.slow
def test_reading_many_long_answers_at_once_takes_little_memory() -> None:
    """Four answers of nearly 32 MiB; each of them as a whole would be more than what is allowed here."""
    one = json.dumps({"metric": between("a" * 20, "b" * 20), "value": [1_700_000_000.5, "5"]}) + ","
    body = '{"status":"success","data":{"resultType":"vector","result":['
    body += one * ((LONGEST - 1000) // len(one)) + one[:-1] + "]}}"
    found: list[Latencies | Unavailable] = []

    def read_it(address: str) -> None:
        found.append(PrometheusLatencies(address, minutes=5, timeout=LONG).read())

    with streaming(body.encode()) as address:
        threads = [threading.Thread(target=read_it, args=(address,)) for _ in range(4)]
        tracemalloc.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert [len(one.links) for one in found if isinstance(one, Latencies)] == [1] * 4
    assert peak < 60 * 1024 * 1024


def test_a_redirect_is_not_followed() -> None:
    """Not even to the server itself: what an object names is what is asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(urlsplit(self.path).path)
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        server: HTTPServer

    with handled_by(Handler) as address:
        found = PrometheusLatencies(address, minutes=5, timeout=LONG).read()
    assert isinstance(found, Unavailable) and found.cause is Cause.UNUSABLE
    assert asked == ["/api/v1/query"]
