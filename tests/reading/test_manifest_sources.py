"""Files, folders, pipes; YAML and JSON, single, many and in Lists."""

import gc
import gzip
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from closeby.reading.decoding.sources import unpacked
from closeby.reading.manifests import read_manifests
from tests.golden.fixture import Golden
from tests.reading.manifest_text import read, read_good

NODE = "{{apiVersion: v1, kind: Node, metadata: {{name: {}}}}}"


def names(*paths: Path) -> list[str]:
    manifests = read_manifests([str(path) for path in paths])
    assert manifests.errors == ()
    return [node.name for node in manifests.nodes]


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def test_a_folder_is_read_with_all_below_it_in_the_order_of_names(tmp_path: Path) -> None:
    for file in ("b.yml", "a.yaml", "sub/c.json", "notes.txt", ".git/d.yaml"):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(node(path.stem)))
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_file_may_end_in_anything_and_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "manifests.txt"
    file.write_text(NODE.format("a"))
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert names(file, file, link) == ["a"]


def test_paths_that_hold_nothing_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    (tmp_path / "latin.json").write_bytes(b" " * 2**20 + b'{"a": "\xe9"}')
    paths = ["empty", "missing.yaml", "latin.yaml", "latin.json"]
    errors = read_manifests([str(tmp_path / path) for path in paths]).errors
    assert [str(error).removeprefix(str(tmp_path)) for error in errors] == [
        "/empty: no file in it ends in .yaml, .yml, .json; name a folder with manifests",
        "/missing.yaml: no such file or folder; check the path",
        "/latin.yaml: is not UTF-8 (byte 3); save it as UTF-8",
        f"/latin.json: is not UTF-8 (byte {2**20 + 7}); save it as UTF-8",
    ]


def test_what_gzip_made_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    packed = gzip.compress(NODE.format("a").encode())
    (tmp_path / "cluster.yaml").write_bytes(packed)
    (tmp_path / "more.yml.gz").write_bytes(gzip.compress(NODE.format("b").encode()))
    (tmp_path / "rest.json.gz").write_bytes(gzip.compress(json.dumps(node("c")).encode()))
    (tmp_path / "notes.txt.gz").write_bytes(packed)
    assert names(tmp_path) == ["a", "b", "c"]
    # As `cat a.gz b.gz` joins them.
    two = packed + gzip.compress(b"\n---\n" + NODE.format("d").encode())
    assert [one.name for one in read_manifests(["-"], stdin=lambda: two).nodes] == ["a", "d"]


def test_what_gzip_did_not_finish_is_an_error() -> None:
    packed = gzip.compress(NODE.format("a").encode())
    (error,) = read_manifests(["-"], stdin=lambda: packed[:-9]).errors
    assert error.message.startswith("is compressed, and can't be unpacked: ")
    for data in (packed[:20] + b"x" * 40, b"\x1f\x8b"):
        assert "can't be unpacked" in str(unpacked(data))
    assert "is longer than" in str(unpacked(packed, 10))


def test_what_unpacks_to_more_takes_no_more_memory_than_what_was_read_of_it() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        assert unpacked(gzip.compress(b"a")) == b"a"
        assert unpacked(bomb, 2 << 20) == "is longer than 2 MiB when it is unpacked"
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "NAME   READY   STATUS    RESTARTS   AGE\np-0    1/1     Running   0          5d\n",
        "NAMESPACE     NAME   READY\ndefault       p      1/1\n",
        "\nNAME    STATUS   ROLES    AGE   VERSION\n",
        "LAST SEEN   TYPE     REASON\n",
        "No resources found in default namespace.\n",
        "Name:             p-0\nNamespace:        default\nPriority:         0\n",
        "Name:               n\nRoles:              <none>\n",
    ],
)
def test_what_kubectl_prints_for_people_is_recognised(text: str) -> None:
    (error,) = read_manifests(["-"], stdin=lambda: text).errors
    assert (error.message, "-o yaml" in error.remedy) == (
        "is what kubectl prints for people, and no manifest",
        True,
    )


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(text)
    (error,) = read_manifests([str(tmp_path)]).errors
    assert error.message == "is empty"


def test_a_file_of_comments_holds_nothing_and_is_no_error() -> None:
    assert read_manifests(["-"], stdin=lambda: "# nothing yet\n---\n").errors == ()


def test_a_pipe_may_give_text_or_bytes() -> None:
    text = NODE.format("a")
    assert read_manifests(["-"], stdin=lambda: text) == read_manifests(["-"], stdin=text.encode)
    assert [one.name for one in read_manifests(["-"], stdin=lambda: text).nodes] == ["a"]


def test_lists_of_all_sorts() -> None:
    items = [node("a"), node("b")]
    bare = [{"metadata": one["metadata"]} for one in items]
    for text in (
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items}),
        json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": bare}),
        "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
    ):
        assert [one.name for one in read_good(text).nodes] == ["a", "b"]


@pytest.mark.parametrize("items", ["", ', "items": null', ', "items": []'])
def test_empty_lists(items: str) -> None:
    text = f'{{"apiVersion": "v1", "kind": "List"{items}}}'
    assert read_good(text).nodes == ()
    assert read_good(f"# as YAML\n{text}").nodes == ()


def test_a_kind_that_merely_ends_in_list_is_no_list(golden: Golden) -> None:
    manifests = read_good('{"apiVersion": "example.com/v1", "kind": "PriceList", "metadata": {"name": "a"}}')
    golden("manifest-problems", manifests.notices[0].message)


def test_several_json_objects_in_one_text() -> None:
    text = "\n".join(json.dumps(node(name), indent=1) for name in "abc")
    assert [one.name for one in read_good(text).nodes] == ["a", "b", "c"]


def test_json_that_breaks_off_says_where(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps(node("a")) + "\n\n" + json.dumps(node("b"), indent=1)[:-12])
    manifests = read_manifests([str(file)])
    assert [one.name for one in manifests.nodes] == ["a"]
    (error,) = manifests.errors
    assert (error.document, error.line) == (2, 7)
    assert error.message.startswith("is not JSON: ")


def test_json_and_yaml_say_the_same() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": 0.5, "memory": "1e3"}}}]},
    }
    assert read_good(json.dumps(pod)) == read_good("# YAML\n" + json.dumps(pod))


def test_generated_names_do_not_depend_on_the_order_of_documents() -> None:
    texts = [
        f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: p-, labels: {{x: {x}}}}}}}" for x in "aab"
    ]
    seen = set()
    for order in itertools.permutations(texts):
        pods = read_good("\n---\n".join(order)).pods
        seen.add(frozenset((pod.name, pod.labels["x"]) for pod in pods))
        assert len({pod.name for pod in pods}) == 3
        assert all(pod.name.startswith("p-") for pod in pods)
    assert len(seen) == 1


def test_the_garbage_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    read_good(NODE.format("a"))
    assert gc.isenabled()
    gc.disable()
    try:
        read_good(NODE.format("a"))
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ('"metadata": {"name": "\\ud800"}', "metadata.name: '\ufffd' is not a name"),
        (f'"metadata": {{"name": "a"}}, "spec": {{"unschedulable": {"9" * 5000}}}', "Node/a"),
        ('"metadata": {"name": "a/b"}', "metadata.name: 'a/b' is not a name"),
        ('"metadata": {"name": "a", "namespace": "b c"}', "metadata.namespace: 'b c' is not a name"),
        (
            '"metadata": {"name": "a"}, "status": {"capacity": {"cpu": 1e999}}',
            "status.capacity: Number out of range",
        ),
        ('"metadata": {"name": "a"}, "status": {"capacity": {"cpu": 1e300}}', "cpu: 1e+300 is too large"),
        (
            '"metadata": {"name": "a", "labels": {"x": NaN}}',
            "metadata.labels.x: must be text, but is a number (nan)",
        ),
        ('"metadata": {"name": "a"}, "spec": []', "Node/a: spec: must be a mapping, but is a list"),
    ],
)
def test_odd_json_is_an_error_and_no_accident(part: str, said: str) -> None:
    text = str(
        read_manifests(["-"], stdin=lambda: f'{{"apiVersion": "v1", "kind": "Node", {part}}}').errors[0]
    )
    assert said in text
    assert text.isprintable()


NODES = tuple(f'{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}}}' for name in "abc")


@pytest.mark.parametrize(
    "broken", ['{"apiVersion": "v1", "kind"', '{"kind": Node}', '{"x": ' + "[" * 10**5, '{"x": "']
)
@pytest.mark.parametrize("file", ["-", "nodes.json"])
def test_in_a_stream_of_json_objects_one_that_is_none_takes_no_other_along(
    broken: str, file: str, tmp_path: Path
) -> None:
    text = "\n".join([NODES[0], broken, *NODES[1:]])
    path = tmp_path / file
    path.write_text(text)
    manifests = read_manifests(["-" if file == "-" else str(path)], stdin=lambda: text)
    assert [node.name for node in manifests.nodes] == ["a", "b", "c"]
    (error,) = manifests.errors
    assert error.document == 2


def test_half_a_character_is_read_as_kubectl_reads_it() -> None:
    """JSON can escape half of a surrogate pair, which no UTF-8 text can hold."""
    labels = r'{"half": "\ud800x", "lower": "\udc00", "whole": "\ud83d\ude00", "text": "\\ud800"}'
    metadata = f'{{"generateName": "a-", "labels": {labels}}}'
    (pod,) = read_good(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {metadata}}}').pods
    assert pod.labels == {"half": "\ufffdx", "lower": "\ufffd", "whole": "\U0001f600", "text": "\\ud800"}


def test_a_tab_is_called_a_tab(golden: Golden) -> None:
    (error,) = read("apiVersion: v1\nmetadata:\n\tname: a\n").errors
    golden("manifest-problems", str(error))
