"""Reads one document from a file or over HTTP, with every failure told as data."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from closeby.metrics.bandwidth import Unavailable

#: Seconds to wait for an answer.
TIMEOUT = 5.0
#: What is read of an answer, in bytes; a longer one is not used at all.
LONGEST_ANSWER = 256 * 1024 * 1024


class Answer(Struct, frozen=True):
    """What a server said; ``status`` is HTTP's, with its reason, such as ``503 Service Unavailable``."""

    code: int
    status: str
    body: bytes


def is_url(address: str) -> bool:
    """Whether an address is an HTTP URL; anything else is taken as a path."""
    return address.lower().startswith(("http://", "https://"))


def read_file(path: str) -> bytes | Unavailable:
    """The content of a file."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Unavailable(f"{path} can't be read: {why}")


def fetch(
    url: str, timeout: float = TIMEOUT, *, token: str = "", longest: int = LONGEST_ANSWER
) -> Answer | Unavailable:
    """The answer to a GET, whatever its status, of at most ``longest`` bytes.

    ``token`` is shown to the server as a bearer token; one to which it sends us on does not get it.
    """
    place = address_of(url)
    try:
        request = urllib.request.Request(url)
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            body = reply.read(longest + 1)
            if len(body) > longest:
                return Unavailable(f"{place} answers more than {longest:,} bytes", "ask for less")
            return Answer(reply.status, f"{reply.status} {reply.reason}", body)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, f"{error.code} {error.reason}", error.read(longest))
    except TimeoutError:
        return _no_answer(place, timeout)
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return _no_answer(place, timeout)
        why = getattr(error.reason, "strerror", None) or str(error.reason)
        return Unavailable(f"{place} can't be reached: {why}")
    except (ValueError, http.client.InvalidURL) as error:
        return Unavailable(f"{place} is no usable address: {error}")
    except (OSError, http.client.HTTPException) as error:
        return Unavailable(f"{place} broke off: {type(error).__name__} {error}")


def address_of(url: str) -> str:
    """A URL for messages: without its query, which may be long, and without a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _no_answer(place: str, timeout: float) -> Unavailable:
    return Unavailable(f"{place} does not answer within {timeout:g} s")
