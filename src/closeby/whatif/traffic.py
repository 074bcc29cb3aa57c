"""What the traffic of an application costs as its pods are, and as they would be after a trial."""

from typing import NamedTuple

from closeby.applications.registry import Application, app_group_key, application
from closeby.plugins.registry import dependency_cost
from closeby.scheduling.fork import Change
from closeby.whatif.records import TalkEntry
from closeby.whatif.trials import TrialResult, Trials

#: Costs that differ by less are equal.
ROUNDING = 1e-6


class Cost(NamedTuple):
    """Of all edges and pairs of placed replicas; ``over``: pairs that are farther apart than allowed."""

    talk: float
    over: int

    @property
    def figure(self) -> int | float:
        """Whole numbers without a fraction."""
        rounded = round(self.talk, 6)
        return int(rounded) if rounded == int(rounded) else rounded

    def below(self, other: "Cost") -> bool:
        """Whether it is the better one: fewer broken limits, or as many and cheaper."""
        return (self.over, self.talk + ROUNDING) < (other.over, other.talk)


class ApplicationTraffic:
    """The costs of one application's traffic, by the network as the engine knows it."""

    def __init__(self, trials: Trials, asked: Application) -> None:
        self._trials = trials
        self._application = asked
        self._costs = dependency_cost(trials.engine.profile)
        #: All pods of the application, whether they wait or not.
        self.pods = tuple(pod for pod in trials.pods if app_group_key(pod) == asked.key)

    @property
    def now(self) -> Cost | None:
        """None where no network gives costs, and where there is no traffic."""
        return self._cost({pod.uid: pod.node_name for pod in self.pods}, self._application)

    def then(self, change: Change, result: TrialResult) -> Cost | None:
        """After a trial; limits are those that the change asks for."""
        at = {pod.uid: pod.node_name for pod in self.pods}
        at |= dict.fromkeys((pod.uid for pod in (*change.gone, *change.waiting)), None)
        at |= {one.pod.uid: one.node for one in (*result.beside, *result.bindings)}
        changed = next((one for one in change.applications if one.key == self._application.key), None)
        return self._cost(at, self._application if changed is None else application(changed))

    def entry(self, there: Cost) -> TalkEntry | None:
        """As data; None where no network gives costs."""
        here = self.now
        if here is None:
            return None
        return TalkEntry(here=here.figure, there=there.figure, over_here=here.over, over_there=there.over)

    def _cost(self, at: dict[str, str | None], asked: Application) -> Cost | None:
        cluster = self._trials.engine.cluster
        replicas: dict[str, dict[int, int]] = {}
        for pod in self.pods:
            workload, node = asked.workload_of(pod), at[pod.uid]
            slot = None if node is None else cluster.slot(node)
            if workload is not None and slot is not None:
                on = replicas.setdefault(workload, {})
                on[slot] = on.get(slot, 0) + 1
        known = asked.edges and self._costs.knows_costs(asked)
        edges = self._costs.edges(asked, replicas) if known else None
        if edges is None:
            return None
        return Cost(sum(edge.cost for edge in edges), sum(edge.over for edge in edges))
