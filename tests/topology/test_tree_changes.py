"""A tree that follows nodes and labels equals the tree that is built from nothing."""

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.labels import LabelTable
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree, build_tree
from closeby.topology.tree_changes import WORTHWHILE, changed_tree
from tests.topology.drawing import Slots

KEYS = ("zone", "rack", "chassis")
VALUES = (None, "", "a", "b", "r2", "r10")


def assert_same(found: Tree, expected: Tree) -> None:
    """Every array and every value."""
    assert found.slot_at.tolist() == expected.slot_at.tolist()
    assert found.position_of.tolist() == expected.position_of.tolist()
    for one, other in (
        (found.bounds, expected.bounds),
        (found.domain_at, expected.domain_at),
        (found.children, expected.children),
        (found.labelled, expected.labelled),
    ):
        assert [array.tolist() for array in one] == [array.tolist() for array in other]
        assert [array.dtype for array in one] == [array.dtype for array in other]
    assert [list(values) for values in found.values] == [list(values) for values in expected.values]
    assert list(found.hosts) == list(expected.hosts)
    assert found.in_slot_order == expected.in_slot_order
    assert (found.name, found.levels, found.host_level) == (
        expected.name,
        expected.levels,
        expected.host_level,
    )


def drawn_labels(draw: Random, name: str) -> dict[str, str]:
    labels = {key: value for key in KEYS if (value := draw.choice(VALUES)) is not None}
    host = draw.choice((name, name, name, None, ""))
    return labels if host is None else {**labels, HOSTNAME: host}


def change(draw: Random, slots: Slots) -> None:
    """A node comes, leaves or changes its labels."""
    present = [name for name in slots.names if name is not None]
    kind = draw.random()
    if kind < 0.45 or not present:
        name = draw.choice([f"n{number}" for number in range(60) if f"n{number}" not in present])
        slots.add(name, drawn_labels(draw, name))
    elif kind < 0.75:
        slots.remove(draw.choice(present))
    else:
        name = draw.choice(present)
        slots.labels.set(slots.names.index(name), drawn_labels(draw, name))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("levels", [(), ("rack",), KEYS, (*KEYS, HOSTNAME), (HOSTNAME,)])
def test_random_changes(levels: tuple[str, ...], seed: int) -> None:
    draw = Random(seed)
    slots = Slots()
    for _ in range(draw.randint(0, 20)):
        change(draw, slots)
    declared = [TopologyLevel(level) for level in levels]

    def ignored() -> Mapping[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        there = [slot for slot, name in enumerate(slots.names) if name in ("n1", "n2", "n3")]
        return {"rack": np.asarray(there, dtype=np.intp)}

    tree = build_tree("drawn", declared, slots.labels, slots.names, ignored())
    cursor = slots.labels.cursor
    for step in range(12):
        for _ in range(draw.choice((0, 1, 1, 1, 2, 5, 15))):
            change(draw, slots)
        changed = slots.labels.changed_since(cursor)
        cursor = slots.labels.cursor
        assert changed is not None
        kept = {key: set(where.tolist()) for key, where in ignored().items()}
        tree = changed_tree(tree, slots.labels, slots.names, changed, kept)
        expected = build_tree("drawn", declared, slots.labels, slots.names, ignored())
        try:
            assert_same(tree, expected)
        except AssertionError as error:
            error.add_note(f"levels {levels}, seed {seed}, step {step}")
            raise


class TestRegistry:
    """Trees of a registry follow; the tree of before stays as it was."""

    COUNT = 3 * WORTHWHILE

    def registry(self) -> tuple[Topologies, Slots]:
        slots = Slots({f"n{at}": self.labels(at) for at in range(self.COUNT)})
        registry = Topologies(slots.labels, slots.names)
        registry.declare(
            Topology(name="fabric", levels=tuple(TopologyLevel(key) for key in ("zone", "rack")))
        )
        return registry, slots

    @staticmethod
    def labels(at: int) -> dict[str, str]:
        return {"zone": f"z{at // 20}", "rack": f"r{at // 4}"}

    @staticmethod
    def tree(registry: Topologies) -> Tree:
        tree = registry.tree("fabric")
        assert tree is not None
        return tree

    def fresh(self, slots: Slots, *keys: str) -> Tree:
        labels = LabelTable()
        for slot, name in enumerate(slots.names):
            if name is not None:
                labels.set(slot, slots.labels.labels(slot))
        name = "fabric" if keys else ""
        return build_tree(name, [TopologyLevel(key) for key in keys], labels, slots.names)

    def test_a_node_arrives_leaves_and_moves(self) -> None:
        registry, slots = self.registry()
        before, flat = self.tree(registry), registry.flat()
        kept = before.slot_at.tolist()
        slots.add("n10000", {"zone": "z1", "rack": "r6"})
        for _ in range(2):
            assert_same(self.tree(registry), self.fresh(slots, "zone", "rack"))
            assert_same(registry.flat(), self.fresh(slots))
            slots.labels.set(slots.names.index("n7"), {"zone": "z1", "rack": "r-new"})
        slots.remove("n3")
        slots.add("n3b", {"zone": "z2"})
        assert_same(self.tree(registry), self.fresh(slots, "zone", "rack"))
        assert_same(registry.flat(), self.fresh(slots))
        assert before.slot_at.tolist() == kept
        assert flat.size == self.COUNT

    def test_a_label_that_no_level_has_changes_no_tree(self) -> None:
        registry, slots = self.registry()
        before = self.tree(registry)
        slots.labels.column("colour")
        slots.labels.set(5, {**self.labels(5), "colour": "red"})
        assert self.tree(registry) is before

    def test_more_changes_than_are_remembered_build_the_tree_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("closeby.topology.labels.REMEMBERED_CHANGES", 4)
        registry, slots = self.registry()
        before = slots.labels.cursor
        self.tree(registry)
        for at in range(6):
            slots.labels.set(at, {"zone": "z9", "rack": "r9"})
        assert slots.labels.changed_since(before) is None
        assert_same(self.tree(registry), self.fresh(slots, "zone", "rack"))
