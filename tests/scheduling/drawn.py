"""Small random clusters and gangs for property tests."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Strategy
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec, Toleration
from tests.scheduling.oracle import Oracle
from tests.worlds import GPU, World, fabric, node, pods, world

LEVELS = ("zone", "row", "rack")
TAINT = Taint("dedicated", "", "NoSchedule")


class Site(Struct, frozen=True, kw_only=True):
    """A cluster with pods that run, and the levels of its topology ``fabric``."""

    nodes: tuple[Node, ...]
    levels: tuple[str, ...]
    running: tuple[Pod, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The levels' names, that of single nodes included."""
        return (*self.levels, "hostname")

    def oracle(self, extra: Mapping[str, Sequence[Pod]] = {}) -> Oracle:
        """The oracle for this cluster."""
        placed: dict[str, list[Pod]] = {}
        for pod in self.running:
            placed.setdefault(pod.node_name or "", []).append(pod)
        for name, more in extra.items():
            placed.setdefault(name, []).extend(more)
        return Oracle(self.nodes, (*self.levels, HOSTNAME), placed)

    def world(self) -> World:
        """A world with this cluster."""
        drawn = world(self.nodes, fabric(*self.levels, HOSTNAME))
        return drawn.run(members=self.running)


@st.composite
def sites(draw: st.DrawFn, *, most_nodes: int = 12, most_gpus: int = 4) -> Site:
    """One to three levels, up to a few racks; some labels missing, some nodes tainted, used or shut."""
    levels = LEVELS[3 - draw(st.integers(1, 3)) :]
    count = draw(st.integers(1, most_nodes))
    nodes = []
    for index in range(count):
        labels = {}
        for level in levels:
            value = draw(st.sampled_from(["1", "2", "3", None] if level != "zone" else ["1", "2", None]))
            if value is not None:
                labels[level] = f"{level}-{value}"
        amounts = {GPU: draw(st.integers(0, most_gpus))}
        amounts["cpu"] = draw(st.sampled_from([1, 2, 4, 8]))
        if draw(st.booleans()):
            amounts["pods"] = draw(st.integers(1, 4))
        odd = draw(st.integers(0, 9))
        nodes.append(
            node(f"n{index}", labels, amounts, taints=[TAINT] if odd == 0 else [], unschedulable=odd == 1)
        )
    running = []
    for index, name in enumerate(draw(st.lists(st.sampled_from([one.name for one in nodes]), max_size=4))):
        [pod] = pods(None, 1, draw(specs()), prefix=f"old{index}", on=name)
        running.append(pod)
    return Site(nodes=tuple(nodes), levels=levels, running=tuple(running))


@st.composite
def specs(draw: st.DrawFn) -> PodSpec:
    """A pod's needs: up to two resources, perhaps a toleration."""
    requests = {GPU: draw(st.integers(0, 2)), "cpu": draw(st.sampled_from([0, 0, 1, 2]))}
    tolerations = (Toleration(TAINT.key, effect=TAINT.effect),) if draw(st.integers(0, 3)) == 0 else ()
    return PodSpec(
        requests=tuple(sorted((key, amount) for key, amount in requests.items() if amount)),
        tolerations=tolerations,
    )


def level_names(site: Site) -> st.SearchStrategy[str | None]:
    """One of the levels, or none."""
    return st.sampled_from([None, *site.names])


@st.composite
def levels_asked(draw: st.DrawFn, site: Site) -> tuple[str | None, str | None]:
    """A required and a preferred level that go together."""
    required, preferred = draw(level_names(site)), draw(level_names(site))
    if required is not None and preferred is not None:
        required, preferred = sorted((required, preferred), key=site.names.index)
    return required, preferred


strategies = st.sampled_from(Strategy)


def on_nodes(drawn: World, members: Sequence[Pod]) -> dict[str, list[Pod]]:
    """The placed ones of some pods, by node."""
    by_name = {pod.name: pod for pod in members}
    found: dict[str, list[Pod]] = {}
    for name, chosen in drawn.where.items():
        if name in by_name:
            found.setdefault(chosen, []).append(by_name[name])
    return found


def renamed(pod: Pod, name: str) -> Pod:
    """The same pod under another name."""
    return replace(pod, name=name, uid=f"{pod.namespace}/{name}")
