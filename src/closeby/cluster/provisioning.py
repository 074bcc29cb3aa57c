"""For which nodes a volume of a class can be made as it is claimed."""

import numpy as np

from closeby.cluster.selecting import NodeReach
from closeby.cluster.storage import Storage
from closeby.objects.arrays import Bools
from closeby.objects.pods import NodeSelectorTerm, Requirement
from closeby.objects.selectors import LabelSelector


class Provisioning:
    """Answers by class and size, remembered until the class, its driver or the nodes change."""

    def __init__(self, places: NodeReach, storage: Storage) -> None:
        self._places = places
        self._storage = storage
        self._stamp: tuple[int, ...] = ()
        #: Class -> how often something changed on which all of its claims depend.
        self._epochs: dict[str, int] = {}
        self._made: dict[tuple[str, int, int], Bools] = {}

    def epoch(self, name: str) -> int:
        """Another number after each change of a class, its driver or what can be made of it."""
        return self._epochs.get(name, 0)

    def changed(self, name: str) -> None:
        """A class, its driver or what can be made of it has changed."""
        self._epochs[name] = self.epoch(name) + 1

    def where(self, name: str, size: int) -> Bools:
        """The slots for whose nodes a volume of a class can be made; shape (capacity,)."""
        stamp = self._places.current()
        if stamp != self._stamp:
            self._stamp = stamp
            self._made.clear()
        key = name, size, self.epoch(name)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._where(name, size)
        return found

    def _where(self, name: str, size: int) -> Bools:
        made, places = self._storage.classes.get(name), self._places
        everywhere = places.mask(None)
        if made is None or not made.provisions:
            return np.zeros_like(everywhere)
        mask = places.mask(made.topologies) if made.topologies else everywhere
        driver = self._storage.drivers.get(made.provisioner)
        if driver is None or not driver.storage_capacity:
            return mask
        enough = np.zeros_like(everywhere)
        for one in self._storage.capacities_of(name):
            if one.nodes is not None and one.largest is not None and one.largest >= size:
                enough |= selected(one.nodes, places)
        return np.logical_and(mask, enough)


def selected(selector: LabelSelector, places: NodeReach) -> Bools:
    """The slots whose nodes a selector selects; shape (capacity,)."""
    if selector.empty:
        return places.mask(None)
    found = tuple(Requirement(one.key, one.operator, one.values) for one in selector.requirements)
    return places.mask((NodeSelectorTerm(found),))
