"""Colours of gangs: stable, and not those of neighbours."""

from itertools import combinations

from closeby.lab.pictures.gang_marks import GANGS, SINGLE, colours_of
from closeby.lab.pictures.scene import scene_of
from tests.lab.pictures.histories import Job, history, story


def test_gangs_have_colours_and_single_pods_are_grey() -> None:
    scene = scene_of(story())
    colours = dict(zip([tenant.name for tenant in scene.tenants], colours_of(scene), strict=True))
    assert colours["half"] == colours["other"] == SINGLE
    assert colours["wide"] in GANGS
    assert colours["later"] in GANGS


def test_as_many_gangs_as_colours_all_differ_while_they_run() -> None:
    jobs = {
        f"g{number}": Job(nodes=(f"n{number % 7 + 1}",) * 2, gpus=0, start=float(number), end=100.0)
        for number in range(len(GANGS))
    }
    assert len(set(colours_of(scene_of(history(jobs, until=100.0))))) == len(GANGS)


def test_more_gangs_than_colours_still_differ_inside_a_leaf() -> None:
    """Nine gangs in leaf a/l1, then nine in b/l1: no two of a leaf look alike."""
    jobs = {
        f"{leaf[0]}{number}": Job(nodes=leaf, gpus=0, start=float(number), end=100.0)
        for leaf in (("n1", "n2"), ("n5", "n6"))
        for number in range(9)
    }
    scene = scene_of(history(jobs, until=100.0))
    colours = dict(zip([tenant.name for tenant in scene.tenants], colours_of(scene), strict=True))
    for leaf in ("n1", "n5"):
        mine = [colours[name] for name in colours if name.startswith(leaf)]
        assert all(one != other for one, other in combinations(mine, 2))
