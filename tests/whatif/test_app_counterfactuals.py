"""Applications that wait or are badly placed: known answers, and what is said helps as promised."""

import re
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from msgspec import UNSET
from msgspec.structs import replace

from closeby.objects.applications import AppGroup
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, Toleration
from closeby.objects.quantities import amount
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.scheduling.outcomes import APPLICATION
from closeby.simulator.runs import Run, simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.records import Counterfactual, Kind, ShortEntry, TalkEntry
from tests.applications.calls import app
from tests.applications.networks import replicas
from tests.golden.fixture import Golden
from tests.talking import rooms, talking, talking_worlds
from tests.whatif.afterwards import job_name, left_by
from tests.worlds import pods, spec

ONE = "default/A1"


def answers(manifests: Manifests, key: str = ONE) -> tuple[Counterfactual, ...]:
    run = simulate(manifests, Configuration())
    return counterfactuals(run, only=[key]).get(f"{APPLICATION}{key}", ())


def said(manifests: Manifests, *kinds: Kind) -> list[str]:
    return [one.sentence for one in answers(manifests) if not kinds or one.kind in kinds]


# What waits


def test_a_limit_that_cannot_be_kept(golden: Golden) -> None:
    """b is on a1, the only near node is taken, and everything else is 50 away."""
    running = [*replicas("b", on="a1"), *pods(None, 1, prefix="x", on="a2")]
    found = said(talking(rooms(a1=1, a2=1, b1=2, b2=1), [app("a > b<=20\nb")], [*running, *replicas("a")]))
    golden("what-if", found)


def test_two_limits_that_must_be_raised_together(golden: Golden) -> None:
    running = [*replicas("b", on="a1"), *replicas("c", on="a2")]
    waiting = talking(rooms(a1=1, a2=1, b1=2), [app("a > b<=20 c<=30\nb\nc")], [*running, *replicas("a")])
    (told,) = [one for one in answers(waiting) if one.kind is Kind.RELAXED]
    golden("what-if", told.sentence)
    assert told.change == {
        "dependencies[a -> b].maxNetworkCost": 51,
        "dependencies[a -> c].maxNetworkCost": 51,
    }


def test_a_place_at_an_unknown_distance_needs_the_limit_gone(golden: Golden) -> None:
    running = replicas("b", on="a1")
    members = [*running, *replicas("a", 2)]
    for net in ("a1 a2 1", ""):
        (told, *_) = answers(talking(rooms(a1=1, z=2), [app("a > b<=20\nb")], members, net))
        golden("what-if", told.sentence)
        assert told.change == {"dependencies[a -> b].maxNetworkCost": None}


def test_smaller_requests(golden: Golden) -> None:
    busy = pods(None, 1, prefix="x", on="a2", needs=spec(gpu=1))
    members = [*replicas("a", 2, gpus=9), *busy]
    golden("what-if", said(talking(rooms(a1=4, a2=4), [app("a")], members)))


def test_what_no_node_offers(golden: Golden) -> None:
    """A resource misspelt, or one of which the cluster has none."""
    (pod,) = replicas("a", gpus=0)
    asking = replace(pod, spec=spec(**{"example.com/gpuu": 2}))
    golden("what-if", said(talking(rooms(a1=4), [app("a")], [asking])))


def test_some_must_end_together(golden: Golden) -> None:
    taken = [*pods(None, 1, prefix="y", on="b1", needs=spec(gpu=4)), *pods(None, 1, prefix="z", on="b2")]
    both = talking(rooms(b1=4, b2=4), [app("a")], [*taken, *replicas("a", 2, gpus=4)])
    golden("what-if", said(both, Kind.ENDED))


def test_jobs_that_share_a_node_must_end_together() -> None:
    """None of them alone leaves room for a single pod."""
    taken = [
        *pods(None, 1, prefix="y", on="b1", needs=spec(gpu=2)),
        *pods(None, 1, prefix="z", on="b1", needs=spec(gpu=2)),
    ]
    (found,) = [
        one
        for one in answers(talking(rooms(b1=4), [app("a")], [*taken, *replicas("a", 1, gpus=4)]))
        if one.kind is Kind.ENDED
    ]
    assert found.fits
    assert isinstance(found.jobs, tuple)
    assert [one.name for one in found.jobs] == ["pod/default/y-0", "pod/default/z-0"]


def test_tolerating_a_taint_says_what_the_traffic_would_cost() -> None:
    nodes = [
        replace(one, taints=(Taint("team", "x", "NoSchedule"),)) if one.name == "a2" else one
        for one in rooms(a1=1, a2=1)
    ]
    members = [*replicas("b", on="a1"), *replicas("a")]
    (found,) = [
        one
        for one in answers(talking(nodes, [app("a > b\nb")], members))
        if one.kind is Kind.RELAXED and one.command is UNSET
    ]
    assert found.change == {"tolerations": "team"}
    assert isinstance(found.talk, TalkEntry)
    assert (found.talk.here, found.talk.there) == (0, 1)


def test_the_least_stands_in_the_way_and_what_lacks_is_what_is_not_free() -> None:
    """One GPU lacks on b1: who holds three need not go, whatever the names."""
    for big, small in ("yz", "zy"):
        taken = [
            *pods(None, 1, prefix=big, on="b1", needs=spec(gpu=3)),
            *pods(None, 1, prefix=small, on="b1"),
        ]
        (told,) = [
            one
            for one in answers(talking(rooms(b1=4), [app("a")], [*taken, *replicas("a", 1, gpus=1)]))
            if one.kind is Kind.SHORT
        ]
        assert told.sentence == f"On b1 a-0 would fit without pod default/{small}-0."
        assert isinstance(told.short, ShortEntry)
        assert told.short.resources == {"example.com/gpu": 1}


def test_nodes_are_cleared_by_what_each_pod_there_costs() -> None:
    """Of b1 three GPUs must go for two pods, of the others two for each."""
    held = {"a1": 2, "a2": 2, "b1": 3}
    taken = [pods(None, 1, prefix=f"on-{name}", on=name, needs=spec(gpu=of))[0] for name, of in held.items()]
    waiting = talking(rooms(a1=2, a2=2, b1=4), [app("a")], [*taken, *replicas("a", 2, gpus=2)])
    (told,) = [one for one in answers(waiting) if one.kind is Kind.SHORT]
    assert isinstance(told.short, ShortEntry)
    assert told.short.in_the_way == ("default/on-b1-0",)


def test_what_helps_some_is_said_where_nothing_helps_all(golden: Golden) -> None:
    (taken,) = pods(None, 1, prefix="y", on="b1", needs=spec(gpu=4))
    members = [taken, *replicas("a", 2, gpus=4)]
    (found,) = [one for one in answers(talking(rooms(b1=4), [app("a")], members)) if one.kind is Kind.ENDED]
    golden("what-if", found.sentence)
    assert (found.fits, found.pods) == (False, ("default/a-0",))


def test_what_runs_for_ever_is_not_waited_for_but_stands_in_the_way(golden: Golden) -> None:
    (web,) = pods(None, 1, prefix="web", on="b1", needs=spec(gpu=4), owner="ReplicaSet/web")
    members = [web, *pods(None, 1, prefix="z", on="b2"), *replicas("a", gpus=3)]
    golden("what-if", said(talking(rooms(b1=4, b2=2), [app("a")], members), Kind.ENDED, Kind.SHORT))


def test_too_far_whatever_ran_there(golden: Golden) -> None:
    """c must be near b, and none of the near nodes is large enough."""
    members = [*replicas("b", on="a1"), *replicas("a", gpus=2)]
    found = said(talking(rooms(a1=1, a2=1, b1=2), [app("a > b<=20\nb")], members), Kind.SHORT)
    golden("what-if", found)


def test_nodes_that_it_does_not_ask_for(golden: Golden) -> None:
    (pod,) = replicas("a")
    choosy = replace(pod, spec=replace(pod.spec, node_selector=(("disk", "ssd"),)))
    golden("what-if", said(talking(rooms(a1=1), [app("a")], [choosy]))[0])
    tainted = [replace(one, taints=(Taint("team", "ml", "NoSchedule"),)) for one in rooms(a1=1)]
    golden("what-if", said(talking(tainted, [app("a")], [pod]))[0])


# Odd ones


def test_applications_without_nodes_pods_or_edges(golden: Golden) -> None:
    """No nodes; no pods; pods of no workload; pods that ask for nothing; a node that is not there."""
    golden("what-if", said(talking([], [app("a > b\nb")], replicas("a"))))
    assert said(talking(rooms(a1=1), [app("a > b\nb")], [])) == []
    stray = [
        replace(one, labels={**one.labels, "appgroup.diktyo.x-k8s.io.workload": "?"}) for one in replicas("a")
    ]
    assert said(talking([], [app("b")], stray))
    assert said(talking(rooms(a1=0), [app("a > a\n")], replicas("a", 3, gpus=0))) == []
    lost = [*replicas("b", on="gone"), *replicas("a", gpus=3)]
    assert "a-0 fits now if it asks for only 1 example.com/gpu instead of 3" in " ".join(
        said(talking(rooms(a1=1), [app("a > b<=5\nb")], lost))
    )


def test_gates_are_no_matter_of_room(golden: Golden) -> None:
    gated = [replace(one, spec=replace(one.spec, scheduling_gates=("wait",))) for one in replicas("a")]
    run = simulate(talking([], [app("a > b\nb")], [*gated, *replicas("b")]), Configuration())
    (found,) = counterfactuals(run)[f"{APPLICATION}{ONE}"]
    golden("what-if", found.sentence)


# Properties


def talk(run: Run, key: str) -> tuple[float, int] | None:
    edges = run.app_edges.get(key)
    return None if edges is None else (sum(one.cost for one in edges), sum(one.over for one in edges))


def carried_out(manifests: Manifests, key: str, one: Counterfactual) -> Manifests:
    """What a counterfactual says to do, done."""
    gone = {job.name for job in one.jobs} if isinstance(one.jobs, tuple) else set()
    if one.kind is Kind.SHORT:
        gone = {f"pod/{name}" for name in getattr(one.short, "in_the_way", ())}
        members = [pod for pod in manifests.pods if f"pod/{pod.key}" not in gone]
    else:
        members = [pod for pod in manifests.pods if job_name(pod) not in gone]
    changed = replace(manifests, pods=tuple(members))
    for field, value in one.change.items() if isinstance(one.change, Mapping) else ():
        changed = written(changed, key, field, value)
    for command in one.command.split(" && ") if isinstance(one.command, str) else ():
        changed = replace(changed, nodes=tuple(opened(node, command.split()) for node in changed.nodes))
    return changed


def opened(node: Node, command: Sequence[str]) -> Node:
    """A node after ``kubectl uncordon NODE...`` or ``kubectl taint nodes NODE... KEY=VALUE:EFFECT-``."""
    if node.name not in command:
        return node
    if command[:2] == ["kubectl", "uncordon"]:
        return replace(node, unschedulable=False)
    assert command[:3] == ["kubectl", "taint", "nodes"]
    left = [one for one in node.taints if command[-1] != _removal(one)]
    assert len(left) < len(node.taints)
    return replace(node, taints=tuple(left))


def _removal(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}-"


def written(manifests: Manifests, key: str, field: str, value: str | int | None) -> Manifests:
    """One field of the application or of its pods that wait, as it should be written."""
    edge = re.fullmatch(r"dependencies\[(.+) -> (.+)\]\.maxNetworkCost", field)
    if edge:
        groups = [
            limited(one, edge[1], edge[2], value) if one.key == key else one for one in manifests.app_groups
        ]
        return replace(manifests, app_groups=tuple(groups))
    request = re.fullmatch(r"pods\[(.+)\]\.requests\[(.+)\]", field)
    members = []
    for pod in manifests.pods:
        asked = pod.spec
        if request is None and pod.node_name is None and _of(pod, key):
            everything = (Toleration(operator="Exists"),)
            asked = replace(asked, tolerations=everything) if value else replace(asked, node_selector=())
        elif request is not None and pod.name == request[1]:
            others = [each for each in asked.requests if each[0] != request[2]]
            asked = replace(asked, requests=(*others, (request[2], amount(request[2], value or 0, "up"))))
        members.append(replace(pod, spec=asked))
    return replace(manifests, pods=tuple(members))


def limited(group: AppGroup, caller: str, callee: str, value: str | int | None) -> AppGroup:
    assert not isinstance(value, str)
    workloads = [
        replace(
            one,
            dependencies=tuple(
                replace(need, max_network_cost=value)
                if (one.name, need.workload) == (caller, callee)
                else need
                for need in one.dependencies
            ),
        )
        for one in group.workloads
    ]
    return replace(group, workloads=tuple(workloads))


def got(run: Run, key: str, pods_then: Sequence[Pod]) -> set[str]:
    """Pods of an application that this run gave a node."""
    return {
        pod.key
        for pod in pods_then
        if pod.uid in run.bindings and run.engine.state.item_key(pod) == f"{APPLICATION}{key}"
    }


@settings(max_examples=150, deadline=None)
@given(talking_worlds())
def test_doing_what_is_said_brings_what_is_promised(manifests: Manifests) -> None:
    run = simulate(manifests, Configuration())
    after = left_by(run, manifests)
    for group in manifests.app_groups:
        key = group.key
        waits = {pod.key for pod in after.pods if pod.node_name is None and _of(pod, key)}
        for one in counterfactuals(run, only=[key]).get(f"{APPLICATION}{key}", ()):
            then = carried_out(after, key, one)
            done = simulate(then, Configuration())
            placed = got(done, key, then.pods)
            if isinstance(one.pods, tuple):
                assert placed & waits == set(one.pods), one.sentence
            if one.kind in (Kind.RELAXED, Kind.SHORT) or isinstance(one.pods, tuple):
                assert (waits <= placed) == one.fits, one.sentence
            if isinstance(one.talk, TalkEntry):
                assert talk(run, key) == (one.talk.here, one.talk.over_here)
                assert talk(done, key) == (one.talk.there, one.talk.over_there), one.sentence


def _of(pod: Pod, key: str) -> bool:
    return f"{pod.namespace}/{pod.labels.get('appgroup.diktyo.x-k8s.io')}" == key


@settings(max_examples=30, deadline=None)
@given(talking_worlds())
def test_it_is_the_same_again_and_leaves_the_run_as_it_was(manifests: Manifests) -> None:
    run = simulate(manifests, Configuration())
    found = counterfactuals(run)
    assert counterfactuals(run) == found
    run.engine.validate_state()


@settings(max_examples=60, deadline=None)
@given(talking_worlds())
def test_no_end_that_would_do_is_left_unsaid(manifests: Manifests) -> None:
    """Where it is said that no single job's end makes room, none does."""
    run = simulate(manifests, Configuration())
    after = left_by(run, manifests)
    for group in manifests.app_groups:
        found = counterfactuals(run, only=[group.key]).get(f"{APPLICATION}{group.key}", ())
        if not any("No single job's end" in one.sentence for one in found):
            continue
        others = [pod for pod in after.pods if pod.node_name is not None and not _of(pod, group.key)]
        for job in {job_name(pod) for pod in others}:
            then = replace(after, pods=tuple(pod for pod in after.pods if job_name(pod) != job))
            assert not got(simulate(then, Configuration()), group.key, then.pods)
