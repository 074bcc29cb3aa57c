"""The fewest of some things that are still enough."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def fewest(enough: Sequence[T], result: R, tried: Callable[[Sequence[T]], R | None]) -> tuple[list[T], R]:
    """Without those that may stay: one after another is left out, from the last on, where the rest is enough.

    ``tried`` says what comes of some of them, None if they are not enough; ``result`` is what came of all.
    Returns those of which none could stay, as far as it was tried, and what came of them.
    """
    left = list(enough)
    for one in reversed(enough):
        fewer = [other for other in left if other is not one]
        less = tried(fewer) if fewer else None
        if less is not None:
            left, result = fewer, less
    return left, result
