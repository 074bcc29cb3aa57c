"""Which kinds of pods are where: what pod affinity, anti-affinity and topology spread count.

Pods with the same namespace and the same values of the labels that any selector names are one class. A
selector is compared with each class once, so that a pod that comes or goes costs a lookup. Nothing is counted
before a selector is asked for or a pod with terms is placed: a cluster without terms pays nothing.

``Cluster`` is the only one that adds and removes pods; all figures are integers, so that every undo is exact.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from closeby.cluster.pod_owners import PodOwners
from closeby.cluster.terms import (
    AntiAffinityOfOthers,
    CarriedTerm,
    LabelClass,
    PerSlot,
    PlacedChanges,
    Selection,
    Tally,
    TermMatcher,
)
from closeby.cluster.weights import ScoredTerms, TermWeights
from closeby.objects.arrays import Ints
from closeby.objects.labels import NAMESPACE_NAME
from closeby.objects.pods import Pod, PodSpec, all_alike
from closeby.objects.selectors import LabelSelector, Namespace, PodAffinity, PodAffinityTerm, PodOwner
from closeby.topology.labels import LabelTable

#: Classes and selectors beyond what is in use, until all is counted again.
_SPARE: Final = 4096
#: Where more than one pod in so many has a label that begins to matter, all pods are counted again.
RECOUNTED = 2
#: Equal pods that are counted together; fewer are counted one by one.
MANY: Final = 8
#: Specs whose labels are known to be among the keys, and specs whose terms are remembered.
_REMEMBERED: Final = 1 << 14
#: Labels of which it is remembered that they begin to matter.
_NEW_KEYS: Final = 64

#: What a pod brings: its required anti-affinity, and its terms that count in scores.
_Terms = tuple[tuple[CarriedTerm, ...], ScoredTerms | None]
_NOTHING: Final[_Terms] = ((), None)


class _CarriedBySpec:
    """The terms of the pods of one spec in one namespace, by the values of the labels that terms add."""

    __slots__ = ("by_values", "keys", "spec")

    def __init__(self, spec: PodSpec, affinity: PodAffinity) -> None:
        self.spec = spec
        self.keys = tuple(
            dict.fromkeys(
                key for term in affinity.terms for key in (*term.match_label_keys, *term.mismatch_label_keys)
            )
        )
        self.by_values: dict[tuple[str | None, ...], _Terms] = {}


class Population:
    """The placed pods by class, the terms that they carry, and who belongs to whom."""

    def __init__(self, labels: LabelTable, placed: dict[str, tuple[Pod, int]]) -> None:
        """``placed`` is every pod that holds capacity, with its slot; others keep it."""
        self._labels = labels
        self._placed = placed
        #: Whether this is its own record of the placed pods.
        self._keeps = False
        #: Namespace -> its labels.
        self.namespaces: dict[str, Mapping[str, str]] = {}
        #: Services, and workloads that select pods.
        self.owners = PodOwners()
        #: Whether anything is counted.
        self.active = False
        #: Grows whenever pods that no selector distinguished may differ from now on; by which labels of late,
        #: None for all.
        self.label_keys_version = 0
        self._new_keys: deque[str | None] = deque(maxlen=_NEW_KEYS)
        #: Another object whenever what was worked out of classes and tallies is void.
        self.epoch = object()
        self._keys: dict[str, None] = {}
        #: Specs, by id, whose terms' labels are all among the keys.
        self._learnt: dict[int, PodSpec] = {}
        self._stale = False
        #: How many classes and terms were left when all was counted.
        self._in_use = (0, 0)
        #: How often something was noted of a class since all notes were forgotten.
        self._noted = 0
        self._classes: dict[tuple[str, frozenset[tuple[str, str]]], LabelClass] = {}
        self._tallies: dict[tuple[tuple[PodAffinityTerm, ...], bool, bool], Selection] = {}
        self._carried: dict[PodAffinityTerm, CarriedTerm] = {}
        self._numbered: list[CarriedTerm] = []
        #: The terms that count in scores.
        self.weights = TermWeights(labels, TermMatcher(self.labels_of))
        #: The same by the labels of classes, those that selectors require, and by which terms select whom.
        self._classes_with: dict[Label, list[LabelClass]] = {}
        self._tallies_for: SelectorIndex[Selection] = SelectorIndex()
        self._matcher = TermMatcher(self.labels_of)
        #: Kept since it was asked first who keeps a class off.
        self._changes: PlacedChanges[CarriedTerm] | None = None
        self._carried_by: dict[tuple[int, str], _CarriedBySpec] = {}

    # What is there

    def selection_changed(self, subject: Namespace | PodOwner, gone: bool) -> bool:
        """A namespace or owner appeared, changed or went. True if anything may be judged otherwise."""
        if isinstance(subject, Namespace):
            return self.namespace_changed(subject.name, None if gone else subject.labels)
        return self.owner_changed(subject.key, None if gone else subject)

    def namespace_changed(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """A namespace has these labels now (None: it is gone). True if anything may be judged otherwise."""
        if labels is not None and self.namespaces.get(name) == labels:
            return False
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        if not self._stale and all(found.namespace != name for found in self._classes.values()):
            return False  # No pod of it was counted, nor asked about.
        self._void()
        return self.active

    def owner_changed(self, key: str, owner: PodOwner | None) -> bool:
        """A Service or workload selects these pods now (None: it is gone). True if it selects others."""
        if not self.owners.put(key, owner):
            return False
        if owner is not None and owner.selector is not None:
            self._know(owner.selector.keys)
        namespace = key.split("/", 2)[1]
        for found in self._classes.values():
            if found.namespace == namespace:
                found.notes.clear()
        return self.active

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; one that is not known has only that of every namespace."""
        return self.namespaces.get(namespace) or {NAMESPACE_NAME: namespace}

    def new_keys(self, since: int) -> frozenset[str] | None:
        """The labels that began to matter since a ``label_keys_version``; None where others may have too."""
        count = self.label_keys_version - since
        keys = list(self._new_keys)[-count:] if 0 < count <= len(self._new_keys) else [None]
        return None if None in keys else frozenset(key for key in keys if key is not None)

    @property
    def keys_stamp(self) -> tuple[object, int, int]:
        """Another value whenever pods that were alike may not be so any more."""
        return self.epoch, len(self._carried), self.label_keys_version

    # Pods come and go

    def without_pods(self) -> "Population":
        """The same namespaces and owners, and no pod placed; what is added is kept by itself."""
        twin = Population(self._labels, {})
        twin.namespaces, twin.owners, twin._keys = self.namespaces, self.owners, dict(self._keys)
        twin._keeps = True
        return twin

    def expect(self, pod: Pod) -> None:
        """A pod waits: if it has terms, all that they need is counted from now on."""
        if self._noted:  # Pods that wait, and go without a node, leave nothing else to forget.
            self.trim()
        if pod.spec.pod_affinity is not None or pod.spec.topology_spread:
            self._activate()
            self._learn_all(pod.spec)

    def minds(self, spec: PodSpec) -> bool:
        """Whether it matters that pods of this spec come or go."""
        return self.active or self._keeps or spec.pod_affinity is not None

    def add(self, pod: Pod, slot: int, structure: object) -> None:
        self._note(pod, slot, 1, structure)
        if self._keeps:
            self._placed[pod.uid] = (pod, slot)

    def remove(self, pod: Pod, slot: int, structure: object) -> None:
        if self._keeps:
            self._placed.pop(pod.uid, None)
        self._note(pod, slot, -1, structure)

    def note_all(self, pods: Sequence[Pod], slots: Sequence[int], sign: int, structure: object) -> None:
        """Pods came to their slots (``sign`` 1), or left them (-1)."""
        if self._keeps and sign < 0:
            for pod in pods:
                self._placed.pop(pod.uid, None)
        if len(pods) >= MANY and all_alike(pods):
            self._note_many(pods[0], slots, sign, structure)
        else:
            for pod, slot in zip(pods, slots, strict=True):
                self._note(pod, slot, sign, structure)
        if self._keeps and sign > 0:
            self._placed.update({pod.uid: (pod, slot) for pod, slot in zip(pods, slots, strict=True)})

    def trim(self) -> None:
        """Forget what is not in use, if that is much. Only between decisions."""
        classes, terms = self._in_use
        most = 2 * len(self._placed) + _SPARE
        if len(self._classes) > most + 2 * classes or self._terms > most + 2 * terms:
            self._void()
            self._keys.clear()
            self._learnt.clear()
        elif self._noted > most:
            # Specs and owners come and go while the classes stay.
            for found in self._classes.values():
                found.notes.clear()
            self._noted = 0

    # Questions

    def sync(self) -> None:
        """Count all pods, if that has become necessary."""
        if self._stale:
            self._rebuild()

    def class_of(self, pod: Pod) -> LabelClass:
        """The class of a pod, placed or not. Its own terms are known from now on."""
        self._activate()
        self._learn_all(pod.spec)
        if self._stale:
            self._rebuild()
        if pod.spec.pod_affinity is not None:
            # What it will carry is known before it is placed: nothing new turns up during a decision.
            self._terms_of(pod, pod.spec.pod_affinity)
        return self._class(pod)

    def scored_terms(self, pod: Pod) -> ScoredTerms | None:
        """The terms of a pod that count in scores, once its class was asked for; None without any."""
        affinity = pod.spec.pod_affinity
        return None if affinity is None else self._terms_of(pod, affinity)[1]

    def tally(
        self, selectors: Iterable[PodAffinityTerm], *, of_any: bool = False, staying: bool = False
    ) -> Tally:
        """The placed pods that all (``of_any``: any) of these terms of one pod select."""
        terms = tuple(selectors)
        key = (terms, of_any, staying)
        found = self._tallies.get(key)
        if found is None:
            for term in terms:
                self._know(term.selector.keys if term.selector else ())
            self.sync()
            found = self._tallies[key] = Selection(self._labels, terms, of_any=of_any, staying=staying)
            self._tallies_for.add(found.selectors, found)
            for one in self._classes_for(found.selectors):
                found.offer(one, self.selects)
        return found

    def anti_affinity_of_others(self, found: LabelClass, key: str) -> AntiAffinityOfOthers:
        """The placed pods with a required anti-affinity, of a topology key, to pods of a class."""
        if self._changes is None:
            self._changes = PlacedChanges()
        place = ("anti-affinity of others", key)
        made = found.notes.get(place)
        if not isinstance(made, AntiAffinityOfOthers):
            made = AntiAffinityOfOthers(self._labels, found, key, self._changes, self.selects)
            self.note(found, place, made)
        return made

    def note(self, found: LabelClass, place: object, what: object) -> None:
        """Keep what was worked out about pods of a class, for now."""
        found.notes[place] = what
        self._noted += 1

    def tally_in(self, namespace: str, selector: LabelSelector) -> Tally:
        """The placed pods of a namespace, without those that are being deleted, that a selector selects."""
        term = PodAffinityTerm("", selector, (namespace,))
        return self.tally((term,), staying=True)

    def selects(self, term: PodAffinityTerm, found: LabelClass) -> bool:
        """Whether a term (for its pod) selects pods of a class."""
        selector = term.selector
        if selector is None:
            return False
        if found.namespace not in term.namespaces and not term.means(
            found.namespace, self.labels_of(found.namespace)
        ):
            return False
        return selector.matches(found.labels)

    # Inside

    @property
    def _terms(self) -> int:
        return len(self._tallies) + len(self._carried) + self.weights.size

    def _void(self) -> None:
        self.epoch = object()
        self._stale = self.active

    def _learn_all(self, spec: PodSpec) -> None:
        if spec.pod_affinity is None and not spec.topology_spread:
            return
        if self._learnt.get(id(spec)) is spec:
            return
        if spec.pod_affinity is not None:
            self._learn(spec.pod_affinity)
        for one in spec.topology_spread:
            self._know((*(one.selector.keys if one.selector else ()), *one.match_label_keys))
        if len(self._learnt) >= _REMEMBERED:
            self._learnt.clear()
        self._learnt[id(spec)] = spec

    def _learn(self, affinity: PodAffinity) -> None:
        for term in affinity.terms:
            self._know(
                (
                    *(term.selector.keys if term.selector else ()),
                    *term.match_label_keys,
                    *term.mismatch_label_keys,
                )
            )

    def _know(self, keys: Iterable[str]) -> None:
        """Labels that matter from now on; if one is new, pods that have it make other classes than before."""
        for key in keys:
            if key in self._keys:
                continue
            self._tell_apart(key)
            counts = self.active and not self._stale
            having = [one for one in self._placed.values() if key in one[0].labels] if counts else []
            if RECOUNTED * len(having) > len(self._placed):
                self._keys[key] = None
                self._void()
                continue
            before = [self._class(pod) for pod, _ in having]
            self._keys[key] = None
            for (pod, slot), found in zip(having, before, strict=True):
                self._move(pod, slot, found, self._class(pod))

    def _move(self, pod: Pod, slot: int, before: LabelClass, now: LabelClass) -> None:
        """A placed pod is of another class, which the terms of before select where they selected its own."""
        for was, found in ((before.placed, now.placed), (before.staying, now.staying)):
            if found is now.placed or not pod.terminating:
                _count(was, slot, -1)
                _count(found, slot, 1)

    def _class(self, pod: Pod) -> LabelClass:
        # The labels of a pod are few; of the keys there may be as many as pods have been thought up.
        known = {key: value for key, value in pod.labels.items() if key in self._keys}
        key = (pod.namespace, frozenset(known.items()))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = LabelClass(pod.namespace, known)
            for label in known.items():
                self._classes_with.setdefault(label, []).append(found)
            for tally in self._tallies_for.candidates(known):
                tally.offer(found, self.selects)
            self._matcher.add_class(pod.namespace, known)
            forbidden = self._matcher.terms_for(pod.namespace, known).nonzero()[0].tolist()
            found.carried += [self._numbered[number] for number in forbidden]
            self.weights.add_class(found)
        return found

    def _classes_for(self, selectors: Iterable[LabelSelector | None]) -> Iterable[LabelClass]:
        """The classes that any of the selectors may select."""
        found: dict[LabelClass, None] = {}
        for one in selectors:
            labels = required_labels(one)
            if labels is None:
                return self._classes.values()
            for label in labels:
                found.update(dict.fromkeys(self._classes_with.get(label, ())))
        return found

    def _note(self, pod: Pod, slot: int, number: int, structure: object) -> None:
        """A pod came to its slot (``number`` 1), or left it (-1)."""
        found = self._noticed(pod)
        if found is None:
            return
        _count(found.placed, slot, number)
        if not pod.terminating:
            _count(found.staying, slot, number)
        for tally in found.tallies:
            if not (tally.staying and pod.terminating):
                tally.note(slot, number, structure)
        carried, scored = (
            _NOTHING if pod.spec.pod_affinity is None else self._terms_of(pod, pod.spec.pod_affinity)
        )
        for one in carried:
            _count(one.where[0], slot, number)
            one.note(slot, number, structure)
            self._write_down(one, slot, number)
        if scored is not None:
            _count(scored.placed, slot, number)
        self.weights.note(found, scored, slot, number)

    def _note_many(self, pod: Pod, slots: Sequence[int], sign: int, structure: object) -> None:
        """The same for pods that are all like this one."""
        found = self._noticed(pod)
        if found is None:
            return
        numbers, at = Counter(slots), np.asarray(slots, dtype=np.intp)
        carried, scored = (
            _NOTHING if pod.spec.pod_affinity is None else self._terms_of(pod, pod.spec.pod_affinity)
        )
        counted = [found.placed, *(one.where[0] for one in carried)]
        if not pod.terminating:
            counted.append(found.staying)
        if scored is not None:
            counted.append(scored.placed)
        for where in counted:
            for slot, number in numbers.items():
                _count(where, slot, sign * number)
        for tally in (*found.tallies, *carried):
            if not (tally.staying and pod.terminating):
                tally.note_all(at, sign, structure)
        for one in carried:
            self._write_down(one, at, sign)
        self.weights.note(found, scored, at, sign)

    def _write_down(self, carried: CarriedTerm, at: int | Ints, sign: int) -> None:
        if self._changes is not None:
            self._changes.add((carried, at, sign))

    def _noticed(self, pod: Pod) -> LabelClass | None:
        """The class of a pod that comes or goes; None while nothing is counted, or all will be again."""
        affinity = pod.spec.pod_affinity
        if affinity is not None:
            self._activate()
            if self._learnt.get(id(pod.spec)) is not pod.spec:
                self._learn(affinity)
        return self._class(pod) if self.active and not self._stale else None

    def _activate(self) -> None:
        if not self.active:
            self.active = self._stale = True
            self._tell_apart(None)

    def _tell_apart(self, key: str | None) -> None:
        self.label_keys_version += 1
        self._new_keys.append(key)

    def _terms_of(self, pod: Pod, affinity: PodAffinity) -> _Terms:
        """The terms of a pod: which keep others off, and those that count in scores."""
        key = (id(pod.spec), pod.namespace)
        of_spec = self._carried_by.get(key)
        if of_spec is None or of_spec.spec is not pod.spec:
            if len(self._carried_by) >= _REMEMBERED:
                self._carried_by.clear()
            of_spec = self._carried_by[key] = _CarriedBySpec(pod.spec, affinity)
        values = tuple([pod.labels.get(one) for one in of_spec.keys])
        known = of_spec.by_values.get(values)
        if known is None:

            def meant(term: PodAffinityTerm) -> PodAffinityTerm:
                return term.of_pod(pod.namespace, pod.labels)

            known = of_spec.by_values[values] = (
                tuple(self._carry(meant(term)) for term in affinity.forbidden),
                self.weights.set_of(affinity, meant),
            )
        return known

    def _carry(self, term: PodAffinityTerm) -> CarriedTerm:
        found = self._carried.get(term)
        if found is None:
            found = self._carried[term] = CarriedTerm(self._labels, term)
            self._numbered.append(found)
            for number in self._matcher.classes_for(self._matcher.add_term(term)).nonzero()[0].tolist():
                self.weights.classes[number].carried.append(found)
        return found

    def _rebuild(self) -> None:
        for pod, _ in self._placed.values():
            if pod.spec.pod_affinity is not None:
                self._learn(pod.spec.pod_affinity)
        self._classes.clear()
        self._tallies.clear()
        self._carried.clear()
        self._numbered.clear()
        self._carried_by.clear()
        self._classes_with.clear()
        self._tallies_for.clear()
        self._matcher = TermMatcher(self.labels_of)
        self.weights = TermWeights(self._labels, TermMatcher(self.labels_of))
        self._changes = None
        self._noted = 0
        self.epoch = object()
        self._stale = False
        for pod, slot in self._placed.values():
            self._note(pod, slot, 1, None)
        self._in_use = len(self._classes), self._terms


def _count(where: PerSlot, slot: int, number: int) -> None:
    left = where.get(slot, 0) + number
    if left:
        where[slot] = left
    else:
        del where[slot]


_Item = TypeVar("_Item")

Label = tuple[str, str]


def required_labels(selector: LabelSelector | None) -> tuple[Label, ...] | None:
    """Labels of which every selected object has one; None: it may have any. Nil selects nothing."""
    if selector is None:
        return ()
    ways = [one for one in selector.requirements if one.operator == "In"]
    if not ways:
        return None
    fewest = min(ways, key=lambda one: len(one.values))
    return tuple((fewest.key, value) for value in dict.fromkeys(fewest.values))


class SelectorIndex(Generic[_Item]):
    """Items that have some selectors each."""

    def __init__(self) -> None:
        self._added = 0
        #: By the place of each item in the order in which they were added.
        self._by_label: dict[Label, dict[int, _Item]] = {}
        self._any: dict[int, _Item] = {}

    def add(self, selectors: Iterable[LabelSelector | None], item: _Item) -> None:
        """One more item, after all others: what any of its selectors selects concerns it."""
        self._added += 1
        for one in selectors:
            labels = required_labels(one)
            if labels is None:
                self._any[self._added] = item
            for label in labels or ():
                self._by_label.setdefault(label, {})[self._added] = item

    def candidates(self, labels: Mapping[str, str]) -> list[_Item]:
        """Those of which a selector may select an object with these labels, in the order of adding."""
        found = dict(self._any)
        for label in labels.items():
            found.update(self._by_label.get(label, {}))
        return [found[place] for place in sorted(found)]

    def clear(self) -> None:
        self._by_label.clear()
        self._any.clear()
