"""Topograph's files: the JSON of its graph engine, and the YAML models of its simulators."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from closeby.discovery.assembling import assemble, has_domains
from closeby.discovery.findings import ScanFindings
from closeby.discovery.hostlists import Room, expand
from closeby.discovery.labelling import Place
from closeby.discovery.places import Collected
from closeby.discovery.slurm_trees import MOST_LEVELS, Switch, some_node, tree_places
from closeby.discovery.unreadable import (
    MOST_YAML_BYTES,
    kind,
    mappings,
    read_json,
    read_yaml,
    shown,
    text_of,
)
from closeby.errors import HostlistError, UnreadableError
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.yaml_values import YamlDocument

DOMAIN_KEY: Final = "accelerator.topograph.run/domain"
SUB_DOMAIN_KEY: Final = "accelerator.topograph.run/sub-domain"
_MODEL_DOMAIN: Final = "accelerator.topology.test/domain"
_MODEL_SUB_DOMAIN: Final = "accelerator.topology.test/sub-domain"
_JSON_START: Final = re.compile(r"\s*[{\[]")


def read_topograph(
    file: str, text: str, keys: Sequence[str] | None = None, names: Mapping[str, str] | None = None
) -> ScanFindings:
    """What a file of Topograph says: JSON of instances, or a YAML model.

    ``names`` are the nodes' names by instance; the identifiers themselves without it.

    Raises:
        UnreadableError: it can't be read, or makes no sense.
    """
    if _JSON_START.match(text):
        return _read_graph(file, read_json(file, text), keys, names)
    if len(text) > MOST_YAML_BYTES:
        message = f"is longer than {MOST_YAML_BYTES >> 20} MiB"
        raise UnreadableError(file, message, "check that it is the right file")
    return _Model(file, read_yaml(file, text)).findings(keys, names)


def topograph_text(findings: ScanFindings) -> str:
    """Findings as the graph engine of Topograph prints them; an unknown level is empty text."""
    with_domains = has_domains(findings)
    instances = []
    for name in sorted(findings.nodes):
        node = findings.nodes[name]
        labels = {key: value for key, value in node.labels.items() if key == SUB_DOMAIN_KEY}
        if with_domains and node.path and node.path[0] is not None:
            labels[DOMAIN_KEY] = node.path[0]
        layers = [switch or "" for switch in (node.path[1:] if with_domains else node.path)]
        instance: dict[str, object] = {"id": name, "network_layers": layers}
        instances.append({**instance, "labels": labels} if labels else instance)
    return msgspec.json.format(msgspec.json.encode({"instances": instances}), indent=2).decode() + "\n"


def _read_graph(
    file: str, value: object, keys: Sequence[str] | None, names: Mapping[str, str] | None
) -> ScanFindings:
    if not isinstance(value, dict) or "instances" not in value:
        raise UnreadableError(
            file,
            "has no instances",
            'it must be JSON like {"instances": [{"id": "i-1", "network_layers": []}]}',
        )
    collected = Collected(names)
    for path, entry in mappings(file, value["instances"], ("instances",)):
        identifier = text_of(file, entry, "id", path)
        if identifier is None:
            raise UnreadableError(
                file, "is missing", "give the instance an id", field=field_path((*path, "id"))
            )
        layers = entry.get("network_layers")
        place = _layers(file, layers, (*path, "network_layers"))
        labels = entry.get("labels")
        if labels is not None and not isinstance(labels, dict):
            message = f"must be a mapping, but is {kind(labels)}"
            raise UnreadableError(file, message, field=field_path((*path, "labels")))
        domain = text_of(file, labels or {}, DOMAIN_KEY, (*path, "labels"))
        sub = text_of(file, labels or {}, SUB_DOMAIN_KEY, (*path, "labels"))
        more = {SUB_DOMAIN_KEY: sub} if sub is not None and domain is not None else {}
        collected.add(identifier, place, domain, more)
    return collected.findings(file, keys, from_above=True)


def _layers(file: str, value: object, path: Path) -> Place:
    layers = [] if value is None else value
    if not isinstance(layers, list) or not all(one is None or isinstance(one, str) for one in layers):
        raise UnreadableError(file, "must be a list of names, closest first", field=field_path(path))
    if len(layers) > MOST_LEVELS:
        raise UnreadableError(file, f"has more than {MOST_LEVELS} layers", field=field_path(path))
    return tuple(one or None for one in layers)


class _Model:
    """A model: ``switches`` by name with their children, and ``blocks`` of nodes that hang on a switch."""

    def __init__(self, file: str, content: YamlDocument) -> None:
        self._file = file
        self._content = content
        self._room = Room()
        if not isinstance(content.value, dict) or not set(content.value) & {"switches", "blocks"}:
            raise self._fail((), "is not a model", "a model has switches and blocks")
        self._model: Mapping[str, object] = content.value
        self._children: dict[str, tuple[str, ...]] = {}
        self._annotations: dict[str, Mapping[str, str]] = {}
        self._parents: dict[str, str] = {}

    def findings(self, keys: Sequence[str] | None, names: Mapping[str, str] | None) -> ScanFindings:
        """What it says; a node is called as in the model, or as ``names`` says for ``i-<that>`` or that."""
        self._read_switches()
        block_of: dict[str, Mapping[str, str]] = {}
        nodes_of: dict[str, list[str]] = {}
        nowhere: list[str] = []
        blocks = self._model.get("blocks")
        for path, entry in self._list(("blocks",), [] if blocks is None else blocks):
            switch = entry.get("switch")
            if (
                switch is not None
                and switch != ""
                and (not isinstance(switch, str) or switch not in self._children)
            ):
                raise self._fail(
                    (*path, "switch"), f"{shown(str(switch))} is not a switch of the model", "add it"
                )
            nodes = self._names((*path, "nodes"), entry.get("nodes"))
            if not nodes:
                raise self._fail(path, "has no nodes", "give the block its nodes")
            annotations = {**self._inherited(switch), **self._texts(path, entry, "annotations")}
            for node in nodes:
                if node in block_of:
                    raise self._fail((*path, "nodes"), f"node {node} is in two blocks", "keep it in one")
                block_of[node] = annotations
            (nodes_of.setdefault(switch, []) if isinstance(switch, str) and switch else nowhere).extend(nodes)
        switches = [
            Switch(name=name, switches=below, nodes=tuple(nodes_of.get(name, ())))
            for name, below in self._children.items()
        ]
        places, warnings = tree_places(self._file, switches)
        some_node(self._file, block_of)
        called = {node: _called(node, names) for node in block_of}
        return assemble(
            {called[node]: places.get(node, ()) for node in block_of},
            keys,
            domains={
                called[node]: one[_MODEL_DOMAIN] for node, one in block_of.items() if one.get(_MODEL_DOMAIN)
            },
            labels={
                called[node]: {SUB_DOMAIN_KEY: one[_MODEL_SUB_DOMAIN]}
                for node, one in block_of.items()
                if one.get(_MODEL_DOMAIN) and one.get(_MODEL_SUB_DOMAIN)
            },
            warnings=warnings,
        )

    def _read_switches(self) -> None:
        switches = self._model.get("switches")
        if switches is None:
            return
        if not isinstance(switches, dict):
            raise self._fail(("switches",), f"must be a mapping, but is {kind(switches)}", "name each switch")
        for name, entry in switches.items():
            path: Path = ("switches", name)
            if not isinstance(entry, dict):
                raise self._fail(path, f"must be a mapping, but is {kind(entry)}")
            children = entry.get("switches")
            if children is not None and not isinstance(children, list):
                raise self._fail((*path, "switches"), "must be a list of names")
            if not all(isinstance(child, str) for child in children or ()):
                raise self._fail((*path, "switches"), "must be a list of names")
            self._children[name] = tuple(dict.fromkeys(children or ()))
            self._annotations[name] = self._texts(path, entry, "annotations")
            for child in self._children[name]:
                if self._parents.setdefault(child, name) != name:
                    message = f"switch {child} has two parents, {self._parents[child]} and {name}"
                    raise self._fail((*path, "switches"), message, "keep one of the two")
        for child in self._parents:
            # Leaves need no entry of their own.
            self._children.setdefault(child, ())

    def _inherited(self, switch: object) -> dict[str, str]:
        """Annotations of the switches above, the closest one's winning."""
        chain: list[str] = []
        while isinstance(switch, str) and switch and switch not in chain and len(chain) <= MOST_LEVELS:
            chain.append(switch)
            switch = self._parents.get(switch)
        found: dict[str, str] = {}
        for name in reversed(chain):
            found.update(self._annotations.get(name, {}))
        return found

    def _list(self, path: Path, value: object) -> list[tuple[Path, Mapping[str, object]]]:
        if not isinstance(value, list):
            raise self._fail(path, f"must be a list, but is {kind(value)}")
        found: list[tuple[Path, Mapping[str, object]]] = []
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self._fail((*path, index), f"must be a mapping, but is {kind(entry)}")
            found.append(((*path, index), entry))
        return found

    def _names(self, path: Path, value: object) -> list[str]:
        if value is not None and not isinstance(value, list):
            raise self._fail(path, f"must be a list, but is {kind(value)}")
        found: list[str] = []
        for text in value or ():
            if not isinstance(text, str | int) or isinstance(text, bool):
                raise self._fail(path, f"must be names, but one is {kind(text)}")
            try:
                found += expand(str(text), self._room)
            except HostlistError as error:
                raise self._fail(path, f"{shown(str(text))} {error}", "write it like n[1-8]") from error
        return found

    def _texts(self, path: Path, entry: Mapping[str, object], key: str) -> Mapping[str, str]:
        value = entry.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise self._fail((*path, key), "must map names to texts", "put the texts in quotes")
        return value

    def _fail(self, path: Path, message: str, remedy: str = "") -> UnreadableError:
        line = self._content.line(path)
        return UnreadableError(self._file, message, remedy, line=line, field=field_path(path))


def _called(node: str, names: Mapping[str, str] | None) -> str:
    """Topograph's simulators call the instance of node ``n`` ``i-n``."""
    return node if names is None else names.get(f"i-{node}", names.get(node, node))
