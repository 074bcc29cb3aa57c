"""What was measured for NetworkTopologies, in bounded memory."""

import random
from itertools import pairwise

import pytest

from closeby.controllers.networks.memory import TOO_MANY, MeasuredCosts, Memory
from closeby.controllers.networks.settings import NetworkSettings
from closeby.controllers.networks.status import Measurement
from closeby.controllers.statuses import Fields, Key
from closeby.kube.watch.resources import Resource
from closeby.measurements.latencies import Latencies
from closeby.measurements.links import Latency, Links

KIND = Resource(
    group="scheduling.sigs.k8s.io",
    version="v1alpha1",
    kind="NetworkTopology",
    plural="networktopologies",
    namespaced=True,
)


def key(name: str) -> Key:
    return KIND, name


def measured(count: int) -> MeasuredCosts:
    links = Links.of(Latency(f"a{one}", f"a{other}", 5.0) for one, other in pairwise(range(count + 1)))
    return MeasuredCosts("uid", NetworkSettings(), Measurement(latencies=Latencies(links=links)), 0.0)


def reason(memory: Memory, name: str) -> str:
    found = memory.get(key(name))
    assert found is not None
    return found.measurement.failure.reason if found.measurement.failure else ""


def test_the_namespace_that_has_most_loses_its_largest() -> None:
    one = measured(100).size
    memory = Memory(most=4 * one)
    assert memory.keep(key("good/net"), measured(100)) == []
    assert memory.keep(key("bad/small"), measured(50)) == []
    assert memory.keep(key("bad/large"), measured(150)) == []
    assert memory.keep(key("bad/more"), measured(140)) == [key("bad/large")]
    assert [reason(memory, name) for name in ("good/net", "bad/small", "bad/large", "bad/more")] == [
        "",
        "",
        TOO_MANY,
        "",
    ]
    # Its own may be the largest.
    assert memory.keep(key("bad/large"), measured(1000)) == [key("bad/large")]
    memory.forget(key("bad/more"))
    assert memory.keep(key("bad/large"), measured(100)) == []
    assert reason(memory, "bad/large") == ""


def test_the_operators_namespaces_keep_theirs_however_much_they_have() -> None:
    one = measured(100).size
    memory = Memory(4 * one, lambda namespace: namespace == "kube-system")
    assert memory.keep(key("kube-system/net"), measured(300)) == []
    assert memory.keep(key("bad/nothing"), MeasuredCosts("uid", NetworkSettings(), Measurement(), 0.0)) == []
    assert memory.keep(key("bad/net"), measured(200)) == [key("bad/net")]
    assert [reason(memory, name) for name in ("kube-system/net", "bad/nothing", "bad/net")] == [
        "",
        "",
        TOO_MANY,
    ]
    # The operator's own are bounded too.
    assert memory.keep(key("bad/net"), measured(50)) == []
    assert memory.keep(key("kube-system/more"), measured(300)) == [
        key("bad/net"),
        key("kube-system/net"),
    ]


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_holds_whatever_comes_and_goes(seed: int) -> None:
    chance = random.Random(seed)
    most = 5 * measured(100).size
    memory = Memory(most)
    names = [f"{namespace}/{number}" for namespace in "abc" for number in range(6)]
    for _ in range(300):
        name = chance.choice(names)
        if chance.random() < 0.3:
            memory.forget(key(name))
        else:
            memory.keep(key(name), measured(chance.randrange(200)))
        sizes = [one.size for one in (memory.get(key(name)) for name in names) if one is not None]
        assert sum(sizes) <= most, f"seed {seed}"


def test_fields_are_decoded_when_they_are_asked_for() -> None:
    fields = Fields(b'{"a": [1, {"b": null}], "c": "x"}')
    assert dict(fields) == {"a": [1, {"b": None}], "c": "x"}
    assert (fields.get("a"), fields.get("d"), "c" in fields, len(fields)) == ([1, {"b": None}], None, True, 2)
    assert fields == Fields(b'{"a": [1, {"b": null}], "c": "x"}') and fields != Fields(b"{}")
    for nothing in (b"null", b"[]", b'"text"', b"5", b" {} "):
        assert dict(Fields(nothing)) == {}
