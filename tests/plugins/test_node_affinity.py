import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.nodes import Node
from closeby.objects.pods import NodeSelectorTerm, PodSpec, PreferredTerm, Requirement
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.node_affinity import NodeAffinity
from closeby.scheduling.extension import Handle, NoArguments
from closeby.scheduling.plugin_view import Nodes
from tests.plugins.asking import allowed, handle_of, pod_of, scores, why_not

#   node   zone   disk   cores   note
#   a      z1     ssd    8       ""
#   b      z1     hdd    16
#   c      z2     ssd    -4
#   d      z2            many
#   e             hdd
NODES = [
    Node(name="a", labels={"zone": "z1", "disk": "ssd", "cores": "8", "note": ""}),
    Node(name="b", labels={"zone": "z1", "disk": "hdd", "cores": "16"}),
    Node(name="c", labels={"zone": "z2", "disk": "ssd", "cores": "-4"}),
    Node(name="d", labels={"zone": "z2", "cores": "many"}),
    Node(name="e", labels={"disk": "hdd"}),
]


def plugin_on(handle: Handle | None = None) -> NodeAffinity:
    return NodeAffinity(NoArguments(), handle or handle_of(NODES))


def needing(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, operator, values)


def requiring(*terms: NodeSelectorTerm) -> PodSpec:
    return PodSpec(required_affinity=terms)


def term(*expressions: Requirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions=expressions)


@pytest.mark.parametrize(
    ("requirement", "nodes"),
    [
        (needing("zone", "In", "z1"), "a b"),
        (needing("zone", "In", "z1", "z2"), "a b c d"),
        (needing("zone", "In", "z9"), ""),
        (needing("zone", "In", "z9", "z2"), "c d"),
        (needing("rack", "In", "r1"), ""),
        (needing("note", "In", ""), "a"),
        (needing("zone", "NotIn", "z1"), "c d e"),
        (needing("zone", "NotIn", "z1", "z2"), "e"),
        (needing("zone", "NotIn", "z9"), "a b c d e"),
        (needing("rack", "NotIn", "r1"), "a b c d e"),
        (needing("disk", "Exists"), "a b c e"),
        (needing("note", "Exists"), "a"),
        (needing("rack", "Exists"), ""),
        (needing("disk", "DoesNotExist"), "d"),
        (needing("rack", "DoesNotExist"), "a b c d e"),
        (needing("cores", "Gt", "8"), "b"),
        (needing("cores", "Gt", "-5"), "a b c"),
        (needing("cores", "Gt", "+7"), "a b"),
        (needing("cores", "Lt", "16"), "a c"),
        (needing("cores", "Lt", "-4"), ""),
        (needing("rack", "Gt", "0"), ""),
    ],
)
def test_operators(requirement: Requirement, nodes: str) -> None:
    assert allowed(plugin_on(), pod_of(requiring(term(requirement)))) == nodes


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (needing("zone", "In"), "In needs values"),
        (needing("zone", "NotIn"), "NotIn needs values"),
        (needing("zone", "Exists", "z1"), "Exists takes no values"),
        (needing("rack", "DoesNotExist", "r"), "DoesNotExist takes no values"),
        (needing("cores", "Gt"), "Gt needs exactly one integer"),
        (needing("cores", "Gt", "1", "2"), "Gt needs exactly one integer"),
        (needing("cores", "Lt", "1e3"), "Lt needs exactly one integer"),
        (needing("cores", "Gt", " 1"), "Gt needs exactly one integer"),
        (needing("cores", "Gt", "1_0"), "Gt needs exactly one integer"),
        (needing("cores", "Lt", "9223372036854775808"), "Lt needs exactly one integer"),
        (needing("zone", "Near", "z1"), "unknown operator Near"),
    ],
)
def test_a_requirement_that_breaks_the_rules_matches_nothing(requirement: Requirement, problem: str) -> None:
    pod = pod_of(requiring(term(needing("zone", "Exists"), requirement)))
    assert allowed(plugin_on(), pod) == ""
    assert problem in why_not(plugin_on(), pod, "a").message


def test_large_integers_are_compared_exactly() -> None:
    nodes = [
        Node(name="below", labels={"serial": "9007199254740992"}),
        Node(name="above", labels={"serial": "9007199254740993"}),
        Node(name="beyond", labels={"serial": "9223372036854775808"}),
    ]
    pod = pod_of(requiring(term(needing("serial", "Gt", "9007199254740992"))))
    assert allowed(plugin_on(handle_of(nodes)), pod) == "above"


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ((needing("metadata.name", "In", "b"),), "b"),
        ((needing("metadata.name", "NotIn", "b"),), "a c d e"),
        ((needing("metadata.name", "In", "zz"),), ""),
        ((needing("metadata.name", "NotIn", "zz"),), "a b c d e"),
        ((needing("metadata.name", "In", "a", "b"),), ""),
        ((needing("metadata.name", "Exists"),), ""),
        ((needing("metadata.uid", "In", "1"),), ""),
    ],
)
def test_match_fields(fields: tuple[Requirement, ...], nodes: str) -> None:
    assert allowed(plugin_on(), pod_of(requiring(NodeSelectorTerm(fields=fields)))) == nodes


def test_requirements_of_a_term_all_hold_and_terms_are_alternatives() -> None:
    ssd_in_z2 = term(needing("zone", "In", "z2"), needing("disk", "In", "ssd"))
    named = NodeSelectorTerm((needing("disk", "In", "hdd"),), (needing("metadata.name", "NotIn", "b"),))
    assert allowed(plugin_on(), pod_of(requiring(ssd_in_z2))) == "c"
    assert allowed(plugin_on(), pod_of(requiring(named))) == "e"
    assert allowed(plugin_on(), pod_of(requiring(ssd_in_z2, named))) == "c e"


def test_an_empty_term_and_no_terms_match_nothing() -> None:
    everywhere = term(needing("rack", "DoesNotExist"))
    assert allowed(plugin_on(), pod_of(requiring())) == ""
    assert allowed(plugin_on(), pod_of(requiring(term()))) == ""
    assert allowed(plugin_on(), pod_of(requiring(term(), everywhere))) == "a b c d e"


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ((("zone", "z1"),), "a b"),
        ((("disk", "ssd"), ("zone", "z1")), "a"),
        ((("rack", "r"),), ""),
        ((("note", ""),), "a"),
    ],
)
def test_node_selector(selector: tuple[tuple[str, str], ...], nodes: str) -> None:
    assert allowed(plugin_on(), pod_of(PodSpec(node_selector=selector))) == nodes


def test_selector_and_affinity_must_both_hold() -> None:
    spec = PodSpec(node_selector=(("disk", "ssd"),), required_affinity=(term(needing("zone", "In", "z2")),))
    assert allowed(plugin_on(), pod_of(spec)) == "c"


def test_the_devices_of_a_claim_are_no_part_of_what_the_pod_asks() -> None:
    """Spread counts the nodes that the pod's own affinity allows, whatever devices its claims have."""
    plugin = plugin_on()
    pod = pod_of(
        PodSpec(node_selector=(("disk", "ssd"),), claimed_nodes=((term(needing("zone", "In", "z2")),),))
    )
    assert allowed(plugin, pod) == "c"
    assert plugin.asked(pod, Nodes(plugin.handle.cluster)).tolist() == [True, False, True, False, False]


def test_a_pod_without_either_is_not_asked_about() -> None:
    preferring = PodSpec(preferred_affinity=(PreferredTerm(1, term(needing("disk", "Exists"))),))
    assert not plugin_on().concerns(pod_of())
    assert not plugin_on().concerns(pod_of(preferring))
    assert plugin_on().concerns(pod_of(requiring()))
    assert plugin_on().concerns(pod_of(PodSpec(node_selector=(("a", "b"),))))


@pytest.mark.parametrize(
    ("spec", "node", "message"),
    [
        (PodSpec(node_selector=(("disk", "ssd"),)), "b", "node selector disk=ssd: the node has disk=hdd"),
        (
            PodSpec(node_selector=(("disk", "ssd"),)),
            "d",
            "node selector disk=ssd: the node has no label disk",
        ),
        (
            requiring(term(needing("disk", "Exists"), needing("zone", "In", "z1", "z3"))),
            "c",
            "required node affinity zone In [z1, z3]: the node has zone=z2",
        ),
        (
            requiring(term(needing("cores", "Gt", "8"))),
            "a",
            "required node affinity cores Gt 8: the node has cores=8",
        ),
        (
            requiring(term(needing("disk", "DoesNotExist"))),
            "a",
            "required node affinity disk DoesNotExist: the node has disk=ssd",
        ),
        (
            requiring(NodeSelectorTerm(fields=(needing("metadata.name", "In", "b"),))),
            "a",
            "required node affinity metadata.name In [b]: the node is a",
        ),
        (
            requiring(term(needing("zone", "In", "z2")), term()),
            "a",
            (
                "none of 2 required node affinity terms: zone In [z2]: the node has zone=z1; "
                "has no requirements, which matches no node"
            ),
        ),
        (requiring(), "a", "required node affinity has no terms, which matches no node"),
    ],
)
def test_the_message_names_the_failing_requirement(spec: PodSpec, node: str, message: str) -> None:
    assert why_not(plugin_on(), pod_of(spec), node) == Rejection(Reason.NODE_AFFINITY_MISMATCH, message)


def test_preferred_terms_add_up_and_are_scaled_to_the_best_feasible_node() -> None:
    spec = PodSpec(
        preferred_affinity=(
            PreferredTerm(30, term(needing("zone", "In", "z1"))),
            PreferredTerm(10, term(needing("disk", "In", "ssd"))),
            PreferredTerm(50, term()),
            PreferredTerm(50, term(needing("zone", "In"))),
        )
    )
    plugin = plugin_on()
    assert plugin.scores(pod_of(spec))
    assert scores(plugin, pod_of(spec)) == {"a": 100, "b": 75, "c": 25, "d": 0, "e": 0}
    assert scores(plugin, pod_of(spec), feasible=["c", "d"]) == {"c": 100, "d": 0}
    assert scores(plugin, pod_of(spec), feasible=["d", "e"]) == {"d": 0, "e": 0}


def test_without_preferred_terms_there_is_no_score() -> None:
    assert not plugin_on().scores(pod_of(requiring(term(needing("zone", "Exists")))))
    assert not plugin_on().scores(pod_of(PodSpec(preferred_affinity=(PreferredTerm(5, term()),))))


def test_a_changed_label_is_noticed() -> None:
    handle = handle_of(NODES)
    plugin, pod = plugin_on(handle), pod_of(PodSpec(node_selector=(("disk", "ssd"),)))
    assert allowed(plugin, pod) == "a c"
    handle.cluster.add_node(Node(name="a", labels={"disk": "hdd"}))
    handle.cluster.add_node(Node(name="f", labels={"disk": "ssd"}))
    assert allowed(plugin, pod) == "c f"


VALUES = st.sampled_from(["1", "2", "10", "-3", "x", ""])
LABELS = st.dictionaries(st.sampled_from(["k", "l"]), VALUES)
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(["k", "l", "m"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(VALUES, max_size=3).map(tuple),
)


def holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    """The operators, said one by one."""
    value, values = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return len(values) > 0 and value not in values
        case "Exists":
            return value is not None and not values
        case "DoesNotExist":
            return value is None and not values
    if len(values) != 1 or not values[0].strip("-").isdigit() or not (value or "").strip("-").isdigit():
        return False
    difference = int(value or "") - int(values[0])
    return difference > 0 if requirement.operator == "Gt" else difference < 0


@given(
    st.lists(LABELS, min_size=1, max_size=6),
    st.lists(st.lists(REQUIREMENTS, min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_the_columns_answer_as_each_node_would(
    labels: list[dict[str, str]], terms: list[list[Requirement]]
) -> None:
    handle = handle_of(Node(name=f"n{index}", labels=given_) for index, given_ in enumerate(labels))
    pod = pod_of(requiring(*(term(*requirements) for requirements in terms)))
    expected = " ".join(
        f"n{index}"
        for index, given_ in enumerate(labels)
        if any(all(holds(one, given_) for one in requirements) for requirements in terms)
    )
    assert allowed(plugin_on(handle), pod) == expected


def test_pods_that_differ_in_what_they_prefer_alone_are_judged_apart() -> None:
    #   Both fit everywhere; one prefers zone z1, the other z2.
    plugin = plugin_on()
    specs = [
        PodSpec(preferred_affinity=(PreferredTerm(weight=1, term=term(needing("zone", "In", zone))),))
        for zone in ("z1", "z2")
    ]
    one, other = map(pod_of, specs)
    assert plugin.class_key(one) == plugin.class_key(pod_of(specs[0], name="same"))
    assert plugin.class_key(one) != plugin.class_key(other)
