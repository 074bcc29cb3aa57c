"""The gang that waits in a random world."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random

from tests.random_worlds.facts import GPU, GROUP, HOSTNAME, INDEX, SUBGROUP, TRAIN, ZONE, Document
from tests.random_worlds.nodes import RACK, TAINT
from tests.random_worlds.switches import Size, Switch

#: Priority of the gang where others have one.
PRIORITY = 100
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATION = {"key": TAINT["key"], "operator": "Exists", "effect": TAINT["effect"]}
#: Keys of terms between pods.
_TERM_KEYS = (HOSTNAME, RACK, RACK, ZONE)


class DrawnGang:
    """The documents of the gang: itself, its pods, and what its volumes need."""

    def __init__(
        self, random: Random, switches: frozenset[Switch], size: Size, levels: Sequence[str], zones: int
    ) -> None:
        self.random, self.switches, self.levels, self.zones = random, switches, levels, zones
        self.most = {Size.TINY: 5, Size.SMALL: 8, Size.MEDIUM: 48}[size]
        self.storage: list[Document] = []
        #: So many of the first pods go together by all rules.
        self.together = 1
        number = random.randint(2, 3) if Switch.UNEQUAL in switches else 1
        self._shared = self._terms()
        self.kinds = [self._kind(at) for at in range(number)]
        spec = self._spec()
        #: Name of the subgroup of each pod, in the order of their index.
        self.group: Document = {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": TRAIN, "namespace": "default"},
            "spec": spec,
        }
        self.pods = [self._pod(at, kind, part) for at, (kind, part) in enumerate(self._order)]

    def has(self, switch: Switch) -> bool:
        return switch in self.switches

    # The group

    def _spec(self) -> Document:
        random, spec = self.random, Document()
        constraint: Document = {"topology": "fabric"}
        if self.has(Switch.STRATEGY):
            spec["placement"] = {"strategy": "spread"}
        if self.has(Switch.SUBGROUPS):
            self._subgroups(spec)
        elif self.has(Switch.LAYERS) or self.has(Switch.MAX_DOMAINS) or self.has(Switch.EXCLUSIVE):
            spec["layers"], sizes, spec["minMember"] = self._layers(self.most)
            self._order = [(kind, None) for kind in self._kinds_of(sizes)]
            self.together = sizes[0]
        else:
            count = self.together = random.randint(1, self.most)
            spec["minMember"] = random.randint(1, count) if self.has(Switch.ELASTIC) else count
            self._order = [(random.randrange(len(self.kinds)), None) for _ in range(count)]
        layered = spec.get("layers") or [one for one in spec.get("subGroups", ()) if "layers" in one]
        allowed = list(self.levels)
        if spec.get("layers"):
            allowed = allowed[: allowed.index(spec["layers"][0]["level"])]
        if self.has(Switch.REQUIRED) and allowed:
            # Mostly where there is room for it.
            constraint["requiredTopologyLevel"] = random.choice(allowed[:2] + allowed)
        if self.has(Switch.PREFERRED) and not layered:
            required = constraint.get("requiredTopologyLevel")
            finer = list(self.levels) if required is None else allowed[allowed.index(required) :]
            constraint["preferredTopologyLevel"] = random.choice(finer)
        if len(constraint) > 1 or layered:
            spec["topologyConstraint"] = constraint
        return spec

    def _layers(self, most: int) -> tuple[list[Document], list[int], int]:
        """Layers, the sizes of the finest segments in order, and the minimum."""
        random = self.random
        depth = min(random.choice((1, 1, 2, 3)) if self.has(Switch.LAYERS) else 1, len(self.levels))
        at = sorted(random.sample(range(len(self.levels)), depth))
        unlike = self.has(Switch.UNLIKE_SEGMENTS)
        if unlike and depth == 1 and random.random() < 0.5:
            sizes = [random.randint(1, 3) for _ in range(random.randint(1, max(2, most // 3)))]
            layers: list[Document] = [{"level": self.levels[at[0]], "counts": sizes}]
            if not self.has(Switch.MAX_DOMAINS):
                self._first(layers[0])
            return layers, sizes, sum(sizes)
        size, wanted = random.choice((1, 2, 2, 3)), []
        for _ in at:
            wanted.append(size)
            size *= random.choice((1, 2, 2))
        layers = [
            {"level": self.levels[level], "size": each}
            for level, each in zip(at, reversed(wanted), strict=True)
        ]
        coarsest = wanted[-1]
        segments = random.randint(1, max(1, most // coarsest))
        count = coarsest * segments
        minimum = coarsest * random.randint(1, segments) if self.has(Switch.ELASTIC) else count
        if unlike and not self.has(Switch.ELASTIC):
            minimum = count = max(count - random.randrange(coarsest), 1)
            for one in layers:
                one["remainder"] = "allow"
        limits = bool(self.switches & {Switch.MAX_DOMAINS, Switch.EXCLUSIVE})
        if self.has(Switch.LAYERS) and not limits and random.random() < 0.1:
            layers[-1]["mode"] = "preferred"
        self._first(layers[0])
        finest = wanted[0]
        sizes = [finest] * (count // finest) + [count % finest] * bool(count % finest)
        return layers, sizes, minimum

    def _first(self, layer: Document) -> None:
        """What the first layer alone may say."""
        random = self.random
        if self.has(Switch.MAX_DOMAINS):
            layer["maxDomains"] = random.randint(1, 3)
        elif self.has(Switch.EXCLUSIVE) and not self.has(Switch.SUBGROUPS):
            layer["exclusive"] = random.choice(("kind", "all"))
        elif random.random() < 0.1:
            layer["arrangement"] = "spread"

    def _subgroups(self, spec: Document) -> None:
        random = self.random
        parents = [f"p{at}" for at in range(random.choice((0, 0, 1, 2)))]
        parts: list[Document] = []
        self._order = []
        minimum = 0
        for at in range(random.randint(1, 3)):
            part: Document = {"name": f"s{at}"}
            kinds: list[int]
            most = max(self.most // 2, 1)
            if self.has(Switch.LAYERS) and random.random() < 0.5:
                part["layers"], sizes, least = self._layers(most)
                kinds = self._kinds_of(sizes)
                part["topologyConstraint"] = {"topology": "fabric"}
            else:
                count = random.randint(1, most)
                least = random.randint(1, count) if self.has(Switch.ELASTIC) else count
                one = random.randrange(len(self.kinds))
                kinds = [one if random.random() < 0.7 else random.randrange(len(self.kinds))] * count
                if random.random() < 0.7:
                    part["topologyConstraint"] = self._required(0)
            part["minMember"] = least
            minimum += least
            if parents and random.random() < 0.7:
                part["parent"] = random.choice(parents)
            parts.append(part)
            self._order += [(kind, part["name"]) for kind in kinds]
        inhabited = {one.get("parent") for one in parts}
        above = [
            {"name": one, "topologyConstraint": self._required(0)} for one in parents if one in inhabited
        ]
        for parent in above:
            below = [part for part in parts if part.get("parent") == parent["name"]]
            parent["minMember"] = sum(part["minMember"] for part in below)
        spec["subGroups"] = [*above, *parts]
        spec["minMember"] = minimum

    def _required(self, first: int) -> Document:
        return {
            "topology": "fabric",
            "requiredTopologyLevel": self.random.choice(list(self.levels)[first:]),
        }

    def _kinds_of(self, sizes: Sequence[int]) -> list[int]:
        """The kinds of the members of segments: all alike, a leader with its workers, or any."""
        random = self.random
        if random.random() < 0.5:
            return [int(bool(at) and len(self.kinds) > 1) for size in sizes for at in range(size)]
        return [random.randrange(len(self.kinds)) for size in sizes for _ in range(size)]

    # The pods

    def _kind(self, number: int) -> Document:
        """The spec of pods of a kind."""
        random = self.random
        requests = {GPU: str(random.choice((1, 1, 1, 2)))}
        if self.has(Switch.RESOURCES):
            requests["cpu"] = random.choice(("500m", "1", "2", "3"))
            if random.random() < 0.5:
                requests["memory"] = random.choice(("1Gi", "2Gi", "4Gi"))
            if random.random() < 0.1:
                del requests[GPU]
        container: Document = {"name": "main", "image": "example.com/main"}
        container["resources"] = {"requests": requests, "limits": dict(requests)}
        if self.has(Switch.PORTS) and random.random() < 0.6:
            container["ports"] = [{"containerPort": 80, "hostPort": 80}]
        spec: Document = {"containers": [container], **deepcopy(self._shared)}
        if number and random.random() < 0.3:
            for field in ("affinity", "topologySpreadConstraints"):
                spec.pop(field, None)
        if self.has(Switch.SELECTORS) and random.random() < 0.7:
            spec["nodeSelector"] = {"disk": random.choice(("ssd", "ssd", "hdd"))}
        if self.has(Switch.TAINTS) and random.random() < 0.5:
            spec["tolerations"] = [_TOLERATION]
        if self.has(Switch.PREEMPTION):
            spec["priority"] = PRIORITY
        return spec

    def _terms(self) -> Document:
        """What the pods of all kinds say about other pods."""
        random, spec, affinity = self.random, Document(), Document()
        if self.has(Switch.SPREAD) or self.has(Switch.MIN_DOMAINS):
            keys = random.sample((HOSTNAME, RACK, ZONE), random.choice((1, 1, 1, 2)))
            spec["topologySpreadConstraints"] = [self._spread(key) for key in keys]
        if self.has(Switch.ANTI_AFFINITY):
            affinity["podAntiAffinity"] = {
                _HARD: [_term(random.choice(_TERM_KEYS), random.choice((TRAIN, TRAIN, "web")))]
            }
        if self.has(Switch.AFFINITY):
            affinity["podAffinity"] = {
                _HARD: [_term(random.choice(_TERM_KEYS[1:]), random.choice((TRAIN, "web")))]
            }
        if affinity:
            spec["affinity"] = affinity
        return spec

    def _spread(self, key: str) -> Document:
        random = self.random
        made: Document = {
            "maxSkew": random.choice((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": TRAIN}},
        }
        if self.has(Switch.MIN_DOMAINS):
            made["minDomains"] = random.randint(2, 4)
        return made

    def _pod(self, index: int, kind: int, part: str | None) -> Document:
        spec = deepcopy(self.kinds[kind])
        labels = {"app": TRAIN, "kind": f"k{kind}", GROUP: TRAIN, INDEX: str(index)}
        if part is not None:
            labels[SUBGROUP] = part
        if self.has(Switch.VOLUMES):
            self._volume(f"data-{index}", spec, kind)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{TRAIN}-{index}", "namespace": "default", "labels": labels},
            "spec": spec,
        }

    def _volume(self, name: str, spec: Document, kind: int) -> None:
        """A claim of a pod: bound to a volume of one zone, or one that can be made in some zones."""
        zone = f"z{kind % self.zones}"
        claim: Document = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": f"class-{kind}",
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        }
        if not any(one["metadata"]["name"] == f"class-{kind}" for one in self.storage):
            self.storage.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": f"class-{kind}"},
                    "provisioner": "csi.example.com",
                    "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}],
                }
            )
        if self.random.random() < 0.5:
            claim["spec"]["volumeName"] = f"pv-{name}"
            claim["status"]["phase"] = "Bound"
            self.storage.append(_volume(f"pv-{name}", name, f"class-{kind}", zone))
        self.storage.append(claim)
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def _term(key: str, app: str) -> Document:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def _volume(name: str, claim: str, storage_class: str, zone: str) -> Document:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": claim},
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Bound"},
    }
