"""A small HTTP server on this machine that gives prepared answers, and servers that give none."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import FetchedAnswer, RequestSettings, fetch

#: Seconds for each word of a server that answers: the machine may be busy with other things.
LONG = 60.0

#: From the path with its query to a status and a body.
Answering = Callable[[str], tuple[int, str]]


@contextmanager
def handled_by(handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server that does what ``handler`` says, for as long as the block lasts."""
    server = ThreadingHTTPServer((host, 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving(answer: Answering) -> Iterator[str]:
    """The address of a server that lives as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        yield address


@contextmanager
def streaming(body: bytes, asked: list[str] | None = None) -> Iterator[str]:
    """The address of a server that gives everybody this, which is long, as fast as it is taken.

    ``asked`` gets the paths that it is asked for.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # Who asked may have had enough.
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        yield address


@contextmanager
def silent() -> Iterator[str]:
    """The address of a server that takes connections, and says nothing as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def refusing() -> Iterator[str]:
    """An address at which nobody listens, and which nobody else can take as long as the block lasts."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def left_in_the_end(address: str, timeout: float) -> FetchedAnswer | Unavailable:
    """What ``fetch`` makes of a server that always goes on before the ``timeout``.

    On a busy machine a word may come later than that; then it is asked again.
    """
    end = time.monotonic() + LONG
    while True:
        found = fetch(address, RequestSettings(timeout=timeout))
        late = isinstance(found, Unavailable) and "does not answer within" in found.message
        if not late or time.monotonic() > end:
            return found
