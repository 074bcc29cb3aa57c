from textwrap import dedent

import pytest

from closeby.errors import ConfigurationError
from closeby.reading.configuration import Configuration, PluginEntry, did_you_mean, read_configuration
from tests.golden.fixture import Golden

SEED = """\
- plugins:
   - name: network-topology
     arguments:
       network-topology.type: static # static means it will use the node's labels to aware network topology
       network-topology.keys: rack,switch,idc # required when type is static
       network-topology.weight: 10
"""

#: Each list holds ten times what the one before it does.
ALIASES_THAT_EXPLODE = "\n".join(
    ["a: &a0 [0]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9))]
)


def mistakes(text: str) -> list[tuple[int | None, str]]:
    """Lines and messages of what is wrong with a configuration."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(dedent(text))
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_the_network_topology_proposals_snippet_is_taken_as_it_stands() -> None:
    configuration = read_configuration(SEED)
    assert configuration.plugins == (
        PluginEntry(
            name="network-topology",
            arguments={
                "network-topology.type": "static",
                "network-topology.keys": "rack,switch,idc",
                "network-topology.weight": 10,
            },
            line=2,
            argument_lines={
                "network-topology.type": 4,
                "network-topology.keys": 5,
                "network-topology.weight": 6,
            },
        ),
    )


def test_the_mapping() -> None:
    configuration = read_configuration(
        dedent(
            """\
            schedulerName: closeby
            plugins:
              - name: network-topology
                arguments: {network-topology.type: static, network-topology.keys: "rack,switch,idc"}
              - name: NetworkMinCost
                weight: 5
              - name: my_policies:Quiet
                enabled: false
            """
        )
    )
    assert configuration.scheduler_name == "closeby"
    assert [(entry.name, entry.weight, entry.enabled) for entry in configuration.plugins] == [
        ("network-topology", None, None),
        ("NetworkMinCost", 5.0, None),
        ("my_policies:Quiet", None, False),
    ]
    assert configuration.plugins[0].argument_lines["network-topology.keys"] == 4


def test_whose_costs_count() -> None:
    configuration = read_configuration(
        "networkTopologyNamespaces: [a, b, a]\ntenantNetworkTopologies: yes\nunknownAppGroupDelay: 1m"
    )
    assert configuration.network_topology_namespaces == ("a", "b")
    assert configuration.tenant_network_topologies
    assert configuration.unknown_app_group_delay == 60.0


def test_volcanos_whole_file_with_a_notice_about_its_actions(golden: Golden) -> None:
    text = """\
        actions: "enqueue, allocate, backfill"
        tiers:
        - plugins:
          - name: a
          - name: b
        - plugins:
          - name: c
        """
    configuration = read_configuration(dedent(text), "volcano.yaml")
    assert [entry.name for entry in configuration.plugins] == ["a", "b", "c"]
    golden("manifest-problems", configuration.notices)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "plugins:\n", "{}", "[]"])
def test_an_empty_file_is_the_default(text: str) -> None:
    assert read_configuration(text) == Configuration()


def test_lines_of_nested_arguments() -> None:
    text = """\
        plugins:
        - name: NodeResourcesFit
          arguments:
            scoringStrategy:
              resources:
              - name: cpu
              - name: memory
                weight: 2
        """
    (entry,) = read_configuration(dedent(text)).plugins
    assert entry.argument_lines == {
        "scoringStrategy": 4,
        "scoringStrategy.resources": 5,
        "scoringStrategy.resources[0]": 6,
        "scoringStrategy.resources[0].name": 6,
        "scoringStrategy.resources[1]": 7,
        "scoringStrategy.resources[1].name": 7,
        "scoringStrategy.resources[1].weight": 8,
    }


def test_numbers_and_switches_may_be_quoted() -> None:
    (entry,) = read_configuration('plugins: [{name: a, weight: "2.5", enabled: "false"}]').plugins
    assert (entry.weight, entry.enabled) == (2.5, False)


def test_anchors_and_merges_are_plain_yaml() -> None:
    text = """\
        plugins:
        - name: a
          arguments: &shared {x: 1, y: 2}
        - name: b
          arguments:
            <<: *shared
            y: 3
        """
    _, entry = read_configuration(dedent(text)).plugins
    assert entry.arguments == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shedulerName: x", [(1, "shedulerName is not a known key of the configuration")]),
        ("schedulerName: 5", [(1, "schedulerName must be text, not `5`")]),
        ("schedulerName: [a]", [(1, "schedulerName must be text, not a list")]),
        ("plugins: NodeName", [(1, "plugins must be a list, not `NodeName`")]),
        ("plugins: {a: 1}", [(1, "plugins must be a list, not a mapping")]),
        ("plugins:\n- NodeName", [(2, "a plugin must be a mapping, not `NodeName`")]),
        ("plugins:\n- weight: 3", [(2, "a plugin without a name")]),
        ("plugins:\n- name: 3", [(2, "name must be text, not `3`")]),
        ("plugins:\n- name: ''", [(2, "name must be text, not nothing")]),
        ("plugins:\n- name: a\n  wieght: 3", [(3, "wieght is not a known key of a plugin")]),
        (
            "plugins:\n- name: a\n  weight: heavy",
            [(3, "weight must be a number from 0 to 1,000,000,000, not `heavy`")],
        ),
        (
            "plugins:\n- name: a\n  weight: -1",
            [(3, "weight must be a number from 0 to 1,000,000,000, not `-1`")],
        ),
        (
            "plugins:\n- name: a\n  weight: .inf",
            [(3, "weight must be a number from 0 to 1,000,000,000, not `.inf`")],
        ),
        (
            "plugins:\n- name: a\n  weight: 1e308",
            [(3, "weight must be a number from 0 to 1,000,000,000, not `1e308`")],
        ),
        (
            "plugins:\n- name: a\n  weight: true",
            [(3, "weight must be a number from 0 to 1,000,000,000, not `true`")],
        ),
        ("plugins:\n- name: a\n  enabled: maybe", [(3, "enabled must be true or false, not `maybe`")]),
        ("networkTopologyNamespaces: a", [(1, "networkTopologyNamespaces must be a list, not `a`")]),
        (
            "networkTopologyNamespaces:\n- a\n- 5",
            [(3, "an entry of networkTopologyNamespaces must be text, not `5`")],
        ),
        (
            "networkTopologyNamespaces: ['team-*']",
            [(1, "`team-*` in networkTopologyNamespaces is not a namespace's name")],
        ),
        ("unknownAppGroupDelay: soon", [(1, "unknownAppGroupDelay must be a span of time, not `soon`")]),
        (
            "tenantNetworkTopologies: perhaps",
            [(1, "tenantNetworkTopologies must be true or false, not `perhaps`")],
        ),
        ("plugins:\n- name: a\n  name: b", [(3, "key 'name' is given twice")]),
        ("plugins:\n- name: a\n  arguments: [x]", [(3, "arguments of a must be a mapping, not a list")]),
        ("plugins:\n- name: a\n  arguments: {x: 1,\n   x: 2}", [(4, "key 'x' is given twice")]),
        ("plugins:\n- name: a\n  arguments:\n    x: {y: 1, y: 2}", [(4, "key 'y' is given twice")]),
        ("plugins:\n- name: a\n  arguments: {1: x}", [(3, "key 1 is not text")]),
        ("plugins:\n- name: a\n  arguments: &a\n    x: *a", [(4, "alias *a refers to nothing before it")]),
        ("tiers: []\nplugins: []", [(1, "tiers and plugins are both given")]),
        ("- plugins: []\n  name: x", [(2, "name is not a known key of a tier")]),
        ("- name: x", [(1, "name is not a known key of a tier")]),
        ("just text", [(1, "this is not a configuration")]),
        ("? [a]\n: b", [(1, "a key must be text")]),
    ],
)
def test_mistakes_and_the_line_they_stand_on(text: str, expected: list[tuple[int, str]]) -> None:
    assert mistakes(text) == expected


def test_all_mistakes_are_reported_at_once_in_the_files_order() -> None:
    text = """\
        plugins:
        - name: a
          weight: x
        - nmae: b
        surplus: 1
        """
    assert [line for line, _ in mistakes(text)] == [3, 4, 4, 5]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plugins: [", 1),
        ("plugins:\n\t- name: a", 2),
        ("a: 1\n---\nb: 2", 3),
        ("a: *unknown", 1),
        ("\x00", 1),
        ("plugins:\n- name: a\n  arguments:\n    x: !!python/object:os.system x", 4),
        (f"plugins: {'[' * 5000}{']' * 5000}", 1),
        (ALIASES_THAT_EXPLODE, 6),
    ],
)
def test_what_is_no_yaml_document(text: str, line: int) -> None:
    ((found, _),) = mistakes(text)
    assert found == line


def test_what_looks_like_a_date_is_text() -> None:
    (entry,) = read_configuration("plugins: [{name: a, arguments: {x: 2024-13-45, y: 2024-01-31}}]").plugins
    assert entry.arguments == {"x": "2024-13-45", "y": "2024-01-31"}


def test_a_mistake_is_one_sentence_with_its_place_and_remedy() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration("plugin: []", "my.yaml")
    sentence = "my.yaml:1: plugin is not a known key of the configuration; did you mean plugins?"
    assert str(caught.value.problems[0]) == sentence
    assert str(caught.value) == sentence


def test_did_you_mean() -> None:
    assert did_you_mean("NodeNmae", ["NodeName", "NodePorts"], "plugins") == "did you mean NodeName?"
    assert did_you_mean("xyz", ["b", "a"], "keys") == "known keys: a, b"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 14_400.0),
        ("reserveAfter: 10m", 600.0),
        ("reserveAfter: 1h30m", 5_400.0),
        ("reserveAfter: 0", 0.0),
    ],
)
def test_when_gangs_reserve_nodes(text: str, seconds: float) -> None:
    assert read_configuration(text).reserve_after == seconds


@pytest.mark.parametrize("value", ["soon", "-1m", "10", "[1m]"])
def test_a_reservation_needs_a_span_of_time(value: str, golden: Golden) -> None:
    [(line, message)] = mistakes(f"schedulerName: closeby\nreserveAfter: {value}\n")
    assert line == 2
    golden("manifest-problems", message)


@pytest.mark.parametrize(("text", "part"), [("", 0.25), ("reserveBudget: 2", 2.0), ("reserveBudget: 0", 0.0)])
def test_how_much_may_idle_on_reserved_nodes(text: str, part: float) -> None:
    assert read_configuration(text).reserve_budget == part


@pytest.mark.parametrize("value", ["much", "-1", ".inf", "[1]"])
def test_what_may_idle_is_a_number(value: str, golden: Golden) -> None:
    [(line, message)] = mistakes(f"schedulerName: closeby\nreserveBudget: {value}\n")
    assert line == 2
    golden("manifest-problems", message)


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        ("", None),
        ("trustGroupPriority:", None),
        ("trustGroupPriority: []", ()),
        ("trustGroupPriority: [ml, batch-2, ml]", ("ml", "batch-2")),
    ],
)
def test_whose_groups_may_name_a_priority(text: str, namespaces: tuple[str, ...] | None) -> None:
    assert read_configuration(text).trust_group_priority == namespaces


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("ml", "trustGroupPriority must be a list"),
        ("[7]", "an entry of trustGroupPriority must be text"),
        ("['*']", "is not a namespace's name"),
        ("[Team_A]", "is not a namespace's name"),
    ],
)
def test_namespaces_are_named_one_by_one(value: str, says: str) -> None:
    [(line, message)] = mistakes(f"schedulerName: closeby\ntrustGroupPriority: {value}\n")
    assert line == 2
    assert says in message
