"""A world whose decisions are metered."""

from collections.abc import Iterable

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.objects.pods import Pod
from closeby.scheduling.events import Event, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from tests.kube.scraping import Scrape, scrape
from tests.worlds import World


class Metered:
    """A world whose decisions are metered as the live scheduler's are; a batch takes half a second."""

    def __init__(self, drawn: World) -> None:
        self.now = 1000.0
        self.meters = SchedulerMeters("mine", lambda: self.now)
        self.meters.shows(drawn.engine)
        self.engine = drawn.engine

    def hear(self, *events: Event) -> list[str]:
        """Takes events in and decides; returns the uids that are to be bound."""
        self.engine.handle(*events)
        self.meters.took_in(events)
        decisions = self.engine.handle(Tick(self.now))
        outcomes = outcomes_of(decisions)
        self.meters.decided(outcomes, 0.5)
        return [one.pod.uid for one in bindings_of(decisions)]

    def bind(self, uids: Iterable[str], seconds: float = 0.25) -> None:
        uids = list(uids)
        for uid in uids:
            self.meters.binding(uid)
        self.now += seconds
        for uid in uids:
            self.meters.bound(uid)

    def scrape(self) -> Scrape:
        return scrape(self.meters)


def added(members: Iterable[Pod]) -> list[Event]:
    return [PodUpserted(pod) for pod in members]
