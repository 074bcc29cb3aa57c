"""What a gang is told to ask for instead of its segments is true: so asked, it is placed."""

import os
import re
from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Layer, LayerMode, PodGroup, Remainder
from closeby.objects.pods import PodSpec
from closeby.reading.common.layers import layer_problems
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.simulator.runs import simulate
from closeby.whatif.gathering import counterfactuals
from closeby.whatif.records import Counterfactual, Kind
from tests.cli.calling import GPU, Manifest, node, report, text
from tests.crowded import world
from tests.worlds import GPU as SMALL_GPU
from tests.worlds import draw, gang, pods

KEY = "default/train"
WORLDS = int(os.environ.get("CLOSEBY_JUDGED_WORLDS", "240"))
BATCHES = 4


def layered(*layers: Layer, members: int = 4) -> PodGroup:
    return replace(gang(min_member=members), layers=layers)


def crowded(drawing: str, group: PodGroup, members: int, gpus: int = 1) -> Manifests:
    spec = PodSpec(requests=((SMALL_GPU, gpus),))
    return world([group], pods("train", members, spec), draw(drawing))


def relaxed(manifests: Manifests) -> list[Counterfactual]:
    run = simulate(manifests, Configuration())
    assert run.gang_outcomes[KEY].reason is not None
    return [one for one in counterfactuals(run, only=[KEY])[KEY] if one.kind is Kind.RELAXED]


def changes(manifests: Manifests) -> list[dict[str, str | int | None]]:
    return [dict(one.change) for one in relaxed(manifests) if one.fits and one.change]


RACK = Layer(level="rack", size=4)


def test_smaller_segments_and_coarser_ones() -> None:
    """Eight pods of a GPU each in racks of three and two: in segments of 4 no rack holds one, of 2 each does,
    and each zone holds one of 4."""
    drawing = "a r1 : n1=3\na r2 : n2=2\nb r3 : n3=3\nb r4 : n4=2"
    assert changes(crowded(drawing, layered(RACK, members=8), 8)) == [
        {"layers[0].size": 2},
        {"layers[0].level": "zone"},
    ]


def test_the_greatest_size_that_fits_is_named() -> None:
    """Racks of 5 have room for 4, and so not for 6 of twelve."""
    drawing = "a r1 : n1=5\na r2 : n2=5\na r3 : n3=5"
    (first, *_) = changes(crowded(drawing, layered(Layer(level="rack", size=6), members=12), 12))
    assert first == {"layers[0].size": 4}


def test_a_smaller_last_segment_allows_any_size() -> None:
    """16 of 18: two racks of 16, and three pods in the third."""
    drawing = "a r1 : n1=16\na r2 : n2=16\na r3 : n3=3"
    layer = Layer(level="rack", size=18, remainder=Remainder.ALLOW)
    (first, *_) = changes(crowded(drawing, layered(layer, members=35), 35))
    assert first == {"layers[0].size": 16}


def test_a_size_nests_in_those_around_it() -> None:
    """Nodes of three hold no four; of the sizes of the layer, 2 divides the 8 of the zone, and 3 does not."""
    drawing = "a r1 : n1=3 n2=3\na r2 : n3=3 n4=3"
    layers = (Layer(level="zone", size=8), Layer(level="rack", size=8))
    group = layered(*layers, members=8)
    (first, *_) = changes(crowded(drawing, group, 8))
    assert first == {"layers[0].size": 4, "layers[1].size": 4}


def test_more_domains() -> None:
    drawing = "a r1 : n1=2\na r2 : n2=2\na r3 : n3=2"
    layer = Layer(level="rack", size=1, max_domains=1)
    assert {"layers[0].maxDomains": 3} in changes(crowded(drawing, layered(layer, members=5), 5))


def test_fewer_members_are_whole_segments() -> None:
    """Seven of nine would fit, but only six are whole segments."""
    drawing = "a r1 : n1=4\na r2 : n2=3"
    layer = Layer(level="rack", size=3)
    assert {"minMember": 6} in changes(crowded(drawing, layered(layer, members=9), 9))


def test_where_no_layer_helps_it_says_so() -> None:
    said = relaxed(crowded("a r1 : n1=3", layered(RACK), 4))
    assert [one.fits for one in said if "segments" in one.sentence] == [False]


SLICE = "kueue.x-k8s.io/podset-slice"
SEGMENT = "kai.scheduler/segment"

#: By dialect: annotations of twelve pods in racks of five, and what must be written instead.
ANNOTATED: dict[str, tuple[dict[str, str], dict[str, str | int]]] = {
    "Kueue": (
        {f"{SLICE}-required-topology": "rack", f"{SLICE}-size": "6"},
        {f"{SLICE}-size": 5},
    ),
    "KAI": (
        {f"{SEGMENT}-size": "6", f"{SEGMENT}-topology-required-placement": "rack"},
        {f"{SEGMENT}-size": 5},
    ),
    "Slurm's segments": (
        {"closeby.dev/segment-size": "6", "closeby.dev/segment-level": "rack"},
        {"closeby.dev/segment-size": 4},
    ),
    "Slurm's switches": (
        {"closeby.dev/switches": "2@30", "closeby.dev/switch-level": "rack"},
        {"closeby.dev/switches": "3@30m"},
    ),
}


@pytest.mark.parametrize("dialect", ANNOTATED)
def test_the_annotations_of_a_dialect_are_named_and_make_it_fit(dialect: str) -> None:
    annotations, change = ANNOTATED[dialect]
    labels = [{"zone": "ab"[rack // 2], "rack": f"r{rack}"} for rack in range(4)]
    nodes = [node(f"n{rack}{one}", labels[rack]) for rack in range(4) for one in range(5)]
    levels = [{"nodeLabel": label} for label in ("zone", "rack", "kubernetes.io/hostname")]
    topology = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": levels},
    }

    def job(written: dict[str, str]) -> Manifest:
        """Slurm's options stand at the workload, the other two at its template."""
        template = {
            "spec": {"containers": [{"name": "t", "image": "i", "resources": {"limits": {GPU: "8"}}}]}
        }
        at = {"annotations": written}
        spec = {"parallelism": 12, "completions": 12, "completionMode": "Indexed"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", **(at if "Slurm" in dialect else {})},
            "spec": {**spec, "template": {**template, "metadata": {} if "Slurm" in dialect else at}},
        }

    found = report("explain", "job/train", "-f", "-", stdin=text(topology, *nodes, job(annotations)))
    assert found["reason"] == "TopologyPlacementFailed"
    (first, *_) = [one["change"] for one in found["counterfactuals"] if one["kind"] == "relaxed"]
    assert {field.split('"')[1]: value for field, value in first.items()} == change
    edited = {**annotations, **{key: str(value) for key, value in change.items()}}
    (placed,) = report("simulate", "-f", "-", stdin=text(topology, *nodes, job(edited)))["groups"]
    assert (placed["reason"], placed["scheduled"]) == (None, 12)
    assert {tuple(one["domain"])[-1] for one in placed["segments"]} <= {"r0", "r1", "r2", "r3"}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_is_said_of_random_gangs_is_true(batch: int) -> None:
    told = 0
    for seed in range(batch, WORLDS, BATCHES):
        manifests = random_world(seed)
        (group,) = manifests.groups
        if simulate(manifests, Configuration()).gang_outcomes[KEY].reason is None:
            continue
        found = relaxed(manifests)
        said = f"seed {seed}: {group.layers} " + "\n".join(one.sentence for one in found)
        for one in found:
            change = dict(one.change or {})
            if any(field.startswith(("layers", "minMember")) for field in change):
                told += 1
                wish = written(group, change)
                assert not layer_problems(wish), said
                assert fits(manifests, wish) == one.fits, said
        judge_sizes(manifests, group, found, said)
    assert told


def judge_sizes(manifests: Manifests, group: PodGroup, found: list[Counterfactual], said: str) -> None:
    """Of one layer: no greater size would do."""
    if len(group.layers) > 1:
        return
    (layer,) = group.layers
    members = len(manifests.pods)
    sizes = [
        size
        for size in range(2, layer.size)
        if (layer.remainder is Remainder.ALLOW or members % size == 0)
        and fits(manifests, replace(group, layers=(replace(layer, size=size),)))
    ]
    told = [int(size[1]) for one in found if (size := re.search(r"segments have (\d+) pods", one.sentence))]
    assert told == sizes[-1:], said


def fits(manifests: Manifests, group: PodGroup) -> bool:
    run = simulate(replace(manifests, groups=(group,)), Configuration())
    outcome = run.gang_outcomes[KEY]
    return outcome.reason is None and len(run.bindings) >= group.min_member


def written(group: PodGroup, change: dict[str, str | int | None]) -> PodGroup:
    """The gang with these fields."""
    names = {"size": "size", "level": "level", "maxDomains": "max_domains"}
    layers = list(group.layers)
    for field, value in change.items():
        if field == "layers":
            layers = []
        elif field == "minMember":
            assert isinstance(value, int)
            group = replace(group, min_member=value)
        else:
            place = re.fullmatch(r"layers\[(\d)\]\.(\w+)", field)
            assert place is not None, field
            at = int(place[1])
            if place[2] == "mode":
                layers[at] = replace(layers[at], mode=LayerMode.PREFERRED)
            else:
                layers[at] = replace(layers[at], **{names[place[2]]: value})
    return replace(group, layers=tuple(layers))


def random_world(seed: int) -> Manifests:
    """Up to four racks in two zones, and a gang in one or two layers."""
    random = Random(seed)
    lines = []
    for rack in range(random.randint(2, 4)):
        nodes = " ".join(f"n{rack}{one}={random.randint(1, 4)}" for one in range(random.randint(1, 2)))
        lines.append(f"{random.choice('ab')} r{rack} : {nodes}")
    size = random.choice([2, 3, 4, 6])
    remainder = random.choice([Remainder.FORBID, Remainder.ALLOW])
    members = size * random.randint(1, 3)
    layers: tuple[Layer, ...]
    if random.random() < 0.3:
        outer = size * random.choice([1, 2])
        members = outer * random.randint(1, 2)
        layers = (Layer(level="zone", size=outer), Layer(level="rack", size=size))
    elif random.random() < 0.2:
        layers = (Layer(level="rack", size=1, max_domains=1),)
    else:
        layers = (Layer(level=random.choice(["rack", "rack", "zone"]), size=size, remainder=remainder),)
        members += random.randint(0, size - 1) if remainder is Remainder.ALLOW else 0
    return crowded("\n".join(lines), layered(*layers, members=members), members)
