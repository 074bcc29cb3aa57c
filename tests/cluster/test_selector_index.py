"""Selectors are found by the labels that they require; none that selects is missed."""

from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.population import SelectorIndex, required_labels
from closeby.objects.selectors import LabelRequirement, LabelSelector, matches, selector_of

KEYS, VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
REQUIREMENTS = st.builds(
    lambda key, operator, values: LabelRequirement(key, operator, tuple(values)),
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(VALUES, max_size=3),
)
SELECTORS = st.none() | st.builds(lambda some: LabelSelector(tuple(some)), st.lists(REQUIREMENTS, max_size=3))


@given(st.lists(SELECTORS, max_size=8), st.dictionaries(KEYS, VALUES))
def test_all_that_select_are_candidates_once_and_in_order(
    selectors: list[LabelSelector | None], labels: dict[str, str]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number, selector in enumerate(selectors):
        index.add((selector,), number)
    found = index.candidates(labels)
    assert found == sorted(set(found))
    assert {number for number, one in enumerate(selectors) if matches(one, labels)} <= set(found)


def test_of_thousands_that_require_other_values_none_is_looked_at() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number in range(5_000):
        index.add((selector_of({"app": f"a{number}"}),), number)
    assert index.candidates({"app": "a7", "tier": "web"}) == [7]


def test_a_selector_without_values_requires_nothing() -> None:
    assert required_labels(LabelSelector((LabelRequirement("a", "Exists"),))) is None
    assert required_labels(None) == ()
