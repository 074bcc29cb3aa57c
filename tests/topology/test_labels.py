import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.words import natural_key
from closeby.topology.labels import MISSING, LabelTable


@pytest.mark.parametrize(
    "ordered",
    [
        ["rack-2", "rack-10"],
        ["a", "a1", "a1b", "ab", "b"],
        ["1", "2", "10", "a"],
        ["", "1"],
        ["rack-01", "rack-1", "rack-02", "rack-2"],
        ["1.2.3", "1.2.10", "1.10.1"],
    ],
)
def test_natural_order_reads_digits_as_numbers(ordered: list[str]) -> None:
    backwards = ordered[::-1]

    assert sorted(backwards, key=natural_key) == ordered


@given(st.text(), st.text())
def test_natural_order_tells_all_texts_apart(one: str, other: str) -> None:
    assert (natural_key(one) == natural_key(other)) == (one == other)


def test_natural_order_takes_endless_digits() -> None:
    assert sorted(["9" * 5000, "9"], key=natural_key) == ["9", "9" * 5000]


def test_columns_hold_the_values_of_all_slots() -> None:
    table = LabelTable()
    table.set(0, {"rack": "r1"})
    table.set(2, {"rack": "r2"})
    column = table.column("rack")
    table.set(5, {"rack": "r1", "zone": "a"})

    assert [column.values[code] for code in column.codes[:6]] == ["r1", None, "r2", None, None, "r1"]
    assert column.codes[1] == MISSING
    assert column.code("r1") == column.codes[0]
    assert column.code("never") is None
    assert [table.column("zone").values[code] for code in table.column("zone").codes[:6]] == [None] * 5 + [
        "a"
    ]


def test_a_cleared_slot_has_no_labels() -> None:
    table = LabelTable()
    table.set(0, {"rack": "r1"})
    column = table.column("rack")
    table.clear(0)

    assert column.codes[0] == MISSING
    assert table.labels(0) == {}


def test_ranks_are_places_in_natural_order() -> None:
    table = LabelTable()
    for slot, value in enumerate(["r10", "r2", "r1"]):
        table.set(slot, {"rack": value})
    column = table.column("rack")

    assert [column.ranks()[code] for code in column.codes] == [2, 1, 0]
    table.set(3, {"rack": "r3"})
    assert [column.ranks()[code] for code in column.codes[:4]] == [3, 1, 0, 2]


def test_a_predicate_is_asked_once_per_value() -> None:
    table = LabelTable()
    for slot, value in enumerate(["a", "b", "a"]):
        table.set(slot, {"disk": value})
    table.set(3, {})
    column = table.column("disk")
    asked: list[str | None] = []

    def is_a(value: str | None) -> bool:
        asked.append(value)
        return value == "a"

    assert column.matching(is_a)[column.codes[:4]].tolist() == [True, False, True, False]
    assert asked == [None, "a", "b"]


def test_the_version_grows_with_known_columns_only() -> None:
    table = LabelTable()
    table.set(0, {"rack": "r1", "disk": "ssd"})
    table.column("rack")
    version = table.version

    table.set(0, {"rack": "r1", "disk": "hdd"})
    assert table.version == version
    table.set(0, {"rack": "r2", "disk": "hdd"})
    assert table.version == version + 1
    table.set(1, {})
    assert table.version == version + 2
    table.set(1, {})
    assert table.version == version + 2


@pytest.mark.parametrize("most", [0, 99])
def test_labels_that_no_node_carries_share_one_column(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where not all of them are remembered."""
    monkeypatch.setattr("closeby.topology.labels.MOST_MISSED", most)
    table = LabelTable()
    table.set(0, {"rack": "r1"})
    column, version = table.column("zone"), table.version
    assert column is table.column("disk") and column.values == [None] and len(column.codes) == 1
    table.set(1, {"rack": "r1"})
    table.set(1, {"rack": "r1", "zone": "a"})
    table.set(1, {"rack": "r1", "zone": "a", "never": "1"})
    assert table.version == version + (2 if most else 3)
    assert [table.column("zone").values[code] for code in table.column("zone").codes[:2]] == [None, "a"]
    assert table.column("disk").codes[:2].tolist() == [MISSING, MISSING]


def test_the_vocabulary_of_a_churning_cluster_stays_small() -> None:
    table = LabelTable()
    table.set(0, {"kubernetes.io/hostname": "node-0"})
    for generation in range(20_000):
        table.column("kubernetes.io/hostname")
        table.clear(0)
        table.set(0, {"kubernetes.io/hostname": f"node-{generation}"})
    column = table.column("kubernetes.io/hostname")
    assert len(column.values) < 10_000
    assert column.values[column.codes[0]] == "node-19999"
