"""How close the applications of a run lay, each policy's judged by the same costs."""

import numpy as np

from closeby.applications.registry import application
from closeby.quality.talk import RunTalk, run_talk
from closeby.simulator.replay.applications import Judge
from closeby.simulator.replay.history import History
from closeby.simulator.replay.submitting import NAMESPACE
from closeby.simulator.workloads.applications import app_group


def talk_over_time(history: History, judge: Judge) -> RunTalk:
    """The means over time of all applications that started; none of their pods moves while they run."""
    started = [
        (job, graph)
        for job, graph in enumerate(history.jobs.graphs)
        if graph is not None and not np.isnan(history.started[job])
    ]
    known = {
        graph: application(app_group(graph, NAMESPACE, "app"))
        for graph in dict.fromkeys(graph for _, graph in started)
    }
    found = [judge.talk(known[graph], graph, history.slots_of(job).tolist()) for job, graph in started]
    ends = np.where(np.isnan(history.ended), history.until, history.ended)
    ran = (ends - history.started)[[job for job, _ in started]]
    return run_talk(found, ran)
