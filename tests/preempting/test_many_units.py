"""Domains with many units: no gang goes as a whole where members are enough, and budgets last."""

from itertools import chain
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from ortools.sat.python import cp_model

from closeby.objects.groups import Layer
from closeby.objects.pods import Pod, PodDisruptionBudget
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import BudgetChanged, GroupChanged, PodUpserted
from tests.preempting.site import NOW, RESTART, Site, names, ways
from tests.worlds import GPU, gang, node, pods, spec

HIGH = 100


class Crowded:
    """One rack of six nodes, full of pods and gangs of up to five, of which some members may go alone."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.sizes = {f"n{index}": random.choice((6, 8)) for index in range(6)}
        self.wanted, self.gpu = random.randint(3, 8), random.choice((1, 2, 3))
        self.allowed = random.choice((None, 1, 4))
        self.gangs: dict[str, tuple[int, list[Pod]]] = {}
        free = [name for name, size in self.sizes.items() for _ in range(size)]
        random.shuffle(free)
        while free:
            size = random.choice((1, 1, random.randint(2, 5)))
            on, free = free[:size], free[size:]
            name = f"g{len(self.gangs)}"
            needs = replace(spec(gpu=1, cpu=0), priority=random.choice((0, 0, 10, 200)))
            made = []
            for index, where in enumerate(on):
                labels = {"app": "covered"} if random.random() < 0.3 else {}
                started = random.choice((NOW, NOW - 50, NOW - 100))
                made += pods(
                    name, 1, needs, prefix=f"{name}-{index}", on=where, started=started, labels=labels
                )
            self.gangs[name] = random.randint(1, len(made)), made

    def site(self) -> Site:
        site = Site(
            [node(name, {"zone": "z", "rack": "r"}, {GPU: size}) for name, size in self.sizes.items()]
        )
        if self.allowed is not None:
            selector = selector_of({"app": "covered"})
            budget = PodDisruptionBudget(
                namespace="default", name="b", selector=selector, allowed=self.allowed
            )
            site.tell(BudgetChanged(budget))
        for name, (minimum, made) in self.gangs.items():
            site.tell(GroupChanged(gang(name, minimum)), *map(PodUpserted, made))
        site.waiting("train", self.wanted, priority=HIGH, gpu=self.gpu)
        return site

    def fits(self, gone: set[str]) -> bool:
        free = dict(self.sizes)
        for _, made in self.gangs.values():
            for pod in made:
                if pod.uid not in gone:
                    free[pod.node_name or ""] -= 1
        return sum(left // self.gpu for left in free.values()) >= self.wanted


@pytest.mark.parametrize("seed", range(60))
def test_no_gang_goes_as_a_whole_where_some_members_are_enough(seed: int) -> None:
    drawn = Crowded(seed)
    site = drawn.site()
    for plan in site.tick():
        gone = {pod.uid for pod in plan.victims}
        assert drawn.fits(gone)
        if drawn.allowed is not None:
            assert sum("app" in pod.labels for pod in plan.victims) <= drawn.allowed
        for minimum, members in drawn.gangs.values():
            mine = {pod.uid for pod in members} & gone
            sets = list(ways(minimum, members))
            assert mine in sets, f"{sorted(mine)} may not go without the rest (minimum {minimum})"
            fewer = [some for some in sets if some < mine and drawn.fits(gone - mine | some)]
            assert not fewer, f"{sorted(fewer[0])} instead of {sorted(mine)} would be enough"


def least(drawn: Crowded) -> tuple[float, ...] | None:
    """The highest priority of a victim, lost work, broken gangs and victims, as another solver finds them."""
    for highest in (0, 10):
        model, lost, broken = cp_model.CpModel(), list[Any](), list[Any]()
        freed: dict[str, list[Any]] = {name: [] for name in drawn.sizes}
        covered: list[Any] = []
        for minimum, made in drawn.gangs.values():
            if (made[0].spec.priority or 0) > highest:
                continue
            whole = model.new_bool_var("")
            members = [model.new_bool_var("") for _ in made]
            surplus = len(made) - minimum if len(made) > 1 else 0
            model.add(sum(members) <= surplus)
            broken.append(whole)
            for pod, alone in zip(made, members, strict=True):
                model.add(alone + whole <= 1)
                freed[pod.node_name or ""].append(alone + whole)
                lost.append((alone + whole) * int(NOW - (pod.started or 0.0) + RESTART))
                if "app" in pod.labels:
                    covered.append(alone + whole)
        if drawn.allowed is not None:
            model.add(sum(covered) <= drawn.allowed)
        fits = []
        for name, size in drawn.sizes.items():
            taken = sum(pod.node_name == name for _, made in drawn.gangs.values() for pod in made)
            fits.append(model.new_int_var(0, size, ""))
            model.add(fits[-1] * drawn.gpu <= size - taken + sum(freed[name]))
        model.add(sum(fits) >= drawn.wanted)
        found: list[float] = [highest]
        for total in (sum(lost), sum(broken), sum(chain(*freed.values()))):
            model.minimize(total)
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            if solver.solve(model) != cp_model.OPTIMAL:
                break
            found.append(round(solver.objective_value))
            model.add(total <= round(solver.objective_value))
        else:
            return tuple(found)
    return None


@pytest.mark.parametrize("seed", range(100, 130))
def test_another_solver_finds_no_cheaper_victims_among_many(seed: int) -> None:
    drawn = Crowded(seed)
    plans = drawn.site().tick()
    found = [(one.cost.highest, one.cost.lost, one.cost.gangs_broken, one.cost.pods) for one in plans]
    assert found == [best for best in (least(drawn),) if best is not None]
    assert all(plan.exact for plan in plans)


def test_a_cheap_victim_does_not_use_up_the_budget_that_a_larger_one_needs() -> None:
    """The budget allows one eviction; of 24 covered pods only the one of four GPUs makes room."""
    site = Site([node(f"n{index}", {"zone": "z", "rack": "r"}, {GPU: 4}) for index in range(24)])
    selector = selector_of({"app": "covered"})
    budget = PodDisruptionBudget(namespace="default", name="b", selector=selector, allowed=1)
    site.tell(BudgetChanged(budget))
    for index in range(23):
        site.alone(f"small-{index}", f"n{index}", labels={"app": "covered"}, started=NOW)
        site.alone(f"stays-{index}", f"n{index}", gpu=3, priority=200)
    site.alone("large", "n23", gpu=4, labels={"app": "covered"})
    site.waiting("train", 1, gpu=4)
    [plan] = site.tick()
    assert names(plan) == ["large"]


def test_a_member_that_goes_stays_chosen_where_the_budget_keeps_the_rest_of_its_gang() -> None:
    site = Site([node(f"n{index}", {"zone": "z", "rack": "r"}, {GPU: 2}) for index in range(24)])
    covered = {"app": "covered"}
    budget = PodDisruptionBudget(namespace="default", name="b", selector=selector_of(covered), allowed=1)
    site.tell(BudgetChanged(budget))
    kept = pods("elastic", 2, spec(gpu=1, cpu=0), prefix="kept", on="n1", labels=covered)
    [spare] = pods("elastic", 1, spec(gpu=1, cpu=0), prefix="spare", on="n0")
    site.tell(GroupChanged(gang("elastic", 2)), *map(PodUpserted, (*kept, spare)))
    site.alone("beside", "n0", priority=5, labels=covered)
    for index in range(2, 24):
        site.alone(f"low-{index}", f"n{index}", priority=5)
        site.alone(f"high-{index}", f"n{index}", priority=200)
    site.waiting("train", 1, gpu=2)
    [plan] = site.tick()
    assert names(plan) == ["beside", "spare-0"]


@pytest.mark.parametrize(
    "layers",
    [
        (Layer(level="zone", size=12), Layer(level="rack", size=4)),
        (Layer(level="zone", max_domains=1, size=4),),
    ],
)
def test_a_layer_of_one_segment_is_the_domain_to_clear(layers: tuple[Layer, ...]) -> None:
    """Zone c costs one gang, of which all of it and the spare half of another go; the others cost two."""
    nodes = [f"{zone}{at}" for zone in "abcd" for at in range(12)]
    drawing = "\n".join(f"{one[0]} {one[0]}-{int(one[1:]) // 4} : {one}=1" for one in nodes)
    site = Site(drawing)
    for number in range(6):
        minimum = 8 if number in (1, 2) else 4
        site.running(f"low-{number}", nodes[number * 8 : number * 8 + 8], priority=10, minimum=minimum)
    site.waiting("high", 12, group=replace(gang("high", 12), layers=layers))
    (plan,) = site.tick()
    assert (plan.cost.gangs_broken, len(plan.victims)) == (1, 12)
    assert site.evict(plan) == []
    assert {node[0] for node in site.where.values()} == {"c"}
