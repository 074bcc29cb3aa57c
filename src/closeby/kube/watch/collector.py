"""Keeps Python's cyclic garbage collector out of the way of large lists.

Decoding tens of thousands of objects allocates much and leaves no cycles. The collector, which runs by the
number of allocations, would look at all of them again and again, and take longer than the decoding itself.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collections inside; may be nested. Nothing may be awaited inside."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle() -> None:
    """Spares later collections all objects there are now; for when the first lists are complete."""
    gc.collect()
    gc.freeze()
