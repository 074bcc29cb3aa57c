"""The page about fields names every field, key and version that the readers know."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from msgspec import Struct
from msgspec.structs import fields

from closeby.reading.common import podgroups
from closeby.reading.decoding import podspecs, requests, workloads
from closeby.reading.decoding.keys import unread_wishes
from closeby.reading.dialects import (
    app_groups,
    closeby,
    coscheduling,
    hypernodes,
    jobset,
    kai,
    kubeflow,
    kueue,
    leaderworkerset,
    ray,
    upstream,
    volcano,
    volcano_jobs,
)
from closeby.reading.known_fields import table
from closeby.reading.registry import NOTED, READERS
from tests.control_plane.binaries import kubernetes_versions
from tests.deploy.helm import CHART, RENDERED_FOR

PAGE = (Path(__file__).parents[2] / "docs" / "fields.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def named(text: str) -> set[str]:
    """All words of the code in a text: `spec.containers[].ports` names three."""
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"[A-Za-z]+", code)}


@pytest.mark.parametrize(
    ("title", "wire"),
    [
        ("Pods", podspecs.PodSpecWire),
        ("Pods", podspecs.AffinityWire),
        ("Pods", podspecs.VolumeWire),
        ("Pods", requests.PortWire),
        ("Pods", requests.ResourcesWire),
        ("Workloads", workloads.ReplicatedSpecWire),
        ("Workloads", workloads.JobSpecWire),
        ("Workloads", jobset.ReplicatedJobWire),
        ("Workloads", leaderworkerset.GroupTemplateWire),
        ("Workloads", kubeflow.SpecWire),
        ("Workloads", ray.WorkersWire),
        ("Workloads", volcano_jobs.SpecWire),
        ("Workloads", volcano_jobs.TaskWire),
        ("PodGroups", closeby.OwnSpecWire),
        ("PodGroups", closeby.OwnPlacementWire),
        ("PodGroups", kai.SpecWire),
        ("PodGroups", podgroups.SubGroupWire),
        ("PodGroups", coscheduling.SpecWire),
        ("PodGroups", volcano.SpecWire),
        ("PodGroups", upstream.SpecWire),
        ("Topologies, queues and networks", hypernodes.SpecWire),
        ("Topologies, queues and networks", kueue.FlavorSpecWire),
        ("Topologies, queues and networks", kueue.ClusterQueueSpecWire),
        ("Topologies, queues and networks", app_groups.KepSpecWire),
        ("Topologies, queues and networks", app_groups.PublishedSpecWire),
    ],
)
def test_every_field_is_on_the_page(title: str, wire: type[Struct]) -> None:
    assert {field.encode_name for field in fields(wire)} - named(section(title)) == set()


SECTIONS = {
    "/Pod": "Pods",
    "/Node": "Nodes",
    "/Namespace": "What pods refer to",
    "/Service": "What pods refer to",
    "node.k8s.io": "What pods refer to",
    "resource.k8s.io": "What pods refer to",
    "/ReplicationController": "Workloads",
    "apps": "Workloads",
    "batch": "Workloads",
    "batch.volcano.sh": "Workloads",
    "jobset.x-k8s.io": "Workloads",
    "kubeflow.org": "Workloads",
    "leaderworkerset.x-k8s.io": "Workloads",
    "ray.io": "Workloads",
    "scheduling.k8s.io": "PodGroups",
    "scheduling.k8s.io/PriorityClass": "Topologies, queues and networks",
    "scheduling.run.ai": "PodGroups",
    "scheduling.volcano.sh": "PodGroups",
    "scheduling.x-k8s.io": "PodGroups",
    "/PersistentVolume": "Volumes",
    "/PersistentVolumeClaim": "Volumes",
    "storage.k8s.io": "Volumes",
    "policy": "Topologies, queues and networks",
    "kai.scheduler": "Topologies, queues and networks",
    "kueue.x-k8s.io": "Topologies, queues and networks",
    "grove.io/PodCliqueSet": "Workloads",
    "trainer.kubeflow.org": "Workloads",
    "grove.io/ClusterTopologyBinding": "Topologies, queues and networks",
    "topology.volcano.sh": "Topologies, queues and networks",
}
#: Types whose fields stand in a section of their own, or that are honoured, or waited for, as a whole.
ELSEWHERE = {
    "EphemeralVolumeSource",
    "JobSchedulingConfiguration",
    "LabelSelector",
    "NodeAffinity",
    "ObjectMeta",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimVolumeSource",
    "PodAffinity",
    "PodAntiAffinity",
    "PodResourceClaim",
    "PodTemplateSpec",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "WorkloadReference",
    "kueue.x-k8s.io/ResourceFlavor.spec.tolerations",
    *(name for name in table().types if name.endswith(".PodGroupResourceClaim")),
    "scheduling.volcano.sh/PodGroup.spec.subGroupPolicy.labelSelector",
    *(name for name in table().types if name.endswith("VolumeSource")),
}
#: What every object has.
HEAD = {"apiVersion", "kind", "metadata", "status"}


def set_aside(title: str) -> set[str]:
    """The fields that a section calls without bearing on placement; what is in them is not listed."""
    (paragraph,) = re.findall(
        r"^No bearing on placement[^:]*: (.+?)\n\n", section(title) + "\n\n", re.M | re.S
    )
    return named(paragraph)


def unlisted(called: str, title: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The fields of a type of the schemas that a section does not name."""
    here, aside = named(section(title)), set_aside(title)
    for field, kind in table().types[called].items():
        inner = (kind or "").lstrip("[{")
        if field not in here:
            yield f"{called}.{field}"
        elif inner == "PodSpec" and title != "Pods":
            continue
        elif inner and field not in aside and inner not in seen | ELSEWHERE:
            yield from unlisted(inner, title, seen | {inner})


# Of a CompositePodGroup nothing is honoured, which the page says.
@pytest.mark.parametrize("kind", [one for one in table().kinds if not one.endswith("/CompositePodGroup")])
def test_every_field_of_the_schemas_is_on_the_page(kind: str) -> None:
    group, _, name = kind.split("/")
    title = SECTIONS.get(f"{group}/{name}") or SECTIONS[group]
    spec = table().types[table().kinds[kind]].get("spec")
    called = table().kinds[kind] if spec is None else spec
    assert set(unlisted(called, title)) - {f"{called}.{field}" for field in HEAD} == set()


def rows(title: str) -> list[tuple[str, str]]:
    """Keys and what becomes of them; a key without a domain has that of the one before it in its row."""
    found = []
    for line in section(title).splitlines():
        cells = line.strip("|").split(" | ")
        domain = ""
        for code in re.findall(r"`([^` ]+)`", cells[0]):
            domain = code.partition("/")[0] if "/" in code else domain
            found.append((code if "/" in code or not domain else f"{domain}/{code}", cells[-1]))
    return found


@pytest.mark.parametrize(("key", "becomes"), rows("Annotations and labels"))
def test_what_the_page_says_about_a_key_is_so(key: str, becomes: str) -> None:
    wishes = unread_wishes({key: "x"})
    if becomes.startswith("honoured"):
        assert wishes == ()
    elif becomes.strip() == "**waits**":
        assert [wish.hard for wish in wishes] == [True]
    elif becomes.strip() == "reported":
        assert [wish.hard for wish in wishes] == [False]
    else:
        assert wishes


def test_every_version_is_on_the_page() -> None:
    table = section("API versions")
    for (group, kind), entry in READERS.items():
        for version in entry.versions:
            assert re.search(rf"`{re.escape(group)}` \|.*\b{kind}\b.*\b{version}\b", table), (group, kind)


def test_the_table_of_releases_is_that_of_the_schemas() -> None:
    found = re.findall(r"^\| ([^|]+) \| ([\d.]+) to ([\d.]+) \|", section("Versions"), re.MULTILINE)
    assert {project: (oldest, newest) for project, oldest, newest in found} == table().releases


def test_the_releases_that_tests_run_are_on_the_page() -> None:
    (row,) = re.findall(r"^\| Kubernetes \|.+$", section("Versions"), re.MULTILINE)
    newest, older = (one.removeprefix("v") for one in kubernetes_versions())
    assert f"a real API server and controller manager of {newest} and {older}, live" in row
    assert f"the chart is rendered for {RENDERED_FOR}" in row
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert "from " + re.findall(r"\d+\.\d+", chart["kubeVersion"])[0] in row


def test_every_kind_is_on_the_page() -> None:
    kinds = {kind for _, kind in READERS | NOTED}
    assert kinds - set(re.findall(r"\w+", PAGE)) - {"Pod", "Node"} == set()
