"""What the pictures of a cluster are drawn from: who holds how much of which node, and from when to when."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.lab.pictures.moments import STOPS, Moments, moments_of
from closeby.lab.pictures.segmented import Segmented, segmented_history
from closeby.lab.replay.history import History
from closeby.objects.arrays import Bools, Floats, Ints
from closeby.objects.words import path_text, plural, plural_noun, span_text, time_text
from closeby.quality.delays import waits
from closeby.quality.moments import NO_OUTAGES, Outages
from closeby.quality.placements import level_names, placements, spans
from closeby.topology.tree import ROOT_LEVEL, Tree

GPU = "GPU"
CPU = "cpu"
POD = "pod"
#: Pods that a picture over time holds at most; the slider gets fewer stops until that is so.
MOST_PODS = 60_000


class Tenant(Struct, frozen=True, kw_only=True):
    """A gang, an application, or a single pod."""

    name: str
    #: Gangs and applications have a colour, single pods are grey.
    has_colour: bool
    #: How much it asks for, in the scene's resource.
    size: float
    #: ``8 pods × 8 GPUs``, ``12 min``; empty where there is nothing to say.
    asks: str
    waited: str
    #: Domains it uses by level, coarse to fine, nodes last.
    span: Mapping[str, int]
    #: The finest domain above nodes that holds all of it; empty where that is the whole cluster, or a pod.
    within: str
    #: ``for job-9 at 2 h 5 min`` where that ended with an eviction; else empty.
    evicted: str = ""
    #: ``4 segments by rack``; empty where it has none.
    segments: str = ""

    @property
    def lies_in(self) -> str:
        """``1 pod, 2 leaves, 8 nodes``."""
        return span_text(self.span, None)

    @property
    def in_short(self) -> str:
        """``job-7: 8 pods × 8 GPUs in 2 leaves of pod-1, 4 segments by leaf``: the finest level above nodes.

        Where it is, to distinguish those of one colour.
        """
        upper = list(self.span.items())[-2:-1]
        where = plural(upper[0][1], upper[0][0]) if upper else ""
        if self.within:
            where = self.within if upper[0][1] == 1 else f"{where} of {self.within}"
        told = f"{self.name}: {self.asks} in {where}" if where else f"{self.name}: {self.asks}"
        return f"{told}, {self.segments}" if self.segments else told


class Keeping(Struct, frozen=True, kw_only=True):
    """Nodes kept free for a gang that waits, from when to when in the unit of the scene's moments."""

    name: str
    asks: str
    #: Ascending.
    slots: tuple[int, ...]
    since: float
    until: float

    @property
    def in_short(self) -> str:
        """``12 nodes kept free for job-7: 8 pods × 8 GPUs``."""
        return f"{plural(len(self.slots), 'node')} kept free for {self.name}: {self.asks}"


class Scene(Struct, frozen=True, kw_only=True, eq=False):
    """N slots of nodes, T tenants and their P pods; a state of a cluster is a scene of one moment."""

    tree: Tree
    #: By slot.
    nodes: tuple[str, ...]
    capacity: Floats
    usable: Bools
    #: What is shared: ``GPU``, ``cpu``, or ``pod`` where jobs ask for neither and a node's capacity is the
    #: most pods that any node ever has; whether it is counted in whole pieces.
    resource: str
    whole: bool
    tenants: tuple[Tenant, ...]
    #: When each tenant holds its nodes, in the unit of ``moments``: ``[since, until)``; shape (T,).
    since: Floats
    until: Floats
    #: Tenant ``i`` has the pods ``offsets[i]`` to ``offsets[i + 1]``, in the order of ranks; shape (T + 1,).
    offsets: Ints
    #: The slot of each pod and how much it holds of it; shape (P,).
    slots: Ints
    amounts: Floats
    #: What the flows of gangs are modelled on: links to the network that each pod of a tenant has, 0 where
    #: its pods form no ring, shape (T,); and links of each slot's node.
    links_of_pods: Ints
    links_of_nodes: Ints
    moments: Moments
    #: The service of each pod, where tenants are whole applications; else empty.
    services: tuple[str, ...] = ()
    #: The segments of gangs with layers.
    segments: Segmented | None = None
    #: Reservations, of which there is at most one at a time.
    keepings: tuple[Keeping, ...] = ()
    #: When nodes of the tree were out of order, in the unit of ``moments``.
    outages: Outages = NO_OUTAGES
    #: What tenants with a colour are: ``gangs``, ``applications``, or both.
    coloured: str = "gangs"
    #: What was left out, as sentences.
    left_out: tuple[str, ...] = ()
    #: The one moment that is drawn; None where a slider chooses it later.
    only: float | None = None

    @property
    def unit(self) -> str:
        """What is shared, in words: ``GPUs``, ``cores``, ``pods``."""
        return "cores" if self.resource == CPU else plural_noun(self.resource)

    @property
    def has_rings(self) -> bool:
        """Whether some tenant's pods send flows to each other."""
        return bool((self.links_of_pods[np.diff(self.offsets) > 1] > 0).any())

    @property
    def has_segments(self) -> bool:
        """Whether some tenant's pods go in several segments."""
        return self.segments is not None and any(one.segments for one in self.tenants)

    @property
    def drawn(self) -> Bools:
        """Which tenants a chart needs: those that are there at its one moment, or all; shape (T,)."""
        if self.only is None:
            return np.ones(len(self.tenants), dtype=np.bool_)
        there: Bools = (self.since <= self.only) & (self.only < self.until)
        return there

    @property
    def tenant_of(self) -> Ints:
        """The tenant of each pod; shape (P,)."""
        return np.repeat(np.arange(len(self.tenants)), np.diff(self.offsets))


def scene_of(history: History, at: float | None = None, most_pods: int = MOST_PODS) -> Scene:
    """A run over time. Jobs that run at no stop of the slider are left out, and counted.

    ``at``, in seconds, is a stop of the slider besides. A job that was evicted is a tenant for each run.
    """
    evicted = _evicted(history)
    history = history.each_run()
    ran = ~np.isnan(history.started)
    ended = np.where(np.isnan(history.ended), history.until, history.ended)
    pods = np.diff(history.offsets)
    happened = _happened(history)
    most = STOPS
    while True:
        moments = moments_of(happened, history.until, most, at)
        since, until = moments.in_units(history.started), moments.in_units(ended)
        # What still runs when the run stops is there at the last stop too.
        until = np.where(ran & np.isnan(history.ended), moments.last + 1.0, until)
        seen = np.zeros(len(history.jobs), dtype=np.bool_)
        seen[ran] = moments.seen(since[ran], until[ran])
        keepings = _keepings(history, moments)
        outages = _outages(history, moments)
        marks = int(pods[seen].sum()) + sum(len(one.slots) for one in keepings) + len(outages.slots)
        if marks <= most_pods or most <= 2:
            break
        most //= 2
    scene = _scene(history, moments, np.flatnonzero(seen), (since, until), keepings, evicted)
    return replace(scene, outages=outages)


def _scene(
    history: History,
    moments: Moments,
    jobs: Ints,
    during: tuple[Floats, Floats],
    keepings: tuple[Keeping, ...],
    evicted: Mapping[int, str],
) -> Scene:
    since, until = during
    pods = np.diff(history.offsets)[jobs]
    offsets = np.concatenate(([0], np.cumsum(pods))).astype(np.intp)
    rows = np.repeat(history.offsets[jobs] - offsets[:-1], pods) + np.arange(offsets[-1])
    shared = _shared(history, jobs, pods)
    segments = segmented_history(history, jobs, history.slots[rows])
    return Scene(
        tree=history.tree,
        nodes=history.nodes,
        capacity=shared.capacity,
        usable=np.ones(len(history.nodes), dtype=np.bool_),
        resource=shared.resource,
        whole=shared.resource != CPU,
        tenants=with_segments(_tenants(history, jobs, evicted), segments),
        since=since[jobs],
        until=until[jobs],
        offsets=offsets,
        slots=history.slots[rows],
        amounts=shared.amounts,
        links_of_pods=_links(history)[jobs],
        links_of_nodes=history.node_gpus.astype(np.intp),
        moments=moments,
        services=_services(history, jobs),
        segments=segments,
        keepings=keepings,
        coloured="applications" if history.jobs.graphs else "gangs",
        left_out=_left_out(history, moments, len(jobs), len(keepings), evictions=bool(evicted)),
    )


class _Shared(Struct, frozen=True, kw_only=True, eq=False):
    """What is shared on the nodes, what they have of it, shape (N,), and what each pod holds, shape (P,)."""

    resource: str
    capacity: Floats
    amounts: Floats


def _shared(history: History, jobs: Ints, pods: Ints) -> _Shared:
    """GPUs; cores where there are none and applications ask for cores; else pods."""
    if history.told_in_gpus:
        capacity, gpus = history.node_gpus, history.jobs.gpus[jobs]
        return _Shared(
            resource=GPU,
            capacity=capacity.astype(np.float64),
            amounts=np.repeat(gpus, pods).astype(np.float64),
        )
    graphs = [history.jobs.graphs[job] for job in jobs.tolist()] if history.jobs.graphs else [None]
    if history.node_cpu.any() and None not in graphs:
        cores = [np.repeat(one.cpu, one.replicas) / 1000 for one in graphs if one is not None]
        amounts = np.concatenate([np.zeros(0), *cores])
        return _Shared(resource=CPU, capacity=history.node_cpu.astype(np.float64) / 1000, amounts=amounts)
    fullest = np.full(len(history.nodes), float(_most_pods_of_a_node(history)))
    return _Shared(resource=POD, capacity=fullest, amounts=np.ones(int(pods.sum())))


def _happened(history: History) -> Floats:
    """When jobs came, started and ended, when nodes began and ceased to be kept free, and when they failed
    and came back, in seconds."""
    kept = [time for one in history.reservations for time in (one.begin, one.end)]
    came = history.jobs.submitted[history.counted]
    out = history.outages
    times = np.concatenate((came, history.started, history.ended, kept, out.begin, out.end))
    return times[~np.isnan(times)]


def _outages(history: History, moments: Moments) -> Outages:
    """Those that are seen at some stop of the slider."""
    out, tree = history.outages, history.tree
    begin = moments.in_units(out.begin)
    # What is out when the run stops is so at the last stop too, as jobs run on there.
    end = np.where(out.end >= history.until, moments.last + 1.0, moments.in_units(out.end))
    known = out.slots < len(tree.position_of)
    known[known] = tree.position_of[out.slots[known]] < tree.size
    seen = moments.seen(begin, end) & known
    return Outages(slots=out.slots[seen], begin=begin[seen], end=end[seen])


def _keepings(history: History, moments: Moments) -> tuple[Keeping, ...]:
    """The reservations that hold at some stop of the slider."""
    kept = history.reservations
    since = moments.in_units(np.asarray([one.begin for one in kept]))
    until = moments.in_units(np.asarray([one.end for one in kept]))
    # What holds when the run stops does so at the last stop too, as jobs do.
    until = np.where([not one.why for one in kept], moments.last + 1.0, until)
    jobs = history.jobs
    return tuple(
        Keeping(
            name=jobs.names[kept[index].job],
            asks=asks_text(int(jobs.pods[kept[index].job]), int(jobs.gpus[kept[index].job])),
            slots=kept[index].slots,
            since=float(since[index]),
            until=float(until[index]),
        )
        for index in np.flatnonzero(moments.seen(since, until)).tolist()
    )


def _links(history: History) -> Ints:
    """Links of each job's pods, as the measures count them; shape (J,)."""
    links = np.maximum(history.jobs.gpus, 1).astype(np.intp)
    # Applications call each other; they know no ring.
    links[[job for job, graph in enumerate(history.jobs.graphs) if graph is not None]] = 0
    return links


def _most_pods_of_a_node(history: History) -> int:
    """The most pods that one node has at any time."""
    job = np.repeat(np.arange(len(history.jobs)), np.diff(history.offsets))
    ended = np.where(np.isnan(history.ended), np.inf, history.ended)
    slots = np.concatenate((history.slots, history.slots))
    times = np.concatenate((history.started[job], ended[job]))
    change = np.repeat([1, -1], len(job))
    # All changes of a node add up to nothing, so that the next node's begin at nothing again.
    order = np.lexsort((change, times, slots))
    return int(np.cumsum(change[order]).max(initial=0))


def _evicted(history: History) -> dict[int, str]:
    """Why each run that was cut short ended, by its place in ``History.each_run``."""
    cut, names = history.cut, history.jobs.names
    return {
        len(names) + row: f"for {names[by]} at {time_text(at)}"
        if by >= 0
        else f"at {time_text(at)}, as {history.nodes[failed]} failed"
        for row, (by, failed, at) in enumerate(
            zip(cut.by.tolist(), cut.failed.tolist(), cut.ended.tolist(), strict=True)
        )
    }


def with_segments(tenants: Sequence[Tenant], segments: Segmented | None) -> tuple[Tenant, ...]:
    """The tenants with how many segments each has, in words."""
    if segments is None:
        return tuple(tenants)
    return tuple(replace(one, segments=told) for one, told in zip(tenants, segments.told, strict=True))


def _tenants(history: History, jobs: Ints, evicted: Mapping[int, str]) -> tuple[Tenant, ...]:
    used = spans(placements(history.tree, history.offsets, history.slots))
    names = level_names(history.tree)
    waited = waits(history.jobs.submitted, history.started, history.until)
    return tuple(
        Tenant(
            name=history.jobs.names[job],
            has_colour=bool(history.jobs.pods[job] > 1),
            size=_size(history, job),
            asks=_asks(history, job),
            waited=time_text(float(waited[job])),
            span=dict(zip(names, used[job].tolist(), strict=True)),
            # Only those with a colour are named.
            within=within_text(history.tree, history.slots_of(job)) if history.jobs.pods[job] > 1 else "",
            evicted=evicted.get(job, ""),
        )
        for job in jobs.tolist()
    )


def _services(history: History, jobs: Ints) -> tuple[str, ...]:
    """The workload of each pod of applications."""
    graphs = [history.jobs.graphs[job] for job in jobs.tolist()] if history.jobs.graphs else []
    if not graphs or None in graphs:
        return ()
    return tuple(
        name
        for graph in graphs
        if graph is not None
        for name, count in zip(graph.workloads, graph.replicas, strict=True)
        for _ in range(count)
    )


def _size(history: History, job: int) -> float:
    graph = history.jobs.graphs[job] if history.jobs.graphs else None
    return float(history.jobs.sizes[job] or history.jobs.pods[job]) if graph is None else graph.cores


def _asks(history: History, job: int) -> str:
    """Of an application its cores, of which not every pod asks for the same."""
    graph = history.jobs.graphs[job] if history.jobs.graphs else None
    pods, gpus = int(history.jobs.pods[job]), int(history.jobs.gpus[job])
    return asks_text(pods, gpus) if graph is None else f"{plural(pods, POD)}, {amount_text(graph.cores, CPU)}"


def within_text(tree: Tree, slots: Ints) -> str:
    """The path of the finest domain above nodes that holds these slots; empty for the whole cluster."""
    inside = tree.position_of[slots[slots < len(tree.position_of)]]
    known = inside[inside < tree.size]
    if not len(known):
        return ""
    home = tree.tightest(known)
    if home.level == tree.node_level:
        home = tree.ancestor(home, home.level - 1)
    return path_text(tree.path(home)) if home.level > ROOT_LEVEL else ""


def asks_text(pods: int, gpus: int) -> str:
    """``8 pods × 8 GPUs``."""
    return f"{plural(pods, 'pod')} × {plural(gpus, 'GPU')}" if gpus else plural(pods, "pod")


def _left_out(
    history: History, moments: Moments, shown: int, keepings: int, *, evictions: bool
) -> tuple[str, ...]:
    started = int(np.count_nonzero(~np.isnan(history.started)))
    reserved = len(history.reservations)
    hidden = []
    if shown < started:
        what = "runs of jobs took place" if evictions else "jobs that started ran"
        hidden.append(f"{started - shown:,} of {started:,} {what}")
    if keepings < reserved:
        hidden.append(f"{reserved - keepings:,} of {plural(reserved, 'reservation')} held")
    if not hidden:
        return ()
    sentence = (
        f"The maps show the state at {moments.count:,} of {moments.happened:,} moments at which something "
        f"happened; {' and '.join(hidden)} only between two of them and are not seen on them. Charts over "
        "time, distributions and measures count every job."
    )
    return (sentence,)


def amount_text(amount: float, resource: str) -> str:
    """``8 GPUs``, ``1 pod``, ``2.5 cores``."""
    if resource in (GPU, POD):
        return plural(round(amount), resource)
    return f"{amount:g} {'cores' if resource == CPU else resource}"
