"""Requests to one API server over kept connections: JSON bytes in, JSON bytes out, errors as data.

What is repeated: everything that the server certainly did not do (429, or no connection); and requests that
may be done twice (``Retry.ANY``) after 5xx and broken connections as well. A binding is no such request.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

import closeby
from closeby.kube.client.connection import Connection
from closeby.kube.client.errors import (
    CERTIFICATE,
    CHECK_KUBECONFIG,
    CUT,
    LATE,
    NO_CREDENTIALS,
    TOO_LONG,
    UNREACHABLE,
    WITHHELD,
    ApiError,
    read_error,
)
from closeby.kube.client.sockets import Sockets
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.objects.reasons import Problem

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_UNAUTHORIZED: Final = 401
_OK: Final = 200
#: The answer to a conditional GET whose object did not change.
_NOT_MODIFIED: Final = 304
#: No redirect is followed, so that credentials go to the configured server only: each is an error.
_REFUSALS: Final = 300
#: Bytes of an answer that is not a list: no API server keeps an object a tenth as long.
LONGEST_ANSWER: Final = 16 * 1024 * 1024
#: Bytes of an error; of a longer one the beginning is read.
LONGEST_REFUSAL: Final = 1024 * 1024


class Retry(Enum):
    """Which failures of a request are answered by sending it again."""

    #: None: the caller decides.
    NEVER = "never"
    #: Those where the server certainly did nothing.
    UNSENT = "unsent"
    #: All that may pass, for requests whose repetition does no harm.
    ANY = "any"


class Limits(Struct, frozen=True):
    """How hard a server is pressed, and how long it is waited for (seconds)."""

    #: Requests in flight, watches not counted.
    concurrency: int = 64
    #: Times that one request is sent.
    attempts: int = 5
    pace: RequestPace = RequestPace()
    #: For one answer.
    answer_within: float = 30.0
    connect_within: float = 10.0


DEFAULT_LIMITS: Final = Limits()

#: Called with each request that was sent: method, HTTP's status (None when no answer came), and seconds until
#: its answer was complete (None for a watch, which goes on).
OnRequest = Callable[[str, int | None, float | None], None]


class Request(Struct, frozen=True, kw_only=True):
    """One request; ``path`` is quoted (``paths.path_of``)."""

    method: str = "GET"
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    retry: Retry = Retry.ANY
    #: Seconds for the answer; None leaves it to ``Limits``.
    within: float | None = None
    #: Seconds since it was sent first, after which it is not sent again; None leaves it to ``Limits``.
    repeats_within: float | None = None
    #: Bytes of the answer's body, for which a longer one is an error; None for the lists of an API server.
    longest: int | None = LONGEST_ANSWER
    #: Asked when a body is about to be written to its connection; False holds the whole request back.
    wanted: Callable[[], bool] | None = None


class Answer(Struct, frozen=True):
    """What came back: 200 to 399."""

    code: int
    body: bytes
    #: ``ETag``: tells whether the same request would be answered differently.
    tag: str | None = None


class Transport:
    """One server. Use it as ``async with Transport(connection) as transport``, in one event loop."""

    def __init__(
        self,
        connection: Connection,
        limits: Limits = DEFAULT_LIMITS,
        on_request: OnRequest = lambda method, code, seconds: None,
    ) -> None:
        self._connection = connection
        self._on_request = on_request
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._chance = random.Random()
        self._patience = self._patient(limits.answer_within)
        self._headers = CIMultiDict(
            [
                ("User-Agent", f"closeby/{closeby.__version__}"),
                ("Accept-Encoding", "identity"),
                *connection.headers,
            ]
        )
        self._open: aiohttp.ClientSession | None = None
        self._sockets = Sockets()

    def another(self) -> "Transport":
        """To the same server with connections of its own, for another event loop."""
        return Transport(self._connection, self._limits, self._on_request)

    @property
    def source(self) -> str:
        """Which cluster, for messages."""
        return f"{self._connection.url} ({self._connection.source})"

    @property
    def namespace(self) -> str:
        """The namespace of the context or of this pod."""
        return self._connection.namespace

    async def __aenter__(self) -> Self:
        """Ready for requests; connections are made when they are needed."""
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._connection.tls or True, socket_factory=self._sockets.make
        )
        self._open = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes all connections; requests in flight end with an error."""
        await self._session.close()
        await self._sockets.close()

    async def get(self, path: str) -> bytes | ApiError:
        """The body of the answer to a GET of one object, repeated where that may help."""
        return await self.send(Request(path=path))

    async def list(self, path: str, query: Mapping[str, str]) -> bytes | ApiError:
        """As ``get``, of a collection, which may be as long as it is."""
        return await self.send(Request(path=path, query=query, longest=None))

    async def send(self, request: Request) -> bytes | ApiError:
        """The body of the answer, after as many attempts as ``request.retry`` and the limits allow."""
        answer = await self.exchange(request)
        return answer if isinstance(answer, ApiError) else answer.body

    async def exchange(self, request: Request) -> Answer | ApiError:
        """``send``, with the answer's code and tag."""
        backoff = Backoff(self._limits.pace, self._chance)
        asked_again, began = False, time.monotonic()
        while True:
            answer = await self._once(request)
            if isinstance(answer, Answer):
                return answer
            if answer.code == _UNAUTHORIZED and not asked_again:
                asked_again = True
                self._connection.credentials.refused()
                continue
            if not _repeats(request.retry, answer) or backoff.failures + 1 >= self._limits.attempts:
                return answer
            wait = backoff.next(answer.retry_after)
            within = request.repeats_within
            if within is not None and time.monotonic() - began + wait > within:
                return _given_up(answer)
            await asyncio.sleep(wait)

    async def stream(
        self, path: str, query: Mapping[str, str], idle: float
    ) -> AsyncGenerator[bytes | ApiError, None]:
        """An answer that goes on: nothing when it begins, then its bytes as they come, and an error last if
        it did not end by itself.

        It breaks off when nothing comes for ``idle`` seconds. Nothing is repeated. Close it (``aclosing``).
        """
        patience = aiohttp.ClientTimeout(sock_connect=self._limits.connect_within, sock_read=idle)
        answered = False
        try:
            headers = await self._identified(Request(path=path))
            if isinstance(headers, ApiError):
                yield headers
                return
            async with self._call("GET", self._url(path, query), headers, None, patience) as response:
                answered = True
                self._on_request("GET", response.status, None)
                if response.status != _OK:
                    yield await _refusal(response)
                    return
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            if not answered:
                self._on_request("GET", None, None)
            yield _broken(error)

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            raise RuntimeError("the transport is used outside of its 'async with'")
        return self._open

    async def _once(self, request: Request) -> Answer | ApiError:
        patience = self._patience if request.within is None else self._patient(request.within)
        url = self._url(request.path, request.query)
        body: bytes | Withholding | None = request.body
        if request.body is not None and request.wanted is not None:
            body = Withholding(request.body, request.wanted)
        try:
            async with self._slots:
                headers = await self._identified(request)
                if isinstance(headers, ApiError):
                    return headers
                code, began = None, time.monotonic()
                try:
                    async with self._call(request.method, url, headers, body, patience) as response:
                        code = response.status
                        if code >= _REFUSALS and code != _NOT_MODIFIED:
                            return await _refusal(response)
                        content, whole = await _content(response, request.longest)
                        if not whole:
                            return ApiError(None, TOO_LONG, f"the answer has over {request.longest:,} bytes")
                        return Answer(code, content, response.headers.get("ETag"))
                finally:
                    self._on_request(request.method, code, time.monotonic() - began)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(body, Withholding) and body.withheld:
                return ApiError(
                    None, WITHHELD, "it was not wanted any more when it was to be sent", unsent=True
                )
            return _broken(error)

    async def _identified(self, request: Request) -> CIMultiDict[str] | ApiError:
        """The headers, with who asks."""
        who = await self._connection.credentials.authorization()
        if isinstance(who, Problem):
            return ApiError(None, NO_CREDENTIALS, str(who), unsent=True)
        headers = self._headers.copy()
        if who is not None:
            headers["Authorization"] = who
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        headers.setdefault("Accept", JSON)
        headers.update(request.headers)
        return headers

    def _patient(self, seconds: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=seconds, sock_connect=self._limits.connect_within)

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        text = f"{self._connection.url}{path}"
        return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)

    def _call(
        self,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: "bytes | Withholding | None",
        patience: aiohttp.ClientTimeout,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            timeout=patience,
            allow_redirects=False,
            proxy=self._connection.proxy,
            server_hostname=self._connection.server_name,
        )


def _repeats(retry: Retry, error: ApiError) -> bool:
    if retry is Retry.NEVER or not error.passing or error.reason == TOO_LONG:
        return False
    return retry is Retry.ANY or error.unsent


def _given_up(error: ApiError) -> ApiError:
    """An error after which a request would have been sent again, had there been time."""
    if error.retry_after is None:
        return error
    asked = f"the server asks to wait {error.retry_after:g} s or longer, which is too long here"
    return msgspec.structs.replace(error, message=f"{error.message}; {asked}")


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    content, _ = await _content(response, LONGEST_REFUSAL)
    return read_error(response.status, content, response.headers.get("Retry-After"))


async def _content(response: aiohttp.ClientResponse, longest: int | None) -> tuple[bytes, bool]:
    """The body, or its first ``longest`` bytes, and whether that is all of it."""
    if longest is None:
        return await response.read(), True
    chunks: list[bytes] = []
    left = longest
    async for chunk in response.content.iter_any():
        chunks.append(chunk[:left])
        left -= len(chunk)
        if left < 0:
            break
    return b"".join(chunks), left >= 0


def _broken(error: Exception) -> ApiError:
    """What an exception says about a request, above all whether it may have been carried out."""
    said = str(error) or type(error).__name__
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        return ApiError(None, CERTIFICATE, f"{said}; {CHECK_KUBECONFIG}", unsent=True)
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return ApiError(None, UNREACHABLE, said, unsent=True)
    if isinstance(error, TimeoutError):
        return ApiError(None, LATE, said)
    return ApiError(None, CUT, said)


class Withholding(BytesPayload):
    """A body that is written, together with its headers, only if that is still wanted then.

    Until then it may have waited for credentials or for a connection, or the process stood still.
    """

    def __init__(self, body: bytes, wanted: Callable[[], bool]) -> None:
        super().__init__(body)
        self._wanted = wanted
        self.withheld = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """As aiohttp asks for it, once the connection stands."""
        if not self._wanted():
            self.withheld = True
            raise ConnectionError("it is not wanted any more")
        await super().write_with_length(writer, content_length)


_READS: Final = frozenset({"GET", "HEAD"})


class DryTransport(Transport):
    """A client whose writes are checked by the server and not kept (``dryRun=All``).

    It answers as if everything had been written: rights, validation and admission are checked as for a write.
    """

    async def exchange(self, request: Request) -> Answer | ApiError:
        """As the request, but without effect."""
        if request.method not in _READS:
            request = msgspec.structs.replace(request, query={**request.query, "dryRun": "All"})
        return await super().exchange(request)
