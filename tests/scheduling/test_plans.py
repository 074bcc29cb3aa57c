"""Starts that were cut off: members not bound yet go where the plan puts them, if that still holds."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import BindFailed, GroupChanged, NodeDeleted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import outcomes_of
from tests.worlds import gang, pods, subgroup, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2 a3=2
zone-a rack-2 : b1=1 b2=4
"""


def planned(where: Mapping[str, str], group: PodGroup | None = None) -> PodGroup:
    """A gang of four with a plan of ``pod name -> node``."""
    group = group or gang(min_member=4, required="rack")
    return replace(group, plan={f"default/{name}": node for name, node in where.items()})


def members(bound: Mapping[str, str], count: int = 4) -> list[Pod]:
    """The gang's pods, those in ``bound`` on their node."""
    return [replace(pod, node_name=bound.get(pod.name)) for pod in pods("train", count)]


PLAN = {"train-0": "a1", "train-1": "a2", "train-2": "a2", "train-3": "a3"}


class TestTheStartIsCarriedOn:
    def test_members_go_where_they_were_promised_to(self) -> None:
        # By itself rack-1 would be filled node by node, and the first member would join the third.
        drawn = world(TWO_RACKS).run(planned(PLAN), members=members({"train-3": "a3"}))
        assert drawn.where == {"train-0": "a1", "train-1": "a2", "train-2": "a2"}

    def test_before_the_first_binding_too(self) -> None:
        # rack-2 would be tighter, but a binding may be on its way to rack-1.
        drawn = world(TWO_RACKS).run(planned(PLAN), members=members({}))
        assert drawn.where == PLAN

    def test_who_has_lost_the_place_goes_elsewhere_in_the_domain(self) -> None:
        [thief] = pods(None, 1, prefix="thief", on="a1")
        drawn = world("zone-a rack-1 : a1=1 a2=2 a3=2\nzone-a rack-2 : b1=9")
        drawn.run(planned(PLAN), members=[*members({"train-3": "a3"}), thief])
        assert drawn.where == {"train-0": "a3", "train-1": "a2", "train-2": "a2"}
        assert drawn.outcome("train").reason is None

    def test_and_waits_where_the_domain_is_full_while_the_others_are_carried_on(self) -> None:
        drawn = world("zone-a rack-1 : a2=2 a3=1\nzone-a rack-2 : b1=9")
        drawn.run(planned(PLAN), members=members({"train-3": "a3"}))
        assert drawn.where == {"train-1": "a2", "train-2": "a2"}
        assert drawn.left("train") == {"train-0": Reason.TOPOLOGY_PLACEMENT_FAILED}

    def test_all_of_it_is_one_outcome(self) -> None:
        drawn = world("zone-a rack-1 : a1=1 a2=2 a3=2\nzone-a rack-2 : b1=9")
        [thief] = pods(None, 1, prefix="thief", on="a1")
        decisions = drawn.tell(GroupChanged(planned(PLAN))).engine.handle(
            *(PodUpserted(pod) for pod in [*members({"train-3": "a3"}), thief]), Tick()
        )
        [outcome] = outcomes_of(decisions)
        assert {one.pod.name for one in outcome.bindings} == {"train-0", "train-1", "train-2"}
        assert outcome.place is not None and outcome.place.path[:2] == ("zone-a", "rack-1")

    def test_ranks_do_not_meet(self) -> None:
        bound = [replace(pod, rank=0 if pod.node_name else None) for pod in members({"train-3": "a3"})]
        drawn = world(TWO_RACKS).run(planned(PLAN), members=bound)
        assert sorted(rank for rank in drawn.rank.values() if rank is not None) == [1, 2, 3]

    def test_a_late_member_joins_them(self) -> None:
        drawn = world(TWO_RACKS).run(planned(PLAN), members=members({"train-3": "a3"}, count=5))
        assert drawn.used(by="rack") == {"rack-1": 4}

    @pytest.mark.parametrize("count", [4, 5], ids=["all are planned", "one is late"])
    def test_it_goes_before_all_that_was_not_begun(self, count: int) -> None:
        needy = replace(gang("needy", min_member=2), priority=1000)
        drawn = world("zone-a rack-1 : a1=1 a2=2 a3=1")
        drawn.run(planned(PLAN), needy, members=[*members({"train-3": "a3"}, count), *pods("needy", 2)])
        assert drawn.where == {"train-0": "a1", "train-1": "a2", "train-2": "a2"}

    def test_and_so_does_one_with_subgroups_whose_members_were_all_planned(self) -> None:
        parts = [subgroup("left", 2), subgroup("right", 2)]
        group = planned(PLAN, gang(min_member=4, required="rack", subgroups=parts))
        halves = {"train-0": "left", "train-1": "left", "train-2": "right", "train-3": "right"}
        begun = [replace(pod, subgroup=halves[pod.name]) for pod in members({"train-3": "a3"})]
        needy = replace(gang("needy", min_member=2), priority=1000)
        drawn = world("zone-a rack-1 : a1=1 a2=2 a3=1").run(group, needy, members=[*begun, *pods("needy", 2)])
        assert drawn.where == {"train-0": "a1", "train-1": "a2", "train-2": "a2"}

    def test_one_with_a_refused_binding_is_completed_in_its_ordinary_turn(self) -> None:
        drawn = world("zone-a rack-1 : a1=1 a2=2 a3=2").run(planned(PLAN), members=members({"train-3": "a3"}))
        drawn.tell(BindFailed("default/train-0", "the server said no"))
        item = drawn.engine.state.item("default/train")
        assert item is not None and not item.begun
        drawn.run()
        assert set(drawn.where) == {"train-0", "train-1", "train-2"}


class TestThePlanHoldsNoMore:
    def test_with_nothing_bound_a_plan_that_does_not_fit_is_ignored(self) -> None:
        drawn = world("zone-a rack-1 : a2=2 a3=2\nzone-a rack-2 : b1=2 b2=4")
        drawn.run(planned(PLAN), members=members({}))
        assert drawn.used(by="rack") == {"rack-1": 4}
        drawn = world("zone-a rack-1 : a1=0 a2=2 a3=1\nzone-a rack-2 : b1=2 b2=4")
        drawn.run(planned(PLAN), members=members({}))
        assert drawn.used(by="rack") == {"rack-2": 4}

    def test_recreated_members_are_others(self) -> None:
        anew = [replace(pod, uid=f"{pod.uid}/2") for pod in members({})]
        drawn = world(TWO_RACKS).run(planned(PLAN), members=anew)
        assert drawn.used() == {"b2": 4}

    def test_a_required_level_counts_more(self) -> None:
        across = {**PLAN, "train-0": "b1"}
        drawn = world(TWO_RACKS).run(planned(across), members=members({"train-3": "a3"}))
        assert drawn.used(by="rack") == {"rack-1": 3}

    def test_and_so_does_that_of_a_subgroup(self) -> None:
        group = gang(min_member=4, subgroups=[subgroup("left", 2, required="rack"), subgroup("right", 2)])
        left, right = pods("train", 2, subgroup="left"), pods("train", 2, subgroup="right")
        plan = {"left-0": "a1", "left-1": "b1", "right-0": "a2", "right-1": "a2"}
        drawn = world(TWO_RACKS).run(planned(plan, group), members=[*left, *right])
        assert len(drawn.used("left", by="rack")) == 1
        assert sum(drawn.used().values()) == 4

    def test_a_node_that_is_gone(self) -> None:
        drawn = world(TWO_RACKS).tell(NodeDeleted("a1"))
        drawn.run(planned(PLAN), members=members({"train-3": "a3"}))
        assert drawn.where == {"train-0": "a3", "train-1": "a2", "train-2": "a2"}

    def test_who_was_refused_there_is_not_sent_there_again_by_the_plan(self) -> None:
        drawn = world("zone-a rack-1 : a1=5 a2=2 a3=3").run(planned(PLAN), members=members({"train-3": "a3"}))
        assert drawn.where["train-0"] == "a1"
        drawn.tell(BindFailed("default/train-0", "the server said no")).run()
        # Beside most of the others, not where the plan had it.
        assert drawn.where["train-0"] == "a3"

    def test_a_plan_that_arrives_late_wakes_no_item(self) -> None:
        drawn = world("zone-a rack-1 : a1=1").run(gang(min_member=4), members=members({}))
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        told = len(drawn.engine.story("default/train"))
        drawn.run(planned(PLAN, gang(min_member=4)))
        assert len(drawn.engine.story("default/train")) == told

    def test_a_member_that_is_gone_is_not_waited_for(self) -> None:
        drawn = world(TWO_RACKS).tell(GroupChanged(planned(PLAN)))
        drawn.tell(*(PodUpserted(pod) for pod in members({"train-3": "a3"})), PodDeleted("default/train-0"))
        drawn.run()
        assert drawn.where == {"train-1": "a2", "train-2": "a2"}
