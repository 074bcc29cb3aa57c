"""How busy each domain of a fabric is, and how much of its traffic leaves it, tenant by tenant.

Traffic is a model and nothing measured: the pods of a gang talk in a ring in the order of their ranks, each
GPU to the same GPU of the next pod, as rings of collective libraries do that have one network card a GPU. A
flow leaves a domain where the next pod lies outside; as many come in.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.report.pictures.scene import Scene

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Loads(Struct, frozen=True, kw_only=True, eq=False):
    """What tenants bring upon the domains of one level; shapes (R,), one row a tenant and domain it uses."""

    level: int
    tenants: Ints
    domains: Ints
    #: How much of the scene's resource the tenant holds there.
    held: Floats
    #: Modelled flows out of the domain.
    flows: Floats


def loads_of(scene: Scene, level: int) -> Loads:
    """The loads at a level above single nodes; -1 is the whole cluster, which no flow leaves."""
    tree = scene.tree
    positions = tree.position_of[scene.slots]
    known = positions < tree.size
    tenants = scene.tenant_of[known]
    at = tree.domain_at[level] if level >= 0 else np.zeros(tree.size, dtype=np.intp)
    owners = at[positions[known]]
    amounts = scene.amounts[known]
    leaving = owners != owners[_next_in_ring(tenants)]
    # Where the resource is not counted in GPUs, each pod has one flow.
    flows = np.where(leaving, np.maximum(amounts, 1.0) if scene.whole else 1.0, 0.0)
    count = tree.count(level)
    keys, row = np.unique(tenants * np.intp(count) + owners, return_inverse=True)
    return Loads(
        level=level,
        tenants=keys // count,
        domains=keys % count,
        held=_sums(row, amounts, len(keys)),
        flows=_sums(row, flows, len(keys)),
    )


def _sums(rows: NDArray[np.intp], values: Floats, count: int) -> Floats:
    return np.bincount(rows.reshape(-1), weights=values, minlength=count).astype(np.float64)


def _next_in_ring(tenants: Ints) -> Ints:
    """Index of the pod with the next rank; the last one's is the first."""
    following = np.arange(1, len(tenants) + 1)
    first = np.flatnonzero(np.diff(tenants, prepend=-1))
    last = np.append(first[1:], len(tenants)) - 1
    following[last[: len(first)]] = first
    return following
