"""Reads metrics as Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families

from closeby.kube.metrics.meters import Meters


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {one.name: one for one in text_string_to_metric_families(text)}
        self._samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, /, **labels: str) -> float | None:
        """One sample; None if it is not there."""
        return self._samples.get((name, tuple(sorted(labels.items()))))

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """All samples of a name, by the values of their labels in the order of the labels' names."""
        return {
            tuple(value for _, value in labels): number
            for (named, labels), number in self._samples.items()
            if named == name
        }


def scrape(meters: Meters) -> Scrape:
    """What a scrape tells now."""
    return Scrape(meters.exposition()[0].decode())
