"""Clusters in which not everything finds a place."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.manifests import Manifests
from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, Pod, PodSpec
from tests.worlds import GPU, draw, fabric, gang, pods

#: Two racks of four GPUs in zone a, one of eight in zone b.
CLUSTER = """
a r1 : n1=2 n2=2
a r2 : n3=2 n4=2
b r3 : n5=4 n6=4
"""


def world(
    groups: Sequence[PodGroup], members: Sequence[Pod], nodes: Sequence[Node] | str = CLUSTER
) -> Manifests:
    return Manifests(
        nodes=tuple(draw(nodes) if isinstance(nodes, str) else nodes),
        pods=tuple(members),
        groups=tuple(groups),
        topologies=(fabric("zone", "rack"),),
        whole=True,
    )


specs = st.builds(
    lambda gpus, port: PodSpec(requests=((GPU, gpus),), host_ports=(HostPort(port=port),) if port else ()),
    st.integers(1, 3),
    st.sampled_from([0, 0, 0, 80]),
)


@st.composite
def worlds(draw_from: st.DrawFn) -> Manifests:
    """A few racks, jobs that run on them, and gangs that wait; some jobs run on more than there is."""
    sizes = draw_from(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4
        )
    )
    lines, names = [], []
    for number, (zone, count, gpus) in enumerate(sizes):
        own = [f"n{number}{index}" for index in range(count)]
        names += own
        lines.append(f"{zone} r{number} : " + " ".join(f"{one}={gpus}" for one in own))
    groups: list[PodGroup] = []
    members: list[Pod] = []
    for number in range(draw_from(st.integers(0, 5))):
        needs = draw_from(specs)
        alone = draw_from(st.booleans())
        on = draw_from(st.lists(st.sampled_from(names), min_size=1, max_size=1 if alone else 3))
        if not alone:
            groups.append(gang(f"old-{number}", min_member=1))
        members += [
            replace(one, spec=needs, node_name=node)
            for one, node in zip(
                pods(None if alone else f"old-{number}", len(on), prefix=f"old-{number}"), on, strict=True
            )
        ]
    for number in range(draw_from(st.integers(1, 2))):
        count = draw_from(st.integers(1, 4))
        minimum = draw_from(st.integers(1, count))
        required = draw_from(st.sampled_from(["zone", "rack", "rack", None]))
        groups.append(gang(f"new-{number}", min_member=minimum, required=required))
        mixed = draw_from(st.booleans())
        needs = draw_from(specs)
        for one in pods(f"new-{number}", count, prefix=f"new-{number}"):
            members.append(replace(one, spec=draw_from(specs) if mixed else needs))
    return world(groups, members, "\n".join(lines))
