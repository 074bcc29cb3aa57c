"""What a reader of a report looks up by a name: a job and when it is seen, and why it is where it is."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from closeby.lab.pictures.scene import Scene, asks_text
from closeby.lab.replay.history import History
from closeby.objects.arrays import Floats
from closeby.objects.words import time_text
from closeby.report.documents.explanations import Explanation, explain
from closeby.report.documents.subjects import APP_GROUP, GANG, POD, Subject
from closeby.scheduling.outcomes import ItemKind, name_of
from closeby.simulator.runs import Run
from closeby.whatif.gathering import counterfactuals

#: The largest so many jobs are found by the search.
MOST_JOBS = 20_000
#: Where a job is seen that ran at none of the slider's moments.
NEVER = -1

Index = dict[str, Any]


def index_of_history(history: History, scene: Scene) -> Index:
    """Jobs with what they asked for and waited, and the first and the last stop at which they are seen."""
    stops = scene.moments.stops
    first = np.searchsorted(stops, scene.since).tolist()
    last = (np.searchsorted(stops, scene.until) - 1).tolist()
    # A job that was evicted is found from its first run to its last, which is the first of its tenants.
    seen: dict[str, int] = {}
    for one, tenant in enumerate(scene.tenants):
        latest = seen.setdefault(tenant.name, one)
        first[latest], last[latest] = min(first[latest], first[one]), max(last[latest], last[one])
    counted = np.flatnonzero(history.counted)
    largest = counted[np.argsort(-history.jobs.sizes[counted], kind="stable")[:MOST_JOBS]]
    jobs: list[list[object]] = []
    waited, evictions = history.waited.tolist(), history.evictions.tolist()
    for job in np.sort(largest).tolist():
        name = history.jobs.names[job]
        number = seen.get(name)
        row: list[object] = [name, _told(history, job, waited[job], evictions[job])]
        if number is not None:
            row[1] = f"{row[1]}; {scene.tenants[number].lies_in}"
            row += [first[number], last[number]]
        elif not np.isnan(history.started[job]) or evictions[job]:
            row += [NEVER, NEVER]
        jobs.append(row)
    left = (
        f"Of {len(counted):,} jobs the largest {MOST_JOBS:,} are searched."
        if len(largest) < len(counted)
        else ""
    )
    return {"jobs": jobs, "stops": _short(stops), "unit": scene.moments.unit, "left": left}


def _short(stops: Floats) -> list[float]:
    return [round(float(stop), 2) for stop in stops]


def _told(history: History, job: int, waited: float, evictions: int) -> str:
    jobs = history.jobs
    asks = asks_text(int(jobs.pods[job]), int(jobs.gpus[job]))
    started, ended = float(history.started[job]), float(history.ended[job])
    came = float(jobs.submitted[job])
    if np.isnan(started) and not evictions:
        return f"{asks}; came at {time_text(came)} and never started"
    times = "" if not evictions else "was evicted, " if evictions == 1 else f"was evicted {evictions} times, "
    if np.isnan(started):
        ran = "waited until the end"
    else:
        last = "last " if evictions else ""
        ran = f"{last}ran until the end" if np.isnan(ended) else f"{last}ran for {time_text(ended - started)}"
    return f"{asks}; came at {time_text(came)}, waited {time_text(waited)}, {times}{ran}"


def index_of_run(run: Run, scene: Scene) -> Index:
    """Gangs and applications of a state, then single pods."""
    rows = [*_groups(run, scene), *_single_pods(run)]
    left = f"Of {len(rows):,} names the first {MOST_JOBS:,} are searched." if len(rows) > MOST_JOBS else ""
    return {"jobs": rows[:MOST_JOBS], "stops": [], "unit": "", "left": left}


def _groups(run: Run, scene: Scene) -> Iterator[list[str]]:
    seen = {tenant.name: tenant for tenant in scene.tenants if tenant.has_colour}
    waiting = {one.key: one.reason for one in run.gang_outcomes.values() if one.reason is not None}
    applications = (one.key for one in run.engine.applications)
    for key in dict.fromkeys((*(group.key for group in run.groups), *applications, *seen)):
        tenant = seen.get(key)
        told = [] if tenant is None else [f"{tenant.asks} on nodes; {tenant.lies_in}"]
        told += [f"waits, {waiting[key]}"] if key in waiting else []
        services = sum(name.startswith(f"{key}/") for name in seen)
        told += [f"application, {services} services on nodes"] if services else []
        yield [key, "; ".join(told) or "has no pods on nodes"]


def _single_pods(run: Run) -> Iterator[list[str]]:
    for pod in run.pods:
        if pod.group is None and run.engine.applications.of(pod) is None:
            node = run.node_of(pod)
            yield [pod.key, "waits" if node is None else f"on {node}"]


def explanations_of(run: Run, most: int) -> Iterator[Explanation]:
    """What `closeby explain` says of everything that this run decided: what waits first, then gangs and
    applications that were placed; nothing where the run recorded no explanations.

    Pods of their own that were placed are left out: there may be thousands, each with a node of its choice.
    """
    if not any(one.explanations for one in run.outcomes()):
        return
    decided = [
        *((GANG, one, ItemKind.GANG) for one in run.gang_outcomes.values()),
        *((APP_GROUP, one, ItemKind.APPLICATION) for one in run.app_outcomes.values()),
        *((POD, one, ItemKind.POD) for one in run.pod_outcomes.values() if one.reason is not None),
    ]
    decided.sort(key=lambda one: one[1].reason is None)
    different = counterfactuals(run)
    for kind, outcome, item in decided[:most]:
        name = name_of(outcome.key)
        yield explain(run, Subject(kind, name, name, item), counterfactuals=different)
