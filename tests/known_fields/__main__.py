"""Prints the table `src/closeby/reading/known_fields.json`: `python -m tests.known_fields CLONES`.

CLONES is a folder for the clones of the projects. Only names are kept: of each type its fields, and the type
of each field as `Name`, `[Name` for a list, `{Name` for a map, or null where any value may stand. What
releases say of one version of a kind is united. A `status` and a label are not looked into.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from closeby.reading.registry import READERS
from tests.known_fields import KUBERNETES, PROJECTS
from tests.known_fields.sources import definitions, openapi

Types = dict[str, dict[str, str | None]]

#: What every object has.
_HEAD = {"apiVersion": None, "kind": None, "metadata": "ObjectMeta", "status": None}
#: Groups whose readers refuse unknown fields themselves.
_STRICT = frozenset(
    {
        "closeby.dev",
        "scheduling.sigs.k8s.io",
        "appgroup.diktyo.x-k8s.io",
        "networktopology.diktyo.x-k8s.io",
    }
)
#: Fields that are honoured, and that only a design has: each with a field of the same type, or null.
_MORE: Types = {
    "scheduling.run.ai/PodGroup.spec": {"topologyConstraints": "topologyConstraint"},
    "scheduling.TopologyConstraint": {"key": None, "level": None},
}
#: Parts of custom resources that have no bearing on placement, by the name of their field.
_ASIDE = frozenset(
    {
        "autoscalerOptions",
        "gcsFaultToleranceOptions",
        "initializer",
        "metrics",
        "mlPolicy",
        "podGroupPolicy",
        "podTemplateOverrides",
        "policies",
        "resourceClaimTemplates",
        "resourceSharing",
        "runtimePatches",
        "volumeClaim",
        "volumeClaimPolicies",
        "volumeClaimTemplates",
    }
)
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def main(clones: Path) -> None:
    """Reads what is published and prints the table."""
    types: Types = {}
    kinds: dict[str, str] = {}
    releases = {"Kubernetes": [version[1:].rpartition(".")[0] for version in KUBERNETES]}
    for version in KUBERNETES:
        for document in openapi(version):
            _of_openapi(document, types, kinds)
    for project in PROJECTS:
        seen = releases[project.name] = []
        for (major, minor), found in definitions(project, clones):
            read = [of_definition(one, types, kinds) for one in found]
            if any(read):
                seen.append(f"{major}.{minor}")
    for name, fields in types.items():
        for key, like in _MORE.get(_bare(name), {}).items():
            fields.setdefault(key, fields[like] if like else None)
    called = _without_versions(types)
    short: Types = {}
    for name, fields in types.items():
        short[called[name]] = {key: _renamed(kind, called) for key, kind in fields.items()}
    known = {one: called[kinds[one]] for one in sorted(kinds, key=_by_version)}
    _show(known, _reachable(short, known), {name: (seen[0], seen[-1]) for name, seen in releases.items()})


def _show(kinds: Mapping[str, str], types: Types, releases: Mapping[str, tuple[str, str]]) -> None:
    """A type on each line, so that two versions of the table can be compared."""
    lines = [f"{json.dumps(name)}: {json.dumps(types[name], sort_keys=True)}" for name in sorted(types)]
    head = f'{{"releases": {json.dumps(releases)},\n"kinds":\n{json.dumps(kinds, indent=0)},\n"types": {{\n'
    sys.stdout.write(head + ",\n".join(lines) + "\n}}\n")


def _bare(name: str) -> str:
    """The name of a type without its version: of a custom resource, or of a smaller group of Kubernetes."""
    return re.sub(r"[/.]v\d\w*(?=[/.])", "", name, count=1)


def _by_version(kind: str) -> tuple[str, str, tuple[int, int, int]]:
    """Sorts the versions of a kind; the newest is last."""
    group, version, name = kind.split("/")
    found = _VERSION.fullmatch(version)
    assert found is not None
    stage = ("alpha", "beta", None).index(found[2])
    return group, name, (stage, int(found[1]), int(found[3] or 0))


def _without_versions(types: Types) -> dict[str, str]:
    """What a type is called: without a version, where all say the same of it and of what is in it."""
    variants: dict[str, list[str]] = defaultdict(list)
    for name in types:
        variants[_bare(name)].append(name)
    bare = {name: _bare(name) for name in types}

    def shape(name: str, of: Mapping[str, str]) -> object:
        return {key: _renamed(kind, of) for key, kind in types[name].items()}

    differ = {
        one for one, names in variants.items() if any(shape(n, bare) != shape(names[0], bare) for n in names)
    }
    while True:
        more = {
            one
            for one, names in variants.items()
            if one not in differ and any(_bare(inner) in differ for n in names for inner in _named(types[n]))
        }
        if not more:
            return {name: name if bare[name] in differ else bare[name] for name in types}
        differ |= more


def _named(fields: Mapping[str, str | None]) -> Iterator[str]:
    for kind in fields.values():
        if kind is not None:
            yield kind.lstrip("[{")


def _renamed(kind: str | None, called: Mapping[str, str]) -> str | None:
    if kind is None:
        return None
    inner = kind.lstrip("[{")
    return kind[: len(kind) - len(inner)] + called[inner]


def _wanted(group: str, version: str, kind: str) -> bool:
    entry = READERS.get((group, kind))
    return entry is not None and group not in _STRICT and (not entry.versions or version in entry.versions)


def _of_openapi(document: Mapping[str, Any], types: Types, kinds: dict[str, str]) -> None:
    schemas = document["components"].get("schemas", {})
    for name, schema in schemas.items():
        if "properties" in schema:
            called = _short(name)
            fields = {key: _reference(one, schemas) for key, one in schema["properties"].items()}
            _add(types, called, fields)
            for one in schema.get("x-kubernetes-group-version-kind", ()):
                if _wanted(**one) and name.endswith(f".{one['version']}.{one['kind']}"):
                    types[called].update(_HEAD)
                    kinds[f"{one['group']}/{one['version']}/{one['kind']}"] = called


def _short(name: str) -> str:
    """`io.k8s.api.core.v1.PodSpec` is `PodSpec`; types of smaller groups keep group and version."""
    *path, last = name.split(".")
    if path[-2:] == ["scheduling", "v1alpha1"] and last == "PodGroup":
        # A part of a Workload, and no kind.
        last = "WorkloadPodGroup"
    group, version = path[-2:]
    plain = ("core", "meta", "apps", "batch", "pkg")
    return last if group in plain else f"{group}.{version}.{last}"


def _reference(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str | None:
    """The type of a field."""
    if schema.get("type") == "array":
        return _inside("[", _reference(schema["items"], schemas))
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return _inside("{", _reference(values, schemas))
    found = schema.get("$ref") or next(
        (one["$ref"] for one in schema.get("allOf", ()) if "$ref" in one), None
    )
    if found is None:
        return None
    name = found.rpartition("/")[2]
    return _short(name) if "properties" in schemas[name] else None


def _inside(mark: str, name: str | None) -> str | None:
    return None if name is None or name[0] in "[{" else mark + name


def of_definition(definition: Mapping[str, Any], types: Types, kinds: dict[str, str]) -> bool:
    """Adds the types of a definition; False if none of its versions is read."""
    spec = definition["spec"]
    group, kind = spec["group"], spec["names"]["kind"]
    versions = [one for one in spec["versions"] if _wanted(group, one["name"], kind)]
    for version in versions:
        called = f"{group}/{version['name']}/{kind}"
        kinds[called] = called
        types.setdefault(called, {}).update(_HEAD)
        properties = version["schema"]["openAPIV3Schema"].get("properties", {})
        if "spec" in properties:
            _add(types, called, {"spec": _nested(properties["spec"], f"{called}.spec", types)})
    return bool(versions)


def _nested(schema: Mapping[str, Any], path: str, types: Types) -> str | None:
    """The type of a value whose schema stands in place; templates of pods are Kubernetes' own."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    if schema.get("type") == "array":
        return _inside("[", _nested(schema["items"], path, types))
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return _inside("{", _nested(values, path, types))
    properties = schema.get("properties")
    if not properties:
        return None
    if "containers" in properties:
        return "PodSpec"
    if "spec" in properties and "metadata" in properties:
        inner = _nested(properties["spec"], f"{path}.spec", types)
        if inner == "PodSpec":
            return "PodTemplateSpec"
        _add(types, path, {"metadata": "ObjectMeta", "spec": inner})
        return path
    fields = {
        key: None if key in _ASIDE else _nested(one, f"{path}.{key}", types)
        for key, one in properties.items()
    }
    if fields.get("template", "") is None and "replicas" in fields:
        # One that takes any value, as some projects write it.
        fields["template"] = "PodTemplateSpec"
    _add(types, path, fields)
    return path


def _add(types: Types, called: str, fields: Mapping[str, str | None]) -> None:
    """Adds fields to a type; a release that says what a field holds wins over one that does not."""
    known = types.setdefault(called, {})
    known.update({key: kind or known.get(key) for key, kind in fields.items()})


def _reachable(types: Types, kinds: Mapping[str, str]) -> Types:
    found: Types = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = dict(types[name])
            waiting += _named(types[name])
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
