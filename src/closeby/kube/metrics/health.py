"""Whether this process does its work, as named checks that probes ask for."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct

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
