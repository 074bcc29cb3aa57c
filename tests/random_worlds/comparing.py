"""What two trees of sources decide about the same worlds, and where the new one is worse."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median

from tests.random_worlds.answers import Answer, Decider
from tests.random_worlds.checker import problems
from tests.random_worlds.costs import (
    around,
    cost_of,
    cost_of_victims,
    domains_used,
    level_asked,
    network_cost,
    tighter,
)
from tests.random_worlds.facts import Facts
from tests.random_worlds.judge import Truth, judge
from tests.random_worlds.orders import has_order, left_out
from tests.random_worlds.victims import cheapest
from tests.random_worlds.worlds import World

TOPOLOGY, ROOM = "TopologyPlacementFailed", "GangDoesNotFit"
#: Seeds that are named for one kind of finding.
_NAMED = 12


class Kind(StrEnum):
    """What may be found; those above ``NEEDLESS`` are violations."""

    CRASH = "crash"
    #: A placement that breaks a rule.
    BROKEN = "broken rule"
    LOST_YES = "no longer placed"
    LOST_PROOF = "proven no, now undecided"
    DEARER = "dearer"
    #: A refusal of what fits; in a comparison one that the old sources did not make.
    WRONG_NO = "wrong no"
    #: Though the answer says that no cheaper ones would do.
    DEAR_VICTIMS = "dearer victims than need be"
    NO_VICTIMS = "nobody goes though that would help"
    #: A gang of equal pods is on more domains than it must.
    WIDER = "more domains than need be"
    #: A gang of equal pods fits in a domain of a finer level than the one that it is in.
    LOOSER = "coarser domain than need be"
    #: A pod waits for which there is room beside the others that were placed.
    LEFT_OUT = "left out"
    WRONG_COST = "wrong cost"
    #: A placement that keeps all rules by the checker, which the judge calls impossible.
    DOUBTFUL = "doubtful yes"
    #: Somebody goes though the gang fits beside all: without that its search did not end.
    NEEDLESS = "needless victims"
    #: The reason blames the topology, or does not, and is wrong in that.
    WRONG_REASON = "wrong reason"
    NOT_FEWEST = "unequal pods on more domains than need be"
    MENDED = "old wrong no, now placed"
    OLD_WRONG = "old wrong too"
    DECIDED = "was undecided, now decided"
    CHEAPER = "cheaper"

    @property
    def is_violation(self) -> bool:
        """Whether the sources must not do this."""
        return list(Kind).index(self) < list(Kind).index(Kind.NEEDLESS)


@dataclass(frozen=True)
class Finding:
    """One thing about one world."""

    seed: int
    kind: Kind
    text: str


def check(world: World, answer: Answer, *, judged: bool = True) -> Iterator[Finding]:
    """What is wrong with one answer by itself."""
    facts = world.facts
    if answer.error:
        yield Finding(world.seed, Kind.CRASH, answer.error)
        return
    for text in problems(facts, answer.where, answer.victims)[:1]:
        yield Finding(world.seed, Kind.BROKEN, text)
    if answer.where and not facts.gang.layered and has_order(facts, answer.where, answer.victims) is False:
        yield Finding(world.seed, Kind.BROKEN, "no order of the pods passes the filters")
    if not judged:
        return
    if not facts.gang.layered and not facts.gang.parts and (answer.where or not facts.gang.whole.minimum):
        yield from (
            Finding(world.seed, Kind.LEFT_OUT, text)
            for text in left_out(facts, answer.where, answer.victims)[:1]
        )
    cost = network_cost(facts, {**facts.begun, **answer.where})
    if facts.calls and answer.cost is not None and answer.cost != cost:
        yield Finding(world.seed, Kind.WRONG_COST, f"{answer.cost} in place of {cost}")
    if answer.where:
        yield from (Finding(world.seed, *one) for one in _placed(facts, answer))
    elif answer.verdict == "no":
        yield from (Finding(world.seed, *one) for one in _refused(facts, answer))


def _placed(facts: Facts, answer: Answer) -> Iterator[tuple[Kind, str]]:
    if answer.victims and judge(facts).truth is Truth.FITS:
        yield Kind.NEEDLESS, f"it fits without {sorted(answer.victims)} going"
    elif answer.victims and answer.exact:
        cost, least = cost_of_victims(facts, answer.victims), cheapest(facts)
        if least is not None and least < cost:
            yield Kind.DEAR_VICTIMS, f"{cost}, though {least} would do"
    level = level_asked(facts)
    if level is None or len(facts.gang.members) > facts.gang.minimum:
        found = judge(facts, answer.victims)
    else:
        found = judge(facts, answer.victims, level, around(facts, answer.where, level))
        used = domains_used(facts, answer.where, level)
        if found.fewest is not None and found.truth is Truth.FITS and found.fewest < used:
            kind = Kind.WIDER if facts.gang.alike else Kind.NOT_FEWEST
            yield kind, f"on {used} domains of {level}, though {found.fewest} would do"
    if found.truth is Truth.NEVER:
        yield Kind.DOUBTFUL, str(answer.where)
    finer = tighter(facts, answer.where) if facts.gang.alike and not answer.victims else None
    if finer is not None and judge(facts.requiring(finer)).truth is Truth.FITS:
        yield Kind.LOOSER, f"it fits in one domain of {finer}"


def _refused(facts: Facts, answer: Answer) -> Iterator[tuple[Kind, str]]:
    text = f"{answer.reason}: {answer.message}"
    if judge(facts).truth is Truth.FITS:
        yield Kind.WRONG_NO, text
        return
    if not facts.begun and not facts.gang.exclusive and answer.reason in (TOPOLOGY, ROOM):
        anyhow = judge(facts.without_topology()).truth
        if anyhow is (Truth.NEVER if answer.reason == TOPOLOGY else Truth.FITS):
            yield Kind.WRONG_REASON, text
    weaker = frozenset(pod.name for pod in facts.running if pod.priority < facts.gang.priority)
    if weaker and judge(facts, weaker).truth is Truth.FITS:
        yield Kind.NO_VICTIMS, f"it fits where all weaker pods go; {text}"


def compare(world: World, old: Answer, new: Answer) -> Iterator[Finding]:
    """What the new sources do worse than the old ones, or better."""
    wrong = list(
        check(world, new, judged=new.verdict != old.verdict or bool(new.victims) > bool(old.victims))
    )
    yield from wrong
    before = list(check(world, old, judged=False))
    for one in before:
        yield Finding(world.seed, Kind.OLD_WRONG, f"{one.kind}: {one.text}")
    if new.error or before:
        return
    yes, was = new.verdict == "yes", old.verdict == "yes"
    if was and not yes:
        yield Finding(world.seed, Kind.LOST_YES, f"{new.reason}: {new.message}")
    elif was and yes:
        costs = cost_of(world.facts, old), cost_of(world.facts, new)
        if costs[0] != costs[1]:
            kind = Kind.CHEAPER if costs[1] < costs[0] else Kind.DEARER
            yield Finding(world.seed, kind, f"{costs[1]} instead of {costs[0]}")
    elif old.verdict == "no" and new.verdict == "undecided":
        yield Finding(world.seed, Kind.LOST_PROOF, f"{old.reason}: {old.message}")
    elif old.verdict == "no" and yes and not wrong:
        yield Finding(world.seed, Kind.MENDED, f"{old.reason}: {old.message}")
    elif old.verdict == "undecided" and new.verdict != "undecided":
        yield Finding(world.seed, Kind.DECIDED, new.verdict)


class Findings:
    """All that was found in a run."""

    def __init__(self) -> None:
        self.found: dict[Kind, list[Finding]] = {}
        #: By tree of sources: verdicts and CPU seconds.
        self.answers: dict[str, list[tuple[str, float, int]]] = {}

    def add(self, findings: Iterable[Finding]) -> list[Finding]:
        """Note findings; returns those that are violations."""
        noted = list(findings)
        for one in noted:
            self.found.setdefault(one.kind, []).append(one)
        return [one for one in noted if one.kind.is_violation]

    def note(self, name: str, world: World, answer: Answer) -> None:
        """Count an answer."""
        self.answers.setdefault(name, []).append((answer.verdict, answer.seconds, world.seed))

    @property
    def violated(self) -> bool:
        """Whether anything is a violation."""
        return any(kind.is_violation for kind in self.found)

    @property
    def undecided(self) -> float:
        """The part of all answers that leave open whether the gang fits."""
        verdicts = [verdict for answers in self.answers.values() for verdict, _, _ in answers]
        return verdicts.count("undecided") / len(verdicts)

    def lines(self) -> Iterator[str]:
        """For people."""
        for kind in Kind:
            found = self.found.get(kind, [])
            if found:
                mark = "✗" if kind.is_violation else " "
                yield f"{mark} {kind}: {len(found)}, seeds {_some([one.seed for one in found])}"
        for name, answers in self.answers.items():
            counts = {
                verdict: sum(each == verdict for each, _, _ in answers)
                for verdict in ("yes", "no", "undecided")
            }
            times = sorted(seconds for _, seconds, _ in answers)
            worst = max(answers, key=lambda one: one[1])
            yield (
                f"  {name}: {counts}; median {median(times) * 1000:.1f} ms,"
                f" 99 % {_part(times, 0.99) * 1000:.0f} ms, worst {worst[1]:.2f} s (seed {worst[2]}),"
                f" {sum(times):.1f} s in all"
            )


def run_comparison(worlds: Iterable[World], old: Path, new: Path) -> Iterator[tuple[Findings, list[Finding]]]:
    """After each world all that was found so far, and its own violations."""
    findings, deciders = Findings(), {"old": Decider(old), "new": Decider(new)}
    try:
        for world in worlds:
            for one in deciders.values():
                one.ask(world)
            answers = {name: one.answer() for name, one in deciders.items()}
            for name, answer in answers.items():
                findings.note(name, world, answer)
            yield findings, findings.add(compare(world, answers["old"], answers["new"]))
    finally:
        for one in deciders.values():
            one.close()


def run_check(worlds: Iterable[World], sources: Path) -> Iterator[tuple[Findings, list[Finding]]]:
    """The same of one tree of sources, judged by itself."""
    findings, decider = Findings(), Decider(sources)
    try:
        for world in worlds:
            decider.ask(world)
            answer = decider.answer()
            findings.note("sources", world, answer)
            yield findings, findings.add(check(world, answer))
    finally:
        decider.close()


def _some(seeds: Sequence[int]) -> str:
    more = f" and {len(seeds) - _NAMED} more" if len(seeds) > _NAMED else ""
    return ", ".join(map(str, seeds[:_NAMED])) + more


def _part(times: Sequence[float], part: float) -> float:
    return times[min(int(len(times) * part), len(times) - 1)]
