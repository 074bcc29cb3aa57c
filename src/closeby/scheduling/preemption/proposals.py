"""What an item that was refused would clear: its plan, or why there is none."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.words import plural
from closeby.scheduling.outcomes import DomainCost, NoPreemption, Preemption
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.scheduling.preemption.domains import DomainChoice, GangQuestion
from closeby.scheduling.preemption.nodes import NodeChoice, PodQuestion
from closeby.scheduling.preemption.plans import Plans
from closeby.scheduling.preemption.possible import PossibleVictims
from closeby.scheduling.preemption.protected import NAMED, WhoAsks
from closeby.scheduling.preemption.rule import Preempts
from closeby.scheduling.preemption.trials import PreemptionTrials
from closeby.scheduling.preemption.units import Victims, in_order, pods_of
from closeby.topology.tree import ROOT_LEVEL

#: Pods that are being deleted, of which it is tried whether their end is needed.
_SPARED: Final = 16
#: Priorities that are tried one by one for an explanation.
_ABOVE: Final = 8


class Proposals:
    """Asks the plugin for victims, and puts its choice into a plan."""

    def __init__(
        self,
        tools: Tools,
        trials: PreemptionTrials,
        plugin: Preempts,
        possible: PossibleVictims,
        plans: Plans,
    ) -> None:
        self._tools = tools
        self._trials = trials
        self._plugin = plugin
        self._possible = possible
        self._plans = plans

    def for_gang(
        self, key: str, gang: WaitingGang, priority: int, *, soft: bool
    ) -> Preemption | NoPreemption | None:
        """The domain that a gang clears; why there is none where that is explained."""
        self._trials.begin()
        question = GangQuestion(self._tools, self._trials, gang, soft=soft)
        explained = self._tools.explains(key)
        if not len(question.holding()) and not explained:
            return None
        victims = self._possible.below(key, priority)
        choice = None if victims is None else self._plugin.domain_for(question, victims)
        if choice is None or victims is None:
            return self._none(WhoAsks(key, priority, soft), question, victims, explained)
        domains = self._table(WhoAsks(key, priority, soft), question, victims) if explained else ()
        gone, tree = pods_of(victims.running, choice.units), choice.tree
        needed, placed = self._with_leaving(gang, victims, gone, choice.placed, priority)
        choice = question.placed_at(choice, victims, placed)
        root = choice.domain.level == ROOT_LEVEL
        return Preemption(
            item=key,
            preemptor=key,
            is_gang=True,
            priority=priority,
            topology=tree.name,
            level=None if root else tree.level_names[choice.domain.level],
            path=tree.path(choice.domain),
            places=self._places(placed),
            victims=in_order((*gone, *needed)),
            cost=choice.cost,
            exact=choice.exact,
            domains=domains,
        )

    def for_pod(self, key: str, pod: Pod, priority: int, *, soft: bool) -> Preemption | NoPreemption | None:
        """The node that a plain pod clears; why there is none where that is explained."""
        self._trials.begin()
        question = PodQuestion(self._tools, self._trials, pod, soft=soft)
        explained = self._tools.explains(pod.key)
        if not question.holding():
            return None
        victims = self._possible.below(key, priority)
        choice = None if victims is None else self._plugin.node_for(question, victims)
        if choice is None or victims is None:
            return self._none(WhoAsks(key, priority, soft), question, victims, explained)
        domains = self._table(WhoAsks(key, priority, soft), question, victims) if explained else ()
        gone = pods_of(victims.running, choice.units)
        needed, placed = self._with_leaving(pod, victims, gone, choice.placed, priority)
        return Preemption(
            item=key,
            preemptor=pod.key,
            is_gang=False,
            priority=priority,
            node=self._tools.cluster.node_at(placed[0][1]).name,
            places=self._places(placed),
            victims=in_order((*gone, *needed)),
            cost=choice.cost,
            domains=domains,
        )

    def _with_leaving(
        self,
        item: WaitingGang | Pod,
        victims: Victims,
        gone: Sequence[Pod],
        placed: Sequence[Placed],
        priority: int,
    ) -> tuple[tuple[Pod, ...], Sequence[Placed]]:
        """Pods that are being deleted already, and without whose end the item does not fit."""
        slots = {slot for _, slot in placed}
        running = victims.running
        planned = self._plans.planned(priority)
        leaving = [(running.pods[one], int(running.slots[one])) for one in victims.leaving.tolist()]
        #: What goes for other plans does so in any case.
        others = [pod for pod, _ in leaving if pod.uid in planned]
        terminating = in_order(pod for pod, _ in leaving if pod.uid not in planned)
        on_nodes = {pod.uid for pod, slot in leaving if slot in slots}
        needed = [pod for pod in terminating if pod.uid in on_nodes]
        if len(needed) < len(terminating):
            found = self._trials.place_without(item, (*others, *needed, *gone))
            if found is None:
                needed = list(terminating)
            else:
                placed = found
        for pod in needed[:_SPARED]:
            if self._trials.over:
                break
            left = [one for one in needed if one is not pod]
            found = self._trials.place_without(item, (*others, *left, *gone))
            if found is not None:
                needed, placed = left, found
        return in_order(needed), placed

    def _places(self, placed: Sequence[Placed]) -> tuple[tuple[str, str], ...]:
        return tuple((pod.uid, self._tools.cluster.node_at(slot).name) for pod, slot in placed)

    def _table(
        self, who: WhoAsks, question: GangQuestion | PodQuestion, victims: Victims | None
    ) -> tuple[DomainCost, ...]:
        return question.table(victims, self._possible.protected(who, victims))

    def _none(
        self, who: WhoAsks, question: GangQuestion | PodQuestion, victims: Victims | None, explained: bool
    ) -> NoPreemption | None:
        """Which budgets keep pods that would make room, and where that is explained, why no pod does."""
        budgets = ""
        if victims is not None and victims.running.covered and not who.soft:
            budgets = self._kept_by_budgets(question, victims)
        why = self._why_none(who, question, victims) if explained else None
        return replace(why or NoPreemption(), budgets=budgets) if budgets else why

    def _kept_by_budgets(self, question: GangQuestion | PodQuestion, victims: Victims) -> str:
        """The budgets that allow too few of the evictions by which an item would fit."""
        question.soft = True
        choice = self._choice(question, victims)
        question.soft = False
        counts = Counter[int]()
        for unit in () if choice is None else choice.units:
            counts.update(dict(unit.budgets))
        said = []
        for budget, count in sorted(counts.items()):
            allowed = victims.allowed[budget]
            if count > allowed:
                what = plural(allowed, "eviction") if allowed else "no eviction"
                said.append(
                    f"PodDisruptionBudget {self._possible.budgets[budget]} allows {what} of "
                    f"{plural(count, 'pod')} that would have to go"
                )
        return ", and ".join(said[:NAMED])

    def _why_none(
        self, who: WhoAsks, question: GangQuestion | PodQuestion, victims: Victims | None
    ) -> NoPreemption | None:
        """Why no pod makes room, and above which priority some would."""
        if isinstance(question, GangQuestion) and not len(question.holding()):
            return None  # What it lacks is said in any case.
        domains = () if victims is None else self._table(who, question, victims)
        above, path = self._lowest_that_helps(who, question)
        if above is not None and path is not None:
            why = "pods of lower priority do not hold enough"
            domains = domains or self._table(who, question, None)
            return NoPreemption(why=why, domains=domains, above=above, path=path)
        if victims is None and self._possible.protected(who, None).any_lower:
            domains = self._table(who, question, None)
        if not domains:
            return None  # There are no pods whose priority matters.
        return NoPreemption(
            why="the pods that may be evicted are not enough, whatever their priority", domains=domains
        )

    def _lowest_that_helps(
        self, who: WhoAsks, question: GangQuestion | PodQuestion
    ) -> tuple[int | None, tuple[str | None, ...] | None]:
        """The lowest priority above which pods would make room, and the path of what would be cleared.

        Of many priorities not each is tried: where pods up to one are not enough, those up to a lower one
        are not either.
        """
        left = self._possible.higher(who.priority)
        found: tuple[int | None, tuple[str | None, ...] | None] = None, None
        while left:
            at = 0 if len(left) <= _ABOVE else len(left) // 2
            self._trials.begin()
            more = self._possible.below(who.key, left[at] + 1)
            path = None if more is None else self._chosen(question, more)
            if path is None:
                left = left[at + 1 :]
                continue
            found, left = (left[at], path), left[:at]
        return found

    def _chosen(
        self, question: GangQuestion | PodQuestion, victims: Victims
    ) -> tuple[str | None, ...] | None:
        """The path of the domain or node that would be cleared."""
        choice = self._choice(question, victims)
        if isinstance(choice, DomainChoice):
            return choice.tree.path(choice.domain)
        return None if choice is None else (choice.node,)

    def _choice(
        self, question: GangQuestion | PodQuestion, victims: Victims
    ) -> DomainChoice | NodeChoice | None:
        if isinstance(question, GangQuestion):
            return self._plugin.domain_for(question, victims)
        return self._plugin.node_for(question, victims)
