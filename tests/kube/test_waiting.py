"""Lines out of chunks, and waits between attempts."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.kube.client.errors import LONGEST_WAIT, ApiError, Details, read_error
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.watch.reflector import LineSplitter


def test_a_line_may_come_in_pieces() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a"') == []
    assert splitter.feed(b": 1}\n{") == [b'{"a": 1}']
    assert splitter.feed(b"}\n\n") == [b"{}"]
    assert splitter.feed(b"") == []


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    splitter, found, rest = LineSplitter(), list[bytes](), text
    for cut in cuts:
        found += splitter.feed(rest[:cut])
        rest = rest[cut:]
    assert found + splitter.feed(rest) == lines


def test_waits_double_up_to_the_longest_and_start_over_after_success() -> None:
    backoff = Backoff(RequestPace(1.0, 5.0), random.Random(1))
    waits = [backoff.next() for _ in range(6)]
    for wait, step in zip(waits, [1, 2, 4, 5, 5, 5], strict=True):
        assert step / 2 <= wait <= step
    backoff.reset()
    assert backoff.next() <= 1.0


@given(st.integers(), st.integers(0, 2000), st.floats(0, 100))
def test_what_the_server_asks_for_is_kept(seed: int, failures: int, asked: float) -> None:
    backoff = Backoff(RequestPace(), random.Random(seed))
    backoff.failures = failures
    assert asked <= backoff.next(asked) <= max(10.0, asked * 1.25)


def test_a_status_says_what_is_wrong() -> None:
    body = b"""{"kind": "Status", "status": "Failure", "reason": "Invalid", "message": "no", "code": 422,
      "details": {"name": "a", "group": null, "causes": [{"field": "spec", "message": "bad"}]}}"""
    error = read_error(422, body)
    assert (error.code, error.reason, error.message) == (422, "Invalid", "no")
    assert error.details.causes[0].field == "spec"
    assert (error.details.name, error.details.group) == ("a", "")
    assert not error.passing


def test_an_answer_that_is_no_status() -> None:
    error = read_error(502, b"<html>Bad gateway</html>", "7")
    assert (error.reason, error.message, error.retry_after) == ("HTTP502", "<html>Bad gateway</html>", 7.0)
    assert error.passing and not error.unsent


def test_too_many_requests_had_no_effect() -> None:
    error = read_error(429, b'{"reason": "TooManyRequests", "details": {"retryAfterSeconds": 2}}')
    assert error.unsent and error.passing
    assert error.retry_after == 2.0


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        ("100000", None, LONGEST_WAIT),
        ("9" * 400, None, LONGEST_WAIT),
        (None, 100_000, LONGEST_WAIT),
        (None, -5, 0.0),
        ("3", 100_000, 3.0),
        ("nan", None, None),
    ],
)
def test_no_server_has_a_client_wait_for_long(
    header: str | None, seconds: int | None, expected: float | None
) -> None:
    body = json.dumps({"reason": "TooManyRequests", "details": {"retryAfterSeconds": seconds}}).encode()
    assert read_error(429, body, header).retry_after == expected


@pytest.mark.parametrize("body", [b'{"message": "\xff"}', b'{"x": ' + b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_cannot_be_read_is_quoted_at_its_beginning(body: bytes) -> None:
    error = read_error(500, body)
    assert (error.code, error.reason) == (500, "HTTP500")
    assert error.message.isprintable() and len(error.message) < 400


def test_a_version_of_the_past_and_one_of_the_future() -> None:
    assert read_error(None, b'{"code": 410, "reason": "Expired", "message": "too old"}').expired
    ahead = (
        b'{"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}'
    )
    assert read_error(504, ahead).ahead
    assert not ApiError(504, "Timeout", "slow", Details()).ahead
