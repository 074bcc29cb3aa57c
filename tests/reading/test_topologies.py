import pytest

from closeby.objects.topologies import Topology, TopologyLevel
from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read_good

HEAD = """
apiVersion: {api}
kind: Topology
metadata: {{name: network}}
spec:
"""


def topology(levels: str, api: str = "closeby.dev/v1alpha1") -> Topology:
    (result,) = read_good(HEAD.format(api=api) + f"  levels: {levels}").topologies
    return result


@pytest.mark.parametrize(
    "api",
    [
        "closeby.dev/v1alpha1",
        "kai.scheduler/v1alpha1",
        "kueue.x-k8s.io/v1alpha1",
        "kueue.x-k8s.io/v1beta1",
        "kueue.x-k8s.io/v1beta2",
    ],
)
def test_three_groups_say_the_same(api: str) -> None:
    levels = "[{nodeLabel: example.com/zone}, {nodeLabel: example.com/rack, alias: rack}]"
    assert topology(levels, api) == Topology(
        name="network",
        levels=(TopologyLevel("example.com/zone"), TopologyLevel("example.com/rack", "rack")),
        source=api,
    )


@pytest.mark.parametrize(
    ("levels", "field", "said"),
    [
        ("[]", "spec.levels", "no levels are given"),
        ("null", "spec.levels", "no levels are given"),
        ("[{nodeLabel: a}, {nodeLabel: a}]", "spec.levels[1].nodeLabel", "a is already level 0"),
        (
            "[{nodeLabel: a, alias: x}, {nodeLabel: b, alias: x}]",
            "spec.levels[1].alias",
            "x is already the alias of level 0",
        ),
        ("[{nodeLabel: a, alias: b}, {nodeLabel: b}]", "spec.levels[0].alias", "b is also a nodeLabel"),
        (
            "[{nodeLabel: kubernetes.io/hostname}, {nodeLabel: a}]",
            "spec.levels[0].nodeLabel",
            "kubernetes.io/hostname is not the last level",
        ),
        ("[{nodeLabel: not a key}]", "spec.levels[0].nodeLabel", "'not a key' is not a label key"),
        ("[{alias: x}]", "spec.levels[0].nodeLabel", "'' is not a label key"),
        (
            f"[{', '.join(f'{{nodeLabel: l{i}}}' for i in range(17))}]",
            "spec.levels",
            "17 levels are more than 16",
        ),
    ],
)
def test_a_topology_that_makes_no_sense_disables_itself(levels: str, field: str, said: str) -> None:
    (condition,) = topology(levels).conditions
    assert (condition.reason, condition.object, condition.blocking) == (
        "InvalidSpec",
        "Topology/network",
        True,
    )
    assert (condition.field, condition.message) == (field, said)
    assert condition.remedy


def test_hostname_may_be_the_last_level() -> None:
    assert topology("[{nodeLabel: a}, {nodeLabel: kubernetes.io/hostname}]").conditions == ()


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("rack", True),
        ("topology.kubernetes.io/zone", True),
        ("a/b/c", False),
        ("/b", False),
        ("a/", False),
        ("UPPER.case/x", False),
        ("example.com/UPPER_case.x", True),
        ("-rack", False),
        ("x" * 63, True),
        ("x" * 64, False),
        (f"{'a.' * 126}a/x", True),
        (f"{'a.' * 127}a/x", False),
    ],
)
def test_label_keys(key: str, good: bool) -> None:
    assert (topology(f"[{{nodeLabel: {key!r}}}]").conditions == ()) is good


def test_our_own_schema_is_strict_and_knows_what_was_meant(golden: Golden) -> None:
    text = HEAD.format(api="closeby.dev/v1alpha1") + "  levels:\n  - nodeLabel: a\n  - nodeLable: b\n"
    golden("manifest-problems", error_of(text))
    text = HEAD.format(api="closeby.dev/v1alpha1") + "  zebra: 1\n"
    golden("manifest-problems", error_of(text))


def test_a_peers_schema_is_not(api: str = "kai.scheduler/v1alpha1") -> None:
    assert topology("[{nodeLabel: a, future: 1}]", api).conditions == ()


def test_an_unknown_version_is_reported(golden: Golden) -> None:
    manifests = read_good(HEAD.format(api="kueue.x-k8s.io/v9") + "  levels: [{nodeLabel: a}]")
    assert manifests.topologies == ()
    (notice,) = manifests.notices
    golden("manifest-problems", notice.message)


def test_a_kind_our_group_does_not_have_is_an_error(golden: Golden) -> None:
    text = "{apiVersion: closeby.dev/v1alpha1, kind: Gang, metadata: {name: g}}"
    golden("manifest-problems", error_of(text))
