"""Compares terms of pod affinity with classes of pods: one with all others at once, in columns.

A term needs all of its requirements. Those that a label meets (``In``, ``Exists``) are counted, and those
that it breaks (``NotIn``, ``DoesNotExist``) rule a term out. So a class with few labels is compared with
thousands of terms by a few lookups. Answers are not kept.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from closeby.objects.arrays import Bools, Ints
from closeby.objects.selectors import LabelRequirement, LabelSelector, PodAffinityTerm

_Labels = Mapping[str, str]
#: A label with its value, or (with None) with any.
_Part = tuple[str, str | None]
#: What a term says of namespaces.
_Scope = tuple[tuple[str, ...], LabelSelector | None]

#: Requirements that a label meets, not breaks.
_MET: Final = frozenset({"In", "Exists"})

#: Of a term that selects nothing.
_NEVER: Final = -1


class TermMatcher:
    """Terms and classes by number, in the order in which they were added."""

    def __init__(self, labels_of: Callable[[str], _Labels]) -> None:
        """``labels_of`` gives the labels of a namespace."""
        self._labels_of = labels_of
        self._terms: list[PodAffinityTerm] = []
        #: By label: terms of which it meets a requirement, or breaks one, and classes that have it.
        self._meets: dict[_Part, array[int]] = {}
        self._breaks: dict[_Part, array[int]] = {}
        self._having: dict[_Part, array[int]] = {}
        #: Of each term how many requirements labels must meet.
        self._needed = array("i")
        self._scopes: dict[_Scope, int] = {}
        self._scope_of = array("i")
        self._namespaces: dict[str, int] = {}
        self._namespace_of = array("i")
        #: By namespace: the scopes that mean it, as far as they are compared.
        self._meant: dict[str, array[int]] = {}

    def add_term(self, term: PodAffinityTerm) -> int:
        """One more term, for its pods; its number."""
        number = len(self._terms)
        self._terms.append(term)
        scope = term.namespaces, term.namespace_selector
        self._scope_of.append(self._scopes.setdefault(scope, len(self._scopes)))
        needed = 0 if term.selector is not None else _NEVER
        for one in () if term.selector is None else term.selector.requirements:
            meets = one.operator in _MET
            needed += meets
            for part in _parts(one):
                (self._meets if meets else self._breaks).setdefault(part, array("i")).append(number)
        self._needed.append(needed)
        return number

    def add_class(self, namespace: str, labels: _Labels) -> None:
        """One more class of pods, with labels that matter."""
        number = len(self._namespace_of)
        self._namespace_of.append(self._namespaces.setdefault(namespace, len(self._namespaces)))
        for label in labels.items():
            for part in _of(label):
                self._having.setdefault(part, array("i")).append(number)

    def terms_for(self, namespace: str, labels: _Labels) -> Bools:
        """Which terms select pods of a namespace with labels; shape (terms,)."""
        parts = [part for label in labels.items() for part in _of(label)]
        met = np.zeros(len(self._terms), dtype=np.int32)
        for part in parts:
            if part in self._meets:
                np.add.at(met, _numbers(self._meets[part]), 1)
        selected: Bools = met == _numbers(self._needed)
        for part in parts:
            if part in self._breaks:
                selected[_numbers(self._breaks[part])] = False
        meant = np.array(self._scopes_of(namespace), dtype=np.bool_)
        if not meant.all():
            selected &= meant[_numbers(self._scope_of)]
        return selected

    def classes_for(self, number: int) -> Bools:
        """Which classes a term selects; shape (classes,)."""
        term = self._terms[number]
        if term.selector is None:
            return np.zeros(len(self._namespace_of), dtype=np.bool_)
        scope = self._scope_of[number]
        meant = np.asarray([self._scopes_of(name)[scope] for name in self._namespaces], dtype=np.bool_)
        selected: Bools = meant[_numbers(self._namespace_of)]
        for one in term.selector.requirements:
            having = [_numbers(self._having[part]) for part in _parts(one) if part in self._having]
            if one.operator in _MET:
                met = np.zeros(len(selected), dtype=np.bool_)
                for some in having:
                    met[some] = True
                selected &= met
            else:
                for some in having:
                    selected[some] = False
        return selected

    def _scopes_of(self, namespace: str) -> "array[int]":
        """For each scope whether it means a namespace."""
        known = self._meant.setdefault(namespace, array("b"))
        if len(known) < len(self._scopes):
            labels = self._labels_of(namespace)
            for names, selector in list(self._scopes)[len(known) :]:
                means = namespace in names or (selector is not None and selector.matches(labels))
                known.append(means)
        return known


def _parts(requirement: LabelRequirement) -> Iterable[_Part]:
    """The labels that meet a requirement, or break it."""
    if requirement.operator in ("In", "NotIn"):
        return ((requirement.key, value) for value in dict.fromkeys(requirement.values))
    return ((requirement.key, None),)


def _of(label: tuple[str, str]) -> Iterable[_Part]:
    return label, (label[0], None)


def _numbers(some: "array[int]") -> Ints:
    return np.array(some, dtype=np.intp)
