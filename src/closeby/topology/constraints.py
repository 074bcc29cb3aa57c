"""From the names in a constraint to the levels of a tree, or to the reason why that is impossible."""

from typing import Final

from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import TopologyConstraint
from closeby.objects.labels import is_label_key, is_object_name
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import GET_HYPERNODES, HYPERNODES, tier_of
from closeby.objects.words import guess, similar
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree

#: How alike a name and the one that was meant are.
_ALIKE: Final = 0.8
#: Where a Topology object is asked for: stands for the levels' label keys, closest first.
ANY_KEYS: Final = "LABEL,LABEL"


def write_command(preset: str) -> str:
    """The command that prints the topology of a family of labels as an object."""
    return f"closeby discover labels --preset {preset} -o topology"


def writes_one(keys: str, name: str = "") -> str:
    """Says which command writes a Topology with levels of these label keys, called ``name``."""
    called = f" --name {name}" if is_object_name(name) else ""
    preset = " (or --preset NAME; " if keys == ANY_KEYS else " ("
    return (
        f"`closeby discover labels --key {keys} -o topology{called} -f FILE`{preset}without -f from the "
        "cluster's nodes) writes one"
    )


class Levels(Struct, frozen=True, kw_only=True, eq=False):
    """A constraint in terms of one tree; level indices as in ``Tree``, None when not asked for."""

    tree: Tree
    required: int | None = None
    preferred: int | None = None
    #: True without a constraint: the gang merely goes to the tightest domain that holds it.
    by_default: bool = False


class Resolution(Struct, frozen=True, kw_only=True, eq=False):
    """``levels`` None: there is nothing to enforce or, with a blocking condition, it can't be enforced."""

    levels: Levels | None = None
    conditions: tuple[Condition, ...] = ()


def resolve(constraint: TopologyConstraint, topologies: Topologies, owner: str, field: str) -> Resolution:
    """Find the tree and levels that a constraint names.

    ``owner`` and ``field`` say in conditions who holds the constraint. What is unknown blocks where something
    is required and is only reported where it is preferred.
    """
    required = constraint.required is not None
    written = constraint.written
    fields = _Fields(
        owner=written.owner or owner,
        topology=written.topology or f"{field}.topology",
        required=written.required or f"{field}.requiredTopologyLevel",
        preferred=written.preferred or f"{field}.preferredTopologyLevel",
        whole=field,
    )

    name = constraint.topology
    if name is None:
        wanted = constraint.required or constraint.preferred
        if wanted is None:
            return Resolution()
        having = topologies.having_level(wanted)
        if len(having) != 1:
            where = (written.required if required else written.preferred) or field
            found = f"{len(having)} topologies have" if having else "no topology has"
            remedy = (
                f"name one of {some(having)} in {fields.topology}"
                if having
                else _level_remedy(topologies, wanted)
            )
            reason = Reason.TOPOLOGY_NOT_FOUND if having else Reason.TOPOLOGY_LEVEL_NOT_FOUND
            return Resolution(
                conditions=(
                    fields.problem(reason, where, f"{found} a level {quoted(wanted)}", remedy, required),
                )
            )
        name = having[0]
    tree = topologies.tree(name)
    if tree is None:
        declared = topologies.declared(name)
        known = some(topologies.usable()) or "none"
        message = (
            f"topology {quoted(name)} does not exist"
            if declared is None
            else f"topology {quoted(name)} is not usable: {declared.conditions[0].message}"
        )
        fix = "fix it" if declared is not None else f"create it: {writes_one(ANY_KEYS, name)}"
        if declared is None and name == HYPERNODES:
            fix = f"create HyperNodes; for files, add what {GET_HYPERNODES} prints"
        remedy = (
            f"{guess(name, topologies.usable(), _ALIKE)}use one of the usable topologies ({known}) or {fix}"
        )
        return Resolution(
            conditions=(
                fields.problem(Reason.TOPOLOGY_NOT_FOUND, fields.topology, message, remedy, required),
            )
        )
    return _levels(constraint, tree, fields)


class _Fields(Struct, frozen=True, kw_only=True):
    """What the user wrote, for conditions."""

    owner: str
    topology: str
    required: str
    preferred: str
    whole: str

    def problem(self, reason: Reason, where: str, message: str, remedy: str, blocking: bool) -> Condition:
        return Condition(
            reason=reason, object=self.owner, field=where, message=message, remedy=remedy, blocking=blocking
        )


def _levels(constraint: TopologyConstraint, tree: Tree, fields: _Fields) -> Resolution:
    conditions: list[Condition] = []
    found: dict[str, int | None] = {}
    for kind, wanted, where in (
        ("required", constraint.required, fields.required),
        ("preferred", constraint.preferred, fields.preferred),
    ):
        index = None if wanted is None else _level_named(tree, wanted)
        found[kind] = index
        if wanted is not None and index is None:
            conditions.append(
                fields.problem(
                    Reason.TOPOLOGY_LEVEL_NOT_FOUND,
                    where,
                    _lacks(tree, wanted),
                    guess(wanted, _names_of(tree), _ALIKE) + _levels_of(tree),
                    kind == "required",
                )
            )
    required, preferred = found["required"], found["preferred"]
    if required is not None and preferred is not None and preferred < required:
        conditions.append(
            fields.problem(
                Reason.INVALID_SPEC,
                fields.preferred,
                f"preferred level {quoted(constraint.preferred)} is coarser than required "
                f"{quoted(constraint.required)}",
                "prefer the required level or one below it",
                True,
            )
        )
    if constraint.required is None and constraint.preferred is None:
        conditions.append(
            fields.problem(
                Reason.INVALID_SPEC,
                fields.whole,
                f"topology {quoted(tree.name)} is named without a required or preferred level",
                f"add one; {_levels_of(tree)}",
                False,
            )
        )
    if any(condition.blocking for condition in conditions):
        return Resolution(conditions=tuple(conditions))
    if required is None and preferred is None:
        return Resolution(levels=closest(tree), conditions=tuple(conditions))
    return Resolution(
        levels=Levels(tree=tree, required=required, preferred=preferred), conditions=tuple(conditions)
    )


def _level_named(tree: Tree, wanted: str) -> int | None:
    """The level of that name; of HyperNodes the tier, or the next lower one where none has that number."""
    tier = tier_of(wanted)
    if tier is None or tree.level_named(wanted) is not None:
        return tree.level_named(wanted)
    tiers = [tier_of(level.node_label) for level in tree.levels]
    if not any(one is not None and one > tier for one in tiers):
        return None
    return next((i for i, one in enumerate(tiers) if one is not None and one < tier), None)


def _lacks(tree: Tree, wanted: str) -> str:
    tier = tier_of(wanted)
    if tier is not None:
        return f"no HyperNode is of tier {tier}"
    return f"topology {quoted(tree.name)} has no level {quoted(wanted)}"


def closest(tree: Tree, several_nodes: bool = False) -> Levels:
    """Prefer the tightest domain of a tree, for gangs that name no level; ``several_nodes``: above nodes."""
    return Levels(tree=tree, preferred=tree.node_level - several_nodes, by_default=True)


def _levels_of(tree: Tree) -> str:
    """The remedy where a level is missing or unknown."""
    return f"use one of its levels: {some(_names_of(tree))}"


def _names_of(tree: Tree) -> tuple[str, ...]:
    host = () if tree.host_level is None else (tree.host_level,)
    return tuple(level.alias or level.node_label for level in (*tree.levels, *host))


def level_meant(topologies: Topologies, wanted: str, topology: str | None = None) -> str | None:
    """The known level that was probably meant by a name that no topology has; None if none is much like it.

    Of one topology, or of all. Prefixes of labels may be left out, as ``racks`` for ``example.com/rack``.
    """
    named = None if topology is None else topologies.tree(topology)
    trees = _distinct(topologies) if topology is None else [named] if named is not None else []
    names = {level for tree in trees for level in _names_of(tree)}
    close = similar(wanted, names, _ALIKE)
    if close is not None:
        return close
    last = {name.rpartition("/")[2]: name for name in sorted(names)}
    word = similar(wanted.rpartition("/")[2], last, _ALIKE)
    return None if word is None else last[word]


def _level_remedy(topologies: Topologies, wanted: str) -> str:
    """The remedy where no topology has a level."""
    key = wanted if "/" in wanted and is_label_key(wanted) else ANY_KEYS
    close = level_meant(topologies, wanted)
    meant = "" if close is None else f"did you mean {close}? If not, "
    create = f"{meant}create a Topology with a level {quoted(wanted)}: {writes_one(key)}"
    names = dict.fromkeys(name for tree in _distinct(topologies) for name in _declared_names(tree))
    return f"{create}; or use one of the levels that are there: {some(names)}" if names else create


def _distinct(topologies: Topologies) -> list[Tree]:
    return [tree for name in topologies.distinct() if (tree := topologies.tree(name)) is not None]


def _declared_names(tree: Tree) -> tuple[str, ...]:
    return tree.level_names if tree.host_level is not None else tree.level_names[:-1]
