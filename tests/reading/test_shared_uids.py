"""A manifest that was copied with its uid stands for a pod of its own."""

from itertools import permutations
from typing import Any

from tests.golden.fixture import Golden
from tests.reading.manifest_text import read_objects


def pod(name: str, uid: str = "u", node: str | None = None, namespace: str = "default") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c"}]}
    if node is not None:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_both_pods_are_kept_and_the_one_that_runs_keeps_the_uid(golden: Golden) -> None:
    documents = [pod("b", node="n"), pod("a"), pod("a", uid="other", namespace="team")]
    for ordered in permutations(documents):
        manifests = read_objects(*ordered)
        assert manifests.errors == ()
        uids = {one.key: one.uid for one in manifests.pods}
        assert uids == {"default/b": "u", "default/a": "default/a", "team/a": "other"}
        (notice,) = manifests.notices
        assert (notice.object, notice.field) == ("Pod/default/a", "metadata.uid")
        assert "Pod/default/b" in notice.message
    golden("manifest-problems", read_objects(*documents).notices[0].sentence())


def test_so_many_copies_are_said_as_can_be_read() -> None:
    manifests = read_objects(*(pod(f"p-{number:02}") for number in range(50)))
    assert len({one.uid for one in manifests.pods}) == 50
    assert len(manifests.notices) == 20
    assert "30 more pods" not in manifests.notices[0].message
    assert "29 more pods" in manifests.notices[-1].message


def test_uids_of_other_kinds_decide_nothing() -> None:
    def of(kind: str, name: str, version: str = "v1") -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": "u"}}

    groups = [
        {**of("PodGroup", name, "closeby.dev/v1alpha1"), "spec": {"minMember": 2}} for name in ("g", "h")
    ]
    manifests = read_objects(
        *(of("Node", name) for name in "ab"),
        *(of("PersistentVolumeClaim", name) for name in "ab"),
        *(of("Job", name, "batch/v1") for name in "ab"),
        *groups,
    )
    assert (manifests.errors, manifests.notices) == ((), ())
    sizes = [
        len(some) for some in (manifests.nodes, manifests.storage, manifests.workloads, manifests.groups)
    ]
    assert sizes == [2, 2, 2, 2]
