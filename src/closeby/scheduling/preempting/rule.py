"""The arguments of preemption, and whose pods may be victims."""

from collections.abc import Collection, Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from closeby.objects.times import parse_duration
from closeby.scheduling.extension import PostFilter

#: Seconds in which ``maxEvictions`` counts.
DAY: Final = 86_400.0


class PreemptionRule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of ``DefaultPreemption``. Spans of time are written like ``30s`` or ``5m``."""

    #: ``observe`` says what would be evicted and evicts nothing.
    preemption: Literal["on", "observe", "off"] = "on"
    #: How long an item waits before it preempts.
    preemption_delay: str = "0"
    #: How long a pod runs before it may be a victim.
    min_runtime: str = "0"
    #: Pods of closeby's own, or those of all schedulers.
    victims: Literal["ours", "all"] = "ours"
    #: Evictions of one gang or owner within a day, after which it is protected from the same priority.
    max_evictions: Annotated[int, Meta(ge=1)] = 3
    #: Namespaces in which the annotation ``closeby.dev/preemptible: "false"`` counts. Unset: in files all,
    #: on a cluster none.
    protected_namespaces: tuple[str, ...] | None = None
    #: Upstream's; closeby looks at every candidate, so they change nothing.
    min_candidate_nodes_percentage: int = msgspec.field(name="minCandidateNodesPercentage", default=10)
    min_candidate_nodes_absolute: int = msgspec.field(name="minCandidateNodesAbsolute", default=100)

    def __post_init__(self) -> None:
        for name in ("preemption_delay", "min_runtime"):
            if parse_duration(getattr(self, name)) is None:
                known = {"preemption_delay": "preemptionDelay", "min_runtime": "minRuntime"}[name]
                raise ValueError(f"{known}: {getattr(self, name)!r} is not a span of time such as 30s or 5m")

    @property
    def delay(self) -> float:
        """``preemptionDelay`` in seconds."""
        return parse_duration(self.preemption_delay) or 0.0

    @property
    def runtime(self) -> float:
        """``minRuntime`` in seconds."""
        return parse_duration(self.min_runtime) or 0.0


class Preempts(PostFilter):
    """A PostFilter plugin by whose rule the engine clears domains."""

    @property
    def rule(self) -> PreemptionRule:
        """The arguments."""
        raise NotImplementedError


def rule_of(plugins: Iterable[PostFilter]) -> PreemptionRule | None:
    """The rule of the first plugin that has one."""
    return next((plugin.rule for plugin in plugins if isinstance(plugin, Preempts)), None)


class Preemptible(Struct, frozen=True, kw_only=True):
    """Given to an engine that may preempt: whose pods it may evict."""

    #: Pods of this scheduler are ours; None: all are.
    scheduler_name: str | None = None
    #: Namespaces whose pods may protect themselves by annotation, unless the rule names some; None: all.
    namespaces: Collection[str] | None = None
