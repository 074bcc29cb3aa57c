"""From the history of a run to its measures: the one place where the two meet."""

import numpy as np
from msgspec.structs import replace

from closeby.lab.replay.history import Floats, History
from closeby.quality.columns import RunColumns
from closeby.quality.summary import Measures, summarise


def measure(history: History, *, unconstrained: Floats | None = None) -> Measures:
    """All measures of the jobs of a run that count.

    ``unconstrained`` is what the same jobs waited in a run without topology constraints, shape (J,).
    """
    waited = None if unconstrained is None else unconstrained[history.counted]
    found = summarise(columns_of(history), unconstrained=waited)
    if not history.jobs.graphs:
        return found
    # Applications call each other; they know neither ranks nor all-reduces.
    return replace(
        found,
        ring_hops=None,
        all_reduce=None,
        contended_all_reduce=None,
        slowdown=None,
        contended_slowdown=None,
        job_slowdown=None,
    )


def columns_of(history: History) -> RunColumns:
    """The jobs that count, in the columns that measures are worked out from."""
    jobs, counted = history.jobs, history.counted
    # A job that does not count was never started, so that it has no slots to leave out.
    held = np.diff(history.offsets)[counted]
    return RunColumns(
        tree=history.tree,
        node_gpus=history.node_gpus,
        pods=jobs.pods[counted],
        gpus=jobs.gpus[counted],
        priorities=jobs.priorities[counted],
        submitted=jobs.submitted[counted],
        started=history.started[counted],
        ended=history.ended[counted],
        offsets=np.concatenate(([0], np.cumsum(held))).astype(np.intp),
        slots=history.slots,
        until=history.until,
    )
