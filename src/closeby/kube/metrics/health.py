"""Whether this process does its work, as named checks that probes ask for, and whether it may do it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from closeby.kube.client.errors import UNREADABLE_ERRORS, ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.metrics.access import read_access
from closeby.objects.process import Say

#: Says what is wrong, in a few words; None when all is well.
Check = Callable[[], str | None]


class HealthVerdict(Struct, frozen=True):
    """What became of one endpoint's checks: by name what is wrong, None for those that passed."""

    found: Mapping[str, str | None]
    #: Checks that the request left out, and names it wanted to leave out that no check has.
    excluded: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.found.values())

    def text(self, endpoint: str) -> str:
        """One line a check, as kube-apiserver and kube-scheduler write them, but with the reasons."""
        lines = [
            f"[+]{name} ok" if why is None else f"[-]{name} failed: {why}" for name, why in self.found.items()
        ]
        lines += [f"[+]{name} excluded: ok" for name in self.excluded]
        if self.unknown:
            lines.append(
                f"warn: some health checks cannot be excluded: no matches for {', '.join(self.unknown)}"
            )
        lines.append(f"{endpoint} check {'passed' if self.ok else 'failed'}")
        return "\n".join(lines) + "\n"


class Health:
    """The checks of one process, by what they mean.

    ``/livez`` and ``/healthz`` ask whether it must be restarted, ``/readyz`` whether it does its work by
    now. That an answer comes at all is a check too: decisions are made in the same event loop.
    """

    #: The check that always passes, so that an endpoint without others has one.
    PING: Final = "ping"

    def __init__(self) -> None:
        self._alive: dict[str, Check] = {self.PING: lambda: None}
        self._ready: dict[str, Check] = {}

    def alive(self, name: str, check: Check) -> None:
        """What a restart would cure; a process that is not alive is not ready either."""
        self._alive[name] = check

    def ready(self, name: str, check: Check) -> None:
        """What passes by itself, such as lists that are not complete yet."""
        self._ready[name] = check

    def checks(self, *, ready: bool) -> Mapping[str, Check]:
        """Those of ``/readyz``, or of ``/livez``."""
        return {**self._alive, **self._ready} if ready else self._alive

    def verdict(self, *, ready: bool, exclude: Collection[str] = ()) -> HealthVerdict:
        """Asks all checks of an endpoint now."""
        checks = self.checks(ready=ready)
        return HealthVerdict(
            found={name: check() for name, check in checks.items() if name not in exclude},
            excluded=tuple(name for name in checks if name in exclude),
            unknown=tuple(name for name in exclude if name not in checks),
        )


class Right(Struct, frozen=True, omit_defaults=True):
    """One thing that a process must be allowed to do; the attributes of a SelfSubjectAccessReview."""

    verb: str
    resource: str
    group: str = ""
    subresource: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    name: str | UnsetType = UNSET

    def __str__(self) -> str:
        """As a role would name it, such as ``patch podgroups.closeby.dev/status``."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}" + (f"/{self.subresource}" if self.subresource else "")


def seeing(*kinds: tuple[str, str]) -> tuple[Right, ...]:
    """The rights to follow kinds (group, plural)."""
    return tuple(Right(verb, plural, group) for group, plural in kinds for verb in ("list", "watch"))


_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_UNAUTHORIZED: Final = 401
#: Seconds between two looks at what this process may do.
_LOOK_EVERY: Final = 10.0
#: The same once nothing lacks.
_LOOK_AGAIN: Final = 30.0


class Rights:
    """Whether a process may do what it needs, as the API server says; where it does not say, it may."""

    def __init__(self, transport: Transport, needed: Iterable[Right], say: Say) -> None:
        self._transport = transport
        self._needed = tuple(needed)
        self._say = say
        #: What it may not do, in words; None while that is nothing, or not known.
        self.lacking: str | None = None
        #: Set once nothing was lacking.
        self.complete = asyncio.Event()

    async def run(self) -> None:
        """Asks now and then, until it is cancelled."""
        while True:
            lacks = await asyncio.gather(*map(self._lack, self._needed))
            lacking = ", ".join(dict.fromkeys(filter(None, lacks))) or None
            if lacking != self.lacking:
                message = "rights lacking" if lacking else "rights complete"
                self._say(message, warning=lacking is not None, why=lacking)
                self.lacking = lacking
            if lacking is None:
                self.complete.set()
            await asyncio.sleep(_LOOK_EVERY if lacking else _LOOK_AGAIN)

    async def _lack(self, right: Right) -> str:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = msgspec.json.encode({**review, "spec": {"resourceAttributes": right}})
        answer = await self._transport.send(Request(method="POST", path=_REVIEWS, body=body))
        if isinstance(answer, ApiError):
            return f"the API server refuses its credentials: {answer}" if answer.code == _UNAUTHORIZED else ""
        try:
            return "" if read_access(answer).status.allowed else f"may not {right}"
        except UNREADABLE_ERRORS:
            return ""
