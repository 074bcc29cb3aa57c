"""The steps of a search, one by one: first sites, gathering, descending, shaking, and when it ends."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from closeby.scheduling.moving import local_search
from closeby.scheduling.moving.layout import Layout, Sites
from closeby.scheduling.moving.local_search import Neighbourhood, _Search, improve, place_all
from closeby.scheduling.services import Traffic
from closeby.scheduling.steps import Steps
from tests.scheduling.test_local_search import laid_out, layouts

INF = float("inf")


def traffic(
    apart: Sequence[Sequence[float]],
    talk: Sequence[Sequence[float]],
    *,
    standing: Sequence[Sequence[float]] | None = None,
    limits: Sequence[Sequence[float]] | None = None,
    locations: Sequence[int] | None = None,
) -> Traffic:
    """Each pod is a kind of its own: what is between locations, and what the pods say to each other."""
    pods, places = len(talk), len(apart)
    sites = places if locations is None else len(locations)
    return Traffic(
        kinds=np.arange(pods),
        locations=np.arange(places) if locations is None else np.array(locations),
        between=np.array(apart, dtype=np.float64),
        weights=np.array(talk, dtype=np.float64),
        limits=np.full((pods, pods), INF) if limits is None else np.array(limits, dtype=np.float64),
        unknown=np.zeros((places, places), dtype=np.bool_),
        standing=np.zeros((pods, sites)) if standing is None else np.array(standing, dtype=np.float64),
    )


def sites(
    free: Sequence[Sequence[int]],
    needs: Sequence[Sequence[int]],
    *,
    pinned: Sequence[int] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
) -> Sites:
    """What is free, by resource and site, and what each pod needs; each pod is a class of its own."""
    pods, places = len(needs), len(free[0])
    return Sites(
        slots=np.arange(places),
        free=np.array(free),
        needs=np.array(needs),
        allowed=np.ones((pods, places), dtype=np.bool_) if allowed is None else np.array(allowed),
        class_of=np.arange(pods),
        pinned=np.isin(np.arange(pods), pinned),
    )


def silent(pods: int) -> list[list[float]]:
    """Pods that say nothing to each other."""
    return [[0.0] * pods for _ in range(pods)]


def flat(places: int, cost: float = 1.0) -> list[list[float]]:
    """Locations of which any two are equally far from each other."""
    return [[0.0 if one == other else cost for other in range(places)] for one in range(places)]


def search(about: Traffic, on: Sites, at: Sequence[int | None] = ()) -> _Search:
    """A search on a layout in which some pods have a place already."""
    layout = Layout(about, on, range(len(on.needs)))
    for pod, site in enumerate(at):
        if site is not None:
            layout.place(pod, site)
    return _Search(layout, Steps())


class TestFirstSites:
    def test_the_roomiest_site_of_each_location_and_the_roomiest_location_first(self) -> None:
        for locations in ([0, 0, 1, 2, 1], [2, 2, 0, 1, 0]):
            about = traffic(flat(3), silent(1), locations=locations)
            assert search(about, sites([[4, 6, 3, 9, 1]], [[1]]))._first_sites() == [1, 3, 2]

    def test_room_is_that_of_the_scarcest_resource_that_pods_need(self) -> None:
        about = traffic(flat(2), silent(2))
        assert search(about, sites([[8, 2], [1, 8]], [[1, 1], [1, 1]]))._first_sites() == [1, 0]
        assert search(about, sites([[8, 2], [0, 8]], [[1, 0], [1, 0]]))._first_sites() == [0, 1]

    def test_equal_locations_come_in_the_order_of_their_sites(self) -> None:
        about = traffic(flat(3), silent(1), locations=[2, 0, 1])
        assert search(about, sites([[1, 1, 1]], [[1]]))._first_sites() == [0, 1, 2]

    def test_pods_that_need_nothing_begin_anywhere(self) -> None:
        assert search(traffic(flat(2), silent(1)), sites([[1, 1]], [[0]]))._first_sites() == [0, 1]


class TestGathering:
    def test_all_gather_around_the_given_site(self) -> None:
        for site in range(3):
            it = search(traffic(flat(3), flat(2)), sites([[2, 2, 2]], [[1], [1]]))
            assert it._gather(site)
            assert it._layout.at.tolist() == [site, site]

    def test_the_pod_that_says_most_is_the_first(self) -> None:
        """The third talks to both others, and the given site holds one."""
        talk = [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
        it = search(traffic(flat(2), talk), sites([[2, 1]], [[1]] * 3))
        assert it._gather(1)
        assert it._layout.at.tolist() == [0, 0, 1]

    def test_pods_that_stay_draw_those_that_talk_to_them_before_all_others(self) -> None:
        """The first stays on site 0 and talks a little to the second; the last two say much to each other."""
        talk = [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 5.0, 0.0]]
        it = search(traffic(flat(3), talk), sites([[1, 1, 2]], [[1]] * 4, pinned=[0]), [0])
        assert it._gather(1)
        assert it._layout.at.tolist() == [0, 1, 2, 2]

    def test_those_that_talk_to_what_is_placed_come_before_those_that_say_more_to_others(self) -> None:
        """The first two and the last belong together; the third and fourth say more to each other."""
        talk = np.zeros((5, 5))
        for one, other, weight in ((0, 1, 5.0), (2, 3, 4.0), (1, 4, 1.0)):
            talk[one, other] = talk[other, one] = weight
        it = search(traffic(flat(2), talk.tolist()), sites([[3, 2]], [[1]] * 5))
        assert it._gather(0)
        assert it._layout.at.tolist() == [0, 0, 1, 1, 0]

    def test_only_the_first_is_bound_to_the_given_site(self) -> None:
        about = traffic(flat(2), flat(2), standing=[[0.0, 9.0], [9.0, 0.0]])
        it = search(about, sites([[2, 2]], [[1], [1]]))
        assert it._gather(0)
        assert it._layout.at.tolist() == [0, 1]

    def test_each_goes_next_to_those_placed_before(self) -> None:
        """A chain over a line of sites that hold one pod each."""
        talk = [[0.0, 5.0, 0.0], [5.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
        line = [[abs(one - other) for other in range(4)] for one in range(4)]
        it = search(traffic(line, talk), sites([[1, 1, 1, 1]], [[1]] * 3))
        assert it._gather(3)
        # The second says most, then the first follows it, then the third.
        assert it._layout.at.tolist() == [2, 3, 1]

    def test_a_limit_is_kept_though_it_costs_more(self) -> None:
        """Site 1 is beyond the limit; site 2 is not, and costs 10."""
        apart = [[0.0, 3.0, 1.0], [3.0, 0.0, 3.0], [1.0, 3.0, 0.0]]
        about = traffic(
            apart, flat(2), limits=[[INF, 2.0], [2.0, INF]], standing=[[0.0, 0.0, 10.0], [0.0, 0.0, 10.0]]
        )
        it = search(about, sites([[1, 1, 1]], [[1], [1]]))
        assert it._gather(0)
        assert it._layout.at.tolist() == [0, 2]

    def test_by_size_the_largest_of_what_is_free_is_the_first(self) -> None:
        """The second takes half of all that there is of one resource."""
        it = search(traffic(flat(2), silent(2)), sites([[10, 10], [2, 2]], [[4, 1], [1, 2]]))
        assert it._gather(1, largest_first=True)
        assert it._layout.at.tolist() == [0, 1]

    def test_what_does_not_fit_fails(self) -> None:
        it = search(traffic(flat(2), silent(3)), sites([[1, 1]], [[1]] * 3))
        assert not it._gather(0)


class TestPlacingAll:
    def test_small_gaps_are_left_to_small_pods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The two small pods come first and talk, so that they would take what the third needs."""
        monkeypatch.setattr(local_search, "STARTS", 1)
        talk = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        found = place_all(traffic(flat(2), talk), sites([[3, 2]], [[1], [1], [3]]))
        assert found == (1, 1, 0)

    def test_what_must_lie_on_one_site_may_come_before_what_is_large(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first may only go to site 0; were the large one placed first, it would be in the way."""
        monkeypatch.setattr(local_search, "STARTS", 1)
        on = sites([[4, 4]], [[1], [4]], allowed=[[True, False], [True, True]])
        assert place_all(traffic(flat(2), silent(2)), on) == (0, 1)

    def test_a_limit_that_every_placement_breaks(self) -> None:
        about = traffic(flat(2, 3.0), flat(2), limits=[[INF, 2.0], [2.0, INF]])
        assert place_all(about, sites([[1, 1]], [[1], [1]])) is None
        assert place_all(about, sites([[1, 2]], [[1], [1]])) == (1, 1)

    def test_a_limit_that_gathering_breaks_is_kept_by_a_change(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last two talk most and fill site 0; of the first two one has to take a place there.

        Sites 1 and 2 are too far from each other for the first two, and site 0 is near to both.
        """
        monkeypatch.setattr(local_search, "STARTS", 1)
        talk = [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 5.0, 0.0]]
        limits = np.full((4, 4), INF)
        limits[0, 1] = limits[1, 0] = 2.0
        apart = [[0.0, 1.0, 1.0], [1.0, 0.0, 9.0], [1.0, 9.0, 0.0]]
        found = place_all(traffic(apart, talk, limits=limits.tolist()), sites([[2, 1, 1]], [[1]] * 4))
        assert found is not None
        assert {found[0], found[1]} != {1, 2}

    def test_the_cheapest_gathering_is_taken(self) -> None:
        """Around site 0 both cost 1 each; around site 1 the first costs 5."""
        about = traffic(flat(2), flat(2), standing=[[1.0, 5.0], [1.0, 5.0]])
        assert place_all(about, sites([[3, 2]], [[1], [1]])) == (0, 0)
        assert place_all(about, sites([[2, 3]], [[1], [1]])) == (0, 0)

    def test_pods_that_stay_or_no_sites_leave_nothing_to_place(self) -> None:
        about = traffic(flat(2), silent(2))
        assert place_all(about, sites([[2, 2]], [[1], [1]], pinned=[1])) is None
        assert place_all(about, sites([[]], [[1], [1]])) is None


@pytest.fixture
def descent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that neither starts elsewhere nor shakes."""
    monkeypatch.setattr(local_search, "STARTS", 0)
    monkeypatch.setattr(local_search, "PATIENCE", 0)


@pytest.fixture(params=["one pod after another", "all at once"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to look at moves and swaps."""
    if request.param == "one pod after another":
        monkeypatch.setattr(local_search, "AT_ONCE_UP_TO", 0)


@pytest.mark.usefixtures("descent_alone", "either_way")
class TestDescending:
    def test_pods_on_full_sites_change_places(self) -> None:
        about = traffic(flat(2), silent(2), standing=[[5.0, 0.0], [0.0, 5.0]])
        found = improve(about, sites([[1, 1]], [[1], [1]]), [0, 1])
        assert (found.slots, found.cost_before, found.cost) == ((1, 0), 10.0, 0.0)

    def test_no_pod_goes_where_it_cannot_be(self) -> None:
        """Site 1 would be next to the second pod, but the first cannot be there."""
        about = traffic(flat(3), [[0.0, 9.0], [9.0, 0.0]], standing=[[0.0, INF, 0.0], [0.0, 0.0, INF]])
        on = sites([[1, 2, 2]], [[1], [1]])
        assert improve(about, on, [0, 1]).slots == (0, 1)

    def test_a_move_is_made_where_it_saves_more_than_a_swap(self) -> None:
        """The first saves 4 on site 1 instead of the second, and 6 on site 2, which is free."""
        about = traffic(flat(3), silent(2), standing=[[6.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
        found = improve(about, sites([[1, 1, 1]], [[1], [1]]), [0, 1])
        assert (found.slots, found.cost) == ((2, 1), 1.0)

    def test_it_goes_on_until_nothing_saves(self) -> None:
        """Along a line each pod is drawn more by the one behind it than by the one before it."""
        line = [[abs(one - other) for other in range(4)] for one in range(4)]
        talk = np.diag([1.0, 2.0, 4.0], 1) + np.diag([1.0, 2.0, 4.0], -1)
        found = improve(traffic(line, talk.tolist()), sites([[4, 4, 4, 4]], [[1]] * 4), [0, 1, 2, 3])
        assert found.cost == 0.0
        assert len(set(found.slots)) == 1

    def test_two_that_hold_each_other_back_stay(self) -> None:
        """Together they would cost nothing on site 1, but the first to go would leave the other."""
        about = traffic(flat(2), [[0.0, 3.0], [3.0, 0.0]], standing=[[1.0, 0.0], [1.0, 0.0]])
        found = improve(about, sites([[2, 2]], [[1], [1]]), [0, 0])
        assert (found.slots, found.cost) == ((0, 0), 2.0)


@settings(max_examples=30)
@given(layouts())
def test_descending_ends_where_no_move_and_no_swap_saves(case: tuple[Traffic, Sites, list[int]]) -> None:
    about, on, at = case
    for at_once in (True, False):
        layout = laid_out(*case)
        before = layout.cost()
        _Search(layout, Steps(), Neighbourhood(about, on, layout) if at_once else None)._descend()
        rounding = max(layout.epsilon, abs(layout.cost()) * 1e-9)
        for pod in range(len(at)):
            assert layout.best_move(pod)[0] >= -rounding
            assert layout.best_swap(pod)[0] >= -rounding
        assert layout.cost() <= before
        assert (layout.left >= 0).all()


def test_a_full_site_takes_no_pod_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at one pod after another moves none to a site without room, not even for a moment."""
    monkeypatch.setattr(local_search, "AT_ONCE_UP_TO", 0)
    swapping: list[bool] = []
    move, swap = Layout.move, Layout.swap

    def watched_move(layout: Layout, pod: int, site: int) -> None:
        move(layout, pod, site)
        assert swapping or (layout.left >= 0).all()

    def watched_swap(layout: Layout, pod: int, other: int) -> None:
        swapping.append(True)
        swap(layout, pod, other)
        swapping.clear()

    monkeypatch.setattr(Layout, "move", watched_move)
    monkeypatch.setattr(Layout, "swap", watched_swap)
    about = traffic(flat(2), silent(2), standing=[[5.0, 0.0], [0.0, 5.0]])
    found = improve(about, sites([[1, 1]], [[1], [1]]), [0, 1])
    assert found.slots == (1, 0)


@settings(max_examples=15)
@given(layouts())
def test_the_cost_that_is_reported_is_that_of_the_slots(case: tuple[Traffic, Sites, list[int]]) -> None:
    about, on, at = case
    found = improve(about, on, at)
    assert found.cost_before == laid_out(about, on, at).cost()
    slots = [slot for slot in found.slots if slot is not None]
    assert laid_out(about, on, slots).cost() == pytest.approx(found.cost, rel=1e-9, abs=1e-6)


class TestLeavingALocalMinimum:
    """Both pods cost nothing on site 1, and the first to go alone would lose more than it saves."""

    ABOUT = traffic(flat(2), [[0.0, 3.0], [3.0, 0.0]], standing=[[1.0, 0.0], [1.0, 0.0]])
    ON = sites([[2, 2]], [[1], [1]])

    def test_by_another_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local_search, "PATIENCE", 0)
        found = improve(self.ABOUT, self.ON, [0, 0])
        assert (found.slots, found.cost) == ((1, 1), 0.0)

    @pytest.mark.parametrize("exchanges", [0.0, 1.0])
    def test_by_shaking(self, exchanges: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pods that are put elsewhere one by one, or all pods of a site together."""
        monkeypatch.setattr(local_search, "STARTS", 0)
        monkeypatch.setattr(local_search, "EXCHANGES", exchanges)
        found = improve(self.ABOUT, self.ON, [0, 0])
        assert (found.slots, found.cost) == ((1, 1), 0.0)


class TestShaking:
    def test_a_pod_that_fits_nowhere_returns_to_its_site(self) -> None:
        """Each pod runs where it may not go any more, and the other site is full."""
        on = sites([[1, 1]], [[1], [1]], allowed=[[False, True], [True, False]])
        it = search(traffic(flat(2), silent(2)), on, [0, 1])
        for _ in range(20):
            it._shake()
            assert sorted(it._layout.at.tolist()) == [0, 1]
            assert (it._layout.left == 0).all()

    def test_an_exchange_takes_all_pods_of_two_sites_or_none(self) -> None:
        """Two pods on site 0 and one on site 1, which change places; site 2 has no room for two."""
        seen = set()
        it = search(traffic(flat(3), silent(3)), sites([[2, 2, 1]], [[1]] * 3), [0, 0, 1])
        for _ in range(60):
            before = it._layout.at.tolist()
            changed = it._exchange()
            after = it._layout.at.tolist()
            assert changed == (after != before)
            assert after[0] == after[1] != 2
            assert (it._layout.left >= 0).all()
            assert it._layout.left.sum() == 2
            seen.add(tuple(after))
        assert {(0, 0, 1), (1, 1, 0), (0, 0, 2), (1, 1, 2)} == seen

    def test_pods_of_sites_that_hold_no_more_change_places(self) -> None:
        it = search(traffic(flat(2), silent(3)), sites([[2, 2]], [[1]] * 3), [0, 0, 1])
        seen = {(it._exchange(), *it._layout.at.tolist()) for _ in range(20)}
        assert (True, 1, 1, 0) in seen

    def test_a_swap_needs_room_for_both(self) -> None:
        """Each would save by taking the other's place, where the larger one has no room."""
        about = traffic(flat(2), silent(2), standing=[[5.0, 0.0], [0.0, 5.0]])
        for needs, at in (([[1], [2]], [0, 1]), ([[2], [1]], [0, 1])):
            on = sites([[needs[0][0], needs[1][0]]], needs)
            layout = search(about, on, at)._layout
            assert Neighbourhood(about, on, layout).best() is None
            assert layout.best_swap(0)[0] == INF

    def test_pods_that_stay_are_not_exchanged(self) -> None:
        it = search(traffic(flat(2), silent(2)), sites([[2, 2]], [[1], [1]], pinned=[0]), [0, 0])
        for _ in range(20):
            it._shake()
            assert it._layout.at[0] == 0


class TestWandering:
    """Where the first pod goes is given: site by site it costs 10, 8, 6, 9, 6.05, and 6.1."""

    ABOUT = traffic(flat(6), silent(2), standing=[[10.0, 8.0, 6.0, 9.0, 6.05, 6.1], [0.0] * 6])
    ON = sites([[2] * 6], [[1], [1]])

    def wander(
        self, shaken_to: Sequence[int], monkeypatch: pytest.MonkeyPatch, patience: int
    ) -> tuple[list[int], float]:
        """From site 0, shaken to one site after the other; where each shake began, and the least cost."""
        began: list[int] = []

        def shake(it: _Search) -> None:
            began.append(int(it._layout.at[0]))
            it._layout.move(0, shaken_to[len(began) - 1])

        monkeypatch.setattr(local_search, "PATIENCE", patience)
        self.replaced(monkeypatch, _shake=shake, _descend=lambda _: None)
        it = search(self.ABOUT, self.ON, [0, 0])
        best, least = it._wander(it._layout.snapshot(), it._layout.cost())
        it._layout.restore(best)
        assert it._layout.cost() == least
        return began, least

    def replaced(self, monkeypatch: pytest.MonkeyPatch, **methods: Callable[..., None]) -> None:
        for name, method in methods.items():
            monkeypatch.setattr(_Search, name, method)

    def test_each_new_best_begins_the_patience_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        began, least = self.wander([1, 3, 2, 3, 0], monkeypatch, patience=2)
        assert (len(began), least) == (5, 6.0)

    def test_it_returns_from_what_is_much_worse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        began, _ = self.wander([1, 3, 3, 2, 0, 0, 0], monkeypatch, patience=3)
        assert began == [0, 1, 1, 1, 2, 2, 2]

    def test_it_goes_on_from_what_is_little_worse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        began, least = self.wander([2, 4, 3, 0], monkeypatch, patience=3)
        assert (began, least) == ([0, 2, 4, 4], 6.0)

    def test_it_does_not_get_worse_little_by_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        began, least = self.wander([2, 4, 5, 0], monkeypatch, patience=3)
        assert (began, least) == ([0, 2, 4, 4], 6.0)

    def test_stuck_it_goes_elsewhere_and_back_to_the_best_by_turns(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(local_search, "STUCK", 1)
        gathered: list[int] = []

        def gather(it: _Search, site: int) -> bool:
            gathered.append(site)
            it._layout.move(0, 3)
            return True

        monkeypatch.setattr(_Search, "_gather", gather)
        began, least = self.wander([2, 0, 0, 0, 0, 0], monkeypatch, patience=5)
        # Stuck at the third shake it gathers on site 3, from which site 0 is much worse; at the fifth it
        # returns to the best.
        assert (began, len(gathered), least) == ([0, 2, 3, 3, 2, 2], 1, 6.0)

    def test_nothing_is_shaken_without_a_cost_or_with_one_pod(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replaced(monkeypatch, _shake=lambda _: pytest.fail("it was shaken"))
        for about, on in (
            (traffic(flat(2), silent(2)), sites([[2, 2]], [[1], [1]])),
            (traffic(flat(2), silent(2), standing=[[1.0, 1.0]] * 2), sites([[2, 2]], [[1], [1]], pinned=[0])),
        ):
            it = search(about, on, [0, 0])
            it._wander(it._layout.snapshot(), it._layout.cost())


def test_each_pod_that_is_put_on_its_first_site_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many kinds on many sites each takes several: here one for each of its four costs."""
    monkeypatch.setattr(local_search, "FIGURES_A_STEP", 1)
    given, steps, placed = traffic([[0, 1], [1, 0]], silent(2)), Steps(), Layout.place
    seen: list[int] = []

    def place(self: Layout, pod: int, site: int) -> None:
        seen.append(steps.taken)
        placed(self, pod, site)

    monkeypatch.setattr(Layout, "place", place)
    improve(given, sites([[2, 2]], [[1], [1]]), [0, 1], steps)
    assert seen[:2] == [5, 10]
