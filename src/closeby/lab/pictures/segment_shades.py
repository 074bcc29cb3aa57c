"""The two shades of a gang's colour that tell its segments apart where they are beside each other."""

import numpy as np

from closeby.lab.pictures.gang_marks import is_dark, leaves_of
from closeby.lab.pictures.scene import Scene
from closeby.objects.arrays import Bools

#: How far the second shade of a dark colour is on the way to white, and that of a light one to black.
LIGHTER = 0.42
DARKER = 0.3


def second_shade(fill: str) -> str:
    """A lighter shade of a dark colour, or a darker one of a light colour, which must not look free."""
    end, share = (255, LIGHTER) if is_dark(fill) else (0, DARKER)
    parts = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * share):02X}" for part in parts)


def in_second_shade(scene: Scene) -> Bools:
    """Which pods are drawn in the second shade of their gang's colour; shape (P,).

    Segments take turns, and those that share a leaf differ as far as two shades allow.
    """
    second = np.zeros(len(scene.slots), dtype=np.bool_)
    if scene.segments is None:
        return second
    leaves = leaves_of(scene, scene.slots)
    indices = scene.segments.indices
    for first, end in zip(scene.offsets[:-1].tolist(), scene.offsets[1:].tolist(), strict=True):
        pods = first + np.argsort(indices[first:end], kind="stable")
        pods = pods[indices[pods] >= 0]
        begins = np.flatnonzero(np.diff(indices[pods])) + 1
        #: Segments in each leaf: of the first shade, and of the second.
        used: dict[int, list[int]] = {}
        for segment in np.split(pods, begins) if len(pods) else ():
            here = [used.setdefault(leaf, [0, 0]) for leaf in set(leaves[segment].tolist())]
            plain, other = (sum(one[shade] for one in here) for shade in (0, 1))
            shade = int(indices[segment[0]]) % 2 if plain == other else int(other < plain)
            for one in here:
                one[shade] += 1
            second[segment] = bool(shade)
    return second
