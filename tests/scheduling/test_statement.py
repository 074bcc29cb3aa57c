"""What was placed for the time being is undone exactly, with all that plugins noted about it."""

from typing import ClassVar

import numpy as np
import pytest

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle, NoArguments, Reserve, Undo
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.plugin_view import CycleState
from tests.plugins.asking import handle_of
from tests.worlds import draw, pods


class Notes(Reserve):
    """Writes down who came and who was taken back; fails on one pod, if told to."""

    name: ClassVar[str] = "Notes"

    def __init__(self, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self.said: list[str] = []
        self.fails_on = ""
        self.rests = False

    @property
    def idle(self) -> bool:
        return self.rests

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        if pod.name == self.fails_on:
            raise RuntimeError(pod.name)
        self.said.append(f"+{pod.name}")
        return lambda: self.said.append(f"-{pod.name}")


def on_two_nodes() -> tuple[Statement, Notes, Cluster]:
    """A statement on two nodes of four GPUs."""
    handle = handle_of(draw("zone-a rack-1 : a1=4 a2=4"))
    notes = Notes(handle)
    statement = Statement(handle.cluster, [notes], CycleState(), lambda state, pod, slot: True)
    return statement, notes, handle.cluster


def test_the_newest_is_undone_first() -> None:
    statement, notes, cluster = on_two_nodes()
    one, other, late = pods("train", 3)
    before = cluster.requested.copy()
    statement.assume((one, other), np.asarray([0, 1]))
    mark = statement.checkpoint()
    statement.assume_one(late, 1)
    assert [pod.name for pod, _ in statement.state.placed] == ["train-0", "train-1", "train-2"]
    statement.rollback(mark)
    assert statement.state.placed == [(one, 0), (other, 1)]
    statement.discard()
    assert notes.said[3:] == ["-train-2", "-train-1", "-train-0"]
    assert statement.state.placed == []
    assert np.array_equal(cluster.requested, before) and cluster.placed_count == 0


def test_a_plugin_that_fails_leaves_nothing_of_the_batch_behind() -> None:
    statement, notes, cluster = on_two_nodes()
    first, *batch = pods("train", 4)
    statement.assume_one(first, 0)
    before = cluster.requested.copy()
    notes.fails_on = "train-3"
    with pytest.raises(RuntimeError):
        statement.assume(batch, np.asarray([0, 0, 1]))
    assert notes.said == ["+train-0", "+train-1", "+train-2", "-train-2", "-train-1"]
    assert np.array_equal(cluster.requested, before) and cluster.placed_count == 1
    assert statement.state.placed == [(first, 0)]
    assert [batch.pods for batch in statement.since(0)] == [(first,)]


def test_what_was_committed_stays() -> None:
    statement, notes, cluster = on_two_nodes()
    one, other = pods("train", 2)
    statement.assume_one(one, 0)
    statement.commit()
    statement.assume_one(other, 0)
    statement.discard()
    assert notes.said == ["+train-0", "+train-1", "-train-1"]
    assert cluster.placement(one.uid) == 0 and cluster.placement(other.uid) is None


def test_what_was_undone_can_be_placed_so_again() -> None:
    statement, _, cluster = on_two_nodes()
    statement.assume(pods("train", 3), np.asarray([1, 0, 1]))
    batches, placed = tuple(statement.since(0)), list(statement.state.placed)
    after = cluster.requested.copy()
    statement.discard()
    statement.assume_again(batches)
    assert statement.state.placed == placed
    assert np.array_equal(cluster.requested, after)


def test_a_plugin_with_nothing_to_note_is_not_called() -> None:
    statement, notes, cluster = on_two_nodes()
    notes.rests = True
    statement.assume(pods("train", 2), np.asarray([0, 1]))
    statement.discard()
    assert notes.said == []
    assert cluster.placed_count == 0
