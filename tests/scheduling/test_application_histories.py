"""Events of applications, pods, nodes and networks in any order: the state stays right."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.pods import Pod
from closeby.plugins.network_min_cost import NetworkMinCost
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BindFailed,
    Event,
    GroupChanged,
    GroupDeleted,
    NetworkTopologyChanged,
    NetworkTopologyDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.outcomes import bindings_of
from tests.applications.calls import app
from tests.applications.networks import network, replicas
from tests.scheduling.oracle import assert_nothing_is_overcommitted
from tests.worlds import GPU, gang, node

NODES = ("n0", "n1", "n2", "n3")
DRAWINGS = ("a > b c\nb > c\nc", "a > b<=3\nb\nc > c", "b > a\na > c<=0", "a\nb")
NETWORKS = ("n0 n1 1\nn1 n2 5\nn2 n3 2", "n0 n1 9\nn2 n3 3", "n0 n3 1")
APPS = ("A1", "A2")

names = st.sampled_from(NODES)
apps = st.sampled_from(APPS)


def fresh() -> Engine:
    return Engine(lambda handle: profile_for(Configuration(), handle))


class Histories(RuleBasedStateMachine):
    """Events in any order, told to one engine; what a cluster would know is kept beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = fresh()
        #: What the cluster holds: the last event about each object, and each pod with the node it is on.
        self.objects: dict[tuple[str, str], Event] = {}
        self.pods: dict[str, Pod] = {}
        self.where: dict[str, str] = {}
        #: Pods that have done their work and are there still: their gang counts them as having appeared.
        self.finished: dict[str, Pod] = {}
        self.count = 0

    def tell(self, *events: Event) -> None:
        for binding in bindings_of(self.engine.handle(*events)):
            self.where[binding.pod.uid] = binding.node

    @rule(name=names, gpus=st.integers(0, 4))
    def node_comes_or_changes(self, name: str, gpus: int) -> None:
        # A node never shrinks below what is on it, so that overcommitment is always ours.
        used = sum(
            dict(self.pods[uid].spec.requests)[GPU] for uid, where in self.where.items() if where == name
        )
        event = NodeUpserted(node(name, allocatable={GPU: max(gpus, used)}))
        self.objects["node", name] = event
        self.tell(event)

    @rule(name=names)
    def node_goes(self, name: str) -> None:
        self.objects.pop(("node", name), None)
        self.tell(NodeDeleted(name))

    @rule(name=apps, drawing=st.sampled_from(DRAWINGS), sort=st.sampled_from(["", "ReverseTarjan"]))
    def app_comes_or_changes(self, name: str, drawing: str, sort: str) -> None:
        event = AppGroupChanged(app(drawing, sort, name))
        self.objects["app", name] = event
        self.tell(event)

    @rule(name=apps)
    def app_goes(self, name: str) -> None:
        self.objects.pop(("app", name), None)
        self.tell(AppGroupDeleted(f"default/{name}"))

    @rule(name=st.sampled_from(["net", "other"]), costs=st.sampled_from(NETWORKS))
    def network_comes_or_changes(self, name: str, costs: str) -> None:
        event = NetworkTopologyChanged(network(costs, name=name))
        self.objects["network", name] = event
        self.tell(event)

    @rule(name=st.sampled_from(["net", "other"]))
    def network_goes(self, name: str) -> None:
        self.objects.pop(("network", name), None)
        self.tell(NetworkTopologyDeleted(f"default/{name}"))

    @rule(minimum=st.integers(1, 3))
    def gang_comes_or_changes(self, minimum: int) -> None:
        event = GroupChanged(gang("g", min_member=minimum))
        self.objects["gang", "g"] = event
        self.tell(event)

    @rule()
    def gang_goes(self) -> None:
        self.objects.pop(("gang", "g"), None)
        self.tell(GroupDeleted("default/g"))

    @rule(
        name=apps,
        workload=st.sampled_from("abcx"),
        gpus=st.integers(0, 2),
        group=st.sampled_from([None, None, None, "g"]),
        gated=st.sampled_from([False, False, True]),
        labelled=st.booleans(),
    )
    def pod_comes(
        self, name: str, workload: str, gpus: int, group: str | None, gated: bool, labelled: bool
    ) -> None:
        self.count += 1
        [pod] = replicas(workload, app=name, prefix=f"pod-{self.count}", group=group, gpus=gpus)
        if gated:
            pod = replace(pod, spec=replace(pod.spec, scheduling_gates=("wait",)))
        if not labelled:
            pod = replace(pod, labels={})
        self.pods[pod.uid] = pod
        self.tell(PodUpserted(pod))

    @rule(data=st.data(), name=st.sampled_from([*APPS, None]), workload=st.sampled_from("abc"))
    def pod_changes(self, data: st.DataObject, name: str | None, workload: str) -> None:
        """Its gates go, and it is of another application."""
        pod = self.some_pod(data)
        if pod is not None:
            labels = {} if name is None else {APP_GROUP_LABEL: name, WORKLOAD_LABEL: workload}
            pod = replace(pod, labels=labels, spec=replace(pod.spec, scheduling_gates=()))
            self.pods[pod.uid] = pod
            self.tell(PodUpserted(pod))

    @rule(data=st.data())
    def binding_is_confirmed(self, data: st.DataObject) -> None:
        pod = self.some_pod(data, placed=True)
        if pod is not None:
            self.confirm(pod)

    @rule(data=st.data(), final=st.booleans())
    def binding_fails(self, data: st.DataObject, final: bool) -> None:
        pod = self.some_pod(data, placed=True)
        if pod is not None and pod.node_name is None:
            del self.where[pod.uid]
            if final:
                del self.pods[pod.uid]
            self.tell(BindFailed(pod.uid, "no answer", final))

    @rule(data=st.data(), finished=st.booleans())
    def pod_goes(self, data: st.DataObject, finished: bool) -> None:
        pod = self.some_pod(data)
        if pod is not None:
            del self.pods[pod.uid]
            self.where.pop(pod.uid, None)
            if finished:
                self.finished[pod.uid] = replace(pod, phase="Succeeded")
            self.tell(PodUpserted(self.finished[pod.uid]) if finished else PodDeleted(pod.uid))

    @precondition(lambda self: self.finished)
    @rule(data=st.data())
    def finished_pod_is_deleted(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.finished)))
        del self.finished[uid]
        self.tell(PodDeleted(uid))

    @rule()
    def decide(self) -> None:
        self.tell(Tick())

    @invariant()
    def the_books_are_right(self) -> None:
        self.engine.validate_state()
        assert_nothing_is_overcommitted(self.engine)

    @invariant()
    def replicas_are_counted_as_they_lie(self) -> None:
        [plugin] = [one for one in self.engine.profile.plugins if isinstance(one, NetworkMinCost)]
        for application in self.engine.applications:
            here = [
                pod.labels.get(WORKLOAD_LABEL, pod.name)
                for pod, _ in self.engine.cluster.placed_pods()
                if pod.labels.get(APP_GROUP_LABEL) == application.group.name
            ]
            for edge in plugin.edges(application) or ():
                callers, callees = here.count(edge.edge.caller), here.count(edge.edge.callee)
                own = edge.edge.caller == edge.edge.callee
                assert edge.pairs == (callers * (callers - 1) // 2 if own else callers * callees)

    def teardown(self) -> None:
        """An engine that hears of the same cluster only now decides the same."""
        for pod in [self.pods[uid] for uid in self.where]:
            self.confirm(pod)
        self.engine.validate_state()
        late = fresh()
        late.handle(*self.objects.values())
        late.handle(*(PodUpserted(pod) for pod in (*self.pods.values(), *self.finished.values())))
        # Nothing may be new to those that wait, and yet they are to be looked at.
        self.engine.handle(NodeDeleted("n9"), NodeUpserted(node("n9")))
        late.handle(NodeUpserted(node("n9")))
        assert bound(self.engine) == bound(late)
        self.engine.validate_state()
        late.validate_state()

    def confirm(self, pod: Pod) -> None:
        pod = replace(pod, node_name=self.where[pod.uid], phase="Running")
        self.pods[pod.uid] = pod
        self.tell(PodUpserted(pod))

    def some_pod(self, data: st.DataObject, placed: bool = False) -> Pod | None:
        known = sorted(self.where if placed else self.pods)
        return self.pods[data.draw(st.sampled_from(known))] if known else None


def bound(engine: Engine) -> dict[str, str]:
    return {one.pod.name: one.node for one in bindings_of(engine.handle(Tick()))}


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
