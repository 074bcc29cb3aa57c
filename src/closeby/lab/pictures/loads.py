"""How busy each domain of a fabric is, and which modelled flows cross its uplink, tenant by tenant.

Flows and uplinks are those of the measures (``closeby.quality.contention``): nothing of them is measured.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.scene import Scene
from closeby.quality.contention import uplink_uses, uplinks
from closeby.quality.model import DEFAULT_MODEL, Model
from closeby.quality.placements import placements
from closeby.quality.rings import rings
from closeby.topology.tree import ROOT_LEVEL

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Loads(Struct, frozen=True, kw_only=True, eq=False):
    """What tenants bring upon the domains of one level; shapes (R,), one row a tenant and domain it uses."""

    level: int
    tenants: Ints
    domains: Ints
    #: How much of the scene's resource the tenant holds there.
    held: Floats
    #: Modelled flows up from the domain.
    flows: Floats
    #: Full links that the uplink of each of the level's D domains is worth; shape (D,). That of the whole
    #: cluster, which no flow leaves, is nan.
    links: Floats


def loads_of(scene: Scene, levels: int, model: Model = DEFAULT_MODEL) -> tuple[Loads, ...]:
    """The loads of the whole cluster, then of the coarsest so many levels above single nodes."""
    found = placements(scene.tree, scene.offsets, scene.slots)
    uses = uplink_uses(found, rings(found), scene.links_of_pods)
    worth = uplinks(model, scene.tree, scene.links_of_nodes)
    loads = []
    for level in range(ROOT_LEVEL, levels):
        tenants, domains, held = _held(scene, level)
        flows = np.zeros(len(tenants))
        here = uses.level == level
        # A tenant that sends from a domain holds something there, and rows ascend by tenant and domain.
        count = np.intp(scene.tree.count(level))
        rows = np.searchsorted(tenants * count + domains, uses.job[here] * count + uses.domain[here])
        flows[rows] = uses.flows[here]
        loads.append(
            Loads(
                level=level,
                tenants=tenants,
                domains=domains,
                held=held,
                flows=flows,
                links=np.full(1, np.nan) if level == ROOT_LEVEL else worth[level],
            )
        )
    return tuple(loads)


def _held(scene: Scene, level: int) -> tuple[Ints, Ints, Floats]:
    """Tenants, domains, and what they hold there, ascending."""
    tree = scene.tree
    inside = scene.slots < len(tree.position_of)
    positions = np.full(len(scene.slots), tree.size, dtype=np.intp)
    positions[inside] = tree.position_of[scene.slots[inside]]
    known = positions < tree.size
    at = tree.domain_at[level] if level > ROOT_LEVEL else np.zeros(tree.size, dtype=np.intp)
    count = tree.count(level)
    keys = scene.tenant_of[known] * np.intp(count) + at[positions[known]]
    rows, row = np.unique(keys, return_inverse=True)
    held = np.bincount(row.reshape(-1), weights=scene.amounts[known], minlength=len(rows))
    return rows // count, rows % count, held.astype(np.float64)
