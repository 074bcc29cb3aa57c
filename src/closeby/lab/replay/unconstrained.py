"""What jobs would have waited if nothing had been required of the topology: a second run of the same jobs."""

import numpy as np
from msgspec.structs import replace

from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.replay.driver import replay
from closeby.lab.replay.history import Floats, History
from closeby.lab.replay.settings import ReplaySettings, engine_of
from closeby.quality.delays import waits
from closeby.reading.configuration import Configuration
from closeby.scheduling.extension import PlacementGenerate


def unconstrained_waits(history: History, cluster: GivenCluster, settings: ReplaySettings) -> Floats | None:
    """What each job of a run waits in the same run when no level is required; seconds, shape (J,).

    Required is what jobs ask for, and what plugins of the policy require by themselves: these are left out of
    the second run, so that gangs go wherever the rest of the policy puts their pods. None where neither
    requires anything.

    Jobs that are too large with the requirement are left out (nan): they would run without it, and others
    would wait for them.
    """
    policy = settings.policy
    confining = {
        name
        for plugin in engine_of(cluster, policy).profile.plugins
        if isinstance(plugin, PlacementGenerate) and plugin.requires_by_itself
        for name in (plugin.name, f"{type(plugin).__module__}:{type(plugin).__name__}")
    }
    if settings.wishes.required is None and not confining:
        return None
    free = replace(policy, configuration=_without(policy.configuration, confining))
    wishes = replace(settings.wishes, required=None)
    possible = np.ones(len(history.jobs), dtype=np.bool_)
    possible[list(history.impossible)] = False
    run = replay(history.jobs.only(possible), cluster, replace(settings, policy=free, wishes=wishes))
    waited = np.full(len(history.jobs), np.nan)
    waited[possible] = waits(run.jobs.submitted, run.started, run.until)
    return waited


def _without(configuration: Configuration, names: set[str]) -> Configuration:
    return replace(
        configuration, plugins=tuple(one for one in configuration.plugins if one.name not in names)
    )
