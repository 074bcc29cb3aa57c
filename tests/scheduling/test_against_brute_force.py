"""Random small clusters: what is placed is right, what is refused cannot be placed, judged the slow way."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import Strategy, SubGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodDeleted
from tests.scheduling.drawn import Site, levels_asked, on_nodes, sites, specs, strategies
from tests.scheduling.oracle import (
    Oracle,
    assert_nothing_is_overcommitted,
    choices,
    shares_out,
)
from tests.worlds import World, gang, pods, subgroup

NO = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)


def index(site: Site, name: str | None) -> int:
    """A level's index, -1 for none."""
    return -1 if name is None else site.names.index(name)


def check_no_overcommit(site: Site, drawn: World) -> None:
    before: dict[str, list[Pod]] = {}
    for pod in site.running:
        before.setdefault(pod.node_name or "", []).append(pod)
    assert_nothing_is_overcommitted(drawn.engine, before)


@given(st.data())
def test_a_feasible_gang_of_equal_pods_is_placed_and_no_other(data: st.DataObject) -> None:
    site = data.draw(sites())
    required, preferred = data.draw(levels_asked(site))
    count, spec = data.draw(st.integers(1, 9)), data.draw(specs())
    strategy = data.draw(strategies)
    members = pods("train", count, spec)
    asked = gang(min_member=count, required=required, preferred=preferred, strategy=strategy)
    drawn = site.world().run(asked, members=members)
    check_no_overcommit(site, drawn)

    oracle = site.oracle()
    holding = [where for where in oracle.domains(index(site, required)) if oracle.room(where, spec) >= count]
    used = set(drawn.used("train"))
    if not holding:
        assert not used
        assert drawn.reason("train") in NO
        enough = oracle.room(oracle.nodes, spec) >= count
        assert (drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED) == enough
        return
    assert len(on_nodes(drawn, members)) == len(used)
    assert sum(drawn.used("train").values()) == count
    assert any(used <= where for where in holding)
    if preferred is not None:
        check_preferred(site, oracle, (required, preferred), members, used, strategy)


def check_preferred(
    site: Site,
    oracle: Oracle,
    asked: tuple[str | None, str],
    members: Sequence[Pod],
    used: set[str],
    strategy: Strategy,
) -> None:
    """Never a coarser domain than needed, the tightest (or emptiest) of those, and there the fewest.

    Pods that ask for no accelerator stay off nodes with free ones, unless the preferred level is there alone.
    """
    count, spec = len(members), members[0].spec
    required, preferred = index(site, asked[0]), index(site, asked[1])
    scopes = dict.fromkeys((oracle.spared(spec), frozenset(oracle.nodes)))
    # Where the preferred domains are in required ones, all nodes are tried for the preferred level first.
    nested = all(oracle.labelled(name, required) for name in oracle.nodes if oracle.labelled(name, preferred))
    coarser = range(preferred - 1, required - 1, -1)
    tries = [
        (level, scope)
        for levels in (([preferred], coarser) if nested else ([preferred, *coarser],))
        for scope in scopes
        for level in levels
    ]
    for level, scope in tries:
        rooms = {where: oracle.room(where & scope, spec) for where in oracle.domains(level)}
        holding = {
            where: room
            for where, room in rooms.items()
            if room >= count and all(oracle.labelled(name, required) for name in where)
        }
        if holding:
            break
    assert used <= scope
    [chosen] = [where for where in holding if used <= where]
    best = min(holding.values()) if strategy is Strategy.BINPACK else max(holding.values())
    assert holding[chosen] == best
    parts = oracle.domains(preferred, chosen, private=True)
    sizes = sorted((oracle.room(where & scope, spec) for where in parts), reverse=True)
    fewest = next(number for number in range(1, len(sizes) + 1) if sum(sizes[:number]) >= count)
    assert sum(1 for where in parts if where & used) == fewest


@given(st.data())
def test_members_beyond_the_minimum_keep_to_the_required_domain(data: st.DataObject) -> None:
    site = data.draw(sites())
    required, preferred = data.draw(levels_asked(site))
    minimum, more, spec = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 4)), data.draw(specs())
    members = pods("train", minimum + more, spec)
    drawn = site.world().run(
        gang(min_member=minimum, required=required, preferred=preferred), members=members
    )
    check_no_overcommit(site, drawn)
    oracle = site.oracle()
    rooms = {where: oracle.room(where, spec) for where in oracle.domains(index(site, required))}
    placed = sum(drawn.used("train").values())
    best = max(rooms.values(), default=0)
    assert (placed >= minimum) == (best >= minimum)
    if placed and preferred in (None, required):
        # As many as the roomiest domain takes. A finer preference may draw the minimum elsewhere.
        assert placed == min(best, minimum + more)
    if placed:
        assert any(set(drawn.used("train")) <= where for where in rooms)
    assert len(drawn.left("train")) == minimum + more - placed


@st.composite
def subgroups_asked(draw: st.DrawFn, site: Site, most: int = 4) -> tuple[SubGroup, ...]:
    """Leaves, some of them below a parent that requires a level too."""
    levels = st.sampled_from([None, *site.names])
    parents = [subgroup(f"p{number}", required=draw(levels)) for number in range(draw(st.integers(0, 2)))]
    leaves = [
        subgroup(
            f"s{number}",
            draw(st.integers(1, 4)),
            required=draw(levels),
            parent=draw(st.sampled_from([None, *(one.name for one in parents)])),
        )
        for number in range(draw(st.integers(1, most)))
    ]
    inhabited = {leaf.parent for leaf in leaves}
    return (*(one for one in parents if one.name in inhabited), *leaves)


def level_of(site: Site, one: SubGroup) -> int:
    return index(site, None if one.constraint is None else one.constraint.required)


def subgroups_fit(
    site: Site,
    oracle: Oracle,
    groups: Sequence[SubGroup],
    rooms: dict[str, int],
    stayed: Mapping[str, Set[str]] = {},
) -> bool:
    """Whether some choice of domains for parents and leaves holds all leaves beside each other.

    ``stayed``: the nodes of the members that run, by subgroup.
    """

    def usable(one: SubGroup) -> list[frozenset[str]]:
        domains = oracle.domains(level_of(site, one))
        return [where for where in domains if stayed.get(one.name, set()) <= where]

    parents = [one for one in groups if one.name.startswith("p")]
    leaves = [one for one in groups if not one.name.startswith("p")]
    for chosen in choices([usable(one) for one in parents]):
        inside = {one.name: where for one, where in zip(parents, chosen, strict=True)}
        options = []
        for leaf in leaves:
            bound = inside.get(leaf.parent or "", frozenset(oracle.nodes))
            options.append({where & bound for where in usable(leaf)})
        for picked in choices([[where for where in one if where] for one in options]):
            demands = [(leaf.min_member, where) for leaf, where in zip(leaves, picked, strict=True)]
            if shares_out(demands, rooms):
                return True
    return False


class GangOfSubgroups(NamedTuple):
    """Subgroups of equal pods, and what became of them; the leaves are those with pods."""

    site: Site
    spec: PodSpec
    groups: tuple[SubGroup, ...]
    leaves: list[SubGroup]
    members: list[Pod]
    drawn: World


@st.composite
def gangs_of_subgroups(draw: st.DrawFn) -> GangOfSubgroups:
    site, spec = draw(sites(most_nodes=6)), draw(specs())
    groups = draw(subgroups_asked(site))
    leaves = [one for one in groups if not one.name.startswith("p")]
    members = [pod for one in leaves for pod in pods("train", one.min_member, spec, one.name)]
    drawn = site.world().run(gang(min_member=1, subgroups=groups), members=members)
    return GangOfSubgroups(site, spec, groups, leaves, members, drawn)


@given(st.data())
def test_members_of_subgroups_that_come_again_join_those_that_stayed(data: st.DataObject) -> None:
    site, spec, groups, leaves, members, drawn = data.draw(gangs_of_subgroups())
    if not drawn.used("s"):
        return
    gone = [pod for pod in members if data.draw(st.booleans())]
    for pod in gone:
        drawn.tell(PodDeleted(pod.uid))
        del drawn.where[pod.name]
    stayed = {one.name: set(drawn.used(f"{one.name}-")) for one in groups}
    for one in groups:
        stayed[one.name] |= set().union(*(stayed[leaf.name] for leaf in leaves if leaf.parent == one.name))
    # Others take some of their room.
    drawn.run(members=pods(None, data.draw(st.integers(0, 3)), spec, prefix="other"))
    kept = [pod for pod in members if pod not in gone]
    others = [pod for pod in pods(None, 3, spec, prefix="other") if pod.name in drawn.where]
    oracle = site.oracle(on_nodes(drawn, [*kept, *others]))
    drawn.run(members=[replace(pod, uid=f"{pod.uid}-again", name=f"{pod.name}-again") for pod in gone])
    check_no_overcommit(site, drawn)

    placed = {one.name: set(drawn.used(f"{one.name}-")) for one in leaves}
    for one in groups:
        below = [placed[leaf.name] for leaf in leaves if one.name in (leaf.name, leaf.parent)]
        used = set().union(*below)
        assert any(used <= where for where in oracle.domains(level_of(site, one)))
    rooms = {name: oracle.fits(name, spec) for name in oracle.nodes}
    late = [replace(one, min_member=sum(pod.subgroup == one.name for pod in gone)) for one in leaves]
    parents = [one for one in groups if one.name.startswith("p")]
    feasible = subgroups_fit(site, oracle, [*parents, *late], rooms, stayed)
    assert feasible == all(f"{pod.name}-again" in drawn.where for pod in gone), drawn.outcome("train").message
