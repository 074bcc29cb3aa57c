"""The guide and its examples say what is true: they are read, run, and compared with each other."""

import re
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from closeby import plugin as face
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import read_configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.profile import POINTS
from tests.plugins.asking import allowed, handle_of, scores, why_not
from tests.real_input import REPOSITORY
from tests.worlds import GPU, World, fabric, gang, pods

EXAMPLES = REPOSITORY / "docs" / "examples"
GUIDE = (REPOSITORY / "docs" / "writing-a-plugin.md").read_text()
EXAMPLE = (EXAMPLES / "quiet_racks.py").read_text()
GANGS = (EXAMPLES / "green_racks.py").read_text()
ARRAYS = (EXAMPLES / "quiet_racks_arrays.py").read_text()


#: What documents and examples may import.
PUBLIC = {"closeby.plugin", "closeby.errors"}
#: Pages of the laboratory, which show its own modules.
LABORATORY = {"measures.md", "simulation.md", "workloads.md"}


@pytest.fixture(autouse=True)
def _examples_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


#   rack      node   power-draw
#   noisy     loud   100
#   quiet     calm   300
#             soft   200
#             new    unknown
NODES = [
    Node(name="loud", labels={"noisy": "true"}, annotations={"power-draw": "100"}, allocatable={"cpu": 1000}),
    Node(
        name="calm", labels={"noisy": "false"}, annotations={"power-draw": "300"}, allocatable={"cpu": 1000}
    ),
    Node(name="soft", annotations={"power-draw": "200"}, allocatable={"cpu": 1000}),
    Node(name="new", allocatable={"cpu": 1000}),
]


def pod(name: str, **labels: str) -> Pod:
    needs = PodSpec(requests=(("cpu", 1000),))
    return Pod(namespace="default", name=name, uid=f"default/{name}", spec=needs, labels=labels)


def blocks(language: str) -> list[str]:
    """The guide's fenced blocks of one language; there are some."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, f"the guide has no code in {language}"
    return found


@pytest.mark.parametrize("name", ["quiet_racks:QuietRacks", "quiet_racks_arrays:QuietRacks"])
def test_the_example_through_the_profile_in_both_forms(name: str) -> None:
    profile = profile_for(read_configuration(f"plugins: [{{name: '{name}', weight: 5}}]"), handle_of(NODES))
    (filtering,) = [plugin for plugin in profile.filters if plugin.name == "quiet-racks"]
    ((scoring, weight),) = [pair for pair in profile.scores if pair[0].name == "quiet-racks"]
    quiet, plain = pod("quiet", quiet="required"), pod("plain")
    assert weight == 5
    assert allowed(filtering, quiet) == "calm soft new"
    assert not filtering.concerns(plain) or allowed(filtering, plain) == "loud calm soft new"
    assert why_not(filtering, quiet, "loud").message == "the rack is noisy, and the pod asks for quiet"
    raw = scores(scoring, plain)
    assert raw == {"loud": 100, "calm": 0, "soft": 50, "new": 0}
    assert scores(scoring, quiet, feasible=["calm", "soft"]) == {"calm": 0, "soft": 100}
    assert scores(scoring, quiet, feasible=["calm", "new"]) == {"calm": 100, "new": 0}
    assert filtering.class_key(plain) == filtering.class_key(pod("other")) != filtering.class_key(quiet)


@pytest.mark.parametrize("name", ["quiet_racks:QuietRacks", "quiet_racks_arrays:QuietRacks"])
def test_the_example_decides_where_pods_go(name: str) -> None:
    configuration = read_configuration(f"plugins: [{{name: '{name}'}}]")
    world = World(Engine(partial(profile_for, configuration)), NODES)
    world.run(members=[pod("a-quiet", quiet="required"), pod("b-plain"), pod("c-quiet", quiet="required")])
    assert world.where == {"a-quiet": "soft", "b-plain": "loud", "c-quiet": "calm"}


RACKS = {
    #: A rack's nodes draw 300, 100, and 200 watts each; the last rack is too small for a gang of four.
    "hot": ("h1", "h2", "300"),
    "cool": ("c1", "c2", "100"),
    "mild": ("m1", "m2", "200"),
    "tiny": ("t1", "", "1"),
}


def racks() -> list[Node]:
    return [
        Node(
            name=name,
            labels={"rack": rack, "kubernetes.io/hostname": name},
            annotations={"power-draw": watts},
            allocatable={GPU: 2},
        )
        for rack, (*names, watts) in RACKS.items()
        for name in names
        if name
    ]


def green_world() -> World:
    configuration = read_configuration((EXAMPLES / "green.yaml").read_text())
    return World(Engine(partial(profile_for, configuration)), racks(), fabric("rack"))


def test_the_policy_for_gangs_takes_the_rack_that_draws_least_power() -> None:
    assert green_world().run(gang(min_member=4), members=pods("train", 4)).used() == {"c1": 2, "c2": 2}
    # The small rack draws least, and holds two.
    assert green_world().run(gang(min_member=2), members=pods("train", 2)).used() == {"t1": 2}


def test_the_policy_for_gangs_leaves_required_levels_alone_and_lets_nothing_wait() -> None:
    assert len(green_world().run(gang(min_member=6), members=pods("train", 6)).where) == 6
    required = gang(min_member=6, required="rack")
    assert green_world().run(required, members=pods("train", 6)).where == {}


def test_the_guide_shows_the_policy_for_gangs_as_it_is() -> None:
    assert GANGS in blocks("python")
    assert (EXAMPLES / "green.yaml").read_text() in blocks("yaml")


def test_the_documents_import_the_public_face_alone() -> None:
    written = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *EXAMPLES.rglob("*.py")]
    imported = {
        (path.name, module)
        for path in written
        if path.name not in LABORATORY
        for module in re.findall(r"^\s*(?:from|import) (closeby[\w.]*)", path.read_text(), re.MULTILINE)
    }
    assert ("quiet_racks.py", "closeby.plugin") in imported
    assert {one for one in imported if one[1] not in PUBLIC} == set()


def test_the_public_face_has_what_it_promises() -> None:
    assert sorted(face.__all__) == sorted(set(face.__all__))
    assert {name for name in vars(face) if name[0].isalpha()} == set(face.__all__)
    assert {point.__name__ for point in POINTS} <= set(face.__all__)


def test_the_example_has_twenty_lines() -> None:
    assert len(EXAMPLE.splitlines()) <= 22
    code = [line for line in EXAMPLE.splitlines() if line.strip()]
    assert len(code) <= 20


def test_the_guide_shows_the_example_as_it_is() -> None:
    assert blocks("python")[0] == EXAMPLE


def test_the_guides_other_code_runs_or_stands_in_the_array_example() -> None:
    _, *others = blocks("python")
    assert others
    for block in others:
        if block in ARRAYS or block == GANGS:
            continue
        exec(compile(dedent(block), "writing-a-plugin.md", "exec"), {})


def test_the_guides_configurations_are_valid() -> None:
    for block in blocks("yaml"):
        profile_for(read_configuration(block), handle_of([]))


def test_the_guide_names_every_extension_point() -> None:
    table = GUIDE.partition("## All extension points")[2].partition("## In a package")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named >= {point.__name__ for point in POINTS} | {"Capacity", "NormalizeScore", "DependencyCost"}


def test_the_guides_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!http)([^)]+)\)", GUIDE)
    assert targets
    for target in targets:
        assert (REPOSITORY / "docs" / Path(target.partition("#")[0])).exists(), target
