"""Nodes that several documents describe: one in full, others with nothing but labels and annotations.

`closeby discover … -o labels` prints the latter, and they belong to the full Node of the same name.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition, Problem, invalid
from closeby.objects.words import names_text, plural
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.wire import object_id


def is_part(node: Node) -> bool:
    """Whether a Node document says nothing beyond labels and annotations: it has neither spec nor status."""
    return node == Node(name=node.name, labels=node.labels, annotations=node.annotations, uid=node.uid)


class _Part(Struct, frozen=True):
    """A document that has only labels and annotations of a node."""

    node: Node
    document: Document
    place: str


class _Said(Struct, frozen=True):
    """A value of a label or annotation, and where it was read."""

    value: str
    place: str


class NodeParts:
    """The documents with nothing but labels and annotations, by node."""

    def __init__(self) -> None:
        self._parts: dict[str, list[_Part]] = {}

    def add(self, document: Document, node: Node, place: str) -> None:
        """Keeps a part until all documents are read."""
        self._parts.setdefault(node.name, []).append(_Part(node, document, place))

    def merged(self, nodes: Iterable[tuple[Node, str]]) -> tuple[list[Node], list[Condition], list[Problem]]:
        """The nodes with what the parts add, each node given with its place.

        Values that contradict each other are problems, and the first one stands. Where there are full nodes,
        parts of no full node are left out: they are hosts that are no nodes, and would take pods.
        """
        given = list(nodes)
        full = [node.name for node, _ in given if not is_part(node)]
        alone = [node.name for node, _ in given if is_part(node)] if full else []
        left_out = frozenset(alone)
        problems: list[Problem] = []
        found = [
            self._merge(node, place, problems) if node.name in self._parts else node
            for node, place in given
            if node.name not in left_out
        ]
        return found, [self._alone(alone, full)] if alone else [], problems

    def _alone(self, alone: Sequence[str], full: Sequence[str]) -> Condition:
        first = alone[0]
        many = "" if len(alone) == 1 else f", as {plural(len(alone), 'Node')} have ({names_text(alone)})"
        message = (
            f"has labels only ({self._parts[first][0].place}){many}, and no Node of that name with a spec or "
            "a status is in the input; it is left out"
        )
        remedy = f"{_meant(first, full)}add what kubectl get nodes -o yaml prints of it, if it is a node"
        return invalid(f"Node/{first}", "", message, remedy)

    def _merge(self, node: Node, place: str, problems: list[Problem]) -> Node:
        labels = {key: _Said(value, place) for key, value in node.labels.items()}
        annotations = {key: _Said(value, place) for key, value in node.annotations.items()}
        for part in self._parts[node.name]:
            if part.place == place:
                continue
            _add(labels, part.node.labels, part, "labels", problems)
            _add(annotations, part.node.annotations, part, "annotations", problems)
        return replace(node, labels=_values(labels), annotations=_values(annotations))


def _meant(name: str, known: Iterable[str]) -> str:
    """The begin of a remedy: the node that is called so apart from its domain. Nodes are numbered, so those
    whose names are alike are mostly others.
    """
    host = name.partition(".")[0]
    same = next((one for one in known if one.partition(".")[0] == host), None)
    return "" if same is None else f"did you mean {same}? If not, "


def _add(
    known: dict[str, _Said], more: Mapping[str, str], part: _Part, field: str, problems: list[Problem]
) -> None:
    for key, value in more.items():
        before = known.setdefault(key, _Said(value, part.place))
        if before.value != value:
            error = FieldError(
                ("metadata", field, key),
                f"is {quoted(value)} here and {quoted(before.value)} in {before.place}",
                "keep one of the two",
            )
            problems.append(part.document.error(error, object_id("Node", "", part.node.name)))


def _values(known: Mapping[str, _Said]) -> dict[str, str]:
    return {key: said.value for key, said in known.items()}
