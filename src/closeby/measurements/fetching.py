"""Reads one document from a file or over HTTP, with every failure as data.

A request has a deadline for each word of the server and one for all of them: a user who may name a server
could block its client otherwise. Each is made in an event loop of its own, for callers that have none. Where
the resolver does not answer, its thread outlives the request, and only the end of the process waits for it.
"""

import asyncio
import ipaddress
import os
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from closeby.measurements.addresses import ANONYMOUS, TIMEOUT, Access, address_of, is_url
from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.objects.bounds import is_header_token
from closeby.reading.decoding.sources import stamp_of

#: What is read of an answer, in bytes; a longer one is not used at all.
LONGEST_ANSWER = 256 * 1024 * 1024
#: A server that never stops to answer is left after so many times what is waited for each of its words.
_PATIENCE = 6


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


class RequestSettings(Struct, frozen=True, kw_only=True):
    """How a server is asked."""

    #: Seconds, for each of its words.
    timeout: float = TIMEOUT
    #: Shown to the server as a bearer token; another one to which it redirects does not get it.
    token: str = ""
    #: Bytes of the body.
    longest: int = LONGEST_ANSWER
    #: How servers with TLS are known; without one the system's authorities do.
    context: ssl.SSLContext | None = None
    #: Whether to ask where a server redirects to; else the redirect is the answer.
    redirects: bool = True


DEFAULT_SETTINGS: Final = RequestSettings()


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


def fetch(url: str, settings: RequestSettings = DEFAULT_SETTINGS) -> FetchedAnswer | Unavailable:
    """The answer to a GET, whatever its status."""
    body = bytearray()

    def take(chunk: bytes) -> None:
        body.extend(chunk)

    head = stream(url, take, settings)
    return head if isinstance(head, Unavailable) else FetchedAnswer(head.code, head.status, bytes(body))


def stream(url: str, sink: Sink, settings: RequestSettings = DEFAULT_SETTINGS) -> Head | Unavailable:
    """Gives the body of the answer to a GET to ``sink`` as it comes, whatever its status."""
    place = address_of(url)
    try:
        parts = urlsplit(url)
        proxy = proxy_of(parts.scheme, parts.hostname or "", os.environ)
        if proxy is not None:
            shown = address_of(proxy)
            if not is_url(proxy):
                return Unavailable(f"the proxy {shown} for {place} is not supported", "give an HTTP proxy")
            place = f"{place} through the proxy {shown}"
        with asyncio.Runner(loop_factory=_event_loop) as runner:
            return runner.run(_stream(url, place, proxy, sink, settings))
    except aiohttp.ServerTimeoutError:
        return Unavailable(f"{place} does not answer within {settings.timeout:g} s", cause=Cause.LATE)
    except TimeoutError:
        seconds = f"{_PATIENCE * settings.timeout:g}"
        return Unavailable(f"{place} is not done with its answer after {seconds} s", cause=Cause.LATE)
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", str(error.certificate_error))
        message = f"{place} shows a certificate that can't be trusted: {why}"
        return Unavailable(message, "name its caFile", cause=Cause.UNREACHABLE)
    except aiohttp.ClientConnectorError as error:
        cause = error.os_error
        # asyncio puts words of its own in the place of the system's; OpenSSL and DNS have their own numbers.
        plain = (cause.errno or 0) > 0 and not isinstance(cause, ssl.SSLError)
        why = os.strerror(cause.errno or 0) if plain else cause.strerror or str(cause)
        return Unavailable(f"{place} can't be reached: {why}", cause=Cause.UNREACHABLE)
    except ValueError as error:
        # aiohttp says only which address it was.
        return Unavailable(f"{place} is not a usable address: {error.__cause__ or error}")
    except (aiohttp.ClientError, OSError) as error:
        return Unavailable(f"{place} broke off: {type(error).__name__} {error}", cause=Cause.UNREACHABLE)


class _Abandoning(ThreadPoolExecutor):
    """Leaves a thread that looks up a name to itself: that may take longer than a request's deadline."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Never waits."""
        super().shutdown(wait=False, cancel_futures=True)


def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Abandoning(thread_name_prefix="resolver"))
    return loop


async def _stream(
    url: str, place: str, proxy: str | None, sink: Sink, settings: RequestSettings
) -> Head | Unavailable:
    patience = aiohttp.ClientTimeout(
        total=_PATIENCE * settings.timeout, sock_connect=settings.timeout, sock_read=settings.timeout
    )
    headers = {"Accept-Encoding": "identity"}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    async with (
        aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, timeout=patience
        ) as session,
        session.get(
            url,
            headers=headers,
            ssl=settings.context or True,
            proxy=proxy,
            allow_redirects=settings.redirects,
        ) as reply,
    ):
        length = 0
        async for chunk in reply.content.iter_any():
            length += len(chunk)
            if length > settings.longest:
                return Unavailable(f"{place} answers more than {settings.longest:,} bytes", "ask for less")
            refused = sink(chunk)
            if refused is not None:
                return refused
        return Head(reply.status, f"{reply.status} {reply.reason}")


def refusal(answer: FetchedAnswer | Head, place: str) -> Unavailable | None:
    """Why a server does not let us in, if that is so; ``place`` is for messages."""
    if answer.code not in (401, 403):
        return None
    return Unavailable(f"{place} does not let us in: {answer.status}", "give a token or certificate it takes")


class Client:
    """Asks servers by one ``Access``; for one thread at a time.

    Its files are looked at for every request, because others replace them: the kubelet tokens, cert-manager
    certificates.
    """

    def __init__(self, access: Access = ANONYMOUS, timeout: float = TIMEOUT) -> None:
        """``timeout`` is in seconds, and for each word of the server."""
        self._access = access
        self._timeout = timeout
        #: The newest TLS context, and the state of the files it was made of.
        self._context: tuple[object, ssl.SSLContext] | None = None

    def get(self, url: str) -> FetchedAnswer | Unavailable:
        """As ``fetch``; a token or certificate that can't be used is returned as an error."""
        settings = self._settings(url)
        return settings if isinstance(settings, Unavailable) else fetch(url, settings)

    def stream(self, url: str, sink: Sink, longest: int) -> Head | Unavailable:
        """As the function, without redirects, of at most ``longest`` bytes."""
        settings = self._settings(url)
        if isinstance(settings, Unavailable):
            return settings
        return stream(url, sink, msgspec.structs.replace(settings, longest=longest, redirects=False))

    def _settings(self, url: str) -> RequestSettings | Unavailable:
        token = self._token()
        if isinstance(token, Unavailable):
            return token
        context = self._tls() if _is_https(url) else None
        if isinstance(context, Unavailable):
            return context
        return RequestSettings(timeout=self._timeout, token=token, context=context)

    def _token(self) -> str | Unavailable:
        path = self._access.token_file
        if not path:
            return self._access.token
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            return Unavailable(f"the token file {path} can't be read: {_why(error)}", "mount a token there")
        if not is_header_token(token):
            return Unavailable(f"the token file {path} holds no token", "mount a token there")
        return token

    def _tls(self) -> ssl.SSLContext | Unavailable:
        access = self._access
        files = (access.ca_file, access.cert_file, access.key_file)
        try:
            state = tuple(stamp_of(path) for path in files if path)
            if self._context is None or self._context[0] != state:
                self._context = state, _context(access)
        except (OSError, ValueError) as error:
            named = ", ".join(path for path in files if path)
            remedy = "give certificates and an unencrypted key in PEM"
            return Unavailable(f"certificates can't be used ({named}): {_why(error)}", remedy)
        return self._context[1]


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file or None)
    if access.cert_file:
        # With a password OpenSSL does not ask on the terminal.
        context.load_cert_chain(access.cert_file, access.key_file or None, password="")
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_https(url: str) -> bool:
    try:
        return urlsplit(url).scheme == "https"
    except ValueError:
        return False


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


#: Never reached through a proxy.
_LOCAL: Final = ("localhost", "127.0.0.0/8", "::1/128")


def proxy_of(scheme: str, host: str, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy for a server, unless NO_PROXY leaves its host out; one without a scheme is HTTP.

    A variable in capitals goes before the same one in small letters.
    """
    exempt = (*_LOCAL, *_variable("no_proxy", environment).split(","))
    if any(_covers(entry.strip().lower(), host.lower()) for entry in exempt):
        return None
    proxy = _variable(f"{scheme}_proxy", environment)
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY (a name, a domain, an address, a network, ``*``) means this host."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return bool(entry) and (entry == "*" or f".{host}".endswith(f".{entry.lstrip('.')}"))
