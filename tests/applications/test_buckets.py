"""Buckets and the order of tasks (Volcano task-topology)."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.applications.buckets import Buckets, load_of, make_buckets
from closeby.objects.groups import RoleRules
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.words import natural_key
from tests.applications.roles import rules, task, tasks

#: The rules of the proposal's example.
SEED = rules(affinity="ps,worker", anti_affinity="ps")


def names(pods: Sequence[Pod]) -> str:
    return " ".join(pod.name for pod in pods)


def drawn(made: Buckets) -> list[str]:
    return [names(bucket) for bucket in made.members]


class TestTheProposal:
    def test_its_two_buckets(self) -> None:
        assert drawn(make_buckets(SEED, tasks("ps*2 worker*4"))) == [
            "ps0 worker0 worker2",
            "ps1 worker1 worker3",
        ]

    def test_its_order_of_tasks(self) -> None:
        made = make_buckets(SEED, tasks("ps*2 worker*4"))
        assert names(made.order) == "ps0 worker0 worker2 ps1 worker1 worker3"


class TestBuckets:
    def test_the_bigger_bucket_goes_first_and_who_has_no_rank_last(self) -> None:
        """worker0 has 3 CPUs, so the others go to the other ps; nothing is said about the evaluator."""
        found = rules(affinity="ps,worker", anti_affinity="ps;chief,ps", order="chief,ps")
        members = tasks("chief=1 ps*2=2 worker=3 evaluator=1")
        members += [
            replace(one, name=name, uid=name) for name in ("worker1", "worker2") for one in tasks("worker")
        ]
        made = make_buckets(found, members)
        assert drawn(made) == ["chief0", "ps0 worker0", "ps1 worker1 worker2"]
        assert names(made.order) == "ps1 worker1 worker2 ps0 worker0 chief0 evaluator0"

    def test_affinity_may_outweigh_anti_affinity(self) -> None:
        """Four workers draw the second ps more than the first one repels it."""
        found = rules(affinity="ps,worker", anti_affinity="ps", order="worker,ps")
        assert drawn(make_buckets(found, tasks("ps*2 worker*4"))) == [
            "worker0 worker1 worker2 worker3 ps0 ps1"
        ]

    def test_who_is_neither_drawn_nor_repelled_joins(self) -> None:
        assert drawn(make_buckets(rules(affinity="ps;worker"), tasks("ps worker"))) == ["ps0 worker0"]

    def test_drawn_and_repelled_alike_joins(self) -> None:
        assert drawn(make_buckets(rules(affinity="ps", anti_affinity="ps"), tasks("ps*2"))) == ["ps0 ps1"]

    def test_apart_from_their_own_each_has_a_bucket(self) -> None:
        assert drawn(make_buckets(rules(anti_affinity="ps"), tasks("ps*3"))) == ["ps0", "ps1", "ps2"]

    def test_numbers_in_names_are_numbers(self) -> None:
        made = make_buckets(rules(affinity="worker"), tasks("worker*11"))
        assert names(made.order).split()[1:3] == ["worker1", "worker2"]
        assert names(made.order).endswith("worker10")

    def test_an_order_alone_makes_no_buckets_but_is_kept(self) -> None:
        made = make_buckets(rules(order="worker"), tasks("chief ps worker*2"))
        assert made.members == ()
        assert names(made.order) == "worker0 worker1 chief0 ps0"

    def test_a_task_without_a_role_is_out_of_bucket(self) -> None:
        made = make_buckets(SEED, [task("a", ""), *tasks("ps")])
        assert drawn(made) == ["ps0"]
        assert names(made.order) == "ps0 a"
        assert made.bucket_of == {"default/ps0": 0}

    def test_equal_buckets_are_filled_by_load_and_then_by_age(self) -> None:
        """Workers repel each other; ps1 is lighter than ps0, so worker0 joins it."""
        members = [task("ps0", "ps", cores(3)), task("ps1", "ps", cores(1)), *tasks("worker*2")]
        made = make_buckets(rules(anti_affinity="ps;worker"), members)
        assert drawn(made) == ["ps0 worker1", "ps1 worker0"]
        assert drawn(make_buckets(SEED, tasks("ps*2 worker")))[0] == "ps0 worker0"

    def test_of_buckets_that_draw_alike_that_of_the_own_subgroup_comes_first(self) -> None:
        """By load alone each ps would get one worker of either subgroup, which may be in different racks."""
        members = [
            replace(pod, subgroup=subgroup)
            for pod, subgroup in zip(tasks("ps*2 worker*4"), "abaabb", strict=True)
        ]
        assert drawn(make_buckets(SEED, members)) == ["ps0 worker0 worker1", "ps1 worker2 worker3"]

    def test_subgroups_of_one_role_each_change_nothing(self) -> None:
        members = [replace(pod, subgroup=pod.role) for pod in tasks("ps*2 worker*4")]
        assert drawn(make_buckets(SEED, members)) == ["ps0 worker0 worker2", "ps1 worker1 worker3"]


class TestRunningTasks:
    def test_a_running_task_is_in_its_nodes_bucket(self) -> None:
        """Two ps run on one node although they repel each other: that is where they are."""
        running = [(pod, 7) for pod in tasks("ps*2", on="n7")]
        made = make_buckets(SEED, tasks("worker*2"), running)
        assert drawn(made) == ["ps0 ps1 worker0 worker1"]
        assert names(made.order) == "worker0 worker1"

    def test_running_tasks_draw_but_weigh_nothing(self) -> None:
        """Each ps draws alike: worker0 goes to the older bucket, worker1 to the one that has no load yet."""
        ps0, ps1 = tasks("ps*2=8", on="-")
        made = make_buckets(SEED, tasks("worker*2"), [(ps0, 1), (ps1, 2)])
        assert drawn(made) == ["ps0 worker0", "ps1 worker1"]

    def test_a_node_with_a_large_running_task_is_as_good_as_one_with_a_small(self) -> None:
        large, small = task("ps0", "ps", cores(8), on="-"), task("ps1", "ps", cores(1), on="-")
        made = make_buckets(SEED, tasks("worker*1"), [(large, 1), (small, 2)])
        assert drawn(made) == ["ps0 worker0", "ps1"]

    def test_running_tasks_without_rank_make_no_bucket(self) -> None:
        [chief] = tasks("chief", on="n1")
        assert drawn(make_buckets(SEED, tasks("ps"), [(chief, 1)])) == ["ps0"]

    def test_the_bucket_with_most_waiting_tasks_goes_first(self) -> None:
        ps0, ps1 = tasks("ps*2", on="-")
        old = [task(f"worker{index}", "worker", on="n1") for index in (7, 8, 9)]
        made = make_buckets(SEED, tasks("worker*3"), [(ps0, 1), (ps1, 2), *((pod, 1) for pod in old)])
        assert drawn(made) == ["ps0 worker7 worker8 worker9 worker0 worker2", "ps1 worker1"]


def test_load_is_thousandths_of_a_cpu_and_mi_and_thousandths_of_all_else() -> None:
    needs = PodSpec(requests=(("cpu", 1500), ("memory", 3 << 20), ("nvidia.com/gpu", 2)))
    assert load_of(needs) == (1500 + 3 + 2000) << 20
    assert load_of(PodSpec(requests=(("memory", 1),))) == 1


def cores(count: int) -> PodSpec:
    return PodSpec(requests=(("cpu", count * 1000),))


ROLES = "abcd"
PAIRS = st.frozensets(
    st.tuples(st.sampled_from(ROLES), st.sampled_from(ROLES)).map(lambda two: (min(two), max(two)))
)
RULES = st.builds(
    RoleRules,
    affinity=PAIRS,
    anti_affinity=PAIRS,
    order=st.lists(st.sampled_from(ROLES), unique=True).map(tuple),
)
KINDS = st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 3)), max_size=20)
NODES = st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 2)), max_size=6)


@given(RULES, KINDS, NODES, st.randoms(use_true_random=False))
def test_shuffled_input_makes_the_same_buckets(
    found: RoleRules, kinds: list[tuple[str, int]], nodes: list[tuple[str, int]], chance: Random
) -> None:
    waiting = [task(f"t{index}", role, cores(cpu)) for index, (role, cpu) in enumerate(kinds)]
    running = [(task(f"r{index}", role, on=f"n{at}"), at) for index, (role, at) in enumerate(nodes)]
    made = make_buckets(found, waiting, running)
    chance.shuffle(waiting)
    chance.shuffle(running)
    assert make_buckets(found, waiting, running) == made


@given(RULES, KINDS, NODES)
def test_the_rule_applied_word_by_word_makes_the_same_buckets(
    found: RoleRules, kinds: list[tuple[str, int]], nodes: list[tuple[str, int]]
) -> None:
    waiting = [task(f"t{index}", role, cores(cpu)) for index, (role, cpu) in enumerate(kinds)]
    running = [(task(f"r{index}", role, on=f"n{at}"), at) for index, (role, at) in enumerate(nodes)]
    made = make_buckets(found, waiting, running)
    assert drawn(made) == word_by_word(found, waiting, running)
    assert sorted(pod.uid for pod in made.order) == sorted(pod.uid for pod in waiting)


def word_by_word(found: RoleRules, waiting: list[Pod], running: list[tuple[Pod, int]]) -> list[str]:
    """The proposal's rule, asking every bucket for every task."""

    def order(pod: Pod) -> tuple[object, ...]:
        return found.place(pod.role), -found.ranks().get(pod.role, 0), natural_key(pod.name)

    buckets: list[list[Pod]] = []
    loads: list[int] = []
    at: dict[int, int] = {}
    slots = {pod.uid: slot for pod, slot in running}
    for pod in sorted((pod for pod, _ in running if found.ranks().get(pod.role, 0)), key=order):
        if slots[pod.uid] not in at:
            at[slots[pod.uid]] = len(buckets)
            buckets.append([])
            loads.append(0)
        buckets[at[slots[pod.uid]]].append(pod)
    for pod in sorted((pod for pod in waiting if found.ranks().get(pod.role, 0)), key=order):
        pulls = [
            sum(found.pulls().get(pod.role, {}).get(other.role, 0) for other in bucket) for bucket in buckets
        ]
        best = min(range(len(buckets)), key=lambda index: (-pulls[index], loads[index], index), default=None)
        if best is None or pulls[best] < 0:
            best = len(buckets)
            buckets.append([])
            loads.append(0)
        buckets[best].append(pod)
        loads[best] += load_of(pod.spec)
    return [names(bucket) for bucket in buckets]
