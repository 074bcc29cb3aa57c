"""Domains that gangs have for themselves: victims may be anywhere in them, also on nodes that stay unused."""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.preempting.records import Preemption
from tests.preempting.site import Site, names
from tests.worlds import gang

TWO_RACKS = """
z r1 : a1=1 a2=2
z r2 : b1=1
"""


def only(plans: list[Preemption]) -> Preemption:
    assert len(plans) == 1
    return plans[0]


@pytest.mark.parametrize("inner", ["rack", HOSTNAME])
def test_all_of_a_domain_goes_for_a_gang_that_has_it_for_itself_by_a_coarse_layer(inner: str) -> None:
    """One segment in a zone of its own, and in one rack or node of it: the pods of both racks must go."""
    site = Site(TWO_RACKS)
    here, there = site.alone("here", "a2"), site.alone("there", "b1")
    layers = (Layer(level="zone", size=2, exclusive=Exclusive.ALL), Layer(level=inner, size=2))
    site.waiting("train", 2, group=replace(gang("train", 2), layers=layers))
    plan = only(site.tick())
    assert (names(plan), plan.level, plan.path) == ([here.name, there.name], "zone", ("z",))
    assert plan.exact
    assert site.evict(plan) == []
    assert set(site.where.values()) == {"a2"}
