"""What a gang that waits is told of nodes that take none of its pods."""

import pytest
from msgspec.structs import replace

from closeby.objects.nodes import Taint
from closeby.objects.reasons import Reason
from tests.golden.fixture import Golden
from tests.worlds import draw, gang, pods, spec, world

NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"ready": False}, "1 node NodeUnschedulable, for instance n2: the node is not ready"),
        (
            {"unschedulable": True},
            "1 node NodeUnschedulable, for instance n2: the node is cordoned (spec.unschedulable)",
        ),
        (
            {"taints": (NOT_READY,)},
            f"1 node TaintNotTolerated, for instance n2: taint {NOT_READY.key}:NoSchedule not tolerated",
        ),
    ],
)
def test_why_a_node_takes_none_is_said_of_the_node_itself(broken: dict[str, object], told: str) -> None:
    one, other = draw("a r1 : n1=4 n2=4")
    drawn = world([one, replace(other, **broken)], explain=True)
    drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, spec(gpu=4)))
    assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
    (lack,) = drawn.shortfall("train").lacks
    assert (lack.free, lack.asked, lack.barred, lack.barred_nodes) == (4, 8, 4, 1)
    assert (drawn.outcome("train").message or "").endswith(f"({told})")


def test_a_node_that_was_not_asked_is_no_example_that_could_become_untrue(golden: Golden) -> None:
    one, other = draw("a r1 : n1=4 n2=4")
    drawn = world([one, replace(other, ready=False)])
    drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, spec(gpu=4)))
    golden("refusals", drawn.outcome("train").message or "")


def test_what_is_free_on_nodes_that_may_not_be_used_does_not_count(golden: Golden) -> None:
    """r1 has eight GPUs free, of which four are cordoned; r2 holds one of the two pods as well."""
    one, other, elsewhere = draw("a r1 : n1=4 n2=4\na r2 : n3=4")
    drawn = world([one, replace(other, unschedulable=True), elsewhere])
    drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2, spec(gpu=4)))
    golden("refusals", drawn.outcome("train").message or "")
