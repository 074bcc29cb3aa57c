"""Tasks and rules written shortly: ``tasks("ps*2 worker*4")``."""

from closeby.objects.groups import PodGroup, RoleRules
from closeby.objects.pods import Pod, PodSpec
from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER, TASK_TRAFFIC
from closeby.reading.dialects.task_topology import read_rules

KEYS = {
    "affinity": TASK_AFFINITY,
    "anti_affinity": TASK_ANTI_AFFINITY,
    "order": TASK_ORDER,
    "traffic": TASK_TRAFFIC,
}


def tasks(text: str, on: str | None = None) -> list[Pod]:
    """``ps*2=3`` stands for ps0 and ps1 with 3 CPUs each; without ``=`` they have one CPU."""
    found = []
    for part in text.split():
        left, _, cpu = part.partition("=")
        role, _, count = left.partition("*")
        needs = PodSpec(requests=(("cpu", int(float(cpu or 1) * 1000)),))
        found += [task(f"{role}{index}", role, needs, on) for index in range(int(count or 1))]
    return found


def task(name: str, role: str, needs: PodSpec | None = None, on: str | None = None) -> Pod:
    """A pod of the gang ``job``; ``on`` a node it runs there."""
    return Pod(
        namespace="default",
        name=name,
        uid=f"default/{name}",
        spec=PodSpec() if needs is None else needs,
        group="job",
        role=role,
        node_name=on,
        phase="Running" if on else "Pending",
    )


def job(**annotations: str) -> PodGroup:
    """The gang ``job``; ``affinity="ps,worker"`` and so on give its annotations."""
    return PodGroup(
        namespace="default",
        name="job",
        annotations={KEYS[name]: text for name, text in annotations.items()},
        members_apart="anti_affinity" in annotations,
    )


def rules(roles: str = "ps worker chief evaluator", **annotations: str) -> RoleRules:
    """The rules of a gang that has these roles; nothing must be wrong with them."""
    reading = read_rules(job(**annotations), roles.split())
    assert reading.conditions == ()
    assert reading.rules is not None
    return reading.rules
