"""What is said about input that can't be read: where it stands, what is wrong, what to do; all at once."""

import pytest

from tests.golden.fixture import Golden
from tests.reading.manifest_text import error_of, read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            """
            apiVersion: v1
            kind: Node
            metadata: {name: good}
            ---
            apiVersion: v1
            kind: Pod
            metadata:
              name: web
              namespace: shop
            spec:
              containers:
              - resources:
                  requests:
                    memory: 1Gi
                    cpu: 1.5 cores
            """,
            (
                "standard input, document 2, line 16: Pod/shop/web: "
                "spec.containers[0].resources.requests.cpu: "
                "'1.5 cores' is not a quantity; write a number such as 2, 500m or 2Gi"
            ),
        ),
        (
            """
            apiVersion: v1
            kind: Pod
            metadata: {name: web}
            spec:
              containers:
              - resources:
                  limits:
                    memory: [1Gi]
            """,
            (
                "standard input, document 1, line 9: Pod/web: spec.containers[0].resources.limits.memory: "
                "must be a whole number or a number or text, but is a list"
            ),
        ),
        (
            """
            apiVersion: v1
            kind: Pod
            metadata:
              name: web
              annotations:
                a: "quoted"
                example.com/b: true
            """,
            (
                'standard input, document 1, line 8: Pod/web: metadata.annotations["example.com/b"]: '
                "must be text, but is true or false (True); put it in quotes"
            ),
        ),
        (
            """
            apiVersion: apps/v1
            kind: Deployment
            metadata: {name: web}
            spec:
              replicas: "3"
            """,
            (
                "standard input, document 1, line 6: Deployment/web: spec.replicas: "
                "must be a whole number, but is text ('3')"
            ),
        ),
        (
            """
            apiVersion: apps/v1
            kind: Deployment
            metadata: {name: web}
            spec:
              template:
                spec:
                  initContainers:
                  - {}
                  - resources: {requests: {cpu: -1}}
            """,
            (
                "standard input, document 1, line 10: Deployment/web: "
                "spec.template.spec.initContainers[1].resources.requests.cpu: "
                "-1 is negative; give zero or more"
            ),
        ),
        (
            """
            apiVersion: v1
            kind: Pod
            metadata: {name: web, creationTimestamp: yesterday}
            """,
            (
                "standard input, document 1, line 4: Pod/web: metadata.creationTimestamp: "
                "is not a time; write it like 2026-01-31T12:00:00Z"
            ),
        ),
        (
            """
            apiVersion: v1
            kind: Pod
            metadata: {namespace: shop}
            """,
            "standard input, document 1, line 4: Pod: metadata.name: is missing; give the object a name",
        ),
        (
            """
            replicas: 3
            """,
            (
                "standard input, document 1, line 2: apiVersion: "
                "is missing, so this is not a Kubernetes object; begin it like apiVersion: v1 and kind: Pod"
            ),
        ),
        (
            """
            apiVersion: v1
            metadata: {name: web}
            """,
            (
                "standard input, document 1, line 2: kind: is missing, so this is not a Kubernetes object; "
                "begin it like apiVersion: v1 and kind: Pod"
            ),
        ),
        (
            """
            - apiVersion: v1
            """,
            (
                "standard input, document 1, line 2: is not a mapping, so it is not a Kubernetes object; "
                "make it the items of an object with apiVersion: v1 and kind: List"
            ),
        ),
        (
            """
            apiVersion: v1
            kind: List
            items:
            - {apiVersion: v1, kind: Node, metadata: {name: a}}
            - {apiVersion: v1, kind: Pod}
            """,
            (
                "standard input, document 1, line 6: Pod at items[1]: metadata.name: is missing; "
                "give the object a name"
            ),
        ),
    ],
)
def test_an_error_says_where_what_and_what_to_do(text: str, said: str) -> None:
    assert error_of(text) == said


def test_all_errors_are_reported_and_the_good_documents_are_read() -> None:
    manifests = read(
        """
        {apiVersion: v1, kind: Node, metadata: {name: a}}
        ---
        {apiVersion: v1, kind: Node}
        ---
        {apiVersion: v1, kind: Node, metadata: {name: b}}
        ---
        this: is: no: yaml
        ---
        {apiVersion: v1, kind: Node, metadata: {name: c}}
        ---
        {apiVersion: v1, kind: Node, metadata: {name: d}, spec: {unschedulable: "no"}}
        """
    )
    assert [node.name for node in manifests.nodes] == ["a", "b", "c"]
    assert [(error.document, error.line) for error in manifests.errors] == [(2, 4), (4, 8), (6, 12)]


def test_the_same_holds_for_json() -> None:
    manifests = read(
        '{"apiVersion": "v1", "kind": "List", "items": ['
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}},'
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "labels": {"x": "y", "z": 5}}},'
        '7, {"kind": "Node"}]}'
    )
    assert [node.name for node in manifests.nodes] == ["a"]
    assert [(error.object, error.field, error.remedy) for error in manifests.errors] == [
        ("Pod/b", "metadata.labels.z", "put it in quotes"),
        ("items[2]", "", "begin it like apiVersion: v1 and kind: Pod"),
        ("items[3]", "apiVersion", "begin it like apiVersion: v1 and kind: Pod"),
    ]


def test_an_object_that_is_given_twice_alike_is_noted(golden: Golden) -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 4}}}"
    manifests = read(f"{node}\n---\n{node}")
    assert manifests.errors == ()
    assert len(manifests.nodes) == 1
    (notice,) = manifests.notices
    assert notice.object == "Node/a"
    golden("manifest-problems", notice.message)


def test_an_object_that_is_given_twice_differently_is_an_error_that_names_both_places(golden: Golden) -> None:
    metadata = "{{name: a, labels: {{rack: {}}}}}"
    node = f"{{{{apiVersion: v1, kind: Node, metadata: {metadata}, spec: {{{{unschedulable: true}}}}}}}}"
    manifests = read(f"{node.format('r1')}\n---\n{node.format('r2')}")
    assert [node.labels["rack"] for node in manifests.nodes] == ["r1"]
    (error,) = manifests.errors
    golden("manifest-problems", str(error))


def test_names_are_unique_within_a_kind_and_a_namespace() -> None:
    manifests = read(
        """
        {apiVersion: v1, kind: Pod, metadata: {name: a}}
        ---
        {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: other}}
        ---
        {apiVersion: batch/v1, kind: Job, metadata: {name: a}}
        ---
        {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: a}}
        """
    )
    assert (len(manifests.pods), len(manifests.workloads), manifests.errors) == (2, 2, ())


def test_gangs_of_all_dialects_share_their_names() -> None:
    manifests = read(
        """
        {apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}
        ---
        {apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g}, spec: {minMember: 3}}
        """
    )
    assert [group.min_member for group in manifests.groups] == [2]
    assert "already defined differently" in str(manifests.errors[0])


def test_the_same_topology_for_two_schedulers_is_one() -> None:
    text = (
        "{{apiVersion: {}, kind: Topology, metadata: {{name: t}}, spec: {{levels: [{{nodeLabel: rack}}]}}}}"
    )
    manifests = read(f"{text.format('kai.scheduler/v1alpha1')}\n---\n{text.format('kueue.x-k8s.io/v1beta2')}")
    assert (len(manifests.topologies), manifests.errors, len(manifests.notices)) == (1, (), 1)


@pytest.mark.parametrize(
    ("api", "kind", "meant"),
    [
        ("kueue.x-k8s.io/v1beta1", "Toplogy", "Topology"),
        ("batch/v1", "job", "Job"),
        ("v1", "node", "Node"),
        ("apps/v1", "Daemonset", "DaemonSet"),
        ("kubeflow.org/v1", "PytorchJob", "PyTorchJob"),
    ],
)
def test_a_kind_that_is_almost_a_known_one_is_said_with_its_place(api: str, kind: str, meant: str) -> None:
    manifests = read(
        f"{{apiVersion: v1, kind: Service}}\n---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: a}}"
    )
    assert kind not in manifests.others
    (notice,) = manifests.notices
    assert (notice.reason, notice.object, notice.field) == ("InvalidSpec", f"{kind}/a", "kind")
    assert notice.remedy == f"did you mean {meant}?"
    assert "document 2, line 4" in notice.message


@pytest.mark.parametrize(
    ("api", "kind", "meant"),
    [
        ("batc/v1", "Job", "batch/v1"),
        ("scheduling.kueue.x-k8s.io/v1", "Topology", "kueue.x-k8s.io/v1beta2"),
        ("appgroup.diktyo.k8s.io/v1alpha1", "AppGroup", "appgroup.diktyo.x-k8s.io/v1alpha1"),
        ("app/v1", "deployment", "apps/v1 Deployment"),
        ("jobset.x-k8s.io", "JobSet", "the group jobset.x-k8s.io"),
        ("v1", "StatefulSet", "the group apps"),
    ],
)
def test_a_group_that_is_almost_a_known_one_is_said_with_its_place(api: str, kind: str, meant: str) -> None:
    (notice,) = read(f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: a}}").notices
    assert (notice.reason, notice.object, notice.field) == ("InvalidSpec", f"{kind}/a", "apiVersion")
    assert notice.remedy == f"did you mean {meant}?"
    assert "document 1, line 1" in notice.message


@pytest.mark.parametrize(
    "api", ["example.com/v1", "batch.tutorial.kubebuilder.io/v1", "batch.example.com/v1"]
)
def test_groups_of_others_are_no_slips(api: str) -> None:
    (notice,) = read(f"apiVersion: {api}\nkind: CronJob\nmetadata: {{name: a}}").notices
    assert (notice.reason, notice.remedy) == ("Unsupported", "it is ignored")


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("v1", "LimitRange"),
        ("apps/v1", "ControllerRevision"),
        ("resource.k8s.io/v1", "ResourceSlice"),
        ("kueue.x-k8s.io/v1beta1", "Workload"),
        ("kueue.x-k8s.io/v1beta1", "Cohort"),
        ("kueue.x-k8s.io/v1beta1", "WorkloadPriorityClass"),
        ("storage.k8s.io/v1", "VolumeAttributesClass"),
        ("scheduling.volcano.sh/v1beta1", "Queue"),
    ],
)
def test_a_known_kind_that_is_not_needed_is_no_misspelling(api: str, kind: str) -> None:
    manifests = read(f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: a}}}}")
    assert (manifests.others, manifests.notices) == ({kind: 1}, ())


def test_kinds_that_do_not_matter_are_counted_and_unknown_ones_are_said(golden: Golden) -> None:
    manifests = read(
        """
        {apiVersion: v1, kind: Secret, metadata: {name: a}}
        ---
        {apiVersion: v1, kind: Secret, metadata: {name: b}}
        ---
        {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}
        ---
        {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}}
        ---
        {apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}
        ---
        {apiVersion: example.com/v1, kind: Widget, metadata: {name: b}}
        """
    )
    assert manifests.errors == ()
    assert manifests.others == {"ClusterRole": 1, "DaemonSet": 1, "Secret": 2}
    golden("manifest-problems", [notice.sentence() for notice in manifests.notices])
