"""Topograph's files: the JSON of its graph engine, and the YAML models of its simulators."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from closeby.discovery.assembling import assemble, has_domains
from closeby.discovery.findings import ScanFindings
from closeby.discovery.hostlists import ExpansionLimit, expand
from closeby.discovery.places import Collected
from closeby.discovery.slurm_trees import MOST_LEVELS, Switch, some_node, tree_places
from closeby.discovery.source_files import (
    MOST_YAML_BYTES,
    decode,
    read_json,
    read_yaml,
    shown,
)
from closeby.errors import HostlistError, UnreadableError
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.yaml_values import YamlDocument
from closeby.topology.families import TOPOGRAPH_DOMAIN

SUB_DOMAIN_KEY: Final = "accelerator.topograph.run/sub-domain"
_MODEL_DOMAIN: Final = "accelerator.topology.test/domain"
_MODEL_SUB_DOMAIN: Final = "accelerator.topology.test/sub-domain"
_JSON_START: Final = re.compile(r"\s*[{\[]")


class _Labels(Struct):
    domain: str | None = field(name=TOPOGRAPH_DOMAIN, default=None)
    sub_domain: str | None = field(name=SUB_DOMAIN_KEY, default=None)


class _Instance(Struct):
    id: str
    network_layers: list[str | None] | None = None
    labels: _Labels | None = None


class _SwitchEntry(Struct):
    switches: list[str] | None = None
    annotations: dict[str, str] | None = None


class _BlockEntry(Struct):
    """Nodes that hang on a switch, if on any."""

    switch: str | None = None
    nodes: list[str | int] | None = None
    annotations: dict[str, str] | None = None


class _ModelFile(Struct):
    """``switches`` by name with their children, and ``blocks``."""

    switches: dict[str, _SwitchEntry] | None = None
    blocks: list[_BlockEntry] | None = None


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
            labels[TOPOGRAPH_DOMAIN] = node.path[0]
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
    for index, one in enumerate(decode(file, value["instances"], list[_Instance], ("instances",))):
        path: Path = ("instances", index)
        if not one.id:
            at = field_path((*path, "id"))
            raise UnreadableError(file, "is empty", "give the instance an id", field=at)
        layers = one.network_layers or []
        if len(layers) > MOST_LEVELS:
            at = field_path((*path, "network_layers"))
            raise UnreadableError(file, f"has more than {MOST_LEVELS} layers", field=at)
        labels = one.labels or _Labels()
        domain, sub = labels.domain or None, labels.sub_domain or None
        more = {SUB_DOMAIN_KEY: sub} if sub is not None and domain is not None else {}
        collected.add(one.id, tuple(layer or None for layer in layers), domain, more)
    return collected.findings(file, keys, from_above=True)


class _Model:
    """A model, of which the switches are a tree."""

    def __init__(self, file: str, content: YamlDocument) -> None:
        self._file = file
        self._content = content
        self._room = ExpansionLimit()
        if not isinstance(content.value, dict) or not set(content.value) & {"switches", "blocks"}:
            raise self._fail((), "is not a model", "a model has switches and blocks")
        self._model = decode(file, content.value, _ModelFile, line=content.line)
        self._children: dict[str, tuple[str, ...]] = {}
        self._annotations: dict[str, Mapping[str, str]] = {}
        self._parents: dict[str, str] = {}

    def findings(self, keys: Sequence[str] | None, names: Mapping[str, str] | None) -> ScanFindings:
        """What it says; a node is called as in the model, or as ``names`` says for ``i-<that>`` or that."""
        self._read_switches()
        block_of: dict[str, Mapping[str, str]] = {}
        nodes_of: dict[str, list[str]] = {}
        for index, block in enumerate(self._model.blocks or ()):
            path: Path = ("blocks", index)
            switch = block.switch or None
            if switch is not None and switch not in self._children:
                raise self._fail((*path, "switch"), f"{shown(switch)} is not a switch of the model", "add it")
            nodes = self._names((*path, "nodes"), block.nodes or ())
            if not nodes:
                raise self._fail(path, "has no nodes", "give the block its nodes")
            annotations = {**self._inherited(switch), **(block.annotations or {})}
            for node in nodes:
                if node in block_of:
                    raise self._fail((*path, "nodes"), f"node {node} is in two blocks", "keep it in one")
                block_of[node] = annotations
            if switch is not None:
                nodes_of.setdefault(switch, []).extend(nodes)
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
        for name, entry in (self._model.switches or {}).items():
            path: Path = ("switches", name)
            self._children[name] = tuple(dict.fromkeys(entry.switches or ()))
            self._annotations[name] = entry.annotations or {}
            for child in self._children[name]:
                if self._parents.setdefault(child, name) != name:
                    message = f"switch {child} has two parents, {self._parents[child]} and {name}"
                    raise self._fail((*path, "switches"), message, "keep one of the two")
        for child in self._parents:
            # Leaves need no entry of their own.
            self._children.setdefault(child, ())

    def _inherited(self, switch: str | None) -> dict[str, str]:
        """Annotations of the switches above, the closest one's winning."""
        chain: list[str] = []
        while switch is not None and switch not in chain and len(chain) <= MOST_LEVELS:
            chain.append(switch)
            switch = self._parents.get(switch)
        found: dict[str, str] = {}
        for name in reversed(chain):
            found.update(self._annotations.get(name, {}))
        return found

    def _names(self, path: Path, texts: Sequence[str | int]) -> list[str]:
        found: list[str] = []
        for text in texts:
            try:
                found += expand(str(text), self._room)
            except HostlistError as error:
                raise self._fail(path, f"{shown(str(text))} {error}", "write it like n[1-8]") from error
        return found

    def _fail(self, path: Path, message: str, remedy: str = "") -> UnreadableError:
        line = self._content.line(path)
        return UnreadableError(self._file, message, remedy, line=line, field=field_path(path))


def _called(node: str, names: Mapping[str, str] | None) -> str:
    """Topograph's simulators call the instance of node ``n`` ``i-n``."""
    return node if names is None else names.get(f"i-{node}", names.get(node, node))
