"""Which nodes closeby allows: its engine decides about each pod and each node by itself."""

from collections.abc import Sequence

import msgspec

from closeby.objects.pods import Pod
from closeby.plugins.configurations import KUBE_SCHEDULER, NAMED
from closeby.reading.configuration import PluginEntry
from closeby.reading.manifests import read_manifests
from closeby.scheduling.events import PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from closeby.simulator.runs import Asked, Simulation
from tests.conformance.pinned import ON
from tests.conformance.worlds import SCHEDULER
from tests.control_plane.api import Object


def allowed_by_closeby(
    objects: Sequence[Object],
    disabled: str | None = None,
    default_constraints: Sequence[Object] = (),
) -> dict[str, tuple[frozenset[str], str]]:
    """For each pod that is to be judged the nodes it may go to, and why not to the others.

    ``disabled`` names a plugin that takes no part; ``default_constraints`` spread pods without any.
    """
    text = msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": list(objects)})
    manifests = read_manifests(["-"], stdin=lambda: text)
    assert manifests.errors == (), manifests.errors
    probes = [pod for pod in manifests.pods if pod.spec.scheduler_name == SCHEDULER]
    configuration = NAMED[KUBE_SCHEDULER]
    pinned = PluginEntry(name="tests.conformance.pinned:Pinned")
    plugins = [entry for entry in configuration.plugins if entry.name != disabled]
    if default_constraints:
        arguments = {"defaultingType": "List", "defaultConstraints": list(default_constraints)}
        plugins = [entry for entry in plugins if entry.name != "PodTopologySpread"]
        plugins.append(PluginEntry(name="PodTopologySpread", arguments=arguments))
    if disabled is not None:
        plugins.append(PluginEntry(name=disabled, enabled=False))
    configuration = msgspec.structs.replace(configuration, plugins=(*plugins, pinned))
    # No pod is ours as yet: the probes come one by one.
    simulation = Simulation(manifests, configuration, Asked(scheduler_name="none", schedule=False))
    engine = simulation.engine
    nodes = sorted(node.name for node in manifests.nodes)

    def judged(pod: Pod, on: str) -> str:
        """Why not; empty where the pod is bound."""
        asked = msgspec.structs.replace(pod, annotations={**pod.annotations, ON: on})
        decisions = engine.handle(PodUpserted(asked), Tick())
        bound = [binding.node for binding in bindings_of(decisions)]
        assert bound in ([], [on]), (pod.key, on, bound)
        outcome = engine.outcome(pod.key)
        engine.handle(PodDeleted(pod.uid))
        return "" if bound else str(outcome.reason if outcome else "not decided")

    found = {}
    for pod in probes:
        answers = {name: judged(pod, name) for name in nodes}
        engine.validate_state()
        refusals = "; ".join(f"{name}: {why}" for name, why in answers.items() if why)
        found[pod.key] = frozenset(name for name, why in answers.items() if not why), refusals
    return found
