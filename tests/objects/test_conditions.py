"""What a condition says by itself, where nothing around it names the field."""

import pytest

from closeby.objects.reasons import Condition, Reason, invalid

MODE, SWITCHES = "spec.layers[0].mode", 'metadata.annotations["closeby.dev/switches"]'


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (invalid("PodGroup/a/g", MODE, "'x' is not one of its values"), f"{MODE}: 'x' is not"),
        (invalid("PodGroup/a/g", MODE, "mode 'x' is unknown"), "mode 'x' is unknown"),
        (invalid("Job/a/g", SWITCHES, "'x' is not a number"), f"{SWITCHES}: 'x' is not"),
        (invalid("Job/a/g", SWITCHES, "closeby.dev/switches is empty"), "closeby.dev/switches is empty"),
        (invalid("PodGroup/a/g", "spec.layers[1]", "layers do not nest"), "layers do not nest"),
        (invalid("PodGroup/a/g", MODE, "names nothing"), f"{MODE} names nothing"),
        (Condition(reason=Reason.TOPOLOGY_NOT_FOUND, object="PodGroup/a/g", field=MODE, message="no"), "no"),
    ],
)
def test_the_field_stands_before_what_is_wrong_with_its_value(found: Condition, says: str) -> None:
    assert found.whole_sentence().startswith(says)
