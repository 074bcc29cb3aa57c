"""The largest job that a cluster can hold: generated jobs are none larger, so that all of them can run."""

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.lab.replay.clusters import GivenCluster, gpus_of_a_pod, largest_job, made_up, room_of, too_large
from closeby.lab.replay.driver import Policy, engine_of
from closeby.lab.replay.submitting import Wishes, tree_of
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.events import PodUpserted
from closeby.simulator.synthetic import GPU
from tests.lab.replay.small import leaves


def largest(cluster: GivenCluster, required: str | None = None) -> int:
    engine = engine_of(cluster, Policy())
    return largest_job(room_of(engine, GPU), tree_of(engine, Wishes(required=required)), required)


@pytest.mark.parametrize(
    ("cluster", "required", "gpus"),
    [
        (leaves(2, 3, 1), None, 48),
        (leaves(2, 3, 1), "leaf", 24),
        (leaves(2, 3, 1), "pod", 48),
        # Pods are as large as hosts of fewer than 8 GPUs.
        (leaves(2, 3, gpus=4), None, 20),
        (leaves(2, 3, gpus=4), "leaf", 12),
        # A second pod of 8 GPUs fits on no host of 12.
        (leaves(2, 3, gpus=12), "leaf", 24),
        (leaves(2, gpus=16), None, 32),
        (made_up("lingjun"), None, 6_776),
        (made_up("small"), "leaf", 64),
    ],
)
def test_the_largest_job(cluster: GivenCluster, required: str | None, gpus: int) -> None:
    assert largest(cluster, required) == gpus


def test_what_other_pods_hold_is_not_there() -> None:
    """h1 has 3 GPUs left: two whole hosts in leaf 2, one in leaf 1."""
    held = Pod(
        namespace="default",
        name="old",
        uid="old",
        spec=PodSpec(requests=((GPU, 5),)),
        node_name="h1",
    )
    bare = leaves(2, 2)
    cluster = replace(bare, others=(*bare.others, PodUpserted(held)))
    assert largest(cluster) == 24
    assert largest(cluster, "leaf") == 16


@pytest.mark.parametrize("required", [None, "pod", "leaf"])
@pytest.mark.parametrize("cluster", [leaves(2, 3, 1), leaves(1, 1, gpus=4), leaves(3, gpus=6)])
def test_all_jobs_up_to_it_can_run_and_no_larger_ones(cluster: GivenCluster, required: str | None) -> None:
    engine = engine_of(cluster, Policy())
    room, tree = room_of(engine, GPU), tree_of(engine, Wishes(required=required))
    most = largest_job(room, tree, required)
    bounds = Wishes(required=required).bounds
    of_hosts = WorkloadOptions(gpus_of_a_pod=gpus_of_a_pod(room))
    whole = generate("seren", jobs=2_000, load=0.85, capacity=4_000, seed=1, options=of_hosts)
    refused = np.zeros(len(whole), dtype=np.bool_)
    refused[list(too_large(whole, room, tree, bounds))] = True
    assert (refused == (whole.sizes > most)).all()
    fitting = generate(
        "seren",
        jobs=500,
        load=0.85,
        capacity=4_000,
        seed=1,
        options=replace(of_hosts, max_gpus=most, standing=True),
    )
    assert too_large(fitting, room, tree, bounds) == {}
