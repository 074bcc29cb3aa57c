"""What runs in a random world already: pods, gangs, domains that some have for themselves, and members."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.random_worlds.facts import GPU, GROUP, HOSTNAME, INDEX, TRAIN, Document, amount
from tests.random_worlds.gangs import DrawnGang
from tests.random_worlds.nodes import RACK
from tests.random_worlds.switches import Size, Switch

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


class DrawnOthers:
    """Pods that run, with the gangs of some of them."""

    def __init__(
        self,
        random: Random,
        switches: frozenset[Switch],
        size: Size,
        nodes: Sequence[Document],
        levels: Sequence[str],
    ) -> None:
        self.random, self.switches = random, switches
        self._alone = Switch.EXCLUSIVE in switches and RACK in levels
        self.documents: list[Document] = []
        self.labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in nodes}
        self.free = {
            one["metadata"]["name"]: Counter(
                {key: amount(value) for key, value in one["status"]["allocatable"].items()}
            )
            for one in nodes
        }
        #: Values of racks that somebody has for himself.
        self._taken: set[str] = set()
        self._used: set[str] = set()
        most = {Size.TINY: 3, Size.SMALL: 8, Size.MEDIUM: 200}[size]
        busy = bool(switches & {Switch.USED, Switch.PREEMPTION, Switch.EXCLUSIVE})
        least = most // 2 if Switch.PREEMPTION in switches else 1
        for number in range(random.randint(least, most + least) if busy else 0):
            self._draw(f"old-{number}")

    def begin(self, gang: DrawnGang) -> None:
        """Some members of the first segment run, on one node; none that would have a domain for itself."""
        if Switch.BEGUN not in self.switches or Switch.EXCLUSIVE in self.switches or len(gang.pods) < 2:
            return
        apart = {Switch.PORTS, Switch.ANTI_AFFINITY, Switch.VOLUMES} & self.switches
        node = self.random.choice(sorted(self.free))
        if self.labels[node].get(RACK) in {None, *self._taken}:
            return
        many = 1 if apart else self.random.randint(1, gang.together)
        for pod in gang.pods[: min(many, len(gang.pods) - 1)]:
            requests = _requests(pod)
            if not self._holds(node, requests):
                return
            _run(pod, node)
            self.free[node].subtract(requests)

    def _draw(self, name: str) -> None:
        random = self.random
        gpus = random.choice((0, 1, 1, 2))
        requests = {"cpu": random.choice(("500m", "1")), **({GPU: str(gpus)} if gpus else {})}
        need = {"pods": 1000, **{key: amount(value) for key, value in requests.items()}}
        exclusive = self._alone and random.random() < 0.4
        room = [one for one in sorted(self.free) if self._holds(one, need) and self._open(one, exclusive)]
        if not room:
            return
        gang = exclusive or random.random() < 0.4
        size = random.randint(1, 3) if gang else 1
        on = [random.choice(room)]
        rack = self.labels[on[0]].get(RACK)
        near = [one for one in room if self.labels[one].get(RACK) == rack] if exclusive else room
        on += [random.choice(near) for _ in range(size - 1)]
        if exclusive:
            self._taken.add(rack or "")
        minimum = random.randint(1, size)
        priority = random.choice((0, 0, 10, 200)) if Switch.PREEMPTION in self.switches else 0
        started = f"2026-01-01T{random.randint(0, 23):02}:00:00Z"
        app = random.choice(("web", "web", TRAIN))
        apart = Switch.ANTI_AFFINITY in self.switches and random.random() < 0.3
        made = 0
        for at, node in enumerate(on):
            if not self._holds(node, need):
                continue
            self.free[node].subtract(need)
            self._used.add(self.labels[node].get(RACK, ""))
            labels = {"app": app} | ({GROUP: name, INDEX: str(at)} if gang else {})
            container: Document = {"name": "main", "image": "example.com/main"}
            container["resources"] = {"requests": requests, "limits": dict(requests)}
            spec: Document = {"containers": [container], "priority": priority}
            if apart:
                term = {
                    "topologyKey": random.choice((HOSTNAME, RACK)),
                    "labelSelector": {"matchLabels": {"app": TRAIN}},
                }
                spec["affinity"] = {"podAntiAffinity": {_HARD: [term]}}
            pod: Document = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
            pod["metadata"] = {"name": f"{name}-{at}", "namespace": "default", "labels": labels}
            pod["status"] = {"startTime": started}
            _run(pod, node)
            self.documents.append(pod)
            made += 1
        if gang:
            group: Document = {"minMember": min(minimum, made)}
            if exclusive:
                kind = random.choice(("kind", "all"))
                group["layers"] = [{"level": RACK, "size": 1, "exclusive": kind}]
                group["layers"][0]["size"] = group["minMember"] = made
            self.documents.append(
                {
                    "apiVersion": "closeby.dev/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": group,
                }
            )

    def _holds(self, node: str, need: dict[str, int]) -> bool:
        return all(self.free[node][key] >= value for key, value in need.items())

    def _open(self, node: str, exclusive: bool) -> bool:
        rack = self.labels[node].get(RACK)
        return rack not in self._taken and not (exclusive and (rack is None or rack in self._used))


def _requests(pod: Document) -> dict[str, int]:
    (container,) = pod["spec"]["containers"]
    requests = container["resources"]["requests"]
    return {"pods": 1000, **{key: amount(value) for key, value in requests.items()}}


def _run(pod: Document, node: str) -> None:
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", **pod.get("status", {"startTime": "2026-01-01T00:00:00Z"})}
