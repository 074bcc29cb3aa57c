from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.scheduling.plugin_view import NodeChanges, NodeColumn, Nodes


def coloured(name: str, colour: str) -> Node:
    return Node(name=name, annotations={"colour": colour})


def colours(cluster: Cluster) -> NodeColumn[str]:
    return NodeColumn(cluster, lambda node: node.annotations["colour"])


def test_changes_are_reported_once() -> None:
    cluster = Cluster()
    changes = NodeChanges(cluster)
    assert changes.take() is None
    cluster.add_node(coloured("a", "red"))
    cluster.add_node(coloured("b", "red"))
    first = changes.take()
    assert first is not None
    assert first.tolist() == [0, 1]
    second = changes.take()
    assert second is not None
    assert second.tolist() == []


def test_a_question_is_asked_once_per_distinct_value() -> None:
    cluster = Cluster()
    for number in range(100):
        cluster.add_node(coloured(f"n{number}", "red" if number % 2 else "blue"))
    asked: list[str] = []
    column = colours(cluster)

    def is_red(colour: str) -> bool:
        asked.append(colour)
        return colour == "red"

    flags = column.flags(Nodes(cluster), is_red)
    assert flags.sum() == 50
    assert sorted(asked) == ["blue", "red"]


def test_the_column_grows_with_the_cluster() -> None:
    cluster = Cluster()
    column = colours(cluster)
    for number in range(200):
        cluster.add_node(coloured(f"n{number}", "red"))
        assert column.codes(Nodes(cluster)).tolist() == [1] * (number + 1)


def test_values_out_of_use_do_not_pile_up() -> None:
    cluster = Cluster()
    column = colours(cluster)
    for number in range(1000):
        cluster.add_node(coloured("n", f"shade {number}"))
        assert f"shade {number}" in column.values
    assert len(column.values) < 100


STEPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["red", "green", "blue", None])), max_size=30
)


@given(STEPS)
def test_the_column_follows_whatever_happens_to_the_nodes(steps: list[tuple[str, str | None]]) -> None:
    cluster = Cluster()
    column = colours(cluster)
    now: dict[str, str] = {}
    for name, colour in steps:
        if colour is not None:
            cluster.add_node(coloured(name, colour))
            now[name] = colour
        elif name in now:
            cluster.remove_node(name)
            del now[name]
        figures = column.figures(Nodes(cluster), len)
        expected = [0 if known is None else len(now[known]) for known in cluster.names]
        assert figures.tolist() == expected
        flags = column.flags(Nodes(cluster), lambda colour: colour == "red").tolist()
        found = {known for known, flag in zip(cluster.names, flags, strict=True) if flag}
        assert found - {None} == {known for known, colour in now.items() if colour == "red"}
