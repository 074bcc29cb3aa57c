"""Reads once what plugins decide by, for commands that make one run."""

from collections.abc import Sequence

from closeby.errors import ConfigurationError
from closeby.measurements.ageing import Known
from closeby.objects.reasons import Problem
from closeby.plugins.registry import BUILT_IN, profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import MeasurementsChanged
from closeby.scheduling.plugin_lookup import PluginLookup
from closeby.scheduling.profile import line_about
from closeby.scheduling.services import Measured, Measurements, Source
from closeby.simulator.runs import Measure


def measure_once(configuration: Configuration, *, live: bool) -> tuple[MeasurementsChanged, ...]:
    """What the sources of a configuration's plugins say now; ``measures`` for an engine that is there."""
    plugins = Engine(lambda handle: profile_for(configuration, handle)).profile.measured
    return measures(configuration, live=live)(plugins)


def measures(configuration: Configuration, *, live: bool) -> Measure:
    """Reads what the sources of plugins say now.

    ``live``: as a scheduler takes it, which does without what is too old or can't be read. Otherwise what is
    read belongs to the manifests, however old it is. What it returns raises ConfigurationError where a source
    can't be read.
    """

    def measure(plugins: Sequence[Measured]) -> tuple[MeasurementsChanged, ...]:
        found = []
        mistakes = []
        for plugin in plugins:
            source = plugin.source
            if source is None:
                continue
            answer = source.read()
            if live:
                found.append(MeasurementsChanged(plugin.name, Known(source).take(answer)))
            elif isinstance(answer, str):
                mistakes.append(_mistake(configuration, plugin, source, answer))
            else:
                found.append(MeasurementsChanged(plugin.name, Measurements(reading=answer)))
        if mistakes:
            raise ConfigurationError(mistakes)
        return tuple(found)

    return measure


def _mistake(configuration: Configuration, plugin: Measured, source: Source, why: str) -> Problem:
    lookup = PluginLookup(BUILT_IN)
    entry = next(one for one in configuration.plugins if lookup.find(one.name) is type(plugin))
    message = f"arguments of {entry.name}: {source.argument}: {why}"
    line = line_about(source.argument, entry)
    return Problem(file=configuration.source, line=line, message=message)
