import numpy as np
import pytest

from closeby.quality.jobs import Layouts, group_spreads, usual_layouts
from tests.quality.drawn import FOUR_RACKS, Drawn


def layout(tensor: int, pipeline: int, data: int) -> Layouts:
    return Layouts(tensor=np.asarray([tensor]), pipeline=np.asarray([pipeline]), data=np.asarray([data]))


def test_groups_of_two_stages_of_two() -> None:
    #   tp 8 inside each pod, pp 2, dp 2; ranks count dp before pp:
    #     pods           0  1 | 2  3        stage 0: pods 0 1     stage 1: pods 2 3     (data-parallel groups)
    #     rack-1 (a b)   a  b               place 0: pods 0 2     place 1: pods 1 3     (pipeline groups)
    #     rack-2 (c d)         c  d
    #   Data-parallel groups stay in a rack (spread 1), pipeline groups touch both (2): mean (1+1+2+2)/4.
    drawn = Drawn(FOUR_RACKS)
    found = group_spreads(drawn.lying("a b c d"), layout(8, 2, 2))
    assert found.greatest.tolist() == [[1, 2, 2]]
    assert found.mean.tolist() == [[1, 1.5, 2]]


def test_the_order_of_ranks_decides_which_groups_are_torn() -> None:
    #   c in place of b: stage 0 is a c, stage 1 is b d: all four groups ... a-b and c-d share racks
    drawn = Drawn(FOUR_RACKS)
    found = group_spreads(drawn.lying("a c b d"), layout(8, 2, 2))
    assert found.greatest.tolist() == [[1, 2, 2]]
    assert found.mean.tolist() == [[1, 1.5, 2]]
    #   a b | c e: stage 1 touches both blocks, and so does place 1
    found = group_spreads(drawn.lying("a b c e"), layout(8, 2, 2))
    assert found.greatest.tolist() == [[2, 2, 2]]
    assert found.mean.tolist() == [[1.5, 1.75, 2]]


def test_one_stage_is_one_data_parallel_group_of_all_pods() -> None:
    drawn = Drawn(FOUR_RACKS)
    found = group_spreads(drawn.lying("a b c e f"), layout(8, 1, 5))
    #   the group of all touches 2 blocks, 4 racks, 5 nodes; the five pipeline groups are single pods
    assert found.greatest.tolist() == [[2, 4, 5]]
    assert found.mean.tolist() == [[7 / 6, 9 / 6, 10 / 6]]


def test_several_data_parallel_ranks_may_share_a_pod() -> None:
    #   tp 4 in pods of 8 GPUs: two blocks of ranks in each pod. pp 2, dp 2: stage 0 is pod a, stage 1 pod b.
    drawn = Drawn(FOUR_RACKS)
    found = group_spreads(drawn.lying("a b"), layout(4, 2, 2))
    assert found.greatest.tolist() == [[1, 1, 2]]
    assert found.mean.tolist() == [[1, 1, 1.5]]


def test_jobs_without_pods_have_no_groups() -> None:
    drawn = Drawn(FOUR_RACKS)
    two = Layouts(tensor=np.asarray([8, 8]), pipeline=np.asarray([1, 1]), data=np.asarray([2, 2]))
    found = group_spreads(drawn.lying("", "a e"), two)
    assert np.isnan(found.greatest[0]).all()
    assert found.greatest[1].tolist() == [2, 2, 2]
    assert np.isnan(group_spreads(drawn.lying(""), layout(8, 1, 1)).mean).all()


def test_a_layout_must_share_out_the_pods() -> None:
    drawn = Drawn(FOUR_RACKS)
    with pytest.raises(ValueError, match="must be a multiple"):
        group_spreads(drawn.lying("a b c"), layout(8, 2, 1))


def test_the_usual_layout_follows_what_models_of_that_size_were_trained_with() -> None:
    #   pods of 8 GPUs: 256 GPUs one stage, 512 two, 1024 four, 1536 eight, 2048 sixteen; 51 pods cannot be
    #   halved, 54 can; a pod without GPUs is a rank
    pods = np.asarray([32, 64, 128, 192, 256, 51, 54, 3])
    gpus = np.asarray([8, 8, 8, 8, 8, 8, 8, 0])
    found = usual_layouts(pods, gpus)
    assert found.tensor.tolist() == [8, 8, 8, 8, 8, 8, 8, 1]
    assert found.pipeline.tolist() == [1, 2, 4, 8, 16, 1, 2, 1]
    assert (found.pipeline * found.data).tolist() == pods.tolist()
