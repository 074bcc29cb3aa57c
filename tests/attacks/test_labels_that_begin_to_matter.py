"""A tenant's pods have terms about one label after another that no selector has named before."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.cluster.population import Population
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import NodeUpserted, PodUpserted, Tick
from closeby.scheduling.intake.queue import SchedulingQueue
from closeby.scheduling.outcomes import bindings_of
from tests.worlds import GPU, node, pods, spec

NODES = 4


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often all pods were counted again, and all that wait sorted again."""
    found = Counter[str]()
    for owner, name in ((Population, "_rebuild"), (SchedulingQueue, "divide")):
        original: Any = getattr(owner, name)

        def counting(self: Any, *arguments: Any, name: str = name, original: Any = original) -> Any:
            found[name] += 1
            return original(self, *arguments)

        monkeypatch.setattr(owner, name, counting)
    return found


def pod(name: str, labels: dict[str, str], avoids: str = "", gpus: int = 0) -> Pod:
    """``avoids``: a label whose carriers it keeps off its node."""
    term = PodAffinityTerm(HOSTNAME, selector_of({avoids: "x"}))
    affinity = PodAffinity(forbidden=(term,)) if avoids else None
    needs = replace(spec(gpu=gpus, cpu=0), pod_affinity=affinity)
    return replace(pods(None, 1, needs)[0], name=name, uid=name, labels=labels)


def engine() -> Engine:
    """Each node has some pods; one has a label that comes up later, and others wait for room."""
    made = Engine(lambda handle: profile_for(Configuration(), handle))
    names = [f"n{at}" for at in range(NODES)]
    made.handle(*(NodeUpserted(node(name, {HOSTNAME: name}, {GPU: 1, "pods": 99})) for name in names))
    made.handle(PodUpserted(pod("first", {}, avoids="any")))
    for at, name in enumerate([*names, *names]):
        made.handle(PodUpserted(replace(pod(f"runs-{at}", {"app": "a"}), node_name=name)))
    made.handle(PodUpserted(replace(pod("marked", {"mark": "x"}), node_name="n1")))
    made.handle(*(PodUpserted(pod(f"waits-{at}", {"app": f"a{at}"}, gpus=2)) for at in range(3)), Tick())
    return made


def test_what_is_counted_and_waits_stays_so(done: Counter[str]) -> None:
    made = engine()
    done.clear()
    for at in range(20):
        made.handle(PodUpserted(pod(f"new-{at}", {}, avoids=f"label-{at}")), Tick())
    made.validate_state()
    assert not done


def test_pods_with_the_label_are_counted_by_themselves(done: Counter[str]) -> None:
    made = engine()
    done.clear()
    avoiding = [pod(f"new-{at}", {"mark": "x"}, avoids="mark") for at in range(NODES)]
    bound = bindings_of(made.handle(*map(PodUpserted, avoiding), Tick()))
    assert {one.node for one in bound} == {"n0", "n2", "n3"}
    assert done == {"divide": 1}
    made.handle(PodUpserted(pod("newer", {}, avoids="app")), Tick())
    assert done == {"divide": 2, "_rebuild": 1}, "most pods have the label, and some that wait"
    made.validate_state()
