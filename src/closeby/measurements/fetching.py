"""Reads one document from a file or over HTTP, with every failure as data."""

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.measurements.patience import Patience, opener

#: Seconds to wait for an answer.
TIMEOUT = 5.0
#: What is read of an answer, in bytes; a longer one is not used at all.
LONGEST_ANSWER = 256 * 1024 * 1024
#: A server that never stops to answer is left after so many times what is waited for each of its words.
_PATIENCE = 6
_CHUNK = 1 << 16


class Head(Struct, frozen=True):
    """What a server said first; ``status`` is HTTP's with its reason, such as ``503 Service Unavailable``."""

    code: int
    status: str


class FetchedAnswer(Struct, frozen=True):
    """What a server said as a whole."""

    code: int
    status: str
    body: bytes


#: Takes the body of an answer piece by piece; what it returns ends the reading.
Sink = Callable[[bytes], Unavailable | None]


class Asking(Struct, frozen=True, kw_only=True):
    """How a server is asked."""

    #: Seconds, for each of its words.
    timeout: float = TIMEOUT
    #: Shown to the server as a bearer token; one to which it redirects does not get it.
    token: str = ""
    #: Bytes of the body.
    longest: int = LONGEST_ANSWER
    #: How servers with TLS are known; without one the system's authorities do.
    context: ssl.SSLContext | None = None
    #: Whether to ask where a server redirects to; else the redirect is the answer.
    redirects: bool = True


DEFAULT_ASKING: Final = Asking()


def is_url(address: str) -> bool:
    """Whether an address is an HTTP URL; anything else is taken as a path."""
    return address.lower().startswith(("http://", "https://"))


def read_file(path: str) -> bytes | Unavailable:
    """The content of a file, of at most ``LONGEST_ANSWER`` bytes."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LONGEST_ANSWER + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Unavailable(f"{path} can't be read: {why}")
    if len(content) > LONGEST_ANSWER:
        return Unavailable(f"{path} is longer than {LONGEST_ANSWER:,} bytes")
    return content


def fetch(url: str, asking: Asking = DEFAULT_ASKING) -> FetchedAnswer | Unavailable:
    """The answer to a GET, whatever its status."""
    body = bytearray()

    def take(chunk: bytes) -> None:
        body.extend(chunk)

    head = stream(url, take, asking)
    return head if isinstance(head, Unavailable) else FetchedAnswer(head.code, head.status, bytes(body))


def stream(url: str, sink: Sink, asking: Asking = DEFAULT_ASKING) -> Head | Unavailable:
    """Gives the body of the answer to a GET to ``sink`` as it comes, whatever its status."""
    place = address_of(url)
    seconds = _PATIENCE * asking.timeout
    with Patience(seconds) as patience:
        found = _stream(url, place, sink, asking, patience)
    if not patience.over:
        return found
    return Unavailable(f"{place} is not done with its answer after {seconds:g} s", cause=Cause.LATE)


def _stream(url: str, place: str, sink: Sink, asking: Asking, patience: Patience) -> Head | Unavailable:
    try:
        request = urllib.request.Request(url)
        if asking.token:
            request.add_unredirected_header("Authorization", f"Bearer {asking.token}")
        director = opener(patience, asking.context, redirects=asking.redirects)
        with _opened(request, asking.timeout, director) as reply:
            length = 0
            while chunk := reply.read1(_CHUNK):
                length += len(chunk)
                if length > asking.longest:
                    return Unavailable(f"{place} answers more than {asking.longest:,} bytes", "ask for less")
                refused = sink(chunk)
                if refused is not None:
                    return refused
            return Head(reply.status or 0, f"{reply.status} {reply.reason}")
    except TimeoutError:
        return _no_answer(place, asking.timeout)
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return _no_answer(place, asking.timeout)
        return _unreachable(place, error)
    except (ValueError, http.client.InvalidURL) as error:
        return Unavailable(f"{place} is not a usable address: {error}")
    except (OSError, http.client.HTTPException) as error:
        return Unavailable(f"{place} broke off: {type(error).__name__} {error}", cause=Cause.UNREACHABLE)


def refusal(answer: FetchedAnswer | Head, place: str) -> Unavailable | None:
    """Why a server does not let us in, if that is so; ``place`` is for messages."""
    if answer.code not in (401, 403):
        return None
    return Unavailable(f"{place} does not let us in: {answer.status}", "give a token or certificate it takes")


def address_of(url: str) -> str:
    """A URL for messages: without its query, which may be long, and without a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _opened(
    request: urllib.request.Request, timeout: float, director: urllib.request.OpenerDirector
) -> http.client.HTTPResponse | urllib.error.HTTPError:
    """The answer, whatever its status."""
    try:
        found: http.client.HTTPResponse = director.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        return error
    return found


def _no_answer(place: str, timeout: float) -> Unavailable:
    return Unavailable(f"{place} does not answer within {timeout:g} s", cause=Cause.LATE)


def _unreachable(place: str, error: urllib.error.URLError) -> Unavailable:
    if isinstance(error.reason, ssl.SSLCertVerificationError):
        why = error.reason.verify_message
        return Unavailable(
            f"{place} shows a certificate that can't be trusted: {why}",
            "name its caFile",
            cause=Cause.UNREACHABLE,
        )
    why = getattr(error.reason, "strerror", None) or str(error.reason)
    return Unavailable(f"{place} can't be reached: {why}", cause=Cause.UNREACHABLE)
