"""Scores that break what a plugin promises of them: an error that names plugin, pod and node."""

from typing import Any, ClassVar

import numpy as np
import pytest

from closeby.errors import ScoreError
from closeby.objects.arrays import Scores
from closeby.objects.pods import Pod
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.manifests import Manifests
from closeby.scheduling.extension import NormalizeScore, Scope, Score
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.simulator.runs import Run, simulate
from tests.worlds import draw, pods, spec

#: c takes no pod of one GPU.
THREE_NODES = "a : a=2 b=2 c=0"
CACHED, FLEETING = Scope.PER_NODE, Scope.PER_PLACEMENT


class Given(Score):
    """Gives what it is told to, by node; ``None`` instead of a window's worth of them."""

    name: ClassVar[str] = "given"
    by_node: ClassVar[dict[str, float]] = {}
    instead: ClassVar[Any] = None

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        if self.instead is not None:
            instead: Scores = self.instead
            return instead
        return np.asarray([np.nan if node is None else self.by_node[node.name] for node in nodes])


class Fleeting(Given):
    score_scope: ClassVar[Scope] = FLEETING


class Normalized(Given, NormalizeScore):
    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        return scores * 2


class Unbounded(Given):
    unbounded: ClassVar[bool] = True


def placed(kind: type[Given], by_node: dict[str, float] | None = None, instead: Any = None) -> Run:
    """One pod of one GPU, judged by these scores alone."""
    Given.by_node, Given.instead = by_node or {}, instead
    entries = (
        PluginEntry(name=f"{__name__}:{kind.__name__}"),
        PluginEntry(name="NodeResourcesFit", weight=0.0),
    )
    nodes = tuple(draw(THREE_NODES, ["rack"]))
    manifests = Manifests(nodes=nodes, pods=tuple(pods(None, 1, spec(gpu=1), prefix="p")))
    return simulate(manifests, Configuration(plugins=entries))


def node_of(run: Run) -> str:
    ((_, slot),) = run.engine.cluster.placed_pods()
    return run.engine.cluster.node_at(slot).name


@pytest.mark.parametrize("kind", [Given, Fleeting])
@pytest.mark.parametrize(
    ("value", "said"), [(100.1, "100.1"), (-0.5, "-0.5"), (np.nan, "nan"), (np.inf, "inf")]
)
def test_a_score_out_of_range_names_plugin_pod_and_node(kind: type[Given], value: float, said: str) -> None:
    with pytest.raises(ScoreError) as raised:
        placed(kind, {"a": 50.0, "b": value, "c": 0.0})
    sentence = f"given gives pod default/p-0 the score {said} on node b: a score must be between 0 and"
    assert str(raised.value).startswith(sentence)


def test_of_many_nodes_one_is_named() -> None:
    with pytest.raises(ScoreError, match=r"101 on node a, one of 2 such nodes: a score"):
        placed(Given, {"a": 101.0, "b": 102.0, "c": 0.0})


def test_what_counts_is_the_score_after_normalising() -> None:
    assert node_of(placed(Normalized, {"a": 10.0, "b": 50.0, "c": 0.0})) == "b"
    with pytest.raises(ScoreError, match="the score 102 on node b"):
        placed(Normalized, {"a": 10.0, "b": 51.0, "c": 0.0})


@pytest.mark.parametrize("kind", [Given, Fleeting])
def test_nodes_that_take_no_such_pod_may_have_any(kind: type[Given]) -> None:
    assert node_of(placed(kind, {"a": 1.0, "b": 2.0, "c": 1e9})) == "b"
    assert node_of(placed(kind, {"a": 1.0, "b": 2.0, "c": np.nan})) == "b"


def test_what_sums_of_shares_round_by_is_no_fault() -> None:
    assert node_of(placed(Given, {"a": 99.0, "b": 100.0 + 1e-13, "c": 0.0})) == "b"


def test_a_rule_that_is_not_scaled_may_give_any_finite_score() -> None:
    assert node_of(placed(Unbounded, {"a": -7.0, "b": 3e5, "c": 0.0})) == "b"
    with pytest.raises(ScoreError, match="the score inf on node b: a score must be finite"):
        placed(Unbounded, {"a": -7.0, "b": np.inf, "c": 0.0})


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (np.zeros(99), r"an array of float64 of shape \(99,\)"),
        (np.zeros((3, 1)), r"an array of float64 of shape \(3, 1\)"),
        (np.asarray(["high"]), r"an array of <U4 of shape \(1,\)"),
        ([1.0, 2.0, 3.0], "list"),
        (50.0, "float"),
    ],
)
@pytest.mark.parametrize("kind", [Given, Fleeting])
def test_scores_of_a_wrong_shape_are_refused(kind: type[Given], instead: Any, said: str) -> None:
    with pytest.raises(ScoreError, match=f"given scores pod default/p-0 with {said}: it must be one number"):
        placed(kind, instead=instead)
