"""How close the applications of a run lay, each policy's judged by the same costs."""

from collections.abc import Mapping

import numpy as np

from closeby.applications.registry import application
from closeby.lab.replay.applications import Judge
from closeby.lab.replay.history import History
from closeby.lab.replay.submitting import NAMESPACE
from closeby.lab.workloads.applications import app_group
from closeby.quality.talk import RunTalk, TalkMeasures, run_talk


def judged_talk(history: History, judge: Judge) -> dict[int, TalkMeasures]:
    """How close each application that started lay, by its number."""
    started = [
        (job, graph)
        for job, graph in enumerate(history.jobs.graphs)
        if graph is not None and not np.isnan(history.started[job])
    ]
    known = {
        graph: application(app_group(graph, NAMESPACE, "app"))
        for graph in dict.fromkeys(graph for _, graph in started)
    }
    return {job: judge.talk(known[graph], graph, history.slots_of(job).tolist()) for job, graph in started}


def talk_over_time(history: History, found: Mapping[int, TalkMeasures]) -> RunTalk:
    """The means over time of what was found of applications; none of their pods moves while they run."""
    ends = np.where(np.isnan(history.ended), history.until, history.ended)
    return run_talk(list(found.values()), (ends - history.started)[list(found)])
