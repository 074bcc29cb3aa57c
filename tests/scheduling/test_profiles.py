from collections.abc import Mapping
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec import Struct, field

from closeby.cluster.columns import Cluster
from closeby.errors import ConfigurationError
from closeby.plugins.registry import BUILT_IN, DEFAULT_PLUGINS, profile_for
from closeby.reading.configuration import read_configuration
from closeby.scheduling.extension import (
    Filter,
    Handle,
    PlacementGenerate,
    Plugin,
    QueuedItem,
    QueueSort,
    Score,
)
from closeby.scheduling.profile import Profile, build_profile
from closeby.topology.registry import Topologies
from tests.golden.fixture import Golden


class KnobArguments(Struct, frozen=True):
    size: int = field(name="knob.size")
    names: tuple[str, ...] = field(default=(), name="knob.names")
    nested: dict[str, dict[str, int]] = {}

    def __post_init__(self) -> None:
        if self.size > 100:
            raise ValueError("knob.size is at most 100")


class Alpha(Filter):
    name = "Alpha"


class Beta(Filter, Score):
    name = "Beta"
    default_weight = 4.0


class Gamma(PlacementGenerate, Score):
    name = "Gamma"


class Fifo(QueueSort):
    name = "Fifo"

    def sort_key(self, item: QueuedItem) -> tuple[str]:
        return (item.key,)


class Lifo(Fifo):
    name = "Lifo"


class Knob(Filter):
    name = "Knob"
    Arguments = KnobArguments

    def __init__(self, arguments: KnobArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        if "forbidden" in arguments.names:
            raise ValueError("knob.names must not hold 'forbidden'")
        if "" in arguments.names:
            raise ValueError(f"knob.names[{arguments.names.index('')}] is empty")
        self.size = arguments.size


class Idle(Plugin):
    name = "Idle"


AVAILABLE: Mapping[str, type[Plugin]] = {
    kind.name: kind for kind in (Fifo, Alpha, Beta, Gamma, Lifo, Knob, Idle)
}
DEFAULTS = ["Fifo", "Alpha", "Beta", "Gamma"]


def handle() -> Handle:
    cluster = Cluster()
    return Handle(cluster, Topologies(cluster.labels, cluster.names), lambda pod: None)


def profile(text: str = "", available: Mapping[str, type[Plugin]] = AVAILABLE) -> Profile:
    """The profile of a configuration."""
    return build_profile(read_configuration(dedent(text), "c.yaml"), available, handle(), DEFAULTS)


def mistakes(text: str) -> list[str]:
    """The sentences about what is wrong with a configuration."""
    with pytest.raises(ConfigurationError) as caught:
        profile(text)
    return [str(problem) for problem in caught.value.problems]


def order(text: str) -> str:
    return " ".join(plugin.name for plugin in profile(text).plugins)


def test_the_built_in_profile() -> None:
    built_in = profile_for(read_configuration(""), handle())
    assert [plugin.name for plugin in built_in.plugins] == [
        "SchedulingGates",
        "PrioritySort",
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "ScarceResourceAvoidance",
        "NodePorts",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "ImageLocality",
        "PodTopologySpread",
        "InterPodAffinity",
        "CheckRiskNodeBandwidth",
        "network-topology",
        "task-topology",
        "NetworkMinCost",
        "topology",
        "domain-binpack",
        "DefaultPreemption",
    ]
    assert built_in.queue_sort.name == "PrioritySort"
    assert [plugin.name for plugin in built_in.pre_enqueue] == ["SchedulingGates"]
    generators = [plugin.name for plugin in built_in.generators]
    assert generators == ["ScarceResourceAvoidance", "network-topology", "topology"]
    assert [plugin.name for plugin in built_in.first_nodes] == ["ScarceResourceAvoidance"]
    weights = {plugin.name: weight for plugin, weight in built_in.scores}
    assert weights["TaintToleration"] == 3
    assert weights["NodeAffinity"] == 2
    assert weights["NodeResourcesFit"] == 1
    assert set(BUILT_IN) >= {plugin.name for plugin in DEFAULT_PLUGINS}


def test_the_built_in_plugins_take_the_proposals_snippet() -> None:
    text = """\
        - plugins:
           - name: network-topology
             arguments:
               network-topology.type: static
               network-topology.keys: rack,switch,idc
               network-topology.weight: 10
        """
    built = handle()
    profile_for(read_configuration(dedent(text)), built)
    topology = built.topologies.declared("network-topology")
    assert topology is not None
    assert [level.node_label for level in topology.levels] == ["idc", "switch", "rack"]


def test_plugins_are_grouped_by_extension_point() -> None:
    made = profile()
    assert [plugin.name for plugin in made.filters] == ["Alpha", "Beta"]
    assert [plugin.name for plugin in made.generators] == ["Gamma"]
    assert [(plugin.name, weight) for plugin, weight in made.scores] == [("Beta", 4), ("Gamma", 1)]
    assert made.queue_sort.name == "Fifo"
    assert (made.pre_filters, made.binds, made.reserves, made.placement_scores) == ((), (), (), ())
    assert [id(made.filters[1])] == [id(plugin) for plugin, _ in made.scores if plugin.name == "Beta"]


def test_a_configured_weight_counts() -> None:
    made = profile("plugins: [{name: Beta, weight: 0.5}, {name: Gamma, weight: 0}]")
    assert [(plugin.name, weight) for plugin, weight in made.scores] == [("Beta", 0.5), ("Gamma", 0)]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("Beta", "Fifo Alpha Beta Gamma"),
        ("Gamma, Beta", "Fifo Alpha Gamma Beta"),
        ("Beta, Alpha", "Fifo Beta Alpha Gamma"),
        ("Knob", "Fifo Alpha Beta Gamma Knob"),
        ("Knob, Alpha", "Fifo Knob Alpha Beta Gamma"),
        ("Alpha, Knob, Gamma", "Fifo Alpha Beta Knob Gamma"),
        ("Gamma, Knob, Alpha", "Fifo Gamma Beta Knob Alpha"),
        ("-Alpha", "Fifo Beta Gamma"),
        ("-Alpha, Gamma, Beta", "Fifo Gamma Beta"),
        ("-Knob", "Fifo Alpha Beta Gamma"),
        ("Lifo", "Alpha Beta Gamma Lifo"),
        ("-Fifo, Lifo", "Alpha Beta Gamma Lifo"),
    ],
)
def test_the_order_of_the_list_among_the_defaults_in_their_places(listed: str, expected: str) -> None:
    """``-`` stands for ``enabled: false``."""
    entries = []
    for name in listed.split(", "):
        more = ", arguments: {knob.size: 1}" if name == "Knob" else ""
        off = ", enabled: false" if name.startswith("-") else ""
        entries.append(f"{{name: {name.removeprefix('-')}{more}{off}}}")
    assert order(f"plugins: [{', '.join(entries)}]") == expected


def test_arguments_reach_the_plugin() -> None:
    made = profile('plugins: [{name: Knob, arguments: {knob.size: "7", knob.names: [a, b]}}]')
    (knob,) = [plugin for plugin in made.plugins if isinstance(plugin, Knob)]
    assert knob.size == 7


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- name: Aplha", "c.yaml:2: Aplha is not a known plugin; did you mean Alpha?"),
        ("- name: Alpha\n- name: Beta\n- name: Alpha", "c.yaml:4: Alpha is listed twice; keep one"),
        ("- name: Alpha\n  weight: 2", "c.yaml:2: Alpha has no score to weigh; remove its weight"),
        ("- name: Idle", "c.yaml:2: Idle takes part in no extension point"),
        ("- name: Fifo\n- name: Lifo", "c.yaml:3: Lifo and Fifo both sort the queue; keep one"),
        (
            "- name: Fifo\n  enabled: false",
            "c.yaml: no plugin sorts the queue; enable one, such as PrioritySort",
        ),
        (
            "- name: Alpha\n  arguments:\n    x: 1",
            "c.yaml:4: x is not a known argument of Alpha; Alpha takes no arguments",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 1\n    knob.sizes: 1",
            "c.yaml:5: knob.sizes is not a known argument of Knob; did you mean knob.size?",
        ),
        ("- name: Knob", "c.yaml:2: argument knob.size of Knob is missing; add it"),
        (
            "- name: Knob\n  arguments:\n    knob.size: big",
            "c.yaml:4: argument knob.size of Knob must be a whole number, but is text",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 1\n    knob.names:\n    - a\n    - [b]",
            "c.yaml:7: argument knob.names[1] of Knob must be text, but is a list",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 1\n    nested:\n      a: {b: x}",
            "c.yaml:6: argument nested.a.b of Knob must be a whole number, but is text ('x')",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 101",
            "c.yaml:4: arguments of Knob: knob.size is at most 100",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 1\n    knob.names: [forbidden]",
            "c.yaml:5: arguments of Knob: knob.names must not hold 'forbidden'",
        ),
        (
            "- name: Knob\n  arguments:\n    knob.size: 1\n    knob.names:\n    - a\n    - ''",
            "c.yaml:7: arguments of Knob: knob.names[1] is empty",
        ),
    ],
)
def test_mistakes(text: str, sentence: str) -> None:
    assert mistakes(f"plugins:\n{text}") == [sentence]


def test_namespaces_whose_priorities_are_trusted() -> None:
    assert profile().trust_group_priority is None
    assert profile("trustGroupPriority: [team-a]").trust_group_priority == ("team-a",)


def test_every_mistake_is_reported_in_the_files_order() -> None:
    text = "plugins:\n- name: Knob\n- name: nobody:Here\n- {name: Alpha, weight: 1}"
    assert [sentence.split(":")[1] for sentence in mistakes(text)] == ["2", "3", "4"]


def test_arguments_of_the_fit_plugin_point_at_their_own_line() -> None:
    text = """\
        plugins:
        - name: NodeResourcesFit
          arguments:
            scoringStrategy:
              resources:
              - name: cpu
              - name: memory
                wieght: 2
        """
    with pytest.raises(ConfigurationError) as caught:
        profile_for(read_configuration(dedent(text), "c.yaml"), handle())
    (problem,) = caught.value.problems
    assert problem.line == 8
    assert "scoringStrategy.resources[1].wieght of NodeResourcesFit" in problem.message


OWN_PLUGINS = """\
from closeby.scheduling.extension import Filter, QueueSort

class Mine(Filter):
    name = "mine"

class FifoAgain(QueueSort):
    name = "Fifo"

class Other:
    name = "other"

class AlphaAgain(Filter):
    name = "Alpha"

class Nameless(Filter):
    pass

number = 5
"""


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of a user's: a good one and two that can't be imported."""
    (tmp_path / "own_plugins.py").write_text(OWN_PLUGINS)
    (tmp_path / "own_broken.py").write_text("import math\nmath.nonsense\n")
    (tmp_path / "own_incomplete.py").write_text("import surely_not_installed\n")
    (tmp_path / "own_prefix.py").write_text("import own_pre\n")
    (tmp_path / "own_exit.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own_modules")
def test_a_plugin_by_module_and_class() -> None:
    assert order("plugins: [{name: 'own_plugins:Mine'}]") == "Fifo Alpha Beta Gamma mine"


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "own_plugin:Mine",
            (
                "plugin own_plugin:Mine: there is no module own_plugin; "
                "is it beside the configuration, or its folder on PYTHONPATH?"
            ),
        ),
        (
            "own_plugins:Mien",
            "plugin own_plugins:Mien: module own_plugins has no Mien; did you mean Mine?",
        ),
        (
            "own_broken:Mine",
            (
                "plugin own_broken:Mine: importing own_broken failed with AttributeError: "
                "module 'math' has no attribute 'nonsense'; see {folder}/own_broken.py, line 2"
            ),
        ),
        (
            "own_incomplete:Mine",
            (
                "plugin own_incomplete:Mine: importing own_incomplete failed with ModuleNotFoundError: "
                "No module named 'surely_not_installed'; see {folder}/own_incomplete.py, line 1"
            ),
        ),
        (
            "own_prefix:Mine",
            (
                "plugin own_prefix:Mine: importing own_prefix failed with ModuleNotFoundError: "
                "No module named 'own_pre'; see {folder}/own_prefix.py, line 1"
            ),
        ),
        (
            "own_exit:Mine",
            (
                "plugin own_exit:Mine: importing own_exit failed with SystemExit: 3; "
                "see {folder}/own_exit.py, line 1"
            ),
        ),
        (
            "own_plugins:Other",
            (
                "plugin own_plugins:Other: Other is not a plugin; "
                "make it a class that inherits an extension point"
            ),
        ),
        (
            "own_plugins:number",
            (
                "plugin own_plugins:number: number is not a plugin; "
                "make it a class that inherits an extension point"
            ),
        ),
        (
            "own_plugins:Nameless",
            'plugin own_plugins:Nameless: Nameless has no name; give it one: name = "..."',
        ),
        ("own_plugins:", "own_plugins: does not name a class; write module:Class"),
        ("own_plugins:AlphaAgain", "two plugins are called Alpha; disable one of them with enabled: false"),
    ],
)
def test_a_class_that_cannot_be_had(name: str, sentence: str, tmp_path: Path) -> None:
    assert mistakes(f"plugins:\n- name: '{name}'") == [f"c.yaml:2: {sentence.format(folder=tmp_path)}"]


@pytest.mark.usefixtures("own_modules")
def test_classes_that_a_module_imports_are_not_proposed() -> None:
    (sentence,) = mistakes("plugins: [{name: 'own_plugins:Filte'}]")
    assert "did you mean" not in sentence


@pytest.mark.usefixtures("own_modules")
def test_a_clash_of_names_points_at_the_listed_plugin_whichever_comes_first(golden: Golden) -> None:
    text = "plugins:\n- name: 'own_plugins:AlphaAgain'\n- name: Fifo"
    (sentence,) = mistakes(text)
    golden("refusals", sentence)


@pytest.mark.usefixtures("own_modules")
def test_ones_own_queue_sort_may_have_the_name_of_the_one_that_it_replaces() -> None:
    assert order("plugins: [{name: 'own_plugins:FifoAgain'}]") == "Alpha Beta Gamma Fifo"


@pytest.mark.usefixtures("own_modules")
def test_ones_own_plugin_may_take_the_place_of_a_disabled_one() -> None:
    text = "plugins: [{name: Alpha, enabled: false}, {name: 'own_plugins:AlphaAgain'}]"
    assert order(text) == "Fifo Beta Gamma Alpha"


def install(folder: Path, package: str, **plugins: str) -> None:
    """Lay down what pip would, for a package that offers plugins."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in plugins.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[closeby.plugins]", *lines]))


@pytest.mark.usefixtures("own_modules")
def test_a_plugin_of_an_installed_package(tmp_path: Path, golden: Golden) -> None:
    install(tmp_path, "own", mine="own_plugins:Mine", twice="own_plugins:Mine", Alpha="own_broken:Alpha")
    install(tmp_path, "other", twice="own_broken:Mine", mine="own_plugins:Mine")
    assert order("plugins: [{name: mine}]") == "Fifo Alpha Beta Gamma mine"
    assert order("plugins: [{name: Alpha}]") == "Fifo Alpha Beta Gamma"
    golden("refusals", mistakes("plugins: [{name: mime}]"))
    (twice,) = mistakes("plugins: [{name: twice}]")
    golden("refusals", twice)


def test_many_unknown_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed packages are read once, the known names listed once, and a bounded number is shown."""
    read: list[str] = []

    def counted(group: str) -> EntryPoints:
        read.append(group)
        return entry_points(group=group)

    monkeypatch.setattr("importlib.metadata.entry_points", counted)
    names = [f"{number}zzzzzz" for number in range(400)]
    text = "plugins:\n" + "".join(f"- name: {name}\n" for name in [*names, "Alpah", "Alhpa"])
    with pytest.raises(ConfigurationError) as caught:
        profile(text)
    problems, shown = caught.value.problems, str(caught.value).splitlines()
    assert len(problems) == 402 and len(read) == 1
    assert [place for place, one in enumerate(problems) if "known plugins: " in one.remedy] == [0]
    assert all("Alpha" in one.remedy for one in problems[-2:])
    assert len(shown) == ConfigurationError.MOST + 1
    assert f"{402 - ConfigurationError.MOST} more" in shown[-1]
