"""When Python's cyclic garbage collector runs: not while many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """The collector does not run inside. May be nested; nothing may be awaited inside.

    Decoding tens of thousands of objects allocates much and leaves no cycles. The collector, which runs by
    the number of allocations, would look at all of them again and again, and take longer than the decoding.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def spare() -> None:
    """Spares later collections all objects there are now, without a look at them.

    For while the first lists come: most of what comes stays.
    """
    gc.freeze()


def settle() -> None:
    """The same after a last look, for when the first lists are complete."""
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Collects what was spared and is needed no more; to be called before all is listed once more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
