"""Which pod, gang or application users mean by a name."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from closeby.objects.pods import Pod, gang_key
from closeby.objects.reasons import Condition, Problem
from closeby.objects.words import plural_noun
from closeby.objects.workloads import Workload, owners_of
from closeby.scheduling.outcomes import ItemKind

if TYPE_CHECKING:
    from closeby.simulator.runs import Run

POD, GANG, APP_GROUP = "pod", "podgroup", "appgroup"
#: How the pods of a Job become one.
OPT_IN = (
    'the annotation closeby.dev/gang: "true" on the Job makes its pods a gang (in a cluster by '
    "`closeby controllers`)"
)
#: Names that are proposed for an unknown one.
PROPOSED = 5

#: How kinds may be written.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "pod": POD,
        "pods": POD,
        "po": POD,
        "podgroup": GANG,
        "podgroups": GANG,
        "pg": GANG,
        "appgroup": APP_GROUP,
        "appgroups": APP_GROUP,
        "ag": APP_GROUP,
    }
)
#: Short names of kinds of workloads; others are called by their kind, in the singular or plural.
SHORT_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "cj": "cronjob",
        "deploy": "deployment",
        "ds": "daemonset",
        "lws": "leaderworkerset",
        "rc": "replicationcontroller",
        "rs": "replicaset",
        "sts": "statefulset",
        "vcjob": "job",
        "vj": "job",
    }
)
#: Kinds of workloads that are offered to a shell.
WORKLOAD_KINDS = (
    "deployment",
    "job",
    "jobset",
    "leaderworkerset",
    "mpijob",
    "pytorchjob",
    "raycluster",
    "statefulset",
    "tfjob",
)


class Subject(Struct, frozen=True):
    """A pod, gang or application. ``item`` is what is decided with it: a member is decided with its gang."""

    kind: str
    #: ``namespace/name``.
    key: str
    item: str
    item_kind: ItemKind

    @property
    def namespace(self) -> str:
        """Where it lives."""
        return self.key.split("/", 1)[0]

    def __str__(self) -> str:
        """``kind/namespace/name``."""
        return f"{self.kind}/{self.key}"


class Several(Struct, frozen=True):
    """What a workload consists of that is decided one by one: its gangs, or its pods."""

    #: ``kind/namespace/name`` of the workload.
    name: str
    subjects: tuple[Subject, ...]


class ChosenEntry(Struct, frozen=True, kw_only=True):
    """A workload whose gangs or pods are decided one by one, of which one is explained."""

    #: ``kind/namespace/name`` of the workload.
    workload: str
    #: How many gangs or pods it has that are decided one by one.
    items: int
    #: How many of them wait.
    waiting: int
    #: What they are: ``pods`` or ``gangs``, or ``parts`` where there are both.
    what: str

    def sentence(self) -> str:
        """Which of them it is, and of the pods of a Job how they become a gang."""
        which = "the first that waits" if self.waiting else "the first"
        wait = {0: "none waits", 1: "1 waits"}.get(self.waiting, f"{self.waiting:,} wait")
        gang = f"; {OPT_IN}" if self.what == "pods" and self.workload.startswith("job/") else ""
        return (
            f"{self.workload} has {self.items:,} {self.what} that are decided one by one, of which {wait}; "
            f"this is {which}{gang}."
        )


class Unclear(Struct, frozen=True):
    """A name that means nothing, or more than one thing; ``choices`` may be empty."""

    message: str
    choices: tuple[str, ...]


def find_subject(
    run: "Run",
    name: str,
    *,
    namespace: str | None = None,
    near: str | None = None,
    workloads: Iterable[Workload] = (),
) -> Subject | Several | Unclear:
    """The pod, gang or application that users mean by a name, or those of the workload that they mean.

    Accepts ``name``, ``namespace/name``, and both after ``pod/``, ``podgroup/``, ``appgroup/`` or the kind of
    a workload, which may be written as kubectl takes it (``job``, ``jobs``, ``job.batch``, ``lws``). If
    ``namespace`` is given, only what is there is meant; of several with one name, what is in ``near`` is.
    """
    kind, _, rest = name.partition("/")
    kind = kind.lower().partition(".")[0]
    wanted = KINDS.get(kind) if rest else None
    known = [one for one in _subjects(run) if namespace in (None, one.namespace)]
    found = [one for one in known if one.kind == wanted and _named(one, rest)]
    found = found or [one for one in known if _named(one, name)]
    # Of a gang and its member of that name (a leader of a LeaderWorkerSet) the gang is meant.
    gangs = {(one.item_kind, one.item) for one in found if one.kind == GANG}
    found = [one for one in found if one.kind == GANG or (one.item_kind, one.item) not in gangs]
    if len(found) > 1:
        found = [one for one in found if one.namespace == near] or found
    if len(found) == 1:
        return found[0]
    if found:
        return Unclear(f"{name!r} may mean several things", tuple(str(one) for one in found))
    owned = _owned(run, namespace, workloads)
    having = [] if wanted is not None else [key for key in owned if _is_workload(key, name, kind, rest)]
    if len(having) > 1:
        having = [one for one in having if one.partition("/")[2].startswith(f"{near}/")] or having
    if len(having) > 1:
        return Unclear(f"{name!r} may mean several things", tuple(having))
    if having:
        return _of_workload(run, having[0], owned[having[0]])
    where = "" if namespace is None else f" in namespace {namespace}"
    is_kind = wanted is not None or any(_is_kind(one, kind) for one in owned)
    return Unclear(
        f"there is no pod, gang, application or workload called {name!r}{where}",
        _near(rest if rest and is_kind else name, [*map(str, known), *owned]),
    )


def left_out_as(name: str, said: Iterable[Problem | Condition]) -> list[str]:
    """What was said of objects that are meant by a name, were read, and have no pods here."""
    kind, _, rest = name.partition("/")
    kind = kind.lower().partition(".")[0]
    lines = []
    for one in said:
        own, _, full = one.object.partition("/")
        key = f"{own.lower()}/{full}"
        names = (full, full.rpartition("/")[2])
        if name in names or (rest in names and _is_kind(key, kind)):
            field = f"{one.field}: " if one.field else ""
            remedy = f"; {one.remedy}" if one.remedy else ""
            lines.append(f"{one.object} was read, but is not decided: {field}{one.message}{remedy}")
    return list(dict.fromkeys(lines))


def workload_names(pods: Iterable[Pod], workloads: Iterable[Workload]) -> dict[str, list[Pod]]:
    """All workloads that have pods as ``kind/namespace/name``, with these pods."""
    known = {(one.namespace, f"{one.kind}/{one.name}"): one for one in workloads}
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        for owner in owners_of(pod, known):
            kind, _, name = owner.partition("/")
            found.setdefault(f"{kind.lower()}/{pod.namespace}/{name}", []).append(pod)
    return found


def _owned(run: "Run", namespace: str | None, workloads: Iterable[Workload]) -> dict[str, list[Pod]]:
    pods = [pod for pod in run.pods if namespace in (None, pod.namespace)]
    return workload_names(pods, workloads)


def _is_workload(key: str, name: str, kind: str, rest: str) -> bool:
    """Whether a workload (``kind/namespace/name``) is meant."""
    full = key.partition("/")[2]
    short = full.partition("/")[2]
    return (_is_kind(key, kind) and rest in (full, short)) or name in (full, short)


def _is_kind(key: str, kind: str) -> bool:
    own = key.partition("/")[0]
    return SHORT_KINDS.get(kind, kind) in (own, plural_noun(own))


def _of_workload(run: "Run", name: str, pods: Sequence[Pod]) -> Subject | Several:
    """The gangs of a workload; its pods where they belong to none."""
    subjects: dict[Subject, None] = {}
    for pod in pods:
        item, kind = _item(run, pod)
        gang = Subject(GANG, item, item, kind)
        subjects[gang if kind is ItemKind.GANG else Subject(POD, pod.key, item, kind)] = None
    found = tuple(subjects)
    return found[0] if len(found) == 1 else Several(name, found)


def choose(run: "Run", several: Several) -> tuple[Subject, ChosenEntry]:
    """Of the gangs or pods of a workload the first that waits after a run, else the first."""
    outcomes = {ItemKind.GANG: run.gang_outcomes, ItemKind.POD: run.pod_outcomes}
    waiting = []
    for one in several.subjects:
        outcome = outcomes.get(one.item_kind, run.app_outcomes).get(one.item)
        if outcome is not None and (
            outcome.reason is not None or any(left.pod.key == one.key for left in outcome.left)
        ):
            waiting.append(one)
    kinds = {one.kind for one in several.subjects}
    what = "parts" if len(kinds) > 1 else "gangs" if GANG in kinds else "pods"
    entry = ChosenEntry(workload=several.name, items=len(several.subjects), waiting=len(waiting), what=what)
    return (waiting or several.subjects)[0], entry


def objects_of(run: "Run", subject: Subject, workloads: Iterable[Workload]) -> frozenset[str]:
    """What an explanation is about, as conditions name objects: pods, their gang or AppGroup, and owners,
    and the topologies of a gang and of its subgroups.
    """
    known = {(one.namespace, f"{one.kind}/{one.name}"): one for one in workloads}
    alone = subject.kind == POD
    found = set()
    for pod in run.pods:
        if pod.key != subject.key if alone else not belongs_to(run, pod, subject):
            continue
        found.add(f"Pod/{pod.key}")
        if alone and pod.node_name is not None:
            found.add(f"Node/{pod.node_name}")
        for owner in owners_of(pod, known):
            kind, _, name = owner.partition("/")
            found.add(f"{kind}/{pod.namespace}/{name}")
    if subject.item_kind is not ItemKind.POD:
        found.add(f"{'PodGroup' if subject.item_kind is ItemKind.GANG else 'AppGroup'}/{subject.item}")
    group = run.engine.state.groups.get(subject.item) if subject.item_kind is ItemKind.GANG else None
    tree = None if group is None else run.tree_of(group)
    if group is not None:
        found |= {"Topology"} if tree is None else {"Topology", f"Topology/{tree.name}"}
        asked = (group.constraint, *(part.constraint for part in group.subgroups))
        found |= {f"Topology/{one.topology}" for one in asked if one is not None and one.topology}
    return frozenset(found)


def schedules(run: "Run", subject: Subject, scheduler: str | None) -> bool:
    """Whether pods of the work item with which a subject is decided name this scheduler."""
    return any(pod.spec.scheduler_name == scheduler and belongs_to(run, pod, subject) for pod in run.pods)


def belongs_to(run: "Run", pod: Pod, subject: Subject) -> bool:
    """Whether a pod is part of the gang or application with which a subject is decided, or is the subject.

    A pod of an application may be decided with a gang, and is part of both then.
    """
    if _item(run, pod) == (subject.item, subject.item_kind):
        return True
    application = run.engine.applications.of(pod) if subject.item_kind is ItemKind.APPLICATION else None
    return application is not None and application.key == subject.item


def _subjects(run: "Run") -> list[Subject]:
    """Gangs, also those that only pods name, then applications, then pods; each in the order of the run."""
    gangs = dict.fromkeys(group.key for group in run.groups)
    gangs.update(dict.fromkeys(gang_key(pod) for pod in run.pods if pod.group is not None))
    return [
        *(Subject(GANG, key, key, ItemKind.GANG) for key in gangs),
        *(Subject(APP_GROUP, one.key, one.key, ItemKind.APPLICATION) for one in run.engine.applications),
        *(Subject(POD, pod.key, *_item(run, pod)) for pod in run.pods),
    ]


def _item(run: "Run", pod: Pod) -> tuple[str, ItemKind]:
    """The work item with which a pod is decided: ``namespace/name``, and what it is."""
    if pod.group is not None:
        return gang_key(pod), ItemKind.GANG
    application = run.engine.applications.of(pod)
    return (pod.key, ItemKind.POD) if application is None else (application.key, ItemKind.APPLICATION)


def _named(subject: Subject, name: str) -> bool:
    return name in (subject.key, subject.key.split("/", 1)[1])


def _near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """What is called nearly so, of ``kind/namespace/name``: what begins so first, gangs before pods."""
    spelled: dict[str, str] = {}
    for subject in known:
        key = subject.partition("/")[2]
        for spelling in (key, key.partition("/")[2]):
            spelled.setdefault(spelling, subject)
    begins = [spelling for spelling in spelled if len(name) > 1 and spelling.startswith(name)]
    close = get_close_matches(name, spelled, n=PROPOSED, cutoff=0.5)
    return tuple(dict.fromkeys(spelled[spelling] for spelling in (*begins, *close)))[:PROPOSED]
