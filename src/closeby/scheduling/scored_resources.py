"""The resources by which a plugin scores: which are configured, and which of them count for a pod."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from closeby.objects.pods import Pod

#: Resources that score every pod; any other one scores only the pods that ask for it.
NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class ScoredResource(Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that counts in the score; ``weight`` is its share of the mean."""

    name: str
    weight: Annotated[int, Meta(ge=1, le=100)] = 1


def check_resources(resources: Sequence[ScoredResource]) -> None:
    """Raises ValueError unless there are some, each named once."""
    names = [resource.name for resource in resources]
    if not names or len(set(names)) < len(names):
        raise ValueError("resources must name at least one resource, and none twice")


class ScoredRequest(NamedTuple):
    """One resource of one pod's score."""

    row: int
    amount: int
    weight: int


def scored_requests(
    pod: Pod, weights: Iterable[tuple[str, int]], row_of: Mapping[str, int]
) -> tuple[ScoredRequest, ...]:
    """The resources of ``weights`` that count for this pod and that some node may offer."""
    requests = {**dict(pod.spec.requests), "pods": 1}
    return tuple(
        ScoredRequest(row_of[name], requests.get(name, 0), weight)
        for name, weight in weights
        if name in row_of and (requests.get(name, 0) or name in NATIVE)
    )
