"""Makes the engine of a live scheduler: its profile, with what keeps pods waiting on a cluster alone."""

from typing import Final

from msgspec.structs import replace

from closeby.applications.networks import NetworkScope
from closeby.kube.scheduler.awaiting import awaiting
from closeby.kube.scheduler.excluded import excluding
from closeby.kube.state.awaited_kinds import AwaitedKinds
from closeby.kube.state.unknown_groups import UnknownGroups
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import NetworkScopeChanged
from closeby.scheduling.extension import Handle
from closeby.scheduling.profile import Profile

#: Stories that the engine keeps of items of which nothing waits: they hold on to pods that may be gone.
_STORIES: Final = 1_000


def live_engine(
    configuration: Configuration,
    networks: NetworkScope,
    unknown: UnknownGroups,
    awaited: tuple[AwaitedKinds, AwaitedKinds],
    excluded_namespaces: tuple[str, ...],
) -> Engine:
    """An engine for a cluster, which knows none of its objects yet.

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
    """
    # In a cluster admission checks the priorities of pods, and of nothing else.
    checked = replace(
        configuration,
        trust_group_priority=configuration.trust_group_priority or (),
        trust_exclusive=configuration.trust_exclusive or (),
    )

    def profile(handle: Handle) -> Profile:
        handle.whole = True
        configured = awaiting(profile_for(checked, handle), unknown, awaited, handle)
        return excluding(configured, excluded_namespaces, handle)

    engine = Engine(profile, reserve_after=configuration.reserve_after, contain_faults=True)
    engine.stories.limit = _STORIES
    engine.handle(NetworkScopeChanged(networks))
    return engine
