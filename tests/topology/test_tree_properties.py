"""What holds for every tree, whatever the labels and whatever the slots."""

from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.words import natural_key
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree
from tests.topology.drawing import Slots

KEYS = ("zone", "rack", "chassis")
VALUES = ("a", "b", "r2", "r10", "")

Labels = dict[str, str]


def labels_of_a_node() -> st.SearchStrategy[Labels]:
    return st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


def nodes() -> st.SearchStrategy[dict[str, Labels]]:
    names = st.integers(min_value=0, max_value=30).map(lambda number: f"n{number}")
    return st.dictionaries(names, labels_of_a_node(), max_size=12)


@st.composite
def slots_and_nodes(draw: st.DrawFn) -> tuple[Slots, dict[str, Labels]]:
    """Nodes in slots, some of which were taken by other nodes before, some of which are free."""
    slots = Slots(draw(nodes()))
    present = {name: dict(slots.labels.labels(slot)) for slot, name in enumerate(slots.names) if name}
    for name in draw(st.lists(st.sampled_from(sorted(present)), unique=True)) if present else []:
        slots.remove(name)
        del present[name]
    for name, labels in draw(nodes()).items():
        if name not in present:
            slots.add(name, labels)
            present[name] = labels
    return slots, present


def path_of(labels: Labels, name: str, depth: int) -> tuple[str, ...]:
    """The path down to a level; a node without the label is alone in a domain of its own there."""
    return tuple(labels.get(key) or f"private {name}" for key in KEYS[: depth + 1])


def domains(tree: Tree) -> list[Domain]:
    return [
        ROOT,
        *(Domain(level, at) for level in range(tree.node_level + 1) for at in range(tree.count(level))),
    ]


@given(slots_and_nodes())
def test_the_slice_of_a_domain_holds_exactly_the_nodes_of_its_path(
    drawn: tuple[Slots, dict[str, Labels]],
) -> None:
    slots, present = drawn
    tree = slots.tree(*KEYS)

    for level in range(len(KEYS)):
        expected: dict[tuple[str, ...], set[str]] = {}
        for name, labels in present.items():
            expected.setdefault(path_of(labels, name, level), set()).add(name)
        found = []
        for index in range(tree.count(level)):
            first, end = tree.span(Domain(level, index))
            found.append({slots.names[slot] for slot in tree.slot_at[first:end].tolist()})
        assert sorted(map(sorted, found)) == sorted(map(sorted, expected.values()))


@given(slots_and_nodes())
def test_every_slot_knows_its_domains_and_a_free_one_has_none(
    drawn: tuple[Slots, dict[str, Labels]],
) -> None:
    slots, present = drawn
    tree = slots.tree(*KEYS)
    free = [slot for slot, name in enumerate(slots.names) if name not in present]

    for domain in domains(tree):
        inside = tree.slots_in(domain)
        assert {slots.names[slot] for slot in inside.tolist()} <= present.keys()
        owners = tree.owners(tree.position_of[inside], domain.level)
        assert owners.tolist() == [domain.index] * len(inside)
        assert tree.owners_of_slots(inside, domain.level).tolist() == owners.tolist()
        assert tree.owners_of_slots(free, domain.level).tolist() == [-1] * len(free)


@given(slots_and_nodes())
def test_the_slots_of_several_domains_are_those_of_each(
    drawn: tuple[Slots, dict[str, Labels]],
) -> None:
    slots, _ = drawn
    tree = slots.tree(*KEYS)

    for level in range(tree.node_level + 1):
        every_second = np.arange(0, tree.count(level), 2)
        found, starts = tree.slots_of(level, every_second)
        for index, inside in zip(every_second.tolist(), np.split(found, starts[1:]), strict=False):
            assert inside.tolist() == tree.slots_in(Domain(level, index)).tolist()
        assert len(starts) == len(every_second)


@given(slots_and_nodes())
def test_positions_and_slots_are_inverse(drawn: tuple[Slots, dict[str, Labels]]) -> None:
    slots, present = drawn
    tree = slots.tree(*KEYS)

    assert {slots.names[slot] for slot in tree.slot_at.tolist()} == set(present)
    assert tree.position_of[tree.slot_at].tolist() == list(range(tree.size))
    empty = [slot for slot, name in enumerate(slots.names) if name is None]
    assert tree.position_of[empty].tolist() == [tree.size] * len(empty)


@given(slots_and_nodes())
def test_children_partition_their_parent(drawn: tuple[Slots, dict[str, Labels]]) -> None:
    tree = drawn[0].tree(*KEYS)

    for level in range(len(KEYS)):
        assert tree.bounds[level][0] == 0
        assert tree.bounds[level][-1] == tree.size
        assert (np.diff(tree.bounds[level]) > 0).all()
        for index in range(tree.count(level)):
            one = Domain(level, index)
            first, end = int(tree.children[level][index]), int(tree.children[level][index + 1])
            assert tree.within(one, level + 1) == (first, end)
            spans = [tree.span(Domain(level + 1, child)) for child in range(first, end)]
            assert spans[0][0] == tree.span(one)[0]
            assert spans[-1][1] == tree.span(one)[1]
            assert all(left[1] == right[0] for left, right in pairwise(spans))
            assert all(tree.ancestor(Domain(level + 1, child), level) == one for child in range(first, end))


@given(slots_and_nodes())
def test_domains_stand_in_natural_order_and_private_ones_last(drawn: tuple[Slots, dict[str, Labels]]) -> None:
    slots, present = drawn
    tree = slots.tree(*KEYS)

    def sort_key(name: str) -> tuple[object, ...]:
        values = [present[name].get(key) or None for key in KEYS]
        ranks = [(value is None, natural_key(value or name)) for value in values]
        return (*ranks, natural_key(name))

    listed = [slots.names[slot] for slot in tree.slot_at.tolist()]
    assert listed == sorted(present, key=sort_key)


@given(st.data())
def test_the_tree_does_not_depend_on_the_slots(data: st.DataObject) -> None:
    present = data.draw(nodes())
    shuffled = dict(data.draw(st.permutations(list(present.items()))))
    one, other = Slots(present), Slots(shuffled)
    first, second = one.tree(*KEYS), other.tree(*KEYS)

    assert [one.names[slot] for slot in first.slot_at] == [other.names[slot] for slot in second.slot_at]
    assert [list(values) for values in first.values] == [list(values) for values in second.values]
    assert [bounds.tolist() for bounds in first.bounds] == [bounds.tolist() for bounds in second.bounds]


@given(slots_and_nodes(), st.data())
def test_distance_is_a_metric(drawn: tuple[Slots, dict[str, Labels]], data: st.DataObject) -> None:
    tree = drawn[0].tree(*KEYS)
    any_domain = st.sampled_from(domains(tree))
    one, two, three = data.draw(any_domain), data.draw(any_domain), data.draw(any_domain)

    assert tree.distance(one, two) == tree.distance(two, one)
    assert (tree.distance(one, two) == 0) == (one == two)
    assert tree.distance(one, three) <= tree.distance(one, two) + tree.distance(two, three)


@given(slots_and_nodes(), st.data())
def test_distances_to_all_nodes_agree_with_single_distances(
    drawn: tuple[Slots, dict[str, Labels]], data: st.DataObject
) -> None:
    tree = drawn[0].tree(*KEYS)
    one = data.draw(st.sampled_from(domains(tree)))

    expected = [tree.distance(one, Domain(tree.node_level, at)) for at in range(tree.size)]
    assert tree.distances_from(one).tolist() == expected


@given(slots_and_nodes(), st.data())
def test_the_tightest_domain_holds_all_and_no_labelled_domain_below_does(
    drawn: tuple[Slots, dict[str, Labels]], data: st.DataObject
) -> None:
    tree = drawn[0].tree(*KEYS)
    if not tree.size:
        return
    every = st.integers(min_value=0, max_value=tree.size - 1)
    positions = np.array(data.draw(st.lists(every, min_size=1, unique=True)))

    def holds_all(at: Domain) -> bool:
        first, end = tree.span(at)
        return bool(((first <= positions) & (positions < end)).all())

    tightest = tree.tightest(positions)
    holding = [
        at for at in domains(tree) if at.level < tree.node_level and tree.is_labelled(at) and holds_all(at)
    ]
    assert tightest in holding
    assert tightest.level == max(at.level for at in holding)


@given(slots_and_nodes())
def test_a_domain_is_labelled_exactly_where_its_path_ends_in_a_value(
    drawn: tuple[Slots, dict[str, Labels]],
) -> None:
    tree = drawn[0].tree(*KEYS)

    for at in domains(tree):
        if at.level not in (ROOT_LEVEL, tree.node_level):
            assert tree.is_labelled(at) == (tree.path(at)[-1] is not None)
            assert tree.path(at)[-1] != ""


@given(slots_and_nodes(), st.randoms(use_true_random=False))
def test_sums_by_domain_are_those_of_its_nodes_or_of_its_children(
    drawn: tuple[Slots, dict[str, Labels]], rng: Random
) -> None:
    slots, _ = drawn
    tree = slots.tree(*KEYS)
    each = np.asarray([[rng.randint(-5, 5) for _ in range(tree.size)] for _ in range(2)], dtype=np.int64)

    for level in range(ROOT_LEVEL, tree.node_level + 1):
        spans = [tree.span(Domain(level, index)) for index in range(tree.count(level))]
        sums = tree.sums(level, each)
        assert sums.tolist() == [[sum(row[first:end]) for first, end in spans] for row in each.tolist()]
        for finer in range(level, tree.node_level + 1):
            assert tree.sums(level, tree.sums(finer, each), of=finer).tolist() == sums.tolist()
