"""The start of a gang in every order of events; what must hold stands in ``start_play``."""

import random

import pytest

from tests.kube.start_play import DISTURBANCES, Move, Play, every_order

#: Those after which few other things can happen.
FEW = tuple(name for name in DISTURBANCES if name not in ("member goes", "rack moves"))


@pytest.mark.parametrize("steps", [False, True], ids=["plain", "with steps"])
@pytest.mark.parametrize("disturbance", [*FEW, "rack moves"])
def test_a_gang_of_two_starts_in_every_order_with_one_disturbance(disturbance: str, steps: bool) -> None:
    assert every_order(lambda: Play(2, disturbances=(disturbance,), most=1, steps=steps)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("steps", [False, True], ids=["plain", "with steps"])
def test_a_gang_of_two_starts_in_every_order_though_a_member_goes(steps: bool) -> None:
    assert every_order(lambda: Play(2, disturbances=("member goes",), most=1, steps=steps)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("steps", [False, True], ids=["plain", "with steps"])
def test_a_gang_of_two_starts_in_every_order_with_two_disturbances(steps: bool) -> None:
    assert every_order(lambda: Play(2, disturbances=FEW, most=2, steps=steps)) > 1000


@pytest.mark.slow
def test_a_gang_of_three_starts_in_every_order_with_one_disturbance() -> None:
    assert every_order(lambda: Play(3, disturbances=FEW, most=1)) > 1000


@pytest.mark.parametrize("seed", range(100))
def test_a_gang_of_three_starts_in_a_random_order_with_many_disturbances(seed: int) -> None:
    dice = random.Random(seed)
    play = Play(
        3,
        disturbances=DISTURBANCES,
        most=dice.randint(0, 6),
        steps=dice.random() < 0.5,
        late=dice.random() < 0.5,
    )
    taken: list[Move] = []

    def choose(_: Play, moves: list[Move]) -> Move:
        taken.append(dice.choice(moves))
        return taken[-1]

    try:
        play.finish(choose)
    except Exception as error:
        error.add_note(f"seed {seed}, after {taken}")
        raise
