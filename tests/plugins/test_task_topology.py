"""task-topology: tasks of one bucket go to one node (Volcano task-topology)."""

from collections.abc import Iterable, Sequence
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.task_topology import TaskTopology, TaskTopologyArguments
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.extension import Undo
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.services import Traffic
from tests.applications.roles import job, task, tasks
from tests.plugins.asking import handle_of, place, scores
from tests.worlds import World, fabric, node, spec, world


def cpus(text: str) -> list[Node]:
    """``node1=2 node2=1``: nodes with so many CPUs."""
    pairs = (part.split("=") for part in text.split())
    return [node(name, allocatable={"cpu": int(cpu) * 1000}) for name, cpu in pairs]


#: The proposal's example: its job and its three nodes.
NODES = cpus("node1=2 node2=1 node3=4")
JOB = job(affinity="ps,worker", anti_affinity="ps")
SIX = tasks("ps*2 worker*4")
#: The same tasks on a drawing's resource.
ON_GPUS = [replace(pod, spec=spec(gpu=1)) for pod in SIX]


class Asked:
    """The plugin in the middle of one gang's cycle."""

    def __init__(
        self,
        group: PodGroup = JOB,
        waiting: Sequence[Pod] = SIX,
        running: Iterable[Pod] = (),
        nodes: Iterable[Node] = NODES,
        weight: float = 1.0,
    ) -> None:
        runs = [(pod, pod.node_name or "") for pod in running]
        handle = handle_of(nodes, runs)
        self.plugin = TaskTopology(TaskTopologyArguments(weight=weight), handle)
        self.pods = {pod.name: pod for pod in waiting}
        placed = [(pod, self.slot(name)) for pod, name in runs]
        self.order = self.plugin.member_order(group, tuple(waiting), placed)

    def slot(self, name: str) -> int:
        slot = self.plugin.handle.cluster.slot(name)
        assert slot is not None
        return slot

    def place(self, name: str, on: str) -> Undo:
        place(self.plugin.handle.cluster, self.pods[name], on)
        undo = self.plugin.pod_assumed(self.pods[name], self.slot(on))
        assert undo is not None
        return undo

    def scores(self, name: str) -> dict[str, float]:
        return scores(self.plugin, self.pods[name])


class TestTheProposalsTables:
    def test_ps0(self) -> None:
        assert Asked().scores("ps0") == {"node1": 2, "node2": 1, "node3": 3}

    def test_worker0_after_ps0(self) -> None:
        asked = Asked()
        asked.place("ps0", "node3")
        assert asked.scores("worker0") == {"node1": 2, "node2": 1, "node3": 3}

    def test_worker2_after_both(self) -> None:
        asked = Asked()
        asked.place("ps0", "node3")
        asked.place("worker0", "node3")
        assert asked.scores("worker2") == {"node1": 1, "node2": 1, "node3": 3}

    def test_the_other_bucket(self) -> None:
        asked = Asked()
        for name in ("ps0", "worker0", "worker2"):
            asked.place(name, "node3")
        assert asked.scores("ps1") == {"node1": 2, "node2": 1, "node3": 0}  # 0 is anti-affinity
        asked.place("ps1", "node1")
        assert asked.scores("worker1") == {"node1": 2, "node2": 1, "node3": 1}
        asked.place("worker1", "node1")
        worker3 = asked.scores("worker3")
        assert worker3["node2"] == worker3["node3"] == 1

    def test_the_whole_example_as_the_engine_places_it(self) -> None:
        """worker3 is as well on node2 as on node3: there other scores decide."""
        drawn = world(NODES, explain=True).run(JOB, members=SIX)
        assert {name: drawn.where[name] for name in list(drawn.where)[:5]} == {
            "ps0": "node3",
            "worker0": "node3",
            "worker2": "node3",
            "ps1": "node1",
            "worker1": "node1",
        }
        assert drawn.where["worker3"] in ("node2", "node3")
        assert tables(drawn) == {
            "ps0": {"node1": 2, "node2": 1, "node3": 3},
            "worker0": {"node1": 2, "node2": 1, "node3": 3},
            "worker2": {"node1": 1, "node2": 1, "node3": 3},
            "ps1": {"node1": 2, "node2": 1, "node3": 0},
            "worker1": {"node1": 2, "node2": 1, "node3": 1},
            "worker3": {"node2": 1, "node3": 1},
        }
        assert drawn.outcome("job").buckets == (
            ("ps0", "worker0", "worker2"),
            ("ps1", "worker1", "worker3"),
        )

    def test_load_balance_and_distance_together_tear_no_bucket_apart(self) -> None:
        """Nodes with memory are balanced too, and the one that holds ps0 is the nearest."""
        nodes = [replace(one, allocatable={**one.allocatable, "memory": 64 << 30}) for one in NODES]
        drawn = world(nodes, fabric(HOSTNAME)).run(JOB, members=SIX)
        assert {name for name, node in drawn.where.items() if node == "node1"} == {"ps1", "worker1"}


def tables(drawn: World) -> dict[str, dict[str, float]]:
    """What the plugin gave each node for each pod."""
    return {
        one.pod.partition("/")[2]: {name: entry["task-topology"] for name, entry in one.scores.items()}
        for one in drawn.outcome("job").explanations
    }


class TestScores:
    def test_volcanos_larger_example(self) -> None:
        """Buckets {chief0}, {ps0, worker0}, {ps1, worker1, worker2} on nodes of 8, 5 and 2 CPUs."""
        group = job(affinity="ps,worker", anti_affinity="ps;chief,ps", order="chief,ps")
        waiting = [*tasks("chief ps*2=2 worker=3 evaluator")]
        waiting += [
            replace(one, name=name, uid=name) for name in ("worker1", "worker2") for one in tasks("w")
        ]
        waiting = [replace(one, role="worker") if one.role == "w" else one for one in waiting]
        asked = Asked(group, waiting, nodes=cpus("a=8 b=5 c=2"))
        found = []
        for name, on in [("ps1", "a"), ("worker1", "a"), ("worker2", "a"), ("ps0", "b"), ("worker0", "b")]:
            found.append(list(asked.scores(name).values()))
            asked.place(name, on)
        assert found == [[3, 3, 1], [3, 2, 2], [3, 1, 1], [0, 2, 1], [1, 2, 0]]
        assert list(asked.scores("chief0").values()) == [0, 0, 1]
        assert list(asked.scores("evaluator0").values()) == [0, 0, 0]

    def test_a_task_that_does_not_fit_scores_nothing(self) -> None:
        asked = Asked(waiting=tasks("ps*2=3 worker*4"))
        assert asked.scores("ps0") == {"node1": 0, "node2": 0, "node3": 2}

    def test_tasks_that_run_count_for_affinity(self) -> None:
        [ps0] = tasks("ps", on="node1")
        asked = Asked(waiting=tasks("worker*2"), running=[ps0])
        assert asked.scores("worker0") == {"node1": 2, "node2": 1, "node3": 2}

    def test_tasks_that_run_count_for_anti_affinity(self) -> None:
        [ps0] = tasks("ps", on="node1")
        ps1 = task("ps1", "ps", ps0.spec)
        asked = Asked(job(anti_affinity="ps"), [ps1], running=[ps0])
        assert asked.scores("ps1") == {"node1": 0, "node2": 1, "node3": 1}

    def test_more_that_repel_count_more(self) -> None:
        running = tasks("ps*2", on="node3")
        ps2 = task("ps2", "ps", running[0].spec)
        asked = Asked(job(anti_affinity="ps"), [ps2], running=running)
        assert asked.scores("ps2") == {"node1": 1, "node2": 1, "node3": -1}

    def test_all_resources_decide_what_fits_beside(self) -> None:
        """node1 has CPUs for all but takes two pods only."""
        small = node("node1", allocatable={"cpu": 9000, "pods": 2})
        assert Asked(nodes=[small]).scores("ps0") == {"node1": 2}

    def test_a_large_task_is_passed_over_and_the_next_ones_still_fit(self) -> None:
        waiting = [*tasks("ps=1"), *tasks("big=5"), *tasks("worker*3=1")]
        group = job(affinity="ps,big,worker", order="ps,big,worker")
        assert Asked(group, waiting, nodes=cpus("n=4")).scores("ps0") == {"n": 4}

    def test_the_weight_is_a_factor(self) -> None:
        assert Asked(weight=2.5).scores("ps0") == {"node1": 5, "node2": 2.5, "node3": 7.5}

    @pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), 1e308])
    def test_a_weight_that_makes_no_sense_is_refused(self, weight: float) -> None:
        with pytest.raises(ValueError, match="from 0 to"):
            TaskTopologyArguments(weight=weight)


class TestWhoIsConcerned:
    def test_gangs_without_annotations_are_left_alone(self) -> None:
        asked = Asked(job())
        assert asked.order is None
        assert not any(asked.plugin.scores(pod) for pod in SIX)
        assert asked.plugin.pod_assumed(SIX[0], 0) is None
        assert asked.plugin.buckets(job(), tuple(SIX), ()) is None

    def test_pods_of_others_are_left_alone(self) -> None:
        other = replace(SIX[0], group=None, name="other", uid="other")
        asked = Asked()
        assert not asked.plugin.scores(other)
        assert asked.plugin.pod_assumed(other, 0) is None

    def test_an_order_alone_orders_and_does_not_score(self) -> None:
        asked = Asked(job(order="worker"))
        assert asked.order is not None
        assert [pod.name for pod in asked.order] == ["worker0", "worker1", "worker2", "worker3", "ps0", "ps1"]
        assert not asked.plugin.scores(SIX[0])


class TestUndo:
    def test_what_was_undone_never_was(self) -> None:
        asked = Asked()
        before = asked.scores("worker0")
        undo = asked.place("ps0", "node2")
        asked.plugin.handle.cluster.forget_pod(asked.pods["ps0"].uid)
        undo()
        assert asked.scores("worker0") == before

    @given(st.data())
    def test_books_after_undo_equal_those_before(self, data: st.DataObject) -> None:
        asked = Asked(running=[task("ps9", "ps", on="node1"), task("worker9", "worker", on="node3")])
        assert asked.plugin._plan is not None
        books = asked.plugin._plan.placements
        left = list(asked.pods)
        undos: list[Undo] = []
        seen = [deepcopy(vars(books))]
        for place_one in data.draw(st.lists(st.booleans(), max_size=20)):
            if place_one and left:
                name = left.pop(data.draw(st.integers(0, len(left) - 1)))
                undo = asked.plugin.pod_assumed(asked.pods[name], data.draw(st.integers(0, 2)))
                assert undo is not None
                undos.append(undo)
                seen.append(deepcopy(vars(books)))
            elif undos:
                undos.pop()()
                seen.pop()
                left = [name for name in asked.pods if books.awaits(asked.pods[name])]
                assert vars(books) == seen[-1]
        for undo in reversed(undos):
            undo()
        assert vars(books) == seen[0]


class TestWithMinMember:
    def test_the_minimum_is_a_whole_bucket(self) -> None:
        """Only node3 has room, for three: ps0 and its two workers, not both ps."""
        drawn = world(cpus("node1=0 node2=0 node3=3"))
        drawn.run(replace(JOB, min_member=3), members=SIX)
        assert drawn.where == {"ps0": "node3", "worker0": "node3", "worker2": "node3"}
        assert list(drawn.left("job")) == ["ps1", "worker1", "worker3"]

    def test_the_rest_joins_its_buckets_when_there_is_room(self) -> None:
        drawn = world(cpus("node3=3")).run(replace(JOB, min_member=3), members=SIX)
        for one in cpus("node1=2 node2=1 node4=3"):
            drawn.engine.cluster.add_node(one)
        drawn.run(replace(JOB, min_member=4))
        assert drawn.used("ps") == {"node3": 1, "node4": 1}
        assert {drawn.where[name] for name in ("ps1", "worker1", "worker3")} == {"node4"}

    def test_beyond_the_minimum_buckets_are_filled_in_their_order(self) -> None:
        """Room for the first bucket and for 4 CPUs more: ps1 and its worker rather than ps1 and ps2."""
        waiting = tasks("ps*3=2 worker*3=1")
        drawn = world(cpus("a=3 b=4")).run(replace(JOB, min_member=2), members=waiting)
        assert drawn.where == {"ps0": "a", "worker0": "a", "ps1": "b", "worker1": "b", "worker2": "b"}

    def test_a_gang_that_finds_no_place_leaves_no_trace(self) -> None:
        drawn = world(cpus("node3=5")).run(replace(JOB, min_member=6), members=SIX)
        assert drawn.where == {}
        drawn.run(replace(JOB, min_member=5))
        assert list(drawn.where) == ["ps0", "worker0", "worker2", "ps1", "worker1"]


class TestInTheEngine:
    def test_other_scores_do_not_tear_a_bucket_apart(self) -> None:
        """Least allocated would spread the six over both nodes."""
        drawn = world("z r : a=100 b=100").run(JOB, members=ON_GPUS)
        assert {drawn.where[name] for name in ("ps0", "worker0", "worker2")} == {"a"}
        assert {drawn.where[name] for name in ("ps1", "worker1", "worker3")} == {"b"}

    def test_the_order_of_the_input_does_not_matter(self) -> None:
        drawn = world(NODES).run(JOB, members=SIX)
        assert world(NODES[::-1]).run(JOB, members=SIX[::-1]).where == drawn.where

    def test_equal_pods_of_a_gang_without_rules_come_first_and_change_nothing(self) -> None:
        """Both gangs' pods are of one class; only the second one has buckets."""
        plain = [replace(pod, name=f"p{pod.name}", uid=f"p{pod.name}", group="plain") for pod in ON_GPUS]
        drawn = world("z r : a=100 b=100")
        drawn.run(replace(job(), name="plain"), members=plain).run(JOB, members=ON_GPUS)
        assert drawn.where["ps0"] == drawn.where["worker0"] == drawn.where["worker2"]
        assert drawn.where["ps0"] != drawn.where["ps1"]

    def test_a_topology_still_confines_the_gang(self) -> None:
        """Only rack r2 holds all six; inside it the buckets choose the nodes."""
        drawn = world("z r1 : a1=2 a2=3\nz r2 : b1=3 b2=4")
        drawn.run(JOB, members=ON_GPUS)
        assert drawn.used(by="rack") == {"r2": 6}
        assert {drawn.where[name] for name in ("ps0", "worker0", "worker2")} == {drawn.where["ps0"]}

    def test_a_mistake_is_reported_and_the_gang_is_placed_without(self) -> None:
        wrong = job(affinity="ps,wroker")
        drawn = world(cpus("a=100")).run(wrong, members=SIX)
        [condition] = drawn.outcome("job").conditions
        assert (condition.reason, condition.object) == (Reason.INVALID_SPEC, "PodGroup/default/job")
        assert "wroker" in condition.message
        assert not condition.blocking
        assert len(drawn.where) == 6

    def test_an_incomplete_gang_may_still_get_the_roles_it_lacks(self) -> None:
        drawn = world(cpus("a=100")).run(replace(JOB, min_member=6), members=tasks("worker*4"))
        assert drawn.outcome("job").conditions == ()
        assert drawn.reason("job") is Reason.GANG_INCOMPLETE

    def test_the_closest_domain_of_a_gang_whose_tasks_lie_apart_is_no_single_node(self) -> None:
        """a1 alone would hold all six; without anti-affinity that is what is best."""
        drawn = world("z r1 : a1=6 a2=6\nz r2 : b1=20 b2=20").run(JOB, members=ON_GPUS)
        assert drawn.used() == {"a1": 3, "a2": 3}
        alone = job(affinity="ps,worker")
        assert world("z r1 : a1=6 a2=6\nz r2 : b1=20").run(alone, members=ON_GPUS).used() == {"a1": 6}

    def test_it_can_be_taken_out(self) -> None:
        """Then the order is that of the names, and nobody keeps both ps apart."""
        off = PluginEntry(name="task-topology", enabled=False)
        drawn = world(cpus("a=100 b=100"), plugins=[off]).run(JOB, members=SIX)
        assert list(drawn.where) == ["ps0", "ps1", "worker0", "worker1", "worker2", "worker3"]
        assert drawn.used("ps") == {"a": 2}


class TestTraffic:
    GROUP = job(traffic="ps-worker=10,worker-worker=1")

    def test_kinds_weights_and_places(self) -> None:
        """No topology: different nodes are 1 apart."""
        asked = Asked(self.GROUP, [*SIX, *tasks("chief")])
        found = traffic(asked, self.GROUP)
        assert found.kinds.tolist() == [0, 0, 1, 1, 1, 1, 2]
        assert found.weights.tolist() == [[0, 10, 0], [10, 1, 0], [0, 0, 0]]
        assert (found.locations.tolist(), found.between.tolist()) == ([0, 0, 0], [[1]])
        assert np.isinf(found.limits).all()
        assert not found.unknown.any()
        assert not found.standing.any()
        assert found.standing.shape == (3, 3)

    def test_edges_of_the_gangs_tree(self) -> None:
        """a1 and a2 share a rack, b1 is in another one."""
        racks = {"a1": "r1", "a2": "r1", "b1": "r2"}
        nodes = [node(name, {"rack": rack}, {"cpu": 4000}) for name, rack in racks.items()]
        [ps0] = tasks("ps", on="a1")
        asked = Asked(self.GROUP, tasks("worker*2"), running=[ps0], nodes=nodes)
        topologies = asked.plugin.handle.topologies
        topologies.declare(fabric("rack", HOSTNAME))
        asked.place("worker0", "b1")
        state = CycleState(self.GROUP, topologies.tree("fabric"))
        found = asked.plugin.traffic(state, (asked.pods["worker1"],))
        assert found is not None
        assert found.between.tolist() == [[2, 4], [4, 2]]
        assert found.locations.tolist() == [0, 0, 1]
        # A worker says 10 to ps0 on a1 and 1 to worker0 on b1; a ps says 10 to worker0 only.
        assert found.standing.tolist() == [[40, 40, 0], [0 + 4, 20 + 4, 40], [0, 0, 0]]

    def test_without_affinity_traffic_makes_the_buckets(self) -> None:
        """Who says most goes first, and all who talk are drawn to the same nodes."""
        asked = Asked(self.GROUP, [*tasks("chief"), *SIX])
        assert asked.order is not None
        assert [pod.name for pod in asked.order][:3] == ["ps0", "ps1", "worker0"]
        assert asked.order[-1].name == "chief0"
        assert asked.scores("ps0") == {"node1": 2, "node2": 1, "node3": 4}

    def test_without_a_topology_nodes_that_come_later_have_their_place(self) -> None:
        asked = Asked(self.GROUP, SIX)
        assert traffic(asked, self.GROUP).standing.shape == (3, 3)
        for one in cpus("node4=1 node5=1"):
            asked.plugin.handle.cluster.add_node(one)
        found = traffic(asked, self.GROUP)
        assert (found.standing.shape, found.locations.tolist()) == ((3, 5), [0] * 5)

    def test_pods_without_a_role_come_last(self) -> None:
        """Beside a chief to whom nobody says anything either."""
        waiting = [replace(task("aaa", ""), spec=spec(cpu=1)), *tasks("chief"), *SIX]
        asked = Asked(self.GROUP, waiting)
        assert asked.order is not None
        assert [pod.name for pod in asked.order][-2:] == ["chief0", "aaa"]

    def test_pods_without_traffic_have_none(self) -> None:
        asked = Asked()
        assert asked.plugin.traffic(CycleState(JOB), tuple(SIX)) is None
        assert asked.plugin.traffic(CycleState(), tuple(SIX)) is None


def test_buckets_are_those_of_the_gang_that_is_asked_about() -> None:
    """Whatever gang was placed last, and whoever of it runs by now."""
    asked = Asked()
    assert asked.order is not None
    known = asked.plugin.buckets(JOB, asked.order, ())
    assert names(known) == [["ps0", "worker0", "worker2"], ["ps1", "worker1", "worker3"]]
    together = job(affinity="ps,worker")
    assert names(asked.plugin.buckets(together, asked.order, ())) == [sorted(pod.name for pod in SIX)]
    assert names(asked.plugin.buckets(JOB, tuple(tasks("ps worker")), ())) == [["ps0", "worker0"]]
    [ps0] = tasks("ps", on="node3")
    running = ((ps0, asked.slot("node3")),)
    waiting = tuple(pod for pod in asked.order if pod.name != "ps0")
    beside = asked.plugin.buckets(JOB, waiting, running)
    assert names(beside) == names(Asked(JOB, waiting, running=[ps0]).plugin.buckets(JOB, waiting, running))
    assert names(beside)[0][:2] == ["ps0", "worker0"] and names(beside)[1][0] == "ps1"
    assert asked.plugin.buckets(replace(JOB, annotations={}), asked.order, ()) is None


def names(buckets: tuple[tuple[Pod, ...], ...] | None) -> list[list[str]]:
    return [[pod.name for pod in bucket] for bucket in buckets or ()]


def traffic(asked: Asked, group: PodGroup) -> Traffic:
    found = asked.plugin.traffic(CycleState(group), tuple(asked.pods.values()))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("annotations", "forbidden"),
    [
        ({"affinity": "ps,worker"}, True),
        ({"anti_affinity": "ps"}, True),
        ({"traffic": "ps-worker=1"}, False),
        ({"affinity": "ps,worker", "traffic": "ps-worker=1"}, False),
        ({"anti_affinity": "ps", "traffic": "ps-worker=1"}, True),
        ({"order": "ps"}, False),
    ],
)
def test_moves_that_would_undo_what_scores_weighed_are_forbidden(
    annotations: dict[str, str], forbidden: bool
) -> None:
    group = job(**annotations)
    asked = Asked(group).plugin
    assert asked.forbids_moves(CycleState(group)) == forbidden
    assert not asked.forbids_moves(CycleState(replace(group, name="other")))
    assert not asked.forbids_moves(CycleState())
