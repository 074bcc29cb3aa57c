"""Findings from files: accelerator domains are the closest level; contradictions are reported."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from closeby.discovery.findings import FoundNode, Link, ScanFindings
from closeby.discovery.labelling import (
    DEFAULT_KEYS,
    TOPOLOGY_NAME,
    Place,
    find,
    label_value,
    topology_manifest,
)
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import natural_key
from closeby.topology.families import KUBERNETES_NETWORK, TOPOGRAPH_TIERS, and_more, listed

ACCELERATOR_KEY: Final = KUBERNETES_NETWORK + "accelerator"
#: Keys for as many levels as any network has, where findings are not labels but go to another file.
ALL_LEVELS: Final = tuple(f"{TOPOGRAPH_TIERS}{level}" for level in range(24))
#: What levels of accelerator domains are called by the keys of known label families.
_DOMAIN_LEVELS: Final = frozenset(
    {"accelerator", "domain", "gpu.clique", "ultraserver-id", "capacity-block-id"}
)
_LONGEST_SHOWN: Final = 80


def assemble(
    places: Mapping[str, Place],
    keys: Sequence[str] | None = None,
    *,
    domains: Mapping[str, str] = {},
    labels: Mapping[str, Mapping[str, str]] = {},
    links: Iterable[Link] = (),
    warnings: Iterable[Condition] = (),
) -> ScanFindings:
    """Findings of all nodes; the result does not depend on their order.

    ``domains`` are accelerator domains by node. If there are any they are the first level, and the first of
    ``keys`` is theirs. ``labels`` are further labels by node.
    """
    problems = list(warnings)
    used = default_keys(places, bool(domains)) if keys is None else with_accelerator(keys, bool(domains))
    full = {
        node: (domains.get(node), *places.get(node, ())) if domains else place
        for node, place in {**dict.fromkeys(domains, ()), **places}.items()
    }
    if keys is None and not domains:
        findings = find(full, links=sorted_links(links), warnings=problems)
    else:
        problems += _left_out(full, used) if keys is None else ()
        findings = find(full, used, links=sorted_links(links), warnings=problems)
    nodes = {
        name: msgspec.structs.replace(node, labels={**_legal(labels[name]), **node.labels})
        if labels.get(name)
        else node
        for name, node in findings.nodes.items()
    }
    more = (*_changed_names(nodes), *_two_parents(nodes, findings.levels, bool(domains)))
    return msgspec.structs.replace(findings, nodes=nodes, warnings=(*findings.warnings, *more))


def default_keys(places: Mapping[str, Place], with_domains: bool) -> tuple[str, ...]:
    """The default label keys, closest first."""
    depth = max(map(len, places.values()), default=0)
    return (*((ACCELERATOR_KEY,) if with_domains else ()), *DEFAULT_KEYS[:depth])


def with_accelerator(keys: Sequence[str], with_domains: bool) -> tuple[str, ...]:
    """Keys that the user chose name the accelerator domains too; ``ALL_LEVELS`` are those of the fabric."""
    return (ACCELERATOR_KEY, *keys) if with_domains and tuple(keys) == ALL_LEVELS else tuple(keys)


def level_keys(findings: ScanFindings, keys: Sequence[str] | None) -> tuple[str, ...]:
    """The label keys of the levels of findings that were made with ``keys``."""
    if keys is None:
        return tuple(KUBERNETES_NETWORK + level for level in findings.levels)
    return tuple(keys)[: len(findings.levels)]


def topology_manifests(
    findings: ScanFindings, keys: Sequence[str], name: str | None = None
) -> list[dict[str, object]]:
    """The Topology objects of findings whose levels have these labels, called ``name``.

    One; or two, of which the second is the closest level alone, where that does not nest in the next one, as
    an accelerator domain over several racks: a domain is known by its whole path, and would fall apart.
    """
    called = name or TOPOLOGY_NAME
    if not has_domains(findings) or _nests(findings):
        return [topology_manifest(keys, called)]
    own = topology_manifest(keys[:1], f"{called}-{findings.levels[0]}")
    return [topology_manifest(keys[1:], called), own]


def _nests(findings: ScanFindings) -> bool:
    """Whether each domain of the closest level is in one of the next farther level that its nodes name."""
    above: dict[str, set[str | None]] = {}
    members: dict[str, int] = {}
    for node in findings.nodes.values():
        if len(findings.levels) > 1 and node.path and node.path[0] is not None:
            parent = next((one for one in node.path[1:] if one is not None), None)
            above.setdefault(node.path[0], set()).add(parent)
            members[node.path[0]] = members.get(node.path[0], 0) + 1
    return all(len(one - {None}) == 1 or members[name] == 1 for name, one in above.items())


def has_domains(findings: ScanFindings) -> bool:
    """Whether the first level of findings is that of accelerator domains."""
    return bool(findings.levels) and findings.levels[0] in _DOMAIN_LEVELS


def warning(thing: str, message: str, remedy: str = "", *, reason: Reason = Reason.INVALID_SPEC) -> Condition:
    """Something about one thing of the network that does not stop the rest."""
    return Condition(reason=reason, object=thing, message=message, remedy=remedy)


def several(names: Iterable[str]) -> str:
    """A few of the names, and how many there are besides."""
    return listed(names, most=4)


def sorted_links(links: Iterable[Link]) -> tuple[Link, ...]:
    """Links in one order, whatever the order of the source."""
    return tuple(sorted(links, key=lambda link: (natural_key(link.a), natural_key(link.b), link.cables)))


def _left_out(places: Mapping[str, Place], keys: Sequence[str]) -> Iterable[Condition]:
    depth = max(map(len, places.values()), default=0)
    if depth > len(keys):
        yield warning(
            "Topology/network",
            f"the network has {depth} levels, that of the accelerators included, and there are {len(keys)} "
            "label keys by default, so what is coarser is left out",
            f"name {depth} keys with --labels KEY,KEY,…, closest first",
            reason=Reason.UNSUPPORTED,
        )


def _legal(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: label_value(value) for key, value in sorted(labels.items()) if value}


def _changed_names(nodes: Mapping[str, FoundNode]) -> Iterable[Condition]:
    """Switches whose names are no legal values of labels, so that something else stands in the label."""
    changed: dict[str, list[str]] = {}
    for node, found in nodes.items():
        for name in found.path:
            if name is not None and label_value(name) != name:
                changed.setdefault(name, []).append(node)
    for name in sorted(changed, key=natural_key):
        text = name if len(name) <= _LONGEST_SHOWN else name[: _LONGEST_SHOWN - 1] + "…"
        verb = "get" if len(changed[name]) > 1 else "gets"
        yield warning(
            f"Switch/{text}",
            f"its name is not a legal label value, so {and_more(changed[name])} {verb} {label_value(name)}",
            "give it a name of at most 63 letters, digits, '-', '_' and '.' if people are to read it",
        )


def _two_parents(
    nodes: Mapping[str, FoundNode], levels: Sequence[str], with_domains: bool
) -> Iterable[Condition]:
    """Switches that are under several switches of the next farther level that any of their nodes names.

    Accelerator domains need not nest, so they are left out.
    """
    parents: dict[tuple[int, str], dict[tuple[int, str], str]] = {}
    for node, found in nodes.items():
        named = [(level, name) for level, name in enumerate(found.path) if name is not None]
        for child, parent in pairwise(named):
            if not (with_domains and child[0] == 0):
                parents.setdefault(child, {}).setdefault(parent, node)
    for (level, name), above in sorted(
        parents.items(), key=lambda item: (item[0][0], natural_key(item[0][1]))
    ):
        nearest = min(parent[0] for parent in above)
        names = {parent[1]: node for parent, node in above.items() if parent[0] == nearest}
        if len(names) > 1:
            first = sorted(names, key=natural_key)[:2]
            examples = " and ".join(f"{one} on {names[one]}" for one in first)
            yield warning(
                f"Switch/{name}",
                f"{levels[level]} {name} is under {len(names)} of {levels[nearest]}: {examples}",
                "what its nodes say contradicts itself; correct the source",
            )
