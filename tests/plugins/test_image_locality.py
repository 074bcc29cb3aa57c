from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.nodes import Node, NodeImage
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.configurations import DEFAULT, KUBE_SCHEDULER, NAMED
from closeby.plugins.image_locality import ImageLocality, ImageLocalityArguments
from closeby.plugins.registry import profile_for
from closeby.scheduling.extension import Handle
from tests.plugins.asking import handle_of, pod_of, scores
from tests.reading.manifest_text import read_pod

MB = 1024 * 1024


def plugin_on(handle: Handle, score_accelerators: bool = False) -> ImageLocality:
    return ImageLocality(ImageLocalityArguments(score_accelerators=score_accelerators), handle)


def having(name: str, images: Mapping[str, int]) -> Node:
    """A node with images of so many MiB."""
    return Node(name=name, images=tuple(NodeImage(one, size * MB) for one, size in sorted(images.items())))


def using(*images: str, gpu: int = 0) -> Pod:
    return pod_of(PodSpec(images=tuple(sorted(images)), requests=(("nvidia.com/gpu", gpu),) if gpu else ()))


def test_a_node_that_has_the_image_is_better_by_its_size_and_spread() -> None:
    nodes = [having("big", {"a:1": 1046}), having("none", {}), having("small", {"b:1": 40})]
    plugin = plugin_on(handle_of(nodes))
    # 1046 MB on a third of the nodes, less 23, of 977 between nothing and all.
    expected = 100 * (1046 / 3 - 23) / 977
    assert scores(plugin, using("a:1")) == pytest.approx({"big": expected, "none": 0, "small": 0})
    # Too small to matter.
    assert set(scores(plugin, using("b:1")).values()) == {0}
    # Two images may be worth twice as much.
    assert scores(plugin, using("a:1", "c:1"))["big"] == pytest.approx(100 * (1046 / 3 - 23) / 1977)


def test_a_pod_whose_images_no_node_has_is_not_scored() -> None:
    plugin = plugin_on(handle_of([having("n", {"a:1": 500})]))
    assert plugin.scores(using("a:1"))
    assert not plugin.scores(using("b:1"))
    assert not plugin.scores(using())


def test_pods_that_ask_for_accelerators_are_left_to_packing_by_default() -> None:
    handle = handle_of([having("n", {"a:1": 500}), having("m", {})])
    assert not plugin_on(handle).scores(using("a:1", gpu=1))
    assert plugin_on(handle, score_accelerators=True).scores(using("a:1", gpu=1))
    assert plugin_on(handle).class_key(using("a:1", gpu=1)) == plugin_on(handle).class_key(using("b", gpu=1))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("web", "web:latest"),
        ("web:v1", "web:v1"),
        ("registry.example:5000/web", "registry.example:5000/web:latest"),
        ("registry.example:5000/web:v1", "registry.example:5000/web:v1"),
        ("web@sha256:ab", "web@sha256:ab"),
    ],
)
def test_an_image_without_a_tag_is_the_latest(image: str, name: str) -> None:
    assert read_pod({"containers": [{"name": "main", "image": image}]}).spec.images == (name,)


def test_images_of_init_containers_and_of_volumes_count() -> None:
    pod = read_pod(
        {
            "initContainers": [{"name": "first", "image": "a"}],
            "containers": [{"name": "main", "image": "b"}, {"name": "other", "image": "b"}],
            "volumes": [{"name": "model", "image": {"reference": "m:1"}}, {"name": "tmp", "emptyDir": {}}],
        }
    )
    assert pod.spec.images == ("a:latest", "b:latest", "b:latest", "m:1")


def test_weights_of_kube_scheduler_and_of_the_default() -> None:
    handle = handle_of([])
    weights = {
        name: {plugin.name: weight for plugin, weight in profile_for(NAMED[name], handle).scores}
        for name in (DEFAULT, KUBE_SCHEDULER)
    }
    new = ("ImageLocality", "NodeResourcesBalancedAllocation")
    assert [weights[KUBE_SCHEDULER][name] for name in new] == [1, 1]
    assert [weights[DEFAULT][name] for name in new] == [1, 1]
    # They add 100 and 50 points to the 100 of NodeResourcesFit at most: not more than the step between a node
    # with free accelerators and one without.
    assert weights[DEFAULT]["ScarceResourceAvoidance"] * (100 - 15) >= 100 + 100 + 50


NAMES = st.sampled_from(["a:1", "b:1", "c:1", "d:1"])
IMAGES = st.dictionaries(NAMES, st.sampled_from([10, 100, 700, 3000]))


@given(
    before=st.lists(IMAGES, min_size=1, max_size=5),
    after=st.dictionaries(st.integers(0, 6), st.none() | IMAGES, max_size=5),
    used=st.lists(NAMES, min_size=1, max_size=4),
)
def test_the_score_follows_nodes_that_come_go_and_change(
    before: list[dict[str, int]], after: dict[int, dict[str, int] | None], used: list[str]
) -> None:
    there = {f"n{i}": images for i, images in enumerate(before)}
    handle = handle_of([having(name, images) for name, images in there.items()])
    plugin, pod = plugin_on(handle), using(*used)

    def check() -> None:
        spread = {name: sum(name in images for images in there.values()) / len(there) for name in used}
        size = {name: max((images.get(name, 0) for images in there.values()), default=0) for name in used}
        most = 1000 * len(used)
        expected = {}
        for node, images in there.items():
            had = sum(size[name] * spread[name] for name in used if name in images)
            expected[node] = 100 * (min(max(had, 23), most) - 23) / (most - 23)
        if plugin.scores(pod):
            assert scores(plugin, pod) == pytest.approx(expected)
        else:
            assert set(expected.values()) == {0}

    check()
    for number, images in after.items():
        name = f"n{number}"
        if images is not None:
            there[name] = images
            handle.cluster.add_node(having(name, images))
        elif len(there) > 1 and there.pop(name, None) is not None:
            handle.cluster.remove_node(name)
        check()


def test_nodes_that_have_an_image_are_judged_again_when_it_has_spread() -> None:
    handle = handle_of([having("a", {"i:1": 500}), *(having(f"n{i}", {}) for i in range(3))])
    plugin, changes = plugin_on(handle), handle.cluster.usage_changes
    assert plugin.scores(using("i:1"))
    seen = changes.cursor
    handle.cluster.add_node(having("n0", {"i:1": 500}))
    assert plugin.scores(using("i:1"))
    touched = changes.since(seen)
    assert touched is not None
    assert handle.cluster.slot_of("a") in touched
    seen = changes.cursor
    handle.cluster.add_node(having("n1", {"other:1": 500}))
    assert plugin.scores(using("i:1"))
    touched = changes.since(seen)
    assert touched is not None
    assert handle.cluster.slot_of("a") not in touched
