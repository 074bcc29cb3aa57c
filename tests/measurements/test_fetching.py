"""Servers that do not do what HTTP says, or do it for ever."""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.measurements.fetching import FetchedAnswer, RequestSettings, fetch, read_file
from tests.golden.fixture import Golden
from tests.measurements.serving import LONG, left_in_the_end, refusing, serving

#: Says something to who has asked.
Saying = Callable[[socket.socket], None]


@contextlib.contextmanager
def saying(what: Saying) -> Iterator[str]:
    """The address of a server that says this to everybody, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk(connected: socket.socket) -> None:
            with connected, contextlib.suppress(OSError):
                connected.recv(1000)
                what(connected)

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = listening.accept()
                    threading.Thread(target=talk, args=(connected,), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def again_and_again(first: bytes, more: bytes) -> Saying:
    def say(connected: socket.socket) -> None:
        connected.sendall(first)
        while True:
            connected.sendall(more)
            time.sleep(0.02)

    return say


@pytest.mark.parametrize(
    ("first", "more"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"x", id="a header without end"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="only that it goes on"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x", id="a body without end"),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 9999\r\n\r\n", b"x", id="an error without end"),
    ],
)
def test_who_says_a_little_all_the_time_is_left_in_the_end(first: bytes, more: bytes) -> None:
    began = time.monotonic()
    with saying(again_and_again(first, more)) as address:
        found = left_in_the_end(address, 0.2)
    assert isinstance(found, Unavailable)
    assert found.message == f"{address} is not done with its answer after 1.2 s"
    assert time.monotonic() - began < LONG


@pytest.mark.parametrize("status", ["200 OK", "502 Bad Gateway"])
def test_an_answer_that_breaks_off(status: str) -> None:
    text = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf".encode()
    with saying(lambda connected: connected.sendall(text)) as address:
        found = fetch(address, RequestSettings(timeout=LONG))
    assert isinstance(found, Unavailable)
    assert found.message.startswith(f"{address} broke off: ClientPayloadError")


def test_a_redirect_to_a_file_is_not_followed() -> None:
    text = b"HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname\r\nContent-Length: 0\r\n\r\n"
    with saying(lambda connected: connected.sendall(text)) as address:
        found = fetch(address, RequestSettings(timeout=LONG))
    assert isinstance(found, Unavailable)


def test_a_proxy_is_asked_where_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(path: str) -> tuple[int, str]:
        asked.append(path)
        return 200, "answer"

    with serving(answer) as address:
        monkeypatch.setenv("http_proxy", address)
        found = fetch("http://server.invalid/path", RequestSettings(timeout=LONG))
        assert isinstance(found, FetchedAnswer) and found.body == b"answer"
        monkeypatch.setenv("no_proxy", "server.invalid")
        assert isinstance(fetch("http://server.invalid/path", RequestSettings(timeout=LONG)), Unavailable)
    assert asked == ["http://server.invalid/path"]


@pytest.mark.parametrize("scheme", ["", "http://user:secret@"])
def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    with refusing() as address:
        monkeypatch.setenv("http_proxy", address.replace("http://", scheme))
        found = fetch("http://server.invalid/path", RequestSettings(timeout=LONG))
    assert isinstance(found, Unavailable) and found.cause is Cause.UNREACHABLE
    for named in ("http://server.invalid/path", f"the proxy {address} "):
        assert named in found.message
    assert "secret" not in found.message


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://proxy:1080")
    found = fetch("http://server.invalid/path")
    assert isinstance(found, Unavailable) and "the proxy socks5://proxy:1080" in found.message


def test_networks_and_this_machine_are_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda path: (200, "answer")) as address, refusing() as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        assert isinstance(fetch(address, RequestSettings(timeout=LONG)), FetchedAnswer)
    # Nothing listens at the lowest port of the addresses that are kept for examples, but no proxy is asked.
    monkeypatch.setenv("no_proxy", "other,192.0.2.0/24")
    found = fetch("http://192.0.2.1:1/path", RequestSettings(timeout=0.1))
    assert isinstance(found, Unavailable) and "proxy" not in found.message


#: With a resolver that takes questions and never answers, in namespaces of its own.
_DEAF_RESOLVER = """
import os, socket, subprocess, sys, time
from closeby.measurements.fetching import RequestSettings, fetch
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
    deaf.bind(("127.0.0.1", 53))
    began = time.monotonic()
    found = fetch("http://server.example/", RequestSettings(timeout=0.2))
    print(time.monotonic() - began, found.cause, flush=True)
    os._exit(0)
"""


def test_a_resolver_that_does_not_answer_is_left_in_time(tmp_path: Path) -> None:
    apart = ["unshare", "--map-root-user", "--net", "--mount"]
    possible = all(map(shutil.which, ("unshare", "ip", "mount")))
    if not possible or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no namespaces")
    configuration = tmp_path / "resolv.conf"
    configuration.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    command = [*apart, sys.executable, "-c", _DEAF_RESOLVER, str(configuration)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True).stdout.split()
    assert float(said[0]) < 15 and said[1] == str(Cause.LATE)


def test_a_file_without_end(golden: Golden) -> None:
    found = read_file("/dev/zero")
    assert isinstance(found, Unavailable)
    golden("measurements", found.message)
