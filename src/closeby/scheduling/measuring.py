"""What plugins decide by besides the cluster's objects: somebody measures it, and it changes by itself.

It is read at the edge, off the event loop, and comes into the engine as an event; a plugin that takes part
never asks anybody itself. Whoever reads also watches the age: what is too old is taken away from the plugin.
"""

from collections.abc import Callable

from msgspec import Struct

from closeby.scheduling.extension import Plugin


class Reading(Struct, frozen=True, kw_only=True, eq=False):
    """What a source gave; ``values`` mean something to the plugin alone."""

    values: object
    #: When it was measured, seconds since the epoch; None when the source does not say.
    measured: float | None = None
    #: The source answers, but knows of nothing.
    empty: bool = False


class Source(Struct, frozen=True, kw_only=True, eq=False):
    """Where a plugin's measurements come from (times in seconds)."""

    #: For messages and metrics: an address without secrets, or a file's name.
    name: str
    #: The plugin's argument that names it.
    argument: str
    #: May block for as long as its own timeouts say. Returns a sentence when nothing can be read.
    read: Callable[[], Reading | str]
    #: Between two readings.
    every: float
    #: Measurements older than this are not used any more.
    max_age: float
    #: What the plugin does without measurements.
    fallback: str = ""
    #: What somebody should know about how it is read, such as that nobody checks who answers.
    warnings: tuple[str, ...] = ()


class Measurements(Struct, frozen=True, kw_only=True, eq=False):
    """What is known now."""

    #: None: nothing is known, or not any more.
    reading: Reading | None = None
    #: Seconds since it was measured, at the time this is told; None when that is not known.
    age: float | None = None
    #: Why there is nothing newer; empty while all is well.
    trouble: str = ""


class Measured(Plugin):
    """Decides by what somebody measures outside of the cluster's objects."""

    @property
    def source(self) -> Source | None:
        """Where to read; None when nothing is measured."""
        raise NotImplementedError

    def take(self, measurements: Measurements) -> bool:
        """From now on this is known. True when answers given before may be others now."""
        raise NotImplementedError

    @property
    def measured_nodes(self) -> int:
        """Nodes of which something is known."""
        raise NotImplementedError
