"""Places that are asked for, as users call the Workload that they are for."""

import pytest

from closeby.objects.groups import AskedPlaces


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("job-train-21d82", True),
        ("team/job-train-21d82", True),
        ("train", True),
        ("job/train", True),
        ("team/train", True),
        ("job/team/train", True),
        ("job/other/train", False),
        ("other", False),
        ("21d82", False),
        ("", False),
    ],
)
def test_a_workload_is_meant_by_its_name_or_that_of_its_job(name: str, means: bool) -> None:
    asked = AskedPlaces(namespace="team", workload="job-train-21d82", uid="0123", sets=())
    assert asked.means(name) is means


def test_a_workload_that_is_no_jobs_is_meant_by_its_name_alone() -> None:
    asked = AskedPlaces(namespace="team", workload="train", uid="0123", sets=())
    assert asked.means("train")
    assert not asked.means("")
