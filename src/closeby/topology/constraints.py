"""From the names in a constraint to the levels of a tree, or to the reason why that is impossible."""

from typing import Protocol

from msgspec import Struct

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree


class Levels(Struct, frozen=True, kw_only=True, eq=False):
    """A constraint in terms of one tree; level indices as in ``Tree``, None when not asked for."""

    tree: Tree
    required: int | None = None
    preferred: int | None = None
    #: True without a constraint: the gang merely goes to the tightest domain that holds it.
    by_default: bool = False


class _Problem(Protocol):
    def __call__(
        self, reason: Reason, where: str, message: str, remedy: str, blocking: bool
    ) -> Condition: ...


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

    def problem(reason: Reason, where: str, message: str, remedy: str, blocking: bool) -> Condition:
        return Condition(
            reason=reason, object=owner, field=where, message=message, remedy=remedy, blocking=blocking
        )

    name = constraint.topology
    if name is None:
        wanted = constraint.required or constraint.preferred
        if wanted is None:
            return Resolution()
        having = topologies.having_level(wanted)
        if len(having) != 1:
            found = f"{len(having)} topologies have" if having else "no topology has"
            remedy = (
                f"name one of {some(having)} in {field}.topology"
                if having
                else f"create a Topology with a level {quoted(wanted)}, or name an existing level"
            )
            reason = Reason.TOPOLOGY_NOT_FOUND if having else Reason.TOPOLOGY_LEVEL_NOT_FOUND
            return Resolution(
                conditions=(problem(reason, field, f"{found} a level {quoted(wanted)}", remedy, required),)
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
        fix = "create it" if declared is None else "fix it"
        remedy = f"use one of the usable topologies ({known}) or {fix}"
        return Resolution(
            conditions=(problem(Reason.TOPOLOGY_NOT_FOUND, f"{field}.topology", message, remedy, required),)
        )
    return _levels(constraint, tree, field, problem)


def _levels(constraint: TopologyConstraint, tree: Tree, field: str, problem: _Problem) -> Resolution:
    conditions: list[Condition] = []
    found: dict[str, int | None] = {}
    for kind, wanted in (("required", constraint.required), ("preferred", constraint.preferred)):
        index = None if wanted is None else tree.level_named(wanted)
        found[kind] = index
        if wanted is not None and index is None:
            conditions.append(
                problem(
                    Reason.TOPOLOGY_LEVEL_NOT_FOUND,
                    f"{field}.{kind}TopologyLevel",
                    f"topology {quoted(tree.name)} has no level {quoted(wanted)}",
                    _levels_of(tree),
                    kind == "required",
                )
            )
    required, preferred = found["required"], found["preferred"]
    if required is not None and preferred is not None and preferred < required:
        conditions.append(
            problem(
                Reason.INVALID_SPEC,
                f"{field}.preferredTopologyLevel",
                f"preferred level {quoted(constraint.preferred)} is coarser than required "
                f"{quoted(constraint.required)}",
                "prefer the required level or one below it",
                True,
            )
        )
    if constraint.required is None and constraint.preferred is None:
        conditions.append(
            problem(
                Reason.INVALID_SPEC,
                field,
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


def closest(tree: Tree, several_nodes: bool = False) -> Levels:
    """Prefer the tightest domain of a tree, for gangs that name no level; ``several_nodes``: above nodes."""
    return Levels(tree=tree, preferred=tree.node_level - several_nodes, by_default=True)


def _levels_of(tree: Tree) -> str:
    """The remedy where a level is missing or unknown."""
    host = () if tree.host_level is None else (tree.host_level,)
    names = tuple(level.alias or level.node_label for level in (*tree.levels, *host))
    return f"use one of its levels: {some(names)}"
