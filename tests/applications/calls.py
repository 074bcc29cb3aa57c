"""Applications drawn as text: one line per workload, ``P1 > P2 P3`` when P1 needs P2 and P3."""

from closeby.objects.applications import AppGroup, AppWorkload, Dependency

#: The Online Boutique of the network-aware scheduling KEP: 10 workloads, 14 edges.
ONLINE_BOUTIQUE = """
P1 > P2 P3 P4 P6 P8 P9 P10
P2
P3
P4
P5
P6
P7
P8 > P2 P3 P4 P5 P6 P7
P9 > P3
P10
"""


def app(drawing: str, algorithm: str = "", name: str = "A1") -> AppGroup:
    """The application of a drawing. ``P2:3`` weighs an edge, ``P2<=20`` limits its network cost."""
    workloads = []
    for line in drawing.strip().splitlines():
        head, _, needs = line.partition(">")
        edges = tuple(_edge(text) for text in needs.split())
        workloads.append(AppWorkload(name=head.strip(), dependencies=edges))
    return AppGroup(namespace="default", name=name, workloads=tuple(workloads), algorithm=algorithm)


def _edge(text: str) -> Dependency:
    text, _, limit = text.partition("<=")
    name, _, weight = text.partition(":")
    return Dependency(
        workload=name, weight=float(weight or 1), max_network_cost=int(limit) if limit else None
    )
