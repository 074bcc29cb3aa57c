"""A small HTTP server on this machine that gives prepared answers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
def serving(answer: Answering, delay: float = 0.0) -> Iterator[str]:
    """The address of a server that lives as long as the block; an answer takes it ``delay`` seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delay)
            status, body = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        yield address
