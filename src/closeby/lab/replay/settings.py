"""What a run over time depends on besides cluster and jobs: the policy, and what jobs ask of places."""

from msgspec import Struct

from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.replay.submitting import Wishes
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import MeasurementsChanged


class Policy(Struct, frozen=True, kw_only=True):
    """How jobs are placed."""

    #: What the configuration is called in reports.
    name: str = "default"
    configuration: Configuration = Configuration()
    #: What its plugins decide by besides. It holds for the whole run.
    measurements: tuple[MeasurementsChanged, ...] = ()


class ReplaySettings(Struct, frozen=True, kw_only=True):
    """What is run, on a cluster and with jobs that are given."""

    policy: Policy = Policy()
    #: Seed of the workload; None for a trace.
    seed: int | None = None
    wishes: Wishes = Wishes()
    #: Virtual seconds after which the run stops; None: when all that can end has ended.
    until: float | None = None


def engine_of(cluster: GivenCluster, policy: Policy) -> Engine:
    """An engine that knows the cluster, and what was measured there.

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
    """
    configuration = policy.configuration
    engine = Engine(
        lambda handle: profile_for(configuration, handle),
        backoff=False,
        reserve_after=configuration.reserve_after,
    )
    cluster.enter(engine)
    engine.handle(*policy.measurements)
    return engine
