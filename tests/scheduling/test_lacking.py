"""What pods lack."""

from tests.golden.fixture import Golden
from tests.worlds import gang, pods, spec, world


def test_the_largest_free_amount_is_named_where_it_is_too_little_for_a_pod(golden: Golden) -> None:
    for asked in (4, 5):
        drawn = world("z r : a1=4 a2=3 a3=3").run(
            gang(min_member=2), members=pods("train", 2, spec(gpu=asked))
        )
        golden("refusals", drawn.outcome("train").message or "")
