"""Random histories of Kueue's Workloads: places asked for, more and fewer, taken by pods, lost with nodes.

A history knows what an API server would have: nodes, pods, questions for places and the plans in their
statuses. The scheduler may be started again, or a replica that stood by takes over. All is drawn from one
seed.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from closeby.controllers.admission.kueue_objects import read_workload
from closeby.controllers.admission.place_requests import places_for
from closeby.objects.groups import POD_SET, WORKLOAD, PlaceSet, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PlacesAsked,
    PlacesWithdrawn,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from tests.reading.manifest_text import read
from tests.worlds import GPU, draw, fabric, gang, pods, spec

CLUSTER = """
z1 r1 : a1=4 a2=4
z1 r2 : b1=4 b2=2 b3=2
z2 r3 : c1=6 c2=2
"""
#: What a Workload may ask for: required and preferred levels, Kueue's slices, KAI's segments, one group.
KINDS = ("rack", "zone", "slices", "segments", "each", "free", "preferred", "together")
#: What happens, and how often.
STEPS = {
    "asks for all": 5,
    "some are done": 5,
    "asks otherwise": 1,
    "gives up": 2,
    "pod comes": 14,
    "pods come": 3,
    "bound": 10,
    "binding fails": 3,
    "bindings withdrawn": 3,
    "pod is ending": 3,
    "pod ends": 6,
    "all end": 2,
    "node goes": 4,
    "node comes": 5,
    "node cordoned": 2,
    "other comes": 3,
    "other ends": 3,
    "written": 4,
    "restart": 1,
    "takeover": 1,
}


class QueuedJob:
    """A Workload and its pods."""

    def __init__(self, name: str, dice: Random) -> None:
        self.name = name
        self.uid = f"uid-{name}"
        #: What a pod asks for, and how many pods there are, by pod set.
        self.gpus = {"lead": 2, "work": 1} if dice.random() < 0.5 else {"main": dice.choice([1, 1, 2])}
        self.most = {one: (1 if one == "lead" else dice.choice([2, 4, 4, 6])) for one in self.gpus}
        self.kind = dice.choice(KINDS if len(self.gpus) > 1 else KINDS[:-1])
        #: Whether the pods are a gang of their own, and have an index.
        self.gang = dice.random() < 0.4
        self.indexed = dice.random() < 0.7
        self.asked: PodGroup | None = None
        #: Whether all that happened to its pods happened while it asked for the same.
        self.steady = True
        self._made = 0

    @property
    def key(self) -> str:
        """Of the gang of its placeholders."""
        return f"default/workload:{self.name}:{self.uid[:8]}"

    @property
    def sets(self) -> tuple[PlaceSet, ...]:
        return () if self.asked is None or self.asked.places is None else self.asked.places.sets

    @property
    def own_group(self) -> PodGroup:
        return gang(f"job-{self.name}", 1)

    def owns(self, pod: Pod) -> bool:
        return pod.annotations.get(WORKLOAD) == self.uid

    def question(self, done: Mapping[str, int], kind: str) -> PodGroup:
        """What the admission check asks when so many of its pods are done."""
        sets = [self._pod_set(one, kind) for one in self.gpus]
        workload = {
            "metadata": {"name": self.name, "namespace": "default", "uid": self.uid},
            "spec": {"podSets": sets},
            "status": {
                "admission": {
                    "podSetAssignments": [{"name": one, "count": self.most[one]} for one in self.gpus]
                },
                "reclaimablePods": [{"name": one, "count": count} for one, count in done.items()],
            },
        }
        body = places_for(read_workload(msgspec.json.encode(workload)), {}, {})
        asks = {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": f"workload-{self.uid}", "namespace": "closeby-system"},
            "spec": {"placesFor": body},
        }
        (found,) = read(msgspec.json.encode(asks).decode()).groups
        assert found.key == self.key
        assert not any(one.blocking for one in found.conditions), found.conditions
        return found

    def _pod_set(self, name: str, kind: str) -> Any:
        request: Any = None
        annotations: dict[str, str] = {}
        match kind:
            case "rack" | "zone":
                annotations = {"kai.scheduler/topology-required-placement": kind}
            case "preferred":
                request = {"preferred": "rack"}
            case "each":
                request = {"required": "rack"}
            case "together":
                request = {"required": "rack", "podSetGroupName": "both"}
            case "slices" if name != "lead":
                request = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
            case "segments" if name != "lead":
                annotations = {
                    "kai.scheduler/segment-size": "2",
                    "kai.scheduler/segment-topology-required-placement": "rack",
                }
        resources = {"requests": {GPU: str(self.gpus[name])}}
        container = {"name": "main", "image": "none", "resources": resources}
        template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
        asked = {} if request is None else {"topologyRequest": request}
        return {"name": name, "count": self.most[name], "template": template, **asked}

    def pod(self, name: str, index: int) -> Pod:
        """A pod that its controller makes."""
        self._made += 1
        called = f"{self.name}-{name}-{self._made}"
        return Pod(
            namespace="default",
            name=called,
            uid=called,
            spec=spec(gpu=self.gpus[name]),
            labels={POD_SET: name},
            annotations={WORKLOAD: self.uid},
            group=self.own_group.name if self.gang else None,
            index=index if self.indexed else None,
            phase="Pending",
        )


class WorkloadHistory:
    """What happens to one cluster; ``engine`` is the scheduler that decides now."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.full: dict[str, Node] = {one.name: one for one in draw(CLUSTER)}
        self.nodes = dict(self.full)
        self.jobs = [QueuedJob(name, self.dice) for name in ("one", "two")]
        self.pods: dict[str, Pod] = {}
        #: uid of each pod that was decided, and is not bound yet -> its node.
        self.binding: dict[str, str] = {}
        #: By gang the plan in the status of the PodGroup that asks.
        self._plans: dict[str, Mapping[str, str]] = {}
        self.engine = _engine(self._beginning())
        #: Another replica, which hears what the API server has, and decides nothing.
        self._standby = _engine(self._beginning())
        #: All that happened, for whoever reads a failure.
        self.log: list[str] = []

    def step(self) -> None:
        """Something happens."""
        [step] = self.dice.choices(list(STEPS), list(STEPS.values()))
        job = self.dice.choice(self.jobs)
        self.log.append(f"{step} ({job.name})")
        self._happens(step, job)

    def tick(self) -> set[str]:
        """The scheduler decides; returns the gangs of which something is to be said."""
        outputs = self.engine.handle(Tick())
        for one in bindings_of(outputs):
            self.log.append(f"  {one.pod.name} -> {one.node}")
            if one.pod.uid in self.pods:
                self.binding[one.pod.uid] = one.node
        return self.engine.placeholders.take_news() | {one.key for one in outcomes_of(outputs)}

    def tell(self, *events: Event) -> None:
        """Both replicas hear of it; what only the scheduler itself knows is not for the other one."""
        self.engine.handle(*events)
        self._standby.handle(*(one for one in events if not isinstance(one, BindFailed | BindingsWithdrawn)))

    def ask(self, job: QueuedJob, done: Mapping[str, int], kind: str = "") -> None:
        """Its admission check asks for places, as Kueue gives it quota or some of its pods are done."""
        if job.asked is None:
            job.steady = not any(map(job.owns, self.pods.values()))
        before = {one.name: one.count for one in job.sets}
        job.asked = job.question(done, kind or job.kind)
        if kind or any(one.count > before.get(one.name, one.count) for one in job.sets):
            job.steady = False
        self.tell(PlacesAsked(replace(job.asked, plan=self._plans.get(job.key, {}))))

    def comes(self, job: QueuedJob, name: str, index: int) -> None:
        """Its controller makes a pod."""
        pod = job.pod(name, index)
        job.steady = job.steady and job.asked is not None
        self.pods[pod.uid] = pod
        self.tell(PodUpserted(pod))

    def ends(self, pod: Pod) -> None:
        """A pod is done, or deleted."""
        del self.pods[pod.uid]
        self.binding.pop(pod.uid, None)
        if self.dice.random() < 0.5:
            self.tell(PodUpserted(replace(pod, phase="Succeeded", terminating=False)))
        self.tell(PodDeleted(pod.uid))

    def gives_up(self, job: QueuedJob) -> None:
        """Kueue evicts it: it asks for nothing any more."""
        self._plans.pop(job.key, None)
        self.tell(PlacesWithdrawn(job.key))
        job.asked, job.steady = None, False

    def node_comes(self, node: Node) -> None:
        """A node is there, or is another than before."""
        self.nodes[node.name] = node
        self.tell(NodeUpserted(node))

    def bound(self, uid: str) -> None:
        """A binding took effect."""
        self.pods[uid] = replace(self.pods[uid], node_name=self.binding.pop(uid), phase="Running")
        self.tell(PodUpserted(self.pods[uid]))

    def write(self) -> None:
        """The statuses of the PodGroups are written, and heard of."""
        for job in self.jobs:
            if job.asked is not None:
                taken = {place.uid: node for place, node in self.engine.placeholders.taken(job.key)}
                assert taken.keys().isdisjoint(self.held(job))
                self._plans[job.key] = self.held(job) | taken
                self.tell(PlacesAsked(replace(job.asked, plan=self._plans[job.key])))

    def held(self, job: QueuedJob) -> dict[str, str]:
        """The nodes of the placeholders, by uid."""
        cluster, members = self.engine.cluster, self.engine.state.members.get(job.key)
        found = {uid: cluster.placement(uid) for uid in (() if members is None else members.placed)}
        return {uid: cluster.names[slot] or "" for uid, slot in found.items() if slot is not None}

    def placed(self, job: QueuedJob) -> list[Pod]:
        """Its pods that have a node, with it."""
        found = [
            replace(pod, node_name=pod.node_name or self.binding.get(pod.uid))
            for pod in self.pods.values()
            if job.owns(pod)
        ]
        return [pod for pod in found if pod.node_name is not None]

    def begin_again(self, *, takeover: bool) -> None:
        """Another process decides from now on. What was being bound is bound, or was never sent.

        One that was started again did not hear of pods that ended meanwhile.
        """
        for uid in sorted(self.binding):
            if self.dice.random() < 0.5:
                self.bound(uid)
        self.binding.clear()
        for uid in () if takeover else sorted(self.pods):
            if self.pods[uid].node_name is not None and self.dice.random() < 0.3:
                self.log.append(f"  {self.pods.pop(uid).name} ends unheard of")
        events = self._beginning()
        events += map(PodUpserted, self.pods.values())
        events += [
            PlacesAsked(replace(job.asked, plan=self._plans.get(job.key, {})))
            for job in self.jobs
            if job.asked is not None
        ]
        self.dice.shuffle(events)
        self.engine = self._standby if takeover else _engine(events)
        self._standby = _engine(events)

    def _beginning(self) -> list[Event]:
        groups = [GroupChanged(job.own_group) for job in self.jobs if job.gang]
        return [
            *map(NodeUpserted, self.nodes.values()),
            TopologyChanged(fabric("zone", "rack", HOSTNAME)),
            *groups,
        ]

    def _happens(self, step: str, job: QueuedJob) -> None:
        dice = self.dice
        match step:
            case "asks for all":
                self.ask(job, {})
            case "some are done":
                self.ask(job, {one: dice.randint(0, most) for one, most in job.most.items()})
            case "asks otherwise" if job.asked is not None:
                self.ask(job, {}, dice.choice(["rack", "zone", "free"]))
            case "gives up" if job.asked is not None:
                self.gives_up(job)
            case "written":
                self.write()
            case "restart" | "takeover":
                if dice.random() < 0.7:
                    self.write()
                self.begin_again(takeover=step == "takeover")
            case _:
                self._to_pods(step, job)
                self._elsewhere(step)

    def _to_pods(self, step: str, job: QueuedJob) -> None:
        """Something happens to the pods of a Workload."""
        dice = self.dice
        mine = [pod for pod in self.pods.values() if job.owns(pod)]
        match step:
            case "pod comes":
                self._one_comes(job)
            case "pods come":
                for _ in range(4):
                    self._one_comes(job)
            case "bound":
                for uid in dice.sample(sorted(self.binding), dice.randint(0, len(self.binding))):
                    self.bound(uid)
            case "binding fails" | "bindings withdrawn" if self.binding:
                self._not_bound(dice.choice(sorted(self.binding)), withdrawn=step == "bindings withdrawn")
            case "pod is ending" if mine:
                pod = dice.choice(mine)
                self.pods[pod.uid] = replace(pod, terminating=True)
                self.tell(PodUpserted(self.pods[pod.uid]))
            case "pod ends" if mine:
                self.ends(dice.choice(mine))
            case "all end":
                for pod in mine:
                    self.ends(pod)

    def _elsewhere(self, step: str) -> None:
        """Something happens to nodes, or to pods of no Workload."""
        name, other = self.dice.choice(sorted(self.full)), f"other-{self.dice.randint(0, 9)}"
        match step:
            case "node goes" if name in self.nodes:
                del self.nodes[name]
                self.tell(NodeDeleted(name))
            case "node comes":
                self.node_comes(self.full[name])
            case "node cordoned":
                self.node_comes(replace(self.full[name], unschedulable=True))
            case "other comes" if other not in self.pods:
                [pod] = pods(None, 1, spec(gpu=self.dice.choice([1, 2])))
                self.pods[other] = replace(pod, name=other, uid=other)
                self.tell(PodUpserted(self.pods[other]))
            case "other ends" if other in self.pods:
                self.ends(self.pods[other])

    def _one_comes(self, job: QueuedJob) -> None:
        """Its controller makes one of the pods that are missing."""
        counts = {one.name: one.count for one in job.sets} or job.most
        alive = [pod for pod in self.pods.values() if job.owns(pod) and not pod.terminating]
        for name in self.dice.sample(list(counts), len(counts)):
            own = [pod for pod in alive if pod.labels[POD_SET] == name]
            if len(own) < counts[name]:
                free = set(range(job.most[name])) - {pod.index for pod in own}
                self.comes(job, name, self.dice.choice(sorted(free)))
                return

    def _not_bound(self, uid: str, *, withdrawn: bool) -> None:
        if not withdrawn:
            del self.binding[uid]
            self.tell(BindFailed(uid, "no"))
            return
        owner = self.pods[uid].annotations.get(WORKLOAD)
        with_it = [one for one in self.binding if self.pods[one].annotations.get(WORKLOAD) == owner]
        for one in with_it:
            del self.binding[one]
        self.tell(BindingsWithdrawn(tuple(with_it), "no"))


def _engine(events: list[Event]) -> Engine:
    made = Engine(lambda handle: profile_for(Configuration(), handle))
    made.handle(*events)
    return made
