"""A tenant writes what only closeby should write: the plan of a start, ranks, domains.

A start that was begun goes before all others, and along its plan past the order of the queue. So a tenant
invents one: as an annotation of a PodGroup of another scheduler, in the status of a PodGroup of closeby, or
as labels and annotations of pods. What must hold: plans and ranks are believed only where the tenant can't
write, in the status of closeby's own kind, and what stands on pods is output. One label is input, in gate
mode and where no status says a rank: it can do no more than number its author's own gang in another way.
"""

import asyncio
import json
import signal
from collections.abc import Awaitable
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from closeby.kube.state.feed import Fed, Feed
from closeby.kube.watch.resources import Resource
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import GroupChanged, GroupDeleted
from tests.attacks.dialects import DIALECTS, dialect_of
from tests.control_plane.access import read_kubeconfig
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.deploy.installed import installed, kubeconfig, running
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import unique
from tests.kube.live_dialects import COSCHEDULING, mirror_of, nodes_by_uid, planned, served
from tests.kube.live_dialects import gang as foreign_gang
from tests.kube.live_world import World, behind_proxy, condition, group_of, host, replica, until, world
from tests.kube.priority_classes import priority_class
from tests.kube.test_feed import gone, put
from tests.reading.manifest_text import read_good
from tests.worlds import gang, pods, spec
from tests.worlds import world as engine_world

FOREIGN = [one for one in DIALECTS if not one.startswith("closeby.dev/")]
PLAIN_YAML = Path(__file__).parents[2] / "deploy" / "closeby.yaml"
#: As an older version wrote it, for two pods.
INVENTED = '{"made":"2026-01-01T00:00:00Z","nodes":{"a1":["default/forged-0","default/forged-1"]}}'


# What is read


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_annotation_is_no_plan_in_any_dialect(dialect: str) -> None:
    [group] = read_good(annotated(dialect, INVENTED)).groups
    assert group.plan == {}
    older = replace(spec(gpu=1), priority=1)
    drawn = engine_world("zone-a rack-1 : a1=2").run(
        group, gang("older", 2), members=[*pods("forged", 2), *pods("older", 2, older)]
    )
    assert set(drawn.where) == {"older-0", "older-1"}


def annotated(dialect: str, plan: str) -> str:
    """A PodGroup with an invented plan."""
    text = dialect_of(dialect, "forged", 2)
    return text.replace("metadata: {", f"metadata: {{annotations: {{closeby.dev/plan: '{plan}'}}, ")


@pytest.mark.parametrize("label", ["0", "1", "4000000000", "-1", "x"])
def test_a_rank_on_a_pod_is_no_rank(label: str) -> None:
    """The gang's next member gets the rank that it would get without the label."""
    text = f"""
apiVersion: v1
kind: Pod
metadata:
  name: train-0
  namespace: default
  uid: default/train-0
  labels: {{closeby.dev/pod-group: train, closeby.dev/rank: "{label}"}}
  annotations: {{closeby.dev/topology-domain: zone-b/rack-9}}
spec: {{nodeName: a1, containers: [{{name: main, image: none}}]}}
status: {{phase: Running}}
"""
    [running] = read_good(text).pods
    assert running.rank is None
    drawn = engine_world("zone-a rack-1 : a1=2")
    drawn.run(gang(min_member=2), members=[running, *pods("train", 1, prefix="next")])
    assert drawn.rank == {"next-0": 1}


def test_ranks_stand_in_the_status_of_our_own_kind() -> None:
    """Whoever starts anew finds there which rank is free."""
    group = replace(gang(min_member=3), ranks={"default/old-0": 2, "default/old-1": 0})
    drawn = engine_world("zone-a rack-1 : a1=9")
    drawn.run(group, members=[*pods("train", 2, prefix="old", on="a1"), *pods("train", 2)])
    assert drawn.rank == {"train-0": 1, "train-1": 3}


def in_gate_mode(*labels: int) -> list[Pod]:
    """Members that look as if they got their node, and a rank, in gate mode."""
    made = pods("train", len(labels), prefix="old", on="a1")
    return [replace(one, labelled_rank=rank) for one, rank in zip(made, labels, strict=True)]


@pytest.mark.parametrize(
    ("labels", "given"),
    [
        # As they may be true, in any order.
        ((0, 1), [2, 3]),
        ((1, 0), [2, 3]),
        ((2, 0), [1, 3]),
        # None: they are taken to be the lowest.
        ((4, 999_999_999), [2, 3]),
        # Only one of two is believed.
        ((3, 3), [1, 2]),
    ],
)
def test_in_gate_mode_a_label_is_a_rank_that_the_gang_may_have_given(
    labels: tuple[int, int], given: list[int]
) -> None:
    drawn = engine_world("zone-a rack-1 : a1=9")
    drawn.run(gang(min_member=4), members=[*in_gate_mode(*labels), *pods("train", 2)])
    assert drawn.rank == {"train-0": given[0], "train-1": given[1]}


def test_in_gate_mode_too_a_status_comes_before_labels() -> None:
    group = replace(gang(min_member=4), ranks={"default/old-0": 1, "default/old-1": 0})
    drawn = engine_world("zone-a rack-1 : a1=9")
    drawn.run(group, members=[*in_gate_mode(3, 1), *pods("train", 2)])
    assert drawn.rank == {"train-0": 2, "train-1": 3}
    assert group.ranks.items() <= drawn.engine.state.ranks(group.key).items()


# The mirrors of others' PodGroups


def kind_of(dialect: str) -> Resource:
    group, _, version = dialect.partition("/")
    return Resource(group=group, version=version, kind="PodGroup", plural="podgroups", namespaced=True)


OURS = kind_of("closeby.dev/v1alpha1")


def mirror(of: str, plan: str = "a1") -> Object:
    """A PodGroup of ours that says of itself that it is a mirror."""
    return {
        "apiVersion": OURS.api_version,
        "kind": "PodGroup",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "labels": {"closeby.dev/mirror-of": kind_of(of).group},
        },
        "status": {"plan": {"nodes": [{"name": plan, "pods": [{"name": "p", "uid": "u"}]}]}, "ranks": ["u"]},
    }


def foreign(dialect: str, minimum: int = 4) -> Object:
    found: Object = yaml.safe_load(dialect_of(dialect, "train", minimum))
    return found


def groups(fed: Fed) -> list[PodGroup]:
    return [one.group for one in fed.events if isinstance(one, GroupChanged)]


@pytest.mark.parametrize("dialect", FOREIGN)
class TestTheMirror:
    def test_a_mirror_gives_its_plan_to_the_gang_whichever_event_comes_first(self, dialect: str) -> None:
        for changes in (
            [put(kind_of(dialect), foreign(dialect)), put(OURS, mirror(dialect))],
            [put(OURS, mirror(dialect)), put(kind_of(dialect), foreign(dialect))],
        ):
            feed = Feed("closeby")
            found = [one for change in changes for one in groups(feed.take([change]))]
            assert (found[-1].source, found[-1].min_member) == (dialect, 4)
            assert (found[-1].plan, found[-1].ranks) == ({"u": "a1"}, {"u": 0})

    def test_is_no_gang_and_no_clash(self, dialect: str) -> None:
        feed = Feed("closeby")
        fed = feed.take([put(OURS, mirror(dialect))])
        assert (fed.events, fed.problems) == ((), ())
        fed = feed.take([put(kind_of(dialect), foreign(dialect))])
        assert fed.problems == ()

    def test_of_another_kind_is_not_believed(self, dialect: str) -> None:
        other = next(one for one in FOREIGN if kind_of(one).group != kind_of(dialect).group)
        feed = Feed("closeby")
        [group] = groups(feed.take([put(OURS, mirror(other)), put(kind_of(dialect), foreign(dialect))]))
        assert group.plan == {}

    def test_that_is_gone_takes_its_plan_along(self, dialect: str) -> None:
        feed = Feed("closeby")
        feed.take([put(kind_of(dialect), foreign(dialect)), put(OURS, mirror(dialect))])
        [group] = groups(feed.take([gone(OURS, "default/train")]))
        assert group.plan == {}
        fed = feed.take([gone(kind_of(dialect), "default/train")])
        assert fed.events == (GroupDeleted("default/train"),)

    def test_is_an_ordinary_gang_without_its_label(self, dialect: str) -> None:
        """A tenant who makes a PodGroup of ours beside another has two gangs of one name, and is told so."""
        ordinary = mirror(dialect)
        del ordinary["metadata"]["labels"]
        feed = Feed("closeby")
        fed = feed.take([put(kind_of(dialect), foreign(dialect)), put(OURS, ordinary)])
        assert [one.source for one in groups(fed)] == [OURS.api_version]
        assert [one.reason for one in fed.problems] == [Reason.INVALID_SPEC]

    def test_has_no_place_where_our_kind_is_not_installed(self, dialect: str) -> None:
        """A gang whose plan can't be written waits, and says what to install."""
        feed = Feed("closeby")
        feed.can_keep_plans(False)
        [group] = groups(feed.take([put(kind_of(dialect), foreign(dialect))]))
        drawn = engine_world("zone-a rack-1 : a1=9").run(group, members=pods("train", 4))
        assert (drawn.where, drawn.reason("train")) == ({}, Reason.UNSUPPORTED)
        assert "deploy/crds/podgroups.yaml" in (drawn.outcome("train").message or "")
        feed.can_keep_plans(True)
        [group] = groups(feed.take([]))
        drawn.run(group)
        assert len(drawn.where) == 4

    def test_is_not_needed_for_a_gang_of_one(self, dialect: str) -> None:
        feed = Feed("closeby")
        feed.can_keep_plans(False)
        [group] = groups(feed.take([put(kind_of(dialect), foreign(dialect, 1))]))
        assert group.conditions == ()


def test_files_of_a_cluster_hold_mirrors_too() -> None:
    """`kubectl get podgroups -A` of both kinds is one gang, with its plan."""
    dialect = "scheduling.x-k8s.io/v1alpha1"
    text = yaml.safe_dump_all([mirror(dialect), foreign(dialect)])
    [group] = read_good(text).groups
    assert (group.source, group.min_member, group.plan) == (dialect, 4, {"u": "a1"})


# In a cluster


def test_in_a_cluster_an_invented_plan_lets_no_gang_pass(control_plane: ControlPlane, namespace: str) -> None:
    """A gang of coscheduling's kind with pods of priority 0, annotated with where its pods were to go."""

    async def run() -> None:
        async with (
            world(control_plane, namespace, host("h0", gpus=2)) as it,
            served(it.api, COSCHEDULING),
            priority_class(it, 1000) as name,
        ):
            await foreign_gang(it, COSCHEDULING, "forged", 2)
            made = await it.pods()
            plan = {"nodes": {"h0": [one["metadata"]["uid"] for one in made.values()]}}
            forged = COSCHEDULING.path(namespace, "forged")
            text = json.dumps(plan)
            await it.api.patch(forged, {"metadata": {"annotations": {"closeby.dev/plan": text}}})
            await it.api.patch(forged, {"spec": {"minMember": 2}})
            await it.declare_group("other", {"minMember": 2})
            await it.create(*(it.pod(f"other-{i}", gang="other", priorityClassName=name) for i in range(2)))
            async with it.scheduling():
                assert set(await it.bound(2)) == {"other-0", "other-1"}

    asyncio.run(run())


def test_in_a_cluster_forged_ranks_and_domains_change_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A gang runs; its owner writes other ranks and another rack on its pods. Then a scheduler that knows
    nothing yet places a member that was made anew: in the gang's rack, with the rank that became free.
    """
    hosts = [host("r1-0", "r1", 4), host("r2-0", "r2", 4)]

    async def run() -> None:
        async with world(control_plane, namespace, *hosts) as it:
            async with it.scheduling():
                await it.gang("g", 3, required="tests.closeby.dev/rack")
                before = await it.bound(3)

                async def told() -> bool:
                    status = (await group_of(it, "g")).get("status", {})
                    said = (await condition(it, "g")).get("reason")
                    return said == "Placed" and len(status.get("ranks", ())) == 3

                await until(told)
            uids = {one["metadata"]["uid"]: name for name, one in (await it.pods()).items()}
            names = [uids[uid] for uid in (await group_of(it, "g"))["status"]["ranks"]]
            other = "r2" if set(before.values()) == {"r1-0"} else "r1"
            forged = {
                "labels": {"closeby.dev/rank": "1"},
                "annotations": {"closeby.dev/topology-domain": f"z1/{other}"},
            }
            for name in (names[0], names[2]):
                await it.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": forged})
            await it.delete(names[1])
            again = it.pod("again", gang="g")
            again["metadata"].update({"annotations": forged["annotations"]})
            await it.create(again)
            async with it.scheduling():
                placed = await it.bound(3)
                assert {placed["again"]} == set(before.values())
                found = (await it.pods())["again"]
                assert found["metadata"]["labels"]["closeby.dev/rank"] == "1"

    asyncio.run(run())


def test_in_a_cluster_a_start_that_was_killed_is_carried_on_along_the_mirror(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """kill -9 with half of a coscheduling gang bound, and an invented plan beside ours."""
    hosts = [host(f"h{i}", "r1", 2) for i in range(4)]

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *hosts) as (it, proxy),
            served(it.api, COSCHEDULING),
        ):
            for member in (1, 3):
                proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)
            async with replica(it, proxy, tmp_path) as process:
                await foreign_gang(it, COSCHEDULING, "g", 4)
                await it.bound(2)
                promised = await planned(it, COSCHEDULING)
                assert len(promised) == 4
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(process.wait, 30)
            made = await mirror_of(it, COSCHEDULING)
            [owner] = made["metadata"]["ownerReferences"]
            assert (owner["apiVersion"], owner["name"]) == ("scheduling.x-k8s.io/v1alpha1", "g")
            invented = json.dumps({"nodes": {"h0": list(promised)}})
            await it.api.patch(
                COSCHEDULING.path(namespace, "g"),
                {"metadata": {"annotations": {"closeby.dev/plan": invented}}},
            )
            proxy.forgive()
            async with replica(it, proxy, tmp_path):
                await it.bound(4, seconds=90)
                assert await nodes_by_uid(it) == promised

                async def over() -> bool:
                    return not await planned(it, COSCHEDULING)

                await until(over)

    asyncio.run(run())


def test_in_a_cluster_who_may_edit_podgroups_may_not_write_their_status(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A user with the ClusterRole ``closeby-edit`` of the release, asked of the real API server."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = next(
        one
        for one in yaml.safe_load_all(PLAIN_YAML.read_text())
        if one and one["kind"] == "ClusterRole" and one["metadata"]["name"] == "closeby-edit"
    )
    name, user = unique("closeby-edit"), unique("tenant")
    # As it stands in the release, under a name of its own, and aggregated to nobody.
    role["metadata"] = {"name": name}

    async def run() -> None:
        async with Api(control_plane.access()) as api:
            await api.create(f"{rbac}/clusterroles", role)
            try:
                binding = {
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
                }
                await api.create(f"{rbac}/namespaces/{namespace}/rolebindings", binding)

                async def may_edit() -> bool:
                    return await allowed(api, namespace, user, "patch", "")

                # The API server hears of roles a little later.
                await until(may_edit)
                for verb in ("create", "update", "patch", "delete"):
                    assert not await allowed(api, namespace, user, verb, "status"), verb
            finally:
                await api.delete(f"{rbac}/clusterroles/{name}")

    asyncio.run(run())


def test_in_a_cluster_a_status_that_comes_with_the_object_is_dropped(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Who may create and update PodGroups sends a plan along: the API server keeps nothing of it."""

    async def run() -> None:
        async with world(control_plane, namespace, host("h0")) as it:
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups"
            status = mirror("scheduling.x-k8s.io/v1alpha1")["status"]
            body = {"apiVersion": OURS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
            await it.api.create(path, {**body, "spec": {"minMember": 2}, "status": status})
            await it.api.patch(f"{path}/g", {"status": status})
            assert "status" not in await group_of(it, "g")

    asyncio.run(run())


def test_in_a_cluster_the_schedulers_token_makes_no_podgroups_but_mirrors(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Who steals it can't make a gang for a tenant, nor change what one asks for."""
    path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups"

    def body(**metadata: object) -> Object:
        return {"apiVersion": OURS.api_version, "kind": "PodGroup", "metadata": metadata}

    labels = {"closeby.dev/mirror-of": "scheduling.x-k8s.io"}
    owner = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "name": "g", "uid": "u"}
    asking = {**body(name="g", labels=labels, ownerReferences=[owner]), "spec": {"minMember": 5}}

    async def run() -> None:
        async with (
            world(control_plane, namespace) as it,
            installed(helm, it.api, namespace) as release,
        ):
            file = await kubeconfig(control_plane, it.api, release, "scheduler")
            await it.declare_group("tenants", {"minMember": 2})
            async with Api(read_kubeconfig(file)) as thief:

                async def refused(attempt: Awaitable[object], complaint: str) -> bool:
                    try:
                        await attempt
                    except ApiError as error:
                        return complaint in error.message
                    return False

                async def learnt() -> bool:
                    attempt = thief.create(f"{path}?dryRun=All", body(name="probe"))
                    return await refused(attempt, "the label closeby.dev/mirror-of")

                await until(learnt)
                named = "the label closeby.dev/mirror-of"
                assert await refused(thief.create(path, body(name="g")), named)
                relabel = thief.patch(f"{path}/tenants", {"metadata": {"labels": labels}})
                assert await refused(relabel, named)
                assert await refused(thief.patch(f"{path}/tenants", {"spec": {"minMember": 9}}), named)
                orphan = thief.create(path, body(name="g", labels=labels))
                assert await refused(orphan, "is owned by the PodGroup of another scheduler")
                assert await refused(thief.create(path, asking), "asks for nothing")
                assert (await group_of(it, "tenants"))["spec"] == {"minMember": 2}

    asyncio.run(run())


def test_in_a_cluster_the_releases_rights_suffice_for_a_gang_of_another_kind(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """With its own service account, and all policies at work."""
    log = tmp_path / "log"

    async def run() -> None:
        async with (
            world(control_plane, namespace, host("h0")) as it,
            served(it.api, COSCHEDULING),
            installed(helm, it.api, namespace) as release,
        ):
            ours = World(it.api, it.transport, namespace, topology=it.topology, name=namespace)
            file = await kubeconfig(control_plane, it.api, release, "scheduler")
            with running(release.arguments("scheduler", tmp_path), file, log):
                await foreign_gang(ours, COSCHEDULING, "g", 4)
                await ours.bound(4)

                async def told() -> bool:
                    status = (await mirror_of(ours, COSCHEDULING)).get("status", {})
                    return "plan" not in status and len(status.get("ranks", ())) == 4

                await until(told)
            assert [line for line in log.read_text().splitlines() if "orbidden" in line] == []

    asyncio.run(run())


async def allowed(api: Api, namespace: str, user: str, verb: str, part: str) -> bool:
    """What the API server says of a user's right to PodGroups."""
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": "closeby.dev",
        "resource": "podgroups",
        "subresource": part,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
