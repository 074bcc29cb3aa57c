"""Which pods of a demand constrain each other, against a comparison of all pairs."""

from collections.abc import Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    matches,
)
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.interactions import Interactions
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.limits import exceed_domains, most_apart
from tests.worlds import GPU, node, pods, spec, world

APPS = ("a", "b", "c")
KEYS = ("zone", "rack")

selectors = st.builds(
    lambda operator, apps: LabelSelector((LabelRequirement("app", operator, tuple(sorted(apps))),)),
    st.sampled_from(["In", "NotIn"]),
    st.sets(st.sampled_from(APPS), min_size=1, max_size=2),
)
terms = st.builds(PodAffinityTerm, st.sampled_from(KEYS), selectors)
spreads = st.builds(
    lambda key, selector: TopologySpreadConstraint(topology_key=key, max_skew=1, selector=selector),
    st.sampled_from(KEYS),
    selectors,
)


class Asked(NamedTuple):
    """What some pods of one app ask for."""

    app: str
    number: int
    namespace: str
    affinity: PodAffinity
    spread: tuple[TopologySpreadConstraint, ...]


some = st.lists(terms, max_size=1).map(tuple)
asked = st.builds(
    Asked,
    st.sampled_from(APPS),
    st.integers(1, 2),
    st.sampled_from(["default", "other"]),
    st.builds(lambda required, forbidden: PodAffinity(required=required, forbidden=forbidden), some, some),
    st.lists(spreads, max_size=1).map(tuple),
)


def members(given: Sequence[Asked]) -> list[Pod]:
    made: list[Pod] = []
    for place, one in enumerate(given):
        needs = replace(spec(gpu=1), pod_affinity=one.affinity, topology_spread=one.spread)
        alike = pods("train", one.number, needs, prefix=f"p{place}", labels={"app": one.app})
        made += [replace(pod, namespace=one.namespace) for pod in alike]
    return made


def selected(term: PodAffinityTerm, of: Pod, other: Pod) -> bool:
    """Whether a term of one pod, of that pod's own namespace, selects another one."""
    return of.namespace == other.namespace and matches(term.selector, other.labels)


def keep_off(one: Pod, other: Pod, key: str) -> bool:
    return any(
        term.topology_key == key and selected(term, of, to)
        for of, to in ((one, other), (other, one))
        for term in (of.spec.pod_affinity or PodAffinity()).forbidden
    )


def affect(one: Pod, other: Pod) -> bool:
    """Whether a placement of one pod may change where the other may go."""
    if any(keep_off(one, other, key) for key in KEYS):
        return True
    required = (other.spec.pod_affinity or PodAffinity()).required
    if required and all(selected(term, other, one) for term in required):
        return True
    return one.namespace == other.namespace and any(
        matches(constraint.selector, one.labels) for constraint in other.spec.topology_spread
    )


class Seen(NamedTuple):
    """What is known of some pods."""

    table: ClassTable
    demand: Sequence[Share]
    among: Interactions | None


def seen(given: Sequence[Asked]) -> Seen:
    drawn = world([node("n1", {"zone": "z", "rack": "r"}, {GPU: 8})])
    cluster, profile = drawn.engine.cluster, drawn.engine.profile
    table = ClassTable(cluster, profile.filters, ())
    demand = table.shares(tuple(members(given)))
    return Seen(table, demand, table.interactions(demand))


@given(st.lists(asked, min_size=1, max_size=4))
def test_pods_affect_each_other_exactly_where_a_term_of_one_selects_another(given: list[Asked]) -> None:
    it = seen(given)
    together = [pod for share in it.demand for pod in share.pods]
    pairs = [(one, other) for one in together for other in together if one is not other]
    assert it.table.affect_each_other(it.demand) == any(affect(*pair) for pair in pairs)
    assert it.table.interactions(it.demand) is it.among


@given(st.lists(asked, min_size=1, max_size=4))
def test_helpers_stand_for_all_pods_that_may_open_a_domain(given: list[Asked]) -> None:
    it = seen(given)
    for place, share in enumerate(it.demand):
        for own in (True, False):
            others = [
                pod
                for one in it.demand
                for pod in one.pods
                if one is not share or (own and len(share.pods) > 1)
            ]
            helpers = [] if it.among is None else list(it.among.helpers(place, own=own))
            for mask in masks_of(it.table.domain_filters, share.pods[0]):
                assert any(map(mask.grows_with, helpers)) == any(map(mask.grows_with, others))


@given(st.lists(asked, min_size=2, max_size=6))
def test_pods_that_are_said_to_be_apart_keep_off_each_other(given: list[Asked]) -> None:
    it = seen(given)
    for apart in () if it.among is None else it.among.apart:
        # Some pods of each share, as many as are said.
        choices = [combinations(it.demand[place].pods, number) for place, number in apart.pods.items()]
        assert any(
            all(keep_off(*pair, apart.key) for pair in combinations(chain.from_iterable(chosen), 2))
            for chosen in product(*choices)
        )


def test_of_pods_that_keep_off_all_others_each_counts() -> None:
    """Three kinds with anti-affinity to all that is of another kind; of the third there are two pods."""
    given = [
        Asked(app, number, "default", PodAffinity(forbidden=(PodAffinityTerm("zone", others),)), ())
        for app, number in (("a", 1), ("b", 1), ("c", 2))
        for others in [LabelSelector((LabelRequirement("app", "NotIn", (app,)),))]
    ]
    among = seen(given).among
    assert among is not None
    assert [(apart.key, apart.pods) for apart in among.apart] == [("zone", {0: 1, 1: 1, 2: 1})]


def matched(numbers: Sequence[int], usable: Sequence[Sequence[bool]]) -> bool:
    """Whether so many pods of each kind can have a domain each, found by trying."""
    wanted = [kind for kind, number in enumerate(numbers) for _ in range(number)]

    def place(at: int, free: frozenset[int]) -> bool:
        return at == len(wanted) or any(
            place(at + 1, free - {domain}) for domain in free if usable[wanted[at]][domain]
        )

    return place(0, frozenset(range(len(usable[0]))))


kinds = st.integers(1, 5).flatmap(
    lambda domains: st.lists(
        st.tuples(st.integers(1, 2), st.lists(st.booleans(), min_size=domains, max_size=domains)),
        min_size=1,
        max_size=4,
    )
)


@given(kinds)
def test_pods_with_a_domain_each_never_exceed_the_domains(given: list[tuple[int, list[bool]]]) -> None:
    counts: dict[bytes, int] = {}
    for number, usable in given:
        key = np.packbits(usable).tobytes()
        counts[key] = counts.get(key, 0) + number
    possible = matched([number for number, _ in given], [usable for _, usable in given])
    exceeded = exceed_domains(counts)
    assert not (possible and exceeded)
    sets = [{at for at, open_ in enumerate(usable) if open_} for _, usable in given]
    if all(one <= other or other <= one or not one & other for one, other in combinations(sets, 2)):
        assert exceeded == (not possible)


def test_a_set_of_nodes_takes_as_many_pods_apart_as_it_has_domains() -> None:
    codes = np.array([1, 1, 2, 3, -1, 0, 4], dtype=np.int32)
    owners = np.array([0, 0, 0, 1, 1, 2, -1])
    assert most_apart(codes, owners, 4, 7).tolist() == [2, 1, 7, 0]


def test_more_pods_than_domains_are_too_many_however_many_kinds_there_are() -> None:
    """1,500 kinds can use 998 of 1,000 domains each, no two of them the same ones."""
    domains = 1000
    counts: dict[bytes, int] = {}
    for kind in range(1500):
        usable = np.ones(domains, dtype=np.bool_)
        usable[[kind % domains, (kind * 7 + 1 + kind // domains) % domains]] = False
        counts[np.packbits(usable).tobytes()] = 1
    assert len(counts) > domains and exceed_domains(counts)
