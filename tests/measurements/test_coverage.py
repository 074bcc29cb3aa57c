"""How much of what pods request is in an average; the window lasts 100 seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.columns import Cluster
from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.measurements.coverage import Coverage
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec

RESOURCE = "example.com/bandwidth"


def pod(name: str, request: int = 1000, created: float | None = None, node: str | None = "n") -> Pod:
    spec = PodSpec(requests=((RESOURCE, request),) if request else ())
    return Pod(namespace="d", name=name, uid=name, spec=spec, node_name=node, created=created)


class Line:
    """A node, and measurements that end at given times."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.slot = self.cluster.add_node(Node(name="n", allocatable={RESOURCE: 10**9}))
        self.coverage = Coverage(self.cluster, RESOURCE)

    def place(self, *pods: Pod) -> None:
        for one in pods:
            self.cluster.place_pod(one, self.slot)

    def covered(self, end: float | None, at: float | None = None) -> int:
        """What a measurement covers that ends then, or does not say when and was taken in at a time."""
        link = NodeBandwidth(average=0.0, measured=end)
        self.coverage.take(BandwidthReadings("test", {"n": link}, window=100.0), end if at is None else at)
        return self.coverage.of({self.slot: link})[self.slot]


@pytest.mark.parametrize(
    ("created", "covered"),
    [(None, 1000), (0.0, 1000), (400.0, 1000), (450.0, 500), (475.0, 250), (500.0, 0), (501.0, 0)],
)
def test_at_first_a_pod_counts_from_when_it_was_made(created: float | None, covered: int) -> None:
    line = Line()
    line.place(pod("p", created=created))
    assert line.covered(500.0) == covered


def test_afterwards_from_the_measurement_that_first_saw_it() -> None:
    line = Line()
    line.place(pod("old", created=0.0))
    assert line.covered(500.0) == 1000
    line.place(pod("late", created=0.0))
    assert [line.covered(end) for end in (530.0, 560.0, 600.0, 630.0, 900.0)] == [
        1000,
        1300,
        1700,
        2000,
        2000,
    ]


def test_a_pod_that_has_no_node_yet_counts_from_its_binding() -> None:
    line = Line()
    line.place(pod("p", created=0.0, node=None))
    assert line.covered(500.0) == 0
    assert line.covered(700.0) == 0
    line.cluster.forget_pod("p")
    line.place(pod("p", created=0.0))
    assert [line.covered(end) for end in (730.0, 780.0, 830.0)] == [0, 500, 1000]


def test_a_pod_that_left_and_came_again_starts_over() -> None:
    line = Line()
    line.place(pod("p", created=0.0))
    assert line.covered(500.0) == 1000
    line.cluster.forget_pod("p")
    assert line.covered(530.0) == 0
    line.place(pod("p", created=0.0))
    assert line.covered(560.0) == 0


def test_without_times_all_that_is_bound_is_covered() -> None:
    line = Line()
    line.place(pod("p", created=450.0), pod("q", request=0), pod("r", node=None))
    assert line.covered(None) == 1000


def test_a_measurement_without_a_time_ends_when_it_is_taken_in() -> None:
    line = Line()
    line.place(pod("old", created=0.0))
    assert line.covered(None, at=500.0) == 1000
    line.place(pod("late", created=0.0))
    assert [line.covered(None, at=at) for at in (530.0, 560.0, 630.0)] == [1000, 1300, 2000]


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 500)), max_size=5), st.floats(0, 1000))
def test_never_more_than_all_and_never_less_as_time_goes_by(
    pods: list[tuple[int, float]], wait: float
) -> None:
    line = Line()
    line.place(*(pod(f"p{index}", request, made) for index, (request, made) in enumerate(pods)))
    first = line.covered(500.0)
    later = line.covered(500.0 + wait)
    assert 0 <= first <= later <= sum(request for request, _ in pods)
