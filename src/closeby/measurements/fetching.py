"""Reads one document from a file or over HTTP, with every failure told as data."""

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.patience import Patience, opener

#: Seconds to wait for an answer.
TIMEOUT = 5.0
#: What is read of an answer, in bytes; a longer one is not used at all.
LONGEST_ANSWER = 256 * 1024 * 1024
#: A server that never stops to answer is left after so many times what is waited for each of its words.
_PATIENCE = 6
_CHUNK = 1 << 16


class Answer(Struct, frozen=True):
    """What a server said; ``status`` is HTTP's, with its reason, such as ``503 Service Unavailable``."""

    code: int
    status: str
    body: bytes


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


def fetch(
    url: str,
    timeout: float = TIMEOUT,
    *,
    token: str = "",
    longest: int = LONGEST_ANSWER,
    context: ssl.SSLContext | None = None,
) -> Answer | Unavailable:
    """The answer to a GET, whatever its status, of at most ``longest`` bytes.

    ``token`` is shown to the server as a bearer token; one to which it sends us on does not get it.
    ``context`` says how servers with TLS are known; without one the system's authorities do.
    """
    place = address_of(url)
    seconds = _PATIENCE * timeout
    with Patience(seconds) as patience:
        found = _fetch(url, place, timeout, token=token, longest=longest, context=context, patience=patience)
    return Unavailable(f"{place} is not done with its answer after {seconds:g} s") if patience.over else found


def _fetch(
    url: str,
    place: str,
    timeout: float,
    *,
    token: str,
    longest: int,
    context: ssl.SSLContext | None,
    patience: Patience,
) -> Answer | Unavailable:
    try:
        request = urllib.request.Request(url)
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        with _opened(request, timeout, opener(patience, context)) as reply:
            body = bytearray()
            while chunk := reply.read1(_CHUNK):
                body += chunk
                if len(body) > longest:
                    return Unavailable(f"{place} answers more than {longest:,} bytes", "ask for less")
            return Answer(reply.status or 0, f"{reply.status} {reply.reason}", bytes(body))
    except TimeoutError:
        return _no_answer(place, timeout)
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return _no_answer(place, timeout)
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            why = error.reason.verify_message
            return Unavailable(f"{place} shows a certificate that can't be trusted: {why}", "name its caFile")
        why = getattr(error.reason, "strerror", None) or str(error.reason)
        return Unavailable(f"{place} can't be reached: {why}")
    except (ValueError, http.client.InvalidURL) as error:
        return Unavailable(f"{place} is no usable address: {error}")
    except (OSError, http.client.HTTPException) as error:
        return Unavailable(f"{place} broke off: {type(error).__name__} {error}")


def refusal(answer: Answer, place: str) -> Unavailable | None:
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
    return Unavailable(f"{place} does not answer within {timeout:g} s")
