"""Leader election: of several replicas one leads, as long as it renews a Lease.

The record is client-go's (``k8s.io/client-go/tools/leaderelection``), so that tools show the leader. Clocks
of different machines are not compared: a candidate measures by its own how long the record has not changed.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from closeby.kube.client.errors import LATE, UNREADABLE, ApiError
from closeby.kube.client.transport import Request, Retry, Transport
from closeby.kube.metrics.health import Right
from closeby.kube.watch.resources import LEASES
from closeby.objects.quantities import utc

#: client-go lengthens each pause between attempts by up to this factor.
_JITTER: Final = 1.2
#: Attempts to hand the Lease over.
_RELEASES: Final = 3
_CONFLICT: Final = 409


class LeaseSettings(Struct, frozen=True, kw_only=True):
    """Which Lease, who is the candidate, and how fast a dead leader is replaced (seconds)."""

    namespace: str
    name: str
    #: Unique to this replica.
    identity: str
    #: Others wait so long after the last renewal they saw. The defaults are kube-scheduler's.
    duration: int = 15
    #: The leader gives up when it could not renew for so long; less than ``duration``.
    deadline: float = 10.0
    #: Between attempts.
    retry: float = 2.0

    def problem(self) -> str | None:
        """Why these times can't work together (client-go's rules); None when they can."""
        if self.duration <= self.deadline:
            return "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline"
        if self.deadline <= _JITTER * self.retry:
            return f"--leader-elect-renew-deadline must be longer than {_JITTER} times the retry period"
        return None

    @property
    def rights(self) -> tuple[Right, ...]:
        """What a candidate must be allowed to do."""
        kind, group = LEASES.plural, LEASES.group
        named = (Right(verb, kind, group, UNSET, self.namespace, self.name) for verb in ("get", "update"))
        return Right("create", kind, group, UNSET, self.namespace), *named


class LeaseStatus(Struct, frozen=True):
    """Who leads now, as far as this candidate knows."""

    leading: bool
    #: The leader's identity; empty when no replica leads.
    holder: str
    #: Why the Lease could not be read or written, if that is why we do not lead.
    error: ApiError | None = None


class _Spec(Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Struct, rename="camel"):
    #: Kept as it is, so that labels and annotations survive an update.
    metadata: dict[str, object]
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = LEASES.api_version
    kind: str = LEASES.kind


_read: Final = msgspec.json.Decoder(_Lease).decode
_encode: Final = msgspec.json.Encoder().encode


class Elector:
    """One candidate. ``wall`` is the clock whose times stand in the record; they are for people only."""

    def __init__(
        self,
        transport: Transport,
        settings: LeaseSettings,
        wall: Callable[[], float],
        chance: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._wall = wall
        self._chance = chance or random.Random()
        self._seen: _Spec | None = None
        self._seen_at = 0.0
        #: When the last renewal that succeeded was sent.
        self._renewed_at: float | None = None
        #: Why the attempts since then failed.
        self._trouble: ApiError | None = None

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment: no other candidate can have taken the Lease over yet."""
        renewed = self._renewed_at
        return renewed is not None and _now() < renewed + self._settings.duration

    async def standings(self) -> AsyncGenerator[LeaseStatus, None]:
        """Campaigns, leads, campaigns again, and tells each change; never ends by itself.

        Ask for the next one soon: the Lease is renewed while a caller waits for it. Close it (``aclosing``):
        a leader then hands the Lease over, and another candidate need not wait.
        """
        before: LeaseStatus | None = None
        try:
            while True:
                error = await self._attempt()
                standing = self._standing(error)
                if standing != before:
                    before = standing
                    yield standing
                await asyncio.sleep(self._pause())
        finally:
            await self.release()

    async def release(self) -> None:
        """Hands the Lease over if it is ours; a failure only means that others wait until it runs out."""
        renewed, self._renewed_at = self._renewed_at, None
        if renewed is None:
            return
        # A renewal that was cut off may have been carried out, or be carried out right now: it is read again.
        for _ in range(_RELEASES):
            body = await self._transport.send(
                self._request("GET", _path(self._settings, self._settings.name))
            )
            lease = body if isinstance(body, ApiError) else _lease(body)
            if isinstance(lease, ApiError) or lease.spec.holder_identity != self._settings.identity:
                return
            now = utc(self._wall(), "microseconds")
            answer = await self._put(
                _Lease(lease.metadata, _Spec("", 1, now, now, lease.spec.lease_transitions))
            )
            if not isinstance(answer, ApiError) or answer.code != _CONFLICT:
                return

    def _standing(self, error: ApiError | None) -> LeaseStatus:
        holder = (self._seen.holder_identity if self._seen else None) or ""
        if self._renewed_at is None:
            return LeaseStatus(False, "" if holder == self._settings.identity else holder, error)
        # A renewal that failed is not a loss yet.
        return LeaseStatus(True, self._settings.identity)

    def _pause(self) -> float:
        """Until the next attempt: the retry period, but never beyond the leader's own deadline."""
        pause = self._settings.retry * self._chance.uniform(1.0, _JITTER)
        if self._renewed_at is None:
            return pause
        return max(0.0, min(pause, self._renewed_at + self._settings.deadline - _now()))

    async def _attempt(self) -> ApiError | None:
        """Tries to acquire or to renew; the leader that could not for the deadline stops leading."""
        left = None if self._renewed_at is None else self._renewed_at + self._settings.deadline - _now()
        error: ApiError | None
        try:
            async with asyncio.timeout(left):
                error = self._trouble = await self._acquire_or_renew()
        except TimeoutError:
            error = self._trouble or ApiError(None, LATE, "the Lease could not be renewed in time")
        renewed = self._renewed_at
        if renewed is not None and _now() >= renewed + self._settings.deadline:
            self._renewed_at = None
        return error

    async def _acquire_or_renew(self) -> ApiError | None:
        started = _now()
        settings = self._settings
        body = await self._transport.send(self._request("GET", _path(settings, settings.name)))
        if isinstance(body, ApiError):
            if body.code != 404:
                return body
            return await self._write(started, None)
        lease = _lease(body)
        if isinstance(lease, ApiError):
            return lease
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, _now()
        holder = lease.spec.holder_identity
        if holder and holder != settings.identity:
            self._renewed_at = None
            if _now() < self._seen_at + (lease.spec.lease_duration_seconds or settings.duration):
                return None
        return await self._write(started, lease)

    async def _write(self, started: float, lease: _Lease | None) -> ApiError | None:
        """Makes the Lease ours; the server refuses if another client was faster."""
        settings = self._settings
        before = lease.spec if lease is not None else _Spec()
        now = utc(self._wall(), "microseconds")
        ours = before.holder_identity == settings.identity
        transitions = before.lease_transitions or 0
        spec = _Spec(
            settings.identity,
            settings.duration,
            before.acquire_time if ours else now,
            now,
            transitions if ours or lease is None else transitions + 1,
        )
        if lease is None:
            metadata: dict[str, object] = {"name": settings.name, "namespace": settings.namespace}
            request = self._request("POST", _path(settings), _Lease(metadata, spec))
            answer = await self._transport.send(request)
        else:
            answer = await self._put(_Lease(lease.metadata, spec))
        if isinstance(answer, ApiError):
            # Another client was faster; the next look says which.
            return None if answer.code == _CONFLICT else answer
        written = _lease(answer)
        if isinstance(written, ApiError):
            return written
        self._seen, self._seen_at = written.spec, _now()
        self._renewed_at = started
        return None

    async def _put(self, lease: _Lease) -> bytes | ApiError:
        return await self._transport.send(
            self._request("PUT", _path(self._settings, self._settings.name), lease)
        )

    def _request(self, method: str, path: str, lease: _Lease | None = None) -> Request:
        """Asked once: whether and when to ask again is the election's to say."""
        return Request(
            method=method,
            path=path,
            body=None if lease is None else _encode(lease),
            retry=Retry.NEVER,
            within=self._settings.deadline / 2,
        )


def _lease(body: bytes) -> _Lease | ApiError:
    try:
        return _read(body)
    except msgspec.DecodeError as error:
        return ApiError(None, UNREADABLE, f"the Lease can't be read: {error}")


def _path(settings: LeaseSettings, name: str = "") -> str:
    return LEASES.item(settings.namespace, name) if name else LEASES.collection(settings.namespace)


def _now() -> float:
    # Not the event loop's time: that may stand still while something takes long.
    return time.monotonic()
