"""Live objects become the very same records as manifests."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from closeby.kube.state.decoding import Decoded, Decoder
from closeby.kube.watch.changes import Upserted, read_event, read_page, upserted
from closeby.kube.watch.resources import NODES, PODS, WATCHED, Resource
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.objects.selectors import PodOwner
from closeby.objects.workloads import Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.manifests import read_manifests
from closeby.reading.registry import READERS, Record

POD_GROUPS = Resource(
    group="closeby.dev", version="v1alpha1", kind="PodGroup", plural="podgroups", namespaced=True
)


def change(content: Mapping[str, object]) -> Upserted:
    return upserted(msgspec.Raw(json.dumps(content).encode()))


def pod(name: str, cpu: str = "1") -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    }


def test_an_item_of_a_list_is_read_without_its_kind() -> None:
    found = change(pod("p"))
    assert (found.key, found.uid, found.version) == ("a/p", "uid-p", "7")
    read = Decoder().read(PODS, found)
    assert isinstance(read, Decoded)
    assert isinstance(read.record, Pod)
    assert (read.record.key, read.record.spec.requests) == ("a/p", (("cpu", 1000),))


def test_live_and_manifest_give_the_same_record(tmp_path: Path) -> None:
    content = {"apiVersion": "v1", "kind": "Pod", **pod("p")}
    read = Decoder().read(PODS, change(content))
    assert isinstance(read, Decoded)
    file = tmp_path / "p.json"
    file.write_text(json.dumps(content))
    assert (read.record,) == read_manifests([str(file)]).pods


def test_equal_specs_are_one_object() -> None:
    decoder = Decoder()
    one, other = (decoder.read(PODS, change(pod(name))) for name in ("p", "q"))
    assert isinstance(one, Decoded) and isinstance(other, Decoded)
    assert isinstance(one.record, Pod) and isinstance(other.record, Pod)
    assert one.record.spec is other.record.spec


def test_an_object_without_a_namespace() -> None:
    found = change({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}})
    assert found.key == "n"
    read = Decoder().read(NODES, found)
    assert isinstance(read, Decoded) and isinstance(read.record, Node)


def test_a_problem_of_an_object_becomes_a_condition() -> None:
    read = Decoder().read(PODS, change(pod("p", cpu="many")))
    assert isinstance(read, Condition)
    assert (read.object, read.field) == ("Pod/a/p", "spec.containers[0].resources.requests.cpu")
    assert read.reason is Reason.INVALID_SPEC and read.blocking


def test_a_version_that_is_not_read() -> None:
    later = msgspec.structs.replace(POD_GROUPS, version="v9")
    read = Decoder().read(later, change({"metadata": {"name": "g", "namespace": "a"}}))
    assert isinstance(read, Condition)
    assert read.reason is Reason.UNSUPPORTED


def test_what_the_server_adds_to_our_own_kinds_is_no_error() -> None:
    """The schema of our own group is strict, but metadata and status are written by others."""
    content = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": "g",
            "namespace": "a",
            "uid": "u",
            "resourceVersion": "5",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"minMember": 2},
        "status": {"conditions": []},
    }
    read = Decoder().read(POD_GROUPS, change(content))
    assert isinstance(read, Decoded), read
    assert isinstance(read.record, PodGroup)
    assert read.notices == ()


def test_every_watched_kind_has_a_reader_of_each_version() -> None:
    for kind in WATCHED:
        entry = READERS[kind.group, kind.kind]
        assert not entry.versions or set(kind.versions) <= set(entry.versions)


def test_what_is_kept_of_an_object_does_not_keep_the_answer_alive() -> None:
    body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [pod("p"), pod("q")]}).encode()
    page = read_page(body)
    assert page.metadata.resource_version == "9" and page.metadata.continuation is None
    kept = [upserted(raw).raw for raw in page.items or ()]
    assert [json.loads(one) for one in kept] == [pod("p"), pod("q")]
    line = json.dumps({"type": "ADDED", "object": pod("p")}).encode()
    assert json.loads(upserted(read_event(line).object).raw) == pod("p")


def test_an_object_that_makes_a_reader_fail_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before and after it are read."""
    entry = READERS["", "Pod"]

    def stumbling(document: Document, reading: DocumentReading) -> Record | None:
        if b'"odd"' in (document.raw or b""):
            raise KeyError("nobody thought of this")
        return entry.read(document, reading)

    monkeypatch.setitem(READERS, ("", "Pod"), replace(entry, read=stumbling))
    decoder = Decoder()
    read = [decoder.read(PODS, change(pod(name))) for name in ("p", "odd", "q")]
    assert isinstance(read[0], Decoded) and isinstance(read[2], Decoded)
    told = read[1]
    assert isinstance(told, Condition)
    assert (told.object, told.reason, told.blocking) == ("Pod/a/odd", Reason.UNSUPPORTED, True)
    assert "a fault of closeby: KeyError: 'nobody thought of this' (test_decoding.py:" in told.message


APP_GROUPS = Resource(
    group="scheduling.sigs.k8s.io", version="v1alpha1", kind="AppGroup", plural="appgroups", namespaced=True
)


def application(
    workloads: int,
    *,
    uid: str = "1",
    label: str = "x",
    namespace: str = "a",
    status: object = None,
    **metadata: object,
) -> Upserted:
    names = [f"w{i}" for i in range(workloads)]
    calls = [{"name": name, "maxNetworkCost": 1} for name in names]
    pods = [{"name": name, "dependencies": calls[i + 1 :]} for i, name in enumerate(names)]
    meta = {"name": "app", "namespace": namespace, "uid": uid, "labels": {"l": label}, **metadata}
    return change({"metadata": meta, "spec": {"Pods": pods}, "status": status or {}})


def record_of(decoder: Decoder, change: Upserted) -> Record | None:
    read = decoder.read(APP_GROUPS, change)
    assert isinstance(read, Decoded)
    return read.record


def test_a_large_app_group_is_not_read_again_when_only_its_status_changed() -> None:
    decoder = Decoder()
    first = record_of(decoder, application(60))
    assert record_of(decoder, application(60, status={"runningPods": 3})) is first
    # One in another namespace is another object.
    assert record_of(decoder, application(60, namespace="b")) != first
    assert record_of(decoder, application(60)) is first


@pytest.mark.parametrize(
    "changed",
    [
        application(61),
        application(60, uid="2"),
        application(60, label="y"),
        application(60, annotations={"a": "b"}),
        application(60, creationTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["its spec", "its uid", "a label", "an annotation", "when it was made"],
)
def test_a_large_app_group_is_read_again_when_anything_else_changed(changed: Upserted) -> None:
    decoder = Decoder()
    first = record_of(decoder, application(60))
    again = record_of(decoder, changed)
    assert again is not first
    assert again == record_of(Decoder(), changed)


def test_a_large_app_group_that_could_not_be_read_is_read_again() -> None:
    decoder = Decoder()
    good = application(60)
    broken = replace(good, raw=good.raw.replace(b'"Pods": [', b'"Pods": [7,'))
    assert isinstance(decoder.read(APP_GROUPS, broken), Condition)
    assert record_of(decoder, good) is not None
    assert isinstance(decoder.read(APP_GROUPS, broken), Condition)
    assert record_of(decoder, good) is not None


def test_a_large_object_whose_status_counts_is_read_again_when_that_changed() -> None:
    decoder = Decoder()
    meta = {"name": "n", "uid": "u", "resourceVersion": "1", "annotations": {"long": "x" * 20_000}}
    for gpus in ("4", "2"):
        content = {"metadata": meta, "status": {"allocatable": {"nvidia.com/gpu": gpus}}}
        read = decoder.read(NODES, change(content))
        assert isinstance(read, Decoded) and isinstance(read.record, Node)
        assert read.record.allocatable["nvidia.com/gpu"] == int(gpus)


def test_an_object_nested_too_deeply_is_a_mistake_in_it() -> None:
    deep = b'{"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": %s}}'
    read = Decoder().read(
        PODS, replace(change(pod("p")), raw=msgspec.Raw(deep % (b"[" * 9999 + b"]" * 9999)))
    )
    assert isinstance(read, Condition)
    assert read.reason is Reason.INVALID_SPEC


def test_what_is_worth_telling_of_an_object_comes_with_it() -> None:
    content = pod("p") | {
        "metadata": {
            "name": "p",
            "namespace": "a",
            "annotations": {"kubernetes.io/ingress-bandwidth": "much"},
        }
    }
    read = Decoder().read(PODS, change(content))
    assert isinstance(read, Decoded)
    assert ["ingress-bandwidth" in (one.field or one.message) for one in read.notices] == [True]


def test_specs_are_shared_among_so_many_objects_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those that nobody has any more would be kept for ever."""
    monkeypatch.setattr("closeby.kube.state.decoding._POOLED", 2)
    decoder = Decoder()
    read = [decoder.read(PODS, change(pod(name))) for name in "pqr"]
    specs = [one.record.spec for one in read if isinstance(one, Decoded) and isinstance(one.record, Pod)]
    assert specs[0] is specs[1] is not specs[2]
    assert specs[0] == specs[2]


def test_only_so_many_large_app_groups_are_remembered() -> None:
    decoder = Decoder()
    first = record_of(decoder, application(60))
    for i in range(64):
        record_of(decoder, application(60, namespace=f"n{i}"))
    assert record_of(decoder, application(60)) is not first


def test_an_owner_of_pods_is_read_as_a_workload_unless_only_selectors_are_asked_for() -> None:
    resource = Resource(
        group="apps", version="v1", kind="StatefulSet", plural="statefulsets", namespaced=True
    )
    found = change(
        {
            "metadata": {"name": "db", "namespace": "a"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}},
            },
        }
    )
    whole, selector = (Decoder(selectors=alone).read(resource, found) for alone in (False, True))
    assert isinstance(whole, Decoded) and isinstance(whole.record, Workload) and whole.record.pod_sets
    assert isinstance(selector, Decoded) and isinstance(selector.record, PodOwner)
