"""Prints the table `src/closeby/reading/known_fields.json`, out of schemas that others publish.

The arguments are OpenAPI v3 documents of Kubernetes (`api/openapi-spec/v3` of its releases; those of several
releases are united) and definitions of custom resources (YAML). Only names are kept: of each type its fields,
and the type of each field as `Name`, `[Name` for a list, `{Name` for a map, or null where any value may
stand. A `status` and a label are not looked into.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from closeby.reading.registry import READERS

Types = dict[str, dict[str, str | None]]

#: What every object has.
_HEAD = {"apiVersion": None, "kind": None, "metadata": "ObjectMeta", "status": None}
#: Kinds whose readers refuse unknown fields themselves.
_STRICT = frozenset({"closeby.dev", "scheduling.sigs.k8s.io", "appgroup.diktyo.x-k8s.io"})
#: Fields that only a design or another version has.
_MORE: Types = {
    "kai.scheduler/Topology.spec.levels": {"alias": None},
    "scheduling.run.ai/PodGroup.spec": {
        "minSubGroup": None,
        "topologyConstraints": "scheduling.run.ai/PodGroup.spec.topologyConstraint",
    },
    "scheduling.run.ai/PodGroup.spec.subGroups": {"minSubGroup": None},
    "trainer.kubeflow.org/TrainJob.spec": {"podTemplateOverrides": None},
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


def main(paths: list[Path]) -> None:
    """Reads the schemas and prints the table."""
    types: Types = {}
    kinds: dict[str, str] = {}
    for path in paths:
        if path.suffix == ".json":
            _of_openapi(json.loads(path.read_text()), types, kinds)
    for path in paths:
        if path.suffix == ".yaml":
            for definition in yaml.safe_load_all(path.read_text()):
                if definition:
                    of_definition(definition, types, kinds)
    for name, fields in _MORE.items():
        types[name] = fields | types.get(name, {})
    _show(kinds, _reachable(types, kinds))


def _show(kinds: Mapping[str, str], types: Types) -> None:
    """A type on each line, so that two versions of the table can be compared."""
    lines = [f"{json.dumps(name)}: {json.dumps(types[name], sort_keys=True)}" for name in sorted(types)]
    head = f'{{"kinds":\n{json.dumps(kinds, sort_keys=True, indent=0)},\n"types": {{\n'
    sys.stdout.write(head + ",\n".join(lines) + "\n}}\n")


def _wanted(group: str, kind: str) -> bool:
    return (group, kind) in READERS and group not in _STRICT


def _of_openapi(document: Mapping[str, Any], types: Types, kinds: dict[str, str]) -> None:
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        if "properties" in schema:
            called = _short(name)
            fields = {key: _reference(one, schemas) for key, one in schema["properties"].items()}
            types.setdefault(called, {}).update(fields)
            for one in schema.get("x-kubernetes-group-version-kind", ()):
                if _wanted(one["group"], one["kind"]) and _short(name).endswith(one["kind"]):
                    types[called].update(_HEAD)
                    kinds[f"{one['group']}/{one['kind']}"] = called


def _short(name: str) -> str:
    """`io.k8s.api.core.v1.PodSpec` is `PodSpec`; types of smaller groups keep the group in their name."""
    *path, last = name.split(".")
    if path[-2:] == ["scheduling", "v1alpha1"] and last == "PodGroup":
        # A part of a Workload, and no kind.
        last = "WorkloadPodGroup"
    group = path[-2]
    return last if group in ("core", "meta", "apps", "batch", "v1") else f"{group}.{last}"


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


def of_definition(definition: Mapping[str, Any], types: Types, kinds: dict[str, str]) -> None:
    """Adds the types of a definition of a kind that is read."""
    spec = definition["spec"]
    group, kind = spec["group"], spec["names"]["kind"]
    if not _wanted(group, kind):
        return
    called = f"{group}/{kind}"
    kinds[called] = called
    types.setdefault(called, {}).update(_HEAD)
    for version in spec["versions"]:
        properties = version["schema"]["openAPIV3Schema"].get("properties", {})
        if "spec" in properties:
            types[called]["spec"] = _nested(properties["spec"], f"{called}.spec", types)


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
        types.setdefault(path, {}).update({"metadata": "ObjectMeta", "spec": inner})
        return path
    fields = {
        key: None if key in _ASIDE else _nested(one, f"{path}.{key}", types)
        for key, one in properties.items()
    }
    types.setdefault(path, {}).update(fields)
    return path


def _reachable(types: Types, kinds: Mapping[str, str]) -> Types:
    found: Types = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = dict(types[name])
            waiting += [one.lstrip("[{") for one in types[name].values() if one]
    return found


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
