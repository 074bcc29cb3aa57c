"""What annotations say about roles (Volcano task-topology)."""

import pytest

from closeby.objects.groups import RoleRules
from closeby.objects.reasons import Reason
from closeby.reading.dialects.task_topology import LONGEST_RULES, MOST_ROLES, asks_for_rules, read_rules
from tests.applications.roles import KEYS, job, rules
from tests.golden.fixture import Golden


def complaints(roles: str = "ps worker", **annotations: str) -> list[str]:
    reading = read_rules(job(**annotations), roles.split())
    assert reading.rules is None
    return [one.message.partition(": ")[2] for one in reading.conditions]


class TestRules:
    def test_a_group_of_one_role_is_about_its_pods_among_each_other(self) -> None:
        found = rules(affinity="ps,worker", anti_affinity="ps")
        assert found.affinity == {("ps", "worker")}
        assert found.anti_affinity == {("ps", "ps")}

    def test_a_larger_group_stands_for_every_pair_in_it(self) -> None:
        found = rules(affinity="worker,chief,ps; evaluator")
        assert found.affinity == {
            ("chief", "ps"),
            ("chief", "worker"),
            ("ps", "worker"),
            ("evaluator", "evaluator"),
        }

    def test_blanks_and_empty_entries_say_nothing(self) -> None:
        assert rules(affinity=" ps , worker ;; ,", order=" ps ,, worker") == rules(
            affinity="ps,worker", order="ps,worker"
        )

    def test_a_rule_given_twice_counts_once(self) -> None:
        assert rules(affinity="ps,worker;worker,ps") == rules(affinity="ps,worker")

    def test_nothing_asked_for_is_no_rules(self) -> None:
        assert read_rules(job(), ["ps"]) == (None, ())
        assert read_rules(job(affinity=" "), ["ps"]) == (None, ())

    def test_ranks(self) -> None:
        found = rules("a b c d e f", affinity="b,c;d", anti_affinity="a;d;e,c")
        assert {role: found.ranks().get(role, 0) for role in "abcdef"} == {
            "a": 4,  # apart from its own
            "b": 3,  # with others
            "c": 3,  # with others, which wins over apart from others
            "d": 4,  # apart from and with its own
            "e": 1,  # apart from others
            "f": 0,
        }
        assert rules(affinity="ps").ranks() == {"ps": 2}

    def test_an_order_alone_gives_no_rank(self) -> None:
        found = rules(order="worker,ps")
        assert [found.place(role) for role in ("worker", "ps", "chief")] == [0, 1, 2]
        assert not found.ranks()

    def test_affinity_and_anti_affinity_of_one_pair_cancel_out(self) -> None:
        found = rules(affinity="ps;ps,worker", anti_affinity="ps;chief,worker")
        assert found.pulls() == {
            "worker": {"ps": 1, "chief": -1},
            "ps": {"worker": 1},
            "chief": {"worker": -1},
        }


class TestBounds:
    @pytest.mark.parametrize(("count", "taken"), [(MOST_ROLES, True), (MOST_ROLES + 1, False)])
    def test_so_many_roles_may_stand_in_one_list(self, count: int, taken: bool) -> None:
        roles = [f"r{number}" for number in range(count)]
        reading = read_rules(job(order=",".join(roles)), roles)
        assert (reading.rules is not None) == taken
        assert [one.reason for one in reading.conditions] == ([] if taken else [Reason.INVALID_SPEC])

    @pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
    def test_so_many_characters_are_read(self, more: int, taken: bool) -> None:
        text = "ps,worker".ljust(LONGEST_RULES + more)
        assert (read_rules(job(affinity=text), ("ps", "worker")).rules is not None) == taken

    def test_blank_annotations_ask_for_nothing(self) -> None:
        assert not asks_for_rules(job(affinity=" ", order=""))
        assert asks_for_rules(job(affinity=" ", order="ps"))


class TestTraffic:
    def test_weights_of_pairs(self) -> None:
        assert rules(traffic="ps-worker=10, worker-worker=0.5").traffic == {
            ("ps", "worker"): 10.0,
            ("worker", "worker"): 0.5,
        }

    def test_role_names_may_have_dashes(self) -> None:
        found = rules("a a-b b-c", traffic="a-b-b-c=1,a-b-c=2")
        assert found.traffic == {("a-b", "b-c"): 1.0, ("a", "b-c"): 2.0}

    def test_two_readings_of_equal_meaning_are_one(self) -> None:
        assert rules("a a-a", traffic="a-a-a=1").traffic == {("a", "a-a"): 1.0}

    def test_two_readings_of_different_meaning_are_refused(self, golden: Golden) -> None:
        [complaint] = complaints("a a-b b-c c", traffic="a-b-c=1")
        golden("manifest-problems", complaint)

    @pytest.mark.parametrize("weight", ["0", "-1", "inf", "nan", "much", "", "1e308", "1_0", "\uff11"])
    def test_a_weight_is_a_number_above_zero_and_up_to_a_milliard(self, weight: str) -> None:
        assert complaints(traffic=f"ps-worker={weight}") == [f"'ps-worker={weight}' gives no weight"]

    def test_an_entry_without_a_weight(self) -> None:
        assert "'ps-worker' gives no weight" in complaints(traffic="ps-worker")

    def test_unknown_roles(self, golden: Golden) -> None:
        golden("manifest-problems", complaints(traffic="ps-chief=1"))

    def test_one_pair_with_two_weights(self) -> None:
        assert complaints(traffic="ps-worker=1,worker-ps=2") == ["ps-worker has two weights"]
        assert rules(traffic="ps-worker=1,worker-ps=1").traffic == {("ps", "worker"): 1.0}

    def test_without_affinity_those_who_talk_belong_together_and_who_says_most_goes_first(self) -> None:
        """A ps says 4 x 10 to the workers; a worker 2 x 10 to the ps and 3 to the other workers."""
        found = rules(traffic="ps-worker=10,worker-worker=1").by_traffic({"worker": 4, "ps": 2, "chief": 1})
        assert found.affinity == {("ps", "worker"), ("worker", "worker")}
        assert found.order == ("ps", "worker", "chief")

    def test_a_pod_does_not_talk_to_itself(self) -> None:
        """An a says 10 to the other a; a b says 8 to each of two c, and a c 8 to the b."""
        found = rules("a b c", traffic="a-a=10,b-c=8").by_traffic({"a": 2, "b": 1, "c": 2})
        assert found.order == ("b", "a", "c")

    @pytest.mark.parametrize("weight", ["1000000000", "1e9", "0.001"])
    def test_weights_up_to_a_milliard_are_taken(self, weight: str) -> None:
        assert rules(traffic=f"ps-worker={weight}").traffic == {("ps", "worker"): float(weight)}

    def test_the_annotations_have_the_last_word(self) -> None:
        sizes = {"worker": 4, "ps": 2}
        given = rules(affinity="worker", traffic="ps-worker=10")
        assert given.by_traffic(sizes) == given
        ordered = rules(order="worker", anti_affinity="ps", traffic="ps-worker=10").by_traffic(sizes)
        assert ordered.order == ("worker",)
        assert ordered.anti_affinity == {("ps", "ps")}

    def test_without_traffic_nothing_is_added(self) -> None:
        assert RoleRules().by_traffic({"ps": 2}) == RoleRules()


class TestMistakes:
    @pytest.mark.parametrize("name", ["affinity", "anti_affinity", "order"])
    def test_a_role_that_no_pod_has(self, name: str, golden: Golden) -> None:
        [condition] = read_rules(job(**{name: "ps,wroker"}), ["worker", "ps"]).conditions
        assert condition.reason is Reason.INVALID_SPEC
        assert condition.object == "PodGroup/default/job"
        assert condition.field == f'metadata.annotations["{KEYS[name]}"]'
        assert condition.message == f"{KEYS[name]}: no pod of the gang has the role 'wroker'"
        golden("manifest-problems", condition.remedy)
        assert not condition.blocking

    @pytest.mark.parametrize("name", ["affinity", "anti_affinity", "order"])
    def test_a_role_twice_in_one_group(self, name: str, golden: Golden) -> None:
        golden("manifest-problems", complaints(**{name: "ps,worker, ps"}))

    def test_one_mistake_drops_all_and_all_are_reported(self, golden: Golden) -> None:
        golden(
            "manifest-problems", complaints(affinity="ps,worker", anti_affinity="x", order="y", traffic="z")
        )

    def test_an_order_has_no_groups(self, golden: Golden) -> None:
        golden("manifest-problems", complaints(order="ps;worker"))
