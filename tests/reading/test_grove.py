"""Grove's PodCliqueSets: their pods, their gangs, and where each part may be."""

import pytest

from closeby.objects.groups import PodGroup, SubGroup, TopologyConstraint
from closeby.objects.topologies import TopologyLevel
from tests.lab.workload_text import expanded, names
from tests.reading.manifest_text import error_of, read_good


def pack(required: str = "", preferred: str = "", name: str = "grove-topology") -> str:
    words = ", ".join(
        f"{key}: {one}" for key, one in (("required", required), ("preferred", preferred)) if one
    )
    named = f"topologyName: {name}, " if name else ""
    return f"topologyConstraint: {{{named}pack: {{{words}}}}}"


def clique(name: str, replicas: int, constraint: str = "", more: str = "") -> str:
    spec = f"{{replicas: {replicas}{more}, podSpec: {{containers: [{{name: c, image: i}}]}}}}"
    return f"{{name: {name}, {constraint + ', ' if constraint else ''}spec: {spec}}}"


def pod_clique_set(cliques: str, groups: str = "", constraint: str = "", replicas: int = 1) -> str:
    more = f", {constraint}" if constraint else ""
    return f"""
---
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {{name: w}}
spec:
  replicas: {replicas}
  template: {{cliques: [{cliques}], podCliqueScalingGroups: [{groups}]{more}}}
"""


def asks(required: str | None = None, preferred: str | None = None) -> TopologyConstraint:
    return TopologyConstraint(topology="grove-topology", required=required, preferred=preferred)


def gangs(text: str) -> dict[str, PodGroup]:
    found = expanded(text).groups
    assert [one.conditions for one in found] == [()] * len(found)
    return {one.name: one for one in found}


def test_set_scaling_group_and_clique_each_have_a_level() -> None:
    # ai-dynamo/grove: operator/e2e/yaml/tas-hierarchy.yaml
    text = pod_clique_set(
        f"{clique('prefill', 2, pack('host'))}, {clique('decode', 2, pack('host'))}",
        f"{{name: g, replicas: 2, minAvailable: 2, cliqueNames: [prefill, decode], {pack('rack')}}}",
        pack("block"),
    )
    (gang,) = gangs(text).values()
    assert (gang.name, gang.min_member, gang.constraint) == ("w-0", 8, asks("block"))
    host = asks("host")
    assert gang.subgroups == (
        SubGroup(name="g-0", min_member=0, constraint=asks("rack")),
        SubGroup(name="g-1", min_member=0, constraint=asks("rack")),
        SubGroup(name="g-0-prefill", min_member=2, parent="g-0", constraint=host),
        SubGroup(name="g-0-decode", min_member=2, parent="g-0", constraint=host),
        SubGroup(name="g-1-prefill", min_member=2, parent="g-1", constraint=host),
        SubGroup(name="g-1-decode", min_member=2, parent="g-1", constraint=host),
    )
    assert names(expanded(text))[:2] == ["w-0-g-0-decode-0", "w-0-g-0-decode-1"]


def test_replicas_beyond_the_minimum_of_a_scaling_group_are_gangs_of_their_own() -> None:
    text = pod_clique_set(
        clique("worker", 1),
        f"{{name: workers, replicas: 2, minAvailable: 1, cliqueNames: [worker], {pack('host')}}}",
    )
    found = gangs(text)
    assert list(found) == ["w-0", "w-0-workers-1"]
    assert found["w-0-workers-1"].constraint == asks("host")
    assert found["w-0-workers-1"].subgroups == (SubGroup(name="workers-1-worker", min_member=1),)


def test_the_constraint_of_the_set_holds_for_replicas_beyond_the_minimum_too() -> None:
    # ai-dynamo/grove: operator/e2e/yaml/tas-preferred-pack.yaml
    text = pod_clique_set(
        f"{clique('worker', 1)}, {clique('router', 2, pack(preferred='host'), ', minAvailable: 1')}",
        f"{{name: workers, replicas: 2, minAvailable: 1, cliqueNames: [worker], {pack(preferred='host')}}}",
        pack("block", "rack"),
    )
    found = gangs(text)
    assert list(found) == ["w-0"]
    assert found["w-0"].constraint == asks("block", "rack")
    assert found["w-0"].min_member == 2
    own = asks(preferred="host")
    assert found["w-0"].subgroups == (
        SubGroup(name="workers-scaled", min_member=0, min_subgroups=0),
        SubGroup(name="workers-0", min_member=0, constraint=own),
        SubGroup(name="workers-1", min_member=0, parent="workers-scaled", constraint=own),
        SubGroup(name="router", min_member=1, constraint=own),
        SubGroup(name="workers-0-worker", min_member=1, parent="workers-0"),
        SubGroup(name="workers-1-worker", min_member=1, parent="workers-1"),
    )


def test_each_replica_is_a_gang_and_inherits_the_name_of_the_topology() -> None:
    text = pod_clique_set(clique("a", 2, pack("rack", name="")), "", pack("block"), replicas=2)
    found = gangs(text)
    assert list(found) == ["w-0", "w-1"]
    assert found["w-1"].subgroups == (SubGroup(name="a", min_member=2, constraint=asks("rack")),)
    old = clique("a", 2, "topologyConstraint: {topologyName: grove-topology, packDomain: rack}")
    assert gangs(pod_clique_set(old))["w-0"].subgroups[0].constraint == asks("rack")


def test_shared_claims_keep_the_pods_waiting() -> None:
    text = pod_clique_set(clique("a", 1, "resourceSharing: [{name: gpus, scope: PerReplica}]"))
    assert [one.spec.unsupported for one in expanded(text).pods] == [
        ("PodCliqueSet/w spec.template.*.resourceSharing",)
    ]


def test_pods_that_are_there_are_of_their_clique() -> None:
    pod = """
---
apiVersion: v1
kind: Pod
metadata:
  name: w-0-a-x7k2p
  labels: {grove.io/podclique: w-0-a, app.kubernetes.io/part-of: w}
  ownerReferences: [{apiVersion: grove.io/v1alpha1, kind: PodClique, name: w-0-a, uid: u, controller: true}]
spec: {nodeName: n, containers: [{name: c}]}
status: {phase: Running}
"""
    found = expanded(pod_clique_set(f"{clique('a', 2)}, {clique('b', 1)}") + pod)
    assert names(found) == ["w-0-a-0", "w-0-a-x7k2p", "w-0-b-0"]
    assert {one.name: one.subgroup for one in found.pods}["w-0-a-x7k2p"] == "a"


def test_domains_of_a_topology_binding_name_levels() -> None:
    (topology,) = read_good(
        """
        apiVersion: grove.io/v1alpha1
        kind: ClusterTopologyBinding
        metadata: {name: grove-topology}
        spec: {levels: [{domain: rack, key: example.com/rack}, {domain: host, key: kubernetes.io/hostname}]}
        """
    ).topologies
    assert topology.name == "grove-topology"
    assert topology.levels == (
        TopologyLevel("example.com/rack", "rack"),
        TopologyLevel("kubernetes.io/hostname", "host"),
    )


@pytest.mark.parametrize(
    ("replicas", "pods", "groups"),
    [
        (1_000_000, 1_000_000, ""),
        (1_000_000, 0, ""),
        (1_000, 1_000, "{name: s, cliqueNames: [a], replicas: 1000, minAvailable: 1}"),
        (1_000, 0, "{name: s, cliqueNames: [a], replicas: 1000, minAvailable: 1}"),
    ],
)
def test_replicas_that_multiply_beyond_all_sense_are_refused_at_once(
    replicas: int, pods: int, groups: str
) -> None:
    assert "pods are more than" in error_of(pod_clique_set(clique("a", pods), groups, replicas=replicas))
