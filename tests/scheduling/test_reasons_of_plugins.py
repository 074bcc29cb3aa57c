"""A plugin that does not come with closeby refuses nodes for reasons of its own, and under its own name."""

from functools import partial

import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason, Rejection
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import PodUpserted, Tick
from closeby.scheduling.extension import PreFilter
from closeby.scheduling.intake.cluster_events import ANY_EVENT, queueing_hints
from closeby.scheduling.outcomes import Decision
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.scalar import ScalarFilter, Verdict
from tests.worlds import World, draw, pods, world

NODES = "zone-a rack-1 : a=1 b=1 c=1"


class Noisy(ScalarFilter):
    """All refusals have one reason."""

    name = "noisy"
    reason = "RackTooNoisy"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        return "it hums"


class Moody(ScalarFilter):
    """Each refusal has a reason of its own, or none."""

    name = "moody"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        verdicts: dict[str, Verdict] = {
            "a": Rejection("TooWarm", "hot"),
            "b": Rejection("TooWarm", "hotter"),
        }
        return verdicts.get(node.name, False)


class Wordy(ScalarFilter):
    """Its token is none."""

    name = "wordy"
    reason = "the rack is too noisy"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        return False


class Closed(PreFilter):
    """Refuses each item as a whole."""

    name = "closed"

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        return Condition(reason="ClosedForMaintenance", object="Cluster", message="come back tomorrow")


def decided(kind: type) -> World:
    return world(NODES, plugins=[PluginEntry(name=f"{__name__}:{kind.__name__}")]).run(members=pods(None, 1))


@pytest.mark.parametrize(
    ("kind", "reason"), [(Noisy, "RackTooNoisy"), (Moody, "TooWarm"), (Closed, "ClosedForMaintenance")]
)
def test_an_item_waits_with_the_token_of_the_plugin(kind: type, reason: str) -> None:
    assert decided(kind).left("pod-0") == {"pod-0": reason}


def test_refusals_are_counted_by_their_own_tokens_and_name_the_plugin() -> None:
    configuration = Configuration(plugins=(PluginEntry(name=f"{__name__}:Moody"),))
    drawn = World(Engine(partial(profile_for, configuration), explain=True), draw(NODES))
    (explained,) = [
        one
        for decision in drawn.engine.handle(PodUpserted(pods(None, 1)[0]), Tick())
        if isinstance(decision, Decision)
        for one in decision.outcome.explanations
    ]
    assert explained.rejected_by == {"TooWarm": 2, Reason.REFUSED_BY_PLUGIN: 1}
    assert {one.plugin for one in explained.rejected.values()} == {"moody"}


def test_anything_may_help_what_waits_for_an_own_reason() -> None:
    assert queueing_hints(["RackTooNoisy"]) == ANY_EVENT


@pytest.mark.parametrize("token", ["", "two words", "Ends_", "ä", "x" * 200])
def test_a_token_is_one_word_that_kubernetes_takes(token: str) -> None:
    with pytest.raises(ValueError, match="one word"):
        Rejection(token, "no")
    with pytest.raises(ValueError, match="one word"):
        Condition(reason=token, object="Pod/p", message="no")


def test_a_class_with_a_token_that_is_none_does_not_load() -> None:
    with pytest.raises(ValueError, match="one word"):
        decided(Wordy)
