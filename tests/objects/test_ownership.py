"""Which pods run for ever, by their owner and whether they are being deleted."""

import pytest
from msgspec.structs import replace

from closeby.objects.workloads import is_long_running, is_pinned
from tests.worlds import pods


@pytest.mark.parametrize(
    ("owner", "pinned", "runs", "runs_while_deleted"),
    [
        ("", False, False, False),
        ("Job/one", False, False, False),
        ("ReplicaSet/web", False, True, False),
        ("StatefulSet/store", False, True, False),
        ("DaemonSet/agent", True, True, True),
        ("Node/n1", True, True, True),
    ],
)
@pytest.mark.parametrize("gang", [None, "train"])
def test_what_is_being_deleted_ends_unless_it_comes_back(
    owner: str, pinned: bool, runs: bool, runs_while_deleted: bool, gang: str | None
) -> None:
    (pod,) = pods(gang, 1, owner=owner)
    assert (is_pinned(pod), is_long_running(pod)) == (pinned, runs)
    assert is_long_running(replace(pod, terminating=True)) == runs_while_deleted
