"""The page about metrics names those that are told, with their labels, and no others."""

import re
from pathlib import Path

from closeby.agents.latency.results import Results, latency_of
from closeby.agents.meters import AgentMeters, AgentStatus
from closeby.controllers.meters import ControllerMeters
from closeby.kube.client.connection import Connection
from closeby.kube.client.credentials import Fixed
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.meters import Meters
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.watch.reflector import Reflector
from closeby.kube.watch.resources import NODES
from closeby.kube.writing.work_queue import WorkQueue
from closeby.measurements.ageing import Known
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import Event, GroupChanged, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from closeby.scheduling.services import Reading
from tests.kube.scraping import scrape
from tests.worlds import gang, pods, spec, world

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text()
WATCHER = DOCS / "examples" / "bandwidth" / "watcher.json"
ROW = re.compile(r"^\| (`[a-z]+_[^|]+) \|([^|]*)\|", re.MULTILINE)


def told() -> dict[str, set[str]]:
    """The labels of all metrics of a scheduler that has done everything once, but for the process."""
    meters = SchedulerMeters("closeby")
    drawn = world("zone-a rack-1 : a1=2 a2=2")
    meters.shows(drawn.engine)
    entry = PluginEntry(name="CheckRiskNodeBandwidth", arguments={"watcherAddress": str(WATCHER)})
    (plugin,) = world("zone-a rack-1 : a1=2", plugins=[entry]).engine.profile.measured
    assert plugin.source is not None
    reading = plugin.source.read()
    assert isinstance(reading, Reading) and reading.measured is not None
    # Just when the example was measured.
    now = reading.measured
    known = Known(plugin.source, epoch=lambda: now)
    plugin.take(known.take(reading))
    meters.measures({plugin: known})
    meters.requests("host")("GET", 200, 0.1)
    meters.leads("lease", lambda: True)
    meters.authorized("allowed")
    meters.follows(Reflector(Transport(Connection(url="http://host", credentials=Fixed(), source="")), NODES))
    events: list[Event] = [
        GroupChanged(gang("fits", 2, required="rack")),
        GroupChanged(gang("wide", 9, required="rack")),
        *map(PodUpserted, (*pods("fits", 2), *pods("wide", 9), *pods(None, 1, spec(gpu=9)))),
    ]
    drawn.engine.handle(*events)
    meters.took_in(events)
    decisions = drawn.engine.handle(Tick(0.0))
    meters.decided(outcomes_of(decisions), 0.1)
    for one in bindings_of(decisions):
        meters.binding(one.pod.uid)
        meters.bound(one.pod.uid)
    meters.volumes_ended(1.0, "gone")
    return families(meters)


def told_by_an_agent() -> dict[str, set[str]]:
    """The same of an agent."""
    meters, results = Meters(), Results(oldest=900.0)
    results.measured("n2", latency_of([100.0]))
    results.carries("n2", 1e9)
    results.failed("NoAnswerInTime")
    standing = AgentStatus(outcomes={"Answered": 1}, speed=1e10, advertised=1e10)
    meters.registry.register(AgentMeters("n1", results, lambda: standing))
    return families(meters)


def told_by_controllers() -> dict[str, set[str]]:
    """The same of the controllers."""
    meters = ControllerMeters()
    meters.works("pod-grouper", WorkQueue(lambda: 0.0, str))
    return families(meters)


def families(meters: Meters) -> dict[str, set[str]]:
    found = {}
    for family in scrape(meters).families.values():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.startswith(("process_", "python_")):
            found[name] = labels
    return found


def test_the_page_names_all_metrics_and_their_labels() -> None:
    described = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in ROW.findall(PAGE)
        for name in re.findall(r"`(\w+)`", names)
    }
    # What all have, agents and controllers may have had no reason to count.
    assert described == told_by_an_agent() | told_by_controllers() | told()
