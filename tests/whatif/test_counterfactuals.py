"""What would have to be different: known answers, and that doing just that makes the engine agree."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from closeby.objects.groups import SubGroup, TopologyConstraint
from closeby.objects.nodes import Taint
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.reasons import Reason
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.simulator.runs import Run, simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.records import Counterfactual, Kind
from tests.crowded import CLUSTER, world, worlds
from tests.golden.fixture import Golden
from tests.whatif.afterwards import job_name, left_by
from tests.worlds import draw, gang, pods, spec


def asked(manifests: Manifests) -> tuple[Run, Mapping[str, tuple[Counterfactual, ...]]]:
    run = simulate(manifests, Configuration())
    return run, counterfactuals(run)


def said(manifests: Manifests, key: str = "default/train") -> list[str]:
    """The sentences about one gang."""
    return [one.sentence for one in asked(manifests)[1][key]]


def full(*nodes: str) -> list[Pod]:
    """A pod on each node that takes all of its two GPUs, or as many as it says: ``n5=4``."""
    found = []
    for one in nodes:
        name, _, gpus = one.partition("=")
        found += pods(None, 1, prefix=f"on-{name}", on=name, needs=spec(gpu=int(gpus or 2)))
    return found


def test_a_coarser_level_would_do(golden: Golden) -> None:
    """Four pods of one GPU want a rack; each rack of zone a has two left."""
    waiting = pods("train", 4)
    found = said(world([gang(min_member=4, required="rack")], [*waiting, *full("n1", "n3", "n5=4", "n6=4")]))
    golden("what-if", found[:2])


def test_one_end_is_enough_and_the_soonest_is_named_first(golden: Golden) -> None:
    late, soon, never = full("n1", "n3", "n5=4")
    running = [replace(late, ends=7200.0), replace(soon, ends=3600.0), never, *full("n6=4")]
    found = said(world([gang(min_member=4, required="rack")], [*pods("train", 4), *running]))
    golden("what-if", [one for one in found if "ends: " in one])


def test_some_must_end_together(golden: Golden) -> None:
    running = full("n1", "n2", "n3", "n4", "n5=4", "n6=4")
    waiting = pods("train", 4, needs=spec(gpu=2))
    golden("what-if", said(world([gang(min_member=4, required="rack")], [*waiting, *running])))


def test_no_end_of_one_job_helps(golden: Golden) -> None:
    """Each node of r3 takes one pod; five find no rack whatever ends."""
    waiting = pods("train", 5, needs=spec(gpu=4))
    golden("what-if", said(world([gang(min_member=5, required="rack")], [*waiting, *full("n1")])))


def test_how_short_the_best_rack_is_and_who_stands_in_the_way(golden: Golden) -> None:
    """Only r3 could hold eight GPUs; five of them are taken by two pods, of which one may stay."""
    running = [
        *pods("big", 1, prefix="big", on="n5", needs=spec(gpu=3)),
        *pods(None, 1, prefix="small", on="n6", needs=spec(gpu=1)),
    ]
    (short,) = [
        one
        for one in asked(
            world(
                [gang(min_member=3, required="rack"), gang("big", min_member=1)],
                [*pods("train", 3, needs=spec(gpu=2)), *running],
            )
        )[1]["default/train"]
        if one.kind is Kind.SHORT
    ]
    golden("what-if", short.sentence)
    assert short.fits


def test_a_plain_pod(golden: Golden) -> None:
    waiting = pods(None, 1, prefix="lone", needs=spec(gpu=4))
    small = pods(None, 1, prefix="x", on="n6")
    golden("what-if", said(world([], [*waiting, *full("n5=4"), *small]), "pod:default/lone-0"))
    huge = pods(None, 1, prefix="lone", needs=spec(gpu=9))
    golden("what-if", said(world([], [*huge, *full("n5=4")]), "pod:default/lone-0"))


def test_a_node_selector_that_no_free_node_has(golden: Golden) -> None:
    (pod,) = pods(None, 1, prefix="lone")
    wanting = replace(pod, spec=replace(pod.spec, node_selector=(("disk", "ssd"),)))
    found = said(world([], [wanting]), "pod:default/lone-0")
    golden("what-if", found[0])


def test_taints_that_stand_in_the_way(golden: Golden) -> None:
    nodes = [replace(one, taints=(Taint("team", "ml", "NoSchedule"),)) for one in draw(CLUSTER)]
    found = said(world([], pods(None, 1, prefix="lone"), nodes), "pod:default/lone-0")
    golden("what-if", found[0])


def test_a_taint_that_kubernetes_sets_is_not_to_be_removed() -> None:
    ours, systems = (Taint(key, "", "NoSchedule") for key in ("team", "node.kubernetes.io/disk-pressure"))
    for taints, commands in (((ours,), 1), ((ours, systems), 0)):
        nodes = [replace(one, taints=taints) for one in draw("a r1 : n1=2")]
        _, found = asked(world([], pods(None, 1, prefix="lone"), nodes))
        assert sum(isinstance(one.command, str) for one in found["pod:default/lone-0"]) == commands


def test_only_what_must_be_tolerated_is_named_and_cordoned_nodes_with_it(golden: Golden) -> None:
    """n1 has a taint that is tolerated already, n2 one that is not, and n2 is cordoned besides."""
    one, other = draw("a r1 : n1=2 n2=2")
    nodes = [
        replace(one, taints=(Taint("team", "ml", "NoSchedule"),)),
        replace(other, taints=(Taint("new", "yes", "NoSchedule"),), unschedulable=True),
    ]
    tolerant = replace(spec(gpu=2), tolerations=(Toleration(key="team", operator="Exists"),))
    _, found = asked(world([gang(min_member=2, required="rack")], pods("train", 2, tolerant), nodes))
    (told,) = [one for one in found["default/train"] if "tolerates" in one.sentence]
    golden("what-if", told.sentence)
    assert told.change == {"tolerations": "new, node.kubernetes.io/unschedulable"}


def test_a_rack_of_which_no_node_may_be_used_is_not_one_that_could_hold_it(golden: Golden) -> None:
    """All nodes are cordoned: whatever ends, nothing makes room."""
    nodes = [replace(one, unschedulable=True) for one in draw(CLUSTER)]
    golden("what-if", said(world([gang(min_member=2, required="rack")], pods("train", 2), nodes))[-1])


def test_what_waits_for_something_else_is_not_asked_about() -> None:
    _, found = asked(world([gang(min_member=9)], pods("train", 2)))
    assert found == {}


def test_what_is_being_deleted_counts_first() -> None:
    leaving = [replace(one, terminating=True) for one in full("n1", "n2")]
    running = full("n3", "n4", "n5=4", "n6=4")
    found = said(
        world(
            [gang(min_member=2, required="rack")], [*pods("train", 2, needs=spec(gpu=2)), *leaving, *running]
        )
    )
    assert any(
        one.startswith("It fits at rack level once what is being deleted (2 pods) is gone") for one in found
    )


def test_what_runs_for_ever_is_not_waited_for(golden: Golden) -> None:
    """A web server takes n5, a daemon n6; the first may be sent away, the other comes back at once."""
    web, daemon = full("n5=4", "n6=4")
    running = [replace(web, owner="ReplicaSet/web"), replace(daemon, owner="DaemonSet/agent")]
    waiting = pods(None, 1, prefix="lone", needs=spec(gpu=4))
    golden("what-if", said(world([], [*waiting, *running]), "pod:default/lone-0"))


@pytest.mark.parametrize("owner", ["", "Job/train", "StatefulSet/serve", "ReplicaSet/serve"])
def test_a_gang_of_a_service_runs_for_ever_as_for_reservations(owner: str) -> None:
    running = [replace(one, group="old", owner=owner) for one in full("n5=4", "n6=4")]
    waiting = pods(None, 1, prefix="lone", needs=spec(gpu=4))
    run = simulate(world([gang("old", min_member=2)], [*waiting, *running]), Configuration())
    endless = bool(owner) and not owner.startswith("Job/")
    found = counterfactuals(run)["pod:default/lone-0"]
    ends = [one.jobs for one in found if one.kind is Kind.ENDED and one.fits]
    named = {job.name for jobs in ends if jobs for job in jobs}
    assert named == (set() if endless else {"podgroup/default/old"})
    assert run.engine.state.long_running == ({one.uid for one in running} if endless else set())


# Properties


def starts(manifests: Manifests, key: str) -> bool:
    """Whether the engine places members of this gang."""
    return any(
        f"{one.pod.namespace}/{one.pod.group}" == key
        for one in simulate(manifests, Configuration()).bindings.values()
    )


def without(manifests: Manifests, gone: set[str]) -> Manifests:
    return replace(manifests, pods=tuple(pod for pod in manifests.pods if job_name(pod) not in gone))


def done(manifests: Manifests, key: str, one: Counterfactual) -> Manifests | None:
    """What a counterfactual says, carried out; None where it says nothing to do."""
    if one.kind is Kind.RELAXED and isinstance(one.change, Mapping):
        gone = {job.name for job in one.jobs} if isinstance(one.jobs, tuple) else set()
        return relaxed(without(manifests, gone), key, one.change)
    if one.kind is Kind.ENDED and isinstance(one.jobs, tuple):
        return without(manifests, {job.name for job in one.jobs})
    if one.kind is Kind.SHORT and one.fits:
        away = getattr(one.short, "in_the_way", ())
        return replace(manifests, pods=tuple(pod for pod in manifests.pods if pod.key not in away))
    return None


def relaxed(manifests: Manifests, key: str, change: Mapping[str, str | int | None]) -> Manifests:
    """The gang and its pods that wait, as they should be written."""
    (group,) = [each for each in manifests.groups if each.key == key]
    others = [each for each in manifests.groups if each.key != key]
    constraint, members = group.constraint, list(manifests.pods)
    for field, value in change.items():
        if field == "minMember":
            assert isinstance(value, int)
            group = replace(group, min_member=value)
        elif field.startswith("subGroups[*]"):
            loose = [wish(each) for each in group.subgroups]
            group = replace(group, subgroups=tuple(loose))
        elif field.startswith("topologyConstraint"):
            name = next(one for one in ("required", "preferred", "topology") if f".{one}" in field)
            constraint = replace(constraint or TopologyConstraint(), **{name: value})
        else:
            members = [
                replace(one, spec=freed(one.spec, tolerant=bool(value)))
                if f"{one.namespace}/{one.group}" == key and one.node_name is None
                else one
                for one in members
            ]
    group = replace(group, constraint=constraint)
    return replace(manifests, groups=(*others, group), pods=tuple(members))


def freed(needs: PodSpec, tolerant: bool) -> PodSpec:
    """Without a choice of nodes, or tolerating every taint."""
    if tolerant:
        return replace(needs, tolerations=(Toleration(operator="Exists"),))
    return replace(needs, node_selector=(), required_affinity=None)


def wish(part: SubGroup) -> SubGroup:
    """What it requires is only preferred."""
    if part.constraint is None:
        return part
    return replace(
        part, constraint=replace(part.constraint, required=None, preferred=part.constraint.required)
    )


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_doing_what_is_said_makes_it_fit_and_nothing_else_would(manifests: Manifests) -> None:
    run, found = asked(manifests)
    after = left_by(run, manifests)
    for key, answers in found.items():
        if run.gang_outcomes[key].reason is None:
            continue
        assert not starts(after, key)
        for one in answers:
            change = done(after, key, one)
            if change is not None:
                assert starts(change, key) == one.fits, one.sentence
        ends = [one for one in answers if one.kind is Kind.ENDED]
        if not any(one.fits and isinstance(one.jobs, tuple) and len(one.jobs) == 1 for one in ends):
            jobs = {job_name(pod) for pod in after.pods if pod.node_name is not None} - {f"podgroup/{key}"}
            assert all(not starts(without(after, {job}), key) for job in jobs), ends


@settings(max_examples=20, deadline=None)
@given(worlds())
def test_it_is_the_same_again_and_leaves_the_run_as_it_was(manifests: Manifests) -> None:
    run, found = asked(manifests)
    assert counterfactuals(run) == found
    run.engine.validate_state()


@pytest.mark.parametrize("reason", [Reason.TOPOLOGY_LEVEL_NOT_FOUND])
def test_a_level_that_does_not_exist(reason: Reason, golden: Golden) -> None:
    run, found = asked(world([gang(min_member=2, required="row")], pods("train", 2)))
    assert run.gang_outcomes["default/train"].reason is reason
    (told,) = found["default/train"]
    golden("what-if", told.sentence)
