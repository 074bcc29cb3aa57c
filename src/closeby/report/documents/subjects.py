"""Which pod, gang or application users mean by a name."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.scheduling.outcomes import ItemKind
from closeby.simulator.runs import Run

POD, GANG, APP_GROUP = "pod", "podgroup", "appgroup"

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


class Unclear(Struct, frozen=True):
    """A name that means nothing, or more than one thing; ``choices`` may be empty."""

    message: str
    choices: tuple[str, ...]


def find_subject(
    run: Run, name: str, *, namespace: str | None = None, near: str | None = None
) -> Subject | Unclear:
    """The pod, gang or application that users mean by a name.

    Accepts ``name``, ``namespace/name``, and both after ``pod/``, ``podgroup/`` or ``appgroup/``. If
    ``namespace`` is given, only what lies there is meant; of several with one name, what lies in ``near`` is.
    """
    kind, _, rest = name.partition("/")
    wanted = KINDS.get(kind.lower()) if rest else None
    known = [one for one in _subjects(run) if namespace in (None, one.namespace)]
    found = [one for one in known if one.kind == wanted and _named(one, rest)]
    found = found or [one for one in known if _named(one, name)]
    if len(found) > 1:
        found = [one for one in found if one.namespace == near] or found
    if len(found) == 1:
        return found[0]
    if found:
        return Unclear(f"{name!r} may mean several things", tuple(str(one) for one in found))
    where = "" if namespace is None else f" in namespace {namespace}"
    return Unclear(
        f"there is no pod, gang or application called {name!r}{where}",
        _near(name if wanted is None else rest, known),
    )


def schedules(run: Run, subject: Subject, scheduler: str | None) -> bool:
    """Whether pods of the work item with which a subject is decided name this scheduler."""
    return any(pod.spec.scheduler_name == scheduler and belongs_to(run, pod, subject) for pod in run.pods)


def belongs_to(run: Run, pod: Pod, subject: Subject) -> bool:
    """Whether a pod is part of the gang or application with which a subject is decided, or is the subject.

    A pod of an application may be decided with a gang, and is part of both then.
    """
    if _item(run, pod) == (subject.item, subject.item_kind):
        return True
    application = run.engine.applications.of(pod) if subject.item_kind is ItemKind.APPLICATION else None
    return application is not None and application.key == subject.item


def _subjects(run: Run) -> list[Subject]:
    """Gangs, also those that only pods name, then applications, then pods; each in the order of the run."""
    gangs = dict.fromkeys(group.key for group in run.groups)
    gangs.update(dict.fromkeys(f"{pod.namespace}/{pod.group}" for pod in run.pods if pod.group is not None))
    return [
        *(Subject(GANG, key, key, ItemKind.GANG) for key in gangs),
        *(Subject(APP_GROUP, one.key, one.key, ItemKind.APPLICATION) for one in run.engine.applications),
        *(Subject(POD, pod.key, *_item(run, pod)) for pod in run.pods),
    ]


def _item(run: Run, pod: Pod) -> tuple[str, ItemKind]:
    """The work item with which a pod is decided: ``namespace/name``, and what it is."""
    if pod.group is not None:
        return f"{pod.namespace}/{pod.group}", ItemKind.GANG
    application = run.engine.applications.of(pod)
    return (pod.key, ItemKind.POD) if application is None else (application.key, ItemKind.APPLICATION)


def _named(subject: Subject, name: str) -> bool:
    return name in (subject.key, subject.key.split("/", 1)[1])


def _near(name: str, known: Sequence[Subject]) -> tuple[str, ...]:
    spelled: dict[str, str] = {}
    for subject in known:
        for spelling in (subject.key, subject.key.split("/", 1)[1]):
            spelled.setdefault(spelling, str(subject))
    close = get_close_matches(name, spelled, n=5, cutoff=0.5)
    return tuple(dict.fromkeys(spelled[spelling] for spelling in close))
