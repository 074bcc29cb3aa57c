"""Who may read metrics and stories: users whose bearer token the API server knows and who may ``get`` these.

As kube-scheduler does, the API server is asked twice: a TokenReview says whose token it is, a
SubjectAccessReview whether that user may. Metrics and stories are separate rights: metrics name no pod, and
stories name pods of all namespaces. Answers are kept for a while. What a flood of tokens costs the API
server is bounded: few questions at a time, and few a minute for each address that asks.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import Request, Retry, Transport
from closeby.objects.process import Say

K = TypeVar("K")
V = TypeVar("V")

_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Seconds for each of the two answers; Prometheus waits for 10 by default.
_ANSWER_WITHIN: Final = 4.0
#: The scheme and its token. Longer headers are refused before they come here.
_BEARER: Final = "bearer"


class ProtectedPath(StrEnum):
    """What a user may be allowed to ``get``: a nonResourceURL of RBAC.

    One name stands for the stories of all namespaces, so that one answer holds for all of them.
    """

    METRICS = "/metrics"
    STORIES = "/stories"


class AccessResult(StrEnum):
    """What is answered to a request for a protected path."""

    ALLOWED = "allowed"
    #: There is no token, or the API server does not know it.
    UNAUTHENTICATED = "unauthenticated"
    #: The user may not read them.
    FORBIDDEN = "forbidden"
    #: Too many tokens that are not known yet.
    LIMITED = "limited"
    #: The API server could not be asked.
    UNANSWERED = "unanswered"


class AccessLimits(Struct, frozen=True, kw_only=True):
    """How long answers count, and how many questions are asked (times in seconds)."""

    allowed_for: float = 120.0
    denied_for: float = 10.0
    #: How long an old permission counts while the API server can't be asked: then metrics matter most.
    allowed_in_outage: float = 900.0
    #: Answers of each kind that are kept; the one used longest ago goes first.
    kept: int = 1000
    #: Questions at a time, and those that wait for their turn.
    at_once: int = 4
    waiting: int = 32
    #: For each address: tokens that are not known, at first, and then a second.
    burst: float = 10.0
    rate: float = 0.5
    #: Addresses that are remembered.
    addresses: int = 1000


class Reviewer(Protocol):
    """Says what a token allows."""

    async def review(self, token: str, path: ProtectedPath) -> AccessResult:
        """Allowed, unauthenticated, forbidden, or unanswered."""


#: The hash of a token, and what it is shown for: no token is kept.
_Key = tuple[bytes, ProtectedPath]


class _CachedResult(Struct, frozen=True):
    result: AccessResult
    #: When it was given, in seconds of the clock.
    at: float


class _Bucket(Struct):
    """Questions that one address has left."""

    left: float
    at: float


class Authorizer:
    """Decides who may read a protected path, with a cache of recent answers."""

    def __init__(
        self,
        reviewer: Reviewer,
        limits: AccessLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives seconds; only for tests."""
        self._reviewer = reviewer
        self._limits = limits or AccessLimits()
        self._clock = clock
        self._slots = asyncio.Semaphore(self._limits.at_once)
        #: Refusals take no place from permissions.
        self._allowed: OrderedDict[_Key, _CachedResult] = OrderedDict()
        self._denied: OrderedDict[_Key, _CachedResult] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[AccessResult]] = {}

    async def authorize(self, authorization: str | None, address: str, path: ProtectedPath) -> AccessResult:
        """What is answered to a request for ``path`` with this header from this address."""
        token = _token(authorization)
        if token is None:
            return AccessResult.UNAUTHENTICATED
        key = sha256(token.encode()).digest(), path
        kept = self._cached(key)
        if kept is not None:
            return kept
        asking = self._asking.get(key)
        if asking is None:
            # Who was allowed before is asked about again, however many others press.
            if key not in self._allowed and not self._admits(address):
                return AccessResult.LIMITED
            asking = self._asking[key] = asyncio.create_task(self._ask(key, token))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Gives up what is being asked."""
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _cached(self, key: _Key) -> AccessResult | None:
        now = self._clock()
        limits = self._limits
        for answers, seconds in ((self._allowed, limits.allowed_for), (self._denied, limits.denied_for)):
            kept = answers.get(key)
            if kept is not None and now < kept.at + seconds:
                answers.move_to_end(key)
                return kept.result
        return None

    def _admits(self, address: str) -> bool:
        """Whether one more unknown token of this address may be asked about."""
        if len(self._asking) >= self._limits.at_once + self._limits.waiting:
            return False
        now = self._clock()
        bucket = self._buckets.get(address) or _Bucket(self._limits.burst, now)
        bucket.left = min(self._limits.burst, bucket.left + (now - bucket.at) * self._limits.rate)
        bucket.at = now
        _put(self._buckets, address, bucket, self._limits.addresses)
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    async def _ask(self, key: _Key, token: str) -> AccessResult:
        try:
            async with self._slots:
                result = await self._reviewer.review(token, key[1])
        finally:
            del self._asking[key]
        return self._store(key, result)

    def _store(self, key: _Key, result: AccessResult) -> AccessResult:
        now, before = self._clock(), self._allowed.get(key)
        if result is AccessResult.UNANSWERED:
            counts = before is not None and now < before.at + self._limits.allowed_in_outage
            return AccessResult.ALLOWED if counts else result
        self._allowed.pop(key, None)
        self._denied.pop(key, None)
        answers = self._allowed if result is AccessResult.ALLOWED else self._denied
        _put(answers, key, _CachedResult(result, now), self._limits.kept)
        return result


class _User(Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_encode: Final = msgspec.json.Encoder().encode
_read_token: Final = msgspec.json.Decoder(_TokenReview).decode
read_access: Final = msgspec.json.Decoder(_AccessReview).decode


class ApiReviewer:
    """Asks the API server. Its trouble is logged when it begins, and when it is over."""

    def __init__(self, transport: Transport, say: Say) -> None:
        self._transport = transport
        self._say = say
        self._in_trouble = False

    async def review(self, token: str, path: ProtectedPath) -> AccessResult:
        """Allowed, unauthenticated, forbidden, or unanswered."""
        result = await self._review(token, path)
        if isinstance(result, ApiError):
            if not self._in_trouble:
                self._say("authorization of metrics failed", warning=True, error=result)
            self._in_trouble = True
            return AccessResult.UNANSWERED
        if self._in_trouble:
            self._say("authorization of metrics recovered")
        self._in_trouble = False
        return result

    async def _review(self, token: str, path: ProtectedPath) -> AccessResult | ApiError:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            answer = await self._post(_TOKEN_REVIEWS, body)
            if isinstance(answer, ApiError):
                return answer
            found = _read_token(answer).status
            if not found.authenticated or not found.user.username:
                return AccessResult.UNAUTHENTICATED
            answer = await self._post(_ACCESS_REVIEWS, _access(found.user, path))
            if isinstance(answer, ApiError):
                return answer
            return AccessResult.ALLOWED if read_access(answer).status.allowed else AccessResult.FORBIDDEN
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, str(error))

    async def _post(self, path: str, body: object) -> bytes | ApiError:
        # A review changes nothing, so it may be sent again where the server certainly did not see it.
        request = Request(
            method="POST", path=path, body=_encode(body), retry=Retry.UNSENT, within=_ANSWER_WITHIN
        )
        return await self._transport.send(request)


def _access(user: _User, path: ProtectedPath) -> object:
    """May this user get ``path``?"""
    spec: dict[str, object] = {
        "user": user.username,
        "nonResourceAttributes": {"path": path.value, "verb": "get"},
    }
    more = {"uid": user.uid, "groups": user.groups, "extra": user.extra}
    spec |= {key: value for key, value in more.items() if value}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _token(authorization: str | None) -> str | None:
    """The token of ``Bearer TOKEN``; None where there is none.

    Tokens are ASCII. Other bytes of a header come as characters that can't be encoded.
    """
    scheme, _, token = (authorization or "").partition(" ")
    return (token.strip() or None) if scheme.lower() == _BEARER and token.isascii() else None


def _put(cache: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
