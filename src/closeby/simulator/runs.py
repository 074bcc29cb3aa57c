"""One scheduling run over manifests: everything goes into the engine, in an order that no file can change.

A run is pure: the same objects and configuration give the same result, however they were spread over files.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.networks import ALL_NAMESPACES, NetworkScope
from closeby.applications.registry import placed_replicas
from closeby.applications.traffic import EdgeCost
from closeby.objects.bounds import whole_number
from closeby.objects.groups import PodGroup
from closeby.objects.labels import RANK, STEP_GATE
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod, gang_key
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key
from closeby.plugins.registry import dependency_cost, profile_for
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    FlushUnschedulable,
    GroupChanged,
    MeasurementsChanged,
    NetworkScopeChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.extension import Handle
from closeby.scheduling.gangs.places import place_of
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.outcomes import (
    PLAIN,
    Binding,
    ItemKind,
    Leftover,
    Outcome,
    Output,
    Place,
    Preemption,
    outcomes_of,
)
from closeby.scheduling.preemption.rule import Preemptible
from closeby.scheduling.profile import Profile
from closeby.scheduling.services import Measured
from closeby.simulator.expansion import expand
from closeby.simulator.flavors import InFlavors, InTurn
from closeby.simulator.surroundings import (
    conditions_of,
    other_schedulers,
    surroundings_of,
    unknown_classes,
    without_nodes,
)
from closeby.topology.tree import Tree

#: What the sources of these plugins say now.
Measure = Callable[[Sequence[Measured]], tuple[MeasurementsChanged, ...]]


def no_measurements(plugins: Sequence[Measured]) -> tuple[MeasurementsChanged, ...]:
    """Nothing is measured."""
    return ()


class Asked(Struct, frozen=True, kw_only=True, eq=False):
    """What a run is asked besides: as it stands, to schedule every pending pod and keep no explanations."""

    #: Only pods that name this scheduler are scheduled; None: all that wait.
    scheduler_name: str | None = None
    #: False stops before the first decision: the state as the manifests tell it.
    schedule: bool = True
    #: Candidates, scores and refusals are recorded of all, or of the gangs and plain pods named here.
    explain: bool | Collection[str] = False
    #: Of every node, and not of the best alone.
    explain_everything: bool = False
    #: Reads what plugins decide by besides; without that they do as if nothing were measured.
    measure: Measure = no_measurements
    #: The time (seconds since the epoch): gangs that have waited long by then keep nodes free. None: nothing
    #: is reserved.
    wall: float | None = None
    #: Whether pods of lower priority make room, and the time that their lost work is counted by; None: the
    #: latest time in the manifests.
    preempt: bool = False
    now: float | None = None
    #: Whose NetworkTopologies count.
    networks: NetworkScope = ALL_NAMESPACES

    #: Plans of preemption that it is given are in force; no others are carried out.
    observe: bool = False


NOTHING_MORE = Asked()


class Run(Struct, frozen=True, kw_only=True, eq=False):
    """All there is to tell about one run."""

    engine: Engine
    #: All pods that are not finished, by namespace and natural name.
    pods: tuple[Pod, ...]
    #: All gangs, by namespace and natural name.
    groups: tuple[PodGroup, ...]
    #: Newest decision about each gang, application and plain pod, by ``namespace/name``.
    gang_outcomes: Mapping[str, Outcome] = {}
    app_outcomes: Mapping[str, Outcome] = {}
    pod_outcomes: Mapping[str, Outcome] = {}
    #: By pod uid: the node it got in this run, or why it got none.
    bindings: Mapping[str, Binding] = {}
    leftovers: Mapping[str, Leftover] = {}
    #: Gangs of which some members have finished.
    finished_groups: frozenset[str] = frozenset()
    #: Where the members that hold a node are, by gang; absent when none does.
    places: Mapping[str, Place] = {}
    #: Objects of known kinds that scheduling does not need, by kind.
    unused: Mapping[str, int] = {}
    #: What is wrong with objects other than gangs, and what was left aside.
    conditions: tuple[Condition, ...] = ()
    #: What each edge of an application costs in the end, by ``namespace/name``; absent without a network.
    app_edges: Mapping[str, tuple[EdgeCost, ...]] = {}
    #: The plans that were carried out, in that order, and by uid of each victim the plan that it fell to.
    preemptions: tuple[Preemption, ...] = ()
    victims: Mapping[str, Preemption] = {}
    #: Whether pods are pending and none of them names the scheduler that was asked for.
    idle: bool = False
    #: What it was decided by: the name of a configuration that comes with closeby, or a file's path.
    configuration: str = ""

    def outcomes(self) -> Iterator[Outcome]:
        """The newest decision about everything."""
        yield from self.gang_outcomes.values()
        yield from self.app_outcomes.values()
        yield from self.pod_outcomes.values()

    def node_of(self, pod: Pod) -> str | None:
        """The node a pod holds after the run."""
        if pod.uid in self.victims:
            return None
        if pod.node_name is not None:
            return pod.node_name
        binding = self.bindings.get(pod.uid)
        return None if binding is None else binding.node

    def tree_of(self, group: PodGroup) -> Tree | None:
        """The topology in which a gang's place is reported: the one it asks for, else the only one there
        is."""
        return _tree_of(self.engine, group)

    def place_of(self, group: PodGroup, members: Iterable[Pod], subgroup: str) -> Place | None:
        """Where some members of a gang are, in their subgroup's topology; None if none has a node."""
        placed = [(pod, self.engine.cluster.placement(pod.uid)) for pod in members]
        slots = [(pod, slot) for pod, slot in placed if slot is not None]
        if not slots:
            return None
        tree = _tree_of(self.engine, group, subgroup)
        return place_of(tree or self.engine.topologies.flat(), slots)


def simulate(manifests: Manifests, configuration: Configuration, asked: Asked = NOTHING_MORE) -> Run:
    """Take everything in and schedule until nothing changes.

    Raises:
        ConfigurationError: the configuration names what no plugin knows, or a source can't be read.
    """
    simulation = Simulation(manifests, configuration, asked)
    return simulation.decided() if asked.schedule else simulation.standing()


class Simulation:
    """One engine that has taken everything in: first as the manifests stand, then with its decisions.

    Both runs share the engine, so what a caller needs of the first must be worked out before the second.
    """

    def __init__(
        self, manifests: Manifests, configuration: Configuration, asked: Asked = NOTHING_MORE
    ) -> None:
        """Raises what ``simulate`` does."""
        self._asked = asked
        self._configuration = configuration.source
        self._unused = dict(sorted(manifests.others.items()))
        #: May still grow, until the decisions are made.
        self._explained = asked.explain if isinstance(asked.explain, bool) else set(asked.explain)
        expansion = expand(manifests, tolerate=configuration.extended_resource_toleration)

        def profile(handle: Handle) -> Profile:
            handle.whole = manifests.whole
            return profile_for(configuration, handle)

        self.engine = Engine(
            profile,
            explain=self._explained,
            explain_everything=asked.explain_everything,
            backoff=False,
            reserve_after=0.0 if asked.wall is None else configuration.reserve_after,
        )
        pods = [_with_rank(pod) for pod in expansion.pods if not pod.finished]
        self._pods = tuple(sorted(pods, key=_by_name))
        self._groups = tuple(sorted(expansion.groups, key=_by_name))
        #: Those that were given another flavor since, by uid and by key.
        self._moved: dict[str, Pod] = {}
        self._moved_groups: dict[str, PodGroup] = {}
        #: Work items that may be in one of several flavors of Kueue, by key.
        self._choices = expansion.choices
        self._steps = expansion.steps
        self._finished_groups = frozenset(
            gang_key(pod) for pod in expansion.pods if pod.finished and pod.group is not None
        )
        measured = asked.measure(self.engine.profile.measured)
        world = surroundings_of(manifests, expansion.pods)
        self.engine.handle(
            NetworkScopeChanged(asked.networks),
            *(NodeUpserted(node) for node in world.nodes),
            *world.events,
            *(GroupChanged(group) for group in self._groups),
            *(PodUpserted(pod) for pod in self._pods if pod.node_name is not None),
            *measured,
            *(PodUpserted(pod) for pod in expansion.pods if pod.finished and pod.group is not None),
        )
        classes = unknown_classes(expansion.pods, expansion.groups, manifests.priority_classes)
        strangers = other_schedulers(self._pods, asked.scheduler_name, DEFAULT_SCHEDULER)
        self._idle = bool(strangers)
        noted = (
            *world.conditions,
            *expansion.conditions,
            *classes,
            *strangers,
            *without_nodes(manifests.nodes, self._pods),
        )
        self._conditions = conditions_of(self.engine, noted)
        self.engine.handle(*(PodUpserted(pod) for pod in self._pods if _is_ours(pod, asked.scheduler_name)))
        self._now = _latest(expansion.pods) if asked.now is None else asked.now
        if asked.preempt or asked.observe:
            self.engine.preempt(Preemptible(scheduler_name=asked.scheduler_name, observe=not asked.preempt))

    def tell(self, *events: Event) -> None:
        """The engine learns what no manifest says; before ``standing`` and ``decided``."""
        self.engine.handle(*events)
        known = {pod.uid for pod in self._pods}
        self._pods += tuple(pod for pod in _placeholders(self.engine) if pod.uid not in known)

    def standing(self) -> Run:
        """The state before the first decision; it holds until ``decided`` is called."""
        return self._run(_Gathered())

    def decided(self, explain: Collection[str] = ()) -> Run:
        """Every pending pod is scheduled, until nothing changes. To be called once.

        ``explain`` names more items whose candidates, scores and refusals are recorded.
        """
        if isinstance(self._explained, set):
            self._explained.update(explain)
        wall = self._asked.wall
        timed = self._asked.preempt or any(group.relaxing for group in self._groups)
        tick = Tick(wall=self._now if timed else None)
        if wall is not None:
            tick = Tick(0.0, wall=wall)
        gathered = _Gathered()
        if self._choices:
            # What one flavor refuses takes the next one before its successor in the queue has its turn.
            tick = replace(tick, limit=1)
        self._decide(gathered, tick)
        while gathered.outdated and self._decide(gathered, tick, FlushUnschedulable()):
            pass
        return self._run(gathered)

    def _decide(self, gathered: "_Gathered", tick: Tick, *events: Event) -> bool:
        """Take in events and decide until nothing changes; returns whether anything was placed."""
        state = self.engine.state
        turns = {
            key: InTurn(ways, preempt=self._asked.preempt)
            for key, ways in self._choices.items()
            if any(pod.uid in state.pods for pod in ways[0].pods)
            and not any(pod.uid in gathered.bindings for pod in ways[0].pods)
        }
        ever = False
        self.engine.handle(*events)
        for begun in turns.values():
            self._move(begun.now)
        while True:
            outputs = self.engine.handle(*self._next_steps(), tick)
            placed = gathered.take(outputs)
            # Victims end at once.
            self.engine.handle(*map(PodDeleted, gathered.evicted()))
            for outcome in outcomes_of(outputs):
                turn = turns.get(outcome.key if outcome.is_gang else PLAIN + outcome.key)
                if turn is not None and turn.passes(outcome):
                    self._move(turn.now)
            ever = ever or placed
            if not placed and (tick.limit is None or not outcomes_of(outputs)):
                return ever

    def _move(self, into: InFlavors) -> None:
        """Give a work item its flavors."""
        if into.group is not None:
            self._moved_groups[into.group.key] = into.group
            self.engine.handle(GroupChanged(into.group))
        known = self.engine.state.pods
        for pod in into.pods:
            if pod.uid in known:  # The gate of a later step may be gone by now.
                gates = known[pod.uid].spec.scheduling_gates
                self._moved[pod.uid] = replace(pod, spec=replace(pod.spec, scheduling_gates=gates))
                self.engine.handle(PodUpserted(self._moved[pod.uid]))

    def _next_steps(self) -> Iterator[PodUpserted]:
        """The pods whose turn it is, because those that they wait for have their nodes."""
        placement = self.engine.cluster.placement
        ready = [step for step in self._steps if all(placement(uid) is not None for uid in step[1])]
        self._steps = tuple(step for step in self._steps if step not in ready)
        waiting = self.engine.state.pods
        for pod in (waiting[uid] for pods, _ in ready for uid in sorted(waiting.keys() & pods)):
            gates = tuple(gate for gate in pod.spec.scheduling_gates if not gate.startswith(STEP_GATE))
            yield PodUpserted(replace(pod, spec=replace(pod.spec, scheduling_gates=gates)))

    def _run(self, gathered: "_Gathered") -> Run:
        pods = tuple(self._moved.get(pod.uid, pod) for pod in self._pods)
        groups = tuple(self._moved_groups.get(group.key, group) for group in self._groups)
        return Run(
            engine=self.engine,
            pods=pods,
            groups=groups,
            gang_outcomes=gathered.gang_outcomes,
            app_outcomes=gathered.app_outcomes,
            pod_outcomes=gathered.pod_outcomes,
            bindings=gathered.bindings,
            leftovers=gathered.leftovers,
            app_edges=_app_edges(self.engine),
            unused=self._unused,
            finished_groups=self._finished_groups,
            places=_places(self.engine, groups, pods),
            conditions=self._conditions,
            preemptions=tuple(gathered.preemptions),
            victims=gathered.victims,
            idle=self._idle,
            configuration=self._configuration,
        )


def _with_rank(pod: Pod) -> Pod:
    """A member that holds a node with the rank that its label says, which no other member gets then."""
    if pod.group is None or pod.node_name is None or RANK not in pod.labels:
        return pod
    return replace(pod, labelled_rank=whole_number(pod.labels[RANK]))


class _Gathered:
    """The decisions of a run, by whom they concern."""

    def __init__(self) -> None:
        self.gang_outcomes: dict[str, Outcome] = {}
        self.app_outcomes: dict[str, Outcome] = {}
        self.pod_outcomes: dict[str, Outcome] = {}
        self.bindings: dict[str, Binding] = {}
        self.leftovers: dict[str, Leftover] = {}
        #: Something was placed after the reason of some waiting pod was recorded: it may wait for another
        #: reason by now.
        self.outdated = False
        self.preemptions: list[Preemption] = []
        self.victims: dict[str, Preemption] = {}
        self._to_evict: list[str] = []

    def evicted(self) -> list[str]:
        """The victims since it was asked last, by uid."""
        found, self._to_evict = self._to_evict, []
        return found

    def take(self, outputs: Iterable[Output]) -> bool:
        """Note decisions; True when something was placed, or makes room."""
        placed = False
        for outcome in outcomes_of(outputs):
            for plan in outcome.preemptions:
                placed = placed or not plan.observed
                self._preempt(plan)
            if outcome.bindings:
                placed = True
                self.outdated = self.outdated or bool(self.leftovers)
            self._note(outcome)
        return placed

    def _preempt(self, plan: Preemption) -> None:
        if plan.observed:
            return
        self.preemptions.append(plan)
        for pod in plan.victims:
            self.victims[pod.uid] = plan
            self.bindings.pop(pod.uid, None)
            self._to_evict.append(pod.uid)

    def _note(self, outcome: Outcome) -> None:
        outcomes = {
            ItemKind.GANG: self.gang_outcomes,
            ItemKind.APPLICATION: self.app_outcomes,
            ItemKind.POD: self.pod_outcomes,
        }
        before = outcomes[outcome.kind].get(outcome.key)
        if before is not None and before.bindings and not outcome.bindings:
            outcome = _still_waiting(before, outcome)
        outcomes[outcome.kind][outcome.key] = outcome
        for binding in outcome.bindings:
            self.bindings[binding.pod.uid] = binding
            self.leftovers.pop(binding.pod.uid, None)
        for leftover in outcome.leftover:
            self.leftovers[leftover.pod.uid] = leftover


def _still_waiting(before: Outcome, after: Outcome) -> Outcome:
    """What was decided about an item of which some pods were placed, and why the others still wait."""
    again = {one.pod: one for one in after.explanations}
    explanations = tuple(again.get(one.pod, one) for one in before.explanations)
    return replace(before, left=after.leftover, explanations=explanations)


def _app_edges(engine: Engine) -> dict[str, tuple[EdgeCost, ...]]:
    if not len(engine.applications):
        return {}
    costs = dependency_cost(engine.profile)
    placed = placed_replicas(engine.cluster.placed_pods())
    usable = [one for one in engine.applications if one.group.usable]
    found = {one.key: costs.edges(one, placed.get(one.key, {})) for one in usable}
    return {key: edges for key, edges in found.items() if edges is not None}


def _placeholders(engine: Engine) -> Iterator[Pod]:
    """Pods that hold places for others, with their nodes."""
    for key in engine.placeholders.keys:
        members = engine.state.members.get(key)
        for pod in () if members is None else members.placed.values():
            slot = engine.cluster.placement(pod.uid)
            yield pod if slot is None else replace(pod, node_name=engine.cluster.names[slot])


def _latest(pods: Iterable[Pod]) -> float | None:
    """The latest time that pods tell of; None where none tells any."""
    times = (time for pod in pods for time in (pod.created, pod.started) if time is not None)
    return max(times, default=None)


def _is_ours(pod: Pod, scheduler_name: str | None) -> bool:
    """Pods that wait for this scheduler; one that is being deleted waits for no scheduler."""
    if pod.node_name is not None or pod.terminating:
        return False
    return scheduler_name is None or (pod.spec.scheduler_name or DEFAULT_SCHEDULER) == scheduler_name


def _by_name(entry: Pod | PodGroup) -> tuple[object, ...]:
    return natural_key(entry.namespace), natural_key(entry.name), entry.uid


def _tree_of(engine: Engine, group: PodGroup, subgroup: str = "") -> Tree | None:
    constraints = constraints_of(group, engine.topologies, engine.profile.close_by_default)
    levels = constraints.levels
    own = levels.get(subgroup) or constraints.layerings.get(subgroup) or levels.get("")
    if own is not None:
        return own.tree
    names = {entry.tree.name for entry in levels.values()}
    names |= {entry.tree.name for entry in constraints.layerings.values()}
    if not names:
        return engine.topologies.main_tree()
    return engine.topologies.tree(names.pop()) if len(names) == 1 else None


def _places(engine: Engine, groups: Iterable[PodGroup], pods: Iterable[Pod]) -> dict[str, Place]:
    members: dict[str, list[tuple[Pod, int]]] = {}
    for pod in pods:
        slot = engine.cluster.placement(pod.uid)
        if pod.group is not None and slot is not None:
            members.setdefault(gang_key(pod), []).append((pod, slot))
    return {
        group.key: place_of(_tree_of(engine, group) or engine.topologies.flat(), members[group.key])
        for group in groups
        if group.key in members
    }
