"""Bindings under way, with the engine that decided them."""

from closeby.kube.writing.under_way import Ask, UnderWay
from closeby.scheduling.events import BindingsWithdrawn, GroupChanged, NodeUpserted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from tests.worlds import GPU, gang, node, pods, world


def test_a_broken_gang_does_not_hold_while_another_of_its_bindings_is_on_its_way() -> None:
    drawn = world("zone-a rack-1 : a1=2 a2=2")
    group = GroupChanged(gang(min_member=4, required="rack"))
    decisions = drawn.engine.handle(group, *map(PodUpserted, pods("train", 4)), Tick())
    first, *others = bindings_of(decisions)
    withdrawn: list[BindingsWithdrawn] = []
    under_way = UnderWay(drawn.engine.recheck, withdrawn.append)
    under_way.begin([first])
    assert under_way.asks(first) is Ask.SEND
    under_way.begin(others)
    assert under_way.hold(others)
    drawn.engine.handle(NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-9"}, {GPU: 2})))
    assert not under_way.hold(others)
    assert withdrawn == []
    under_way.missed(first, in_doubt=False)
    [event] = withdrawn
    assert set(event.uids) == {bind.pod.uid for bind in (first, *others)}
    assert not under_way.hold(others)
