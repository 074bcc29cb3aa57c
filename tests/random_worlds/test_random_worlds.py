"""All features of gangs, crossed at random: what is placed keeps all rules, what is refused fits nowhere."""

from pathlib import Path

import pytest

from tests.random_worlds import brute_force
from tests.random_worlds.comparing import run_check
from tests.random_worlds.judge import Truth, judge
from tests.random_worlds.switches import Size, Switch, Switches
from tests.random_worlds.worlds import draw_world

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "worlds"), [(Size.TINY, 400), (Size.SMALL, 600)])
def test_what_is_placed_keeps_all_rules_and_what_is_refused_fits_in_no_way(size: Size, worlds: int) -> None:
    switches = Switches(size=size)
    drawn = (draw_world(seed, switches) for seed in range(worlds))
    found = [str(one) for _, violations in run_check(drawn, SOURCES) for one in violations]
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "most_undecided"),
    [
        ({Switch.LAYERS, Switch.UNLIKE_SEGMENTS}, 0.0),
        ({Switch.LAYERS, Switch.UNEQUAL, Switch.RESOURCES}, 0.0),
        ({Switch.LAYERS, Switch.UNEQUAL, Switch.EXCLUSIVE}, 0.0),
        ({Switch.LAYERS, Switch.SPREAD}, 0.2),
        ({Switch.LAYERS, Switch.PREEMPTION, Switch.MAX_DOMAINS, Switch.ELASTIC}, 0.0),
        ({Switch.LAYERS, Switch.PREEMPTION, Switch.EXCLUSIVE}, 0.0),
        ({Switch.PREEMPTION, Switch.REQUIRED}, 0.0),
        ({Switch.REQUIRED, Switch.UNEQUAL, Switch.RESOURCES, Switch.USED}, 0.0),
        ({Switch.REQUIRED, Switch.PREFERRED, Switch.BEGUN, Switch.USED, Switch.ELASTIC}, 0.0),
        ({Switch.SUBGROUPS, Switch.USED, Switch.UNLABELLED}, 0.0),
    ],
    ids=lambda one: "-".join(sorted(one)) if isinstance(one, set) else None,
)
def test_crossings_of_a_few_features_are_decided(on: set[Switch], most_undecided: float) -> None:
    switches = Switches.of(on, set(Switch) - on, Size.SMALL)
    *_, (findings, _) = run_check((draw_world(seed, switches) for seed in range(80)), SOURCES)
    assert not findings.violated, list(findings.lines())
    assert findings.undecided <= most_undecided


def test_the_judge_finds_what_brute_force_finds() -> None:
    switches = Switches.of(size=Size.TINY, off=[Switch.ELASTIC, Switch.BEGUN, Switch.NETWORK])
    known = {True: (Truth.FITS,), False: (Truth.NEVER, Truth.ORDER)}
    for seed in range(150):
        facts = draw_world(seed, switches).facts
        truth = brute_force.fits(facts)
        assert truth is None or judge(facts).truth in known[truth], f"seed {seed}"
