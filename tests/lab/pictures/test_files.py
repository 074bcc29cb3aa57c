"""SVG and PNG files: they open, they show what they should, and the same run gives the same bytes."""

import json
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from closeby.lab.pictures.album import (
    SCALE,
    Heading,
    Picture,
    distributions,
    pictures_of_history,
    pictures_of_run,
    write_pictures,
)
from closeby.lab.pictures.gang_marks import BARE
from closeby.objects.labels import HOSTNAME
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.simulator.runs import Run, simulate
from tests.lab.pictures.histories import Job, empty_run, history, story
from tests.worlds import draw, fabric, gang, pods, spec

HEADING = Heading(title="a story on seven nodes", details="5 jobs")
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def fills(svg: str) -> set[str]:
    paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return {element.get("fill", "").lower() for element in paths}


def png_size(data: bytes) -> tuple[int, int]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_jobs_without_gpus_are_reported_in_pods_on_nodes_that_have_some() -> None:
    jobs = {"shop": Job(nodes=("n1", "n2"), gpus=0, start=0.0, end=9.0)}
    pictures = {one.name: one for one in pictures_of_history(history(jobs, until=9.0), HEADING)}
    assert "fabric" not in pictures
    (note,) = pictures["rack-map"].notes
    assert note == "A bar is a node; a full one has as many pods as any node ever has."
    assert "2-8 pods (1 job)" in json.dumps(pictures["delay"].document())


def some_run() -> Run:
    """A gang of three pods of 4 GPUs on leaf a/l1 and beyond, and a single pod."""
    return simulate(
        Manifests(
            nodes=tuple(draw("a l1 : n1=4 n2=4\na l2 : n3=4", ["zone", "leaf"])),
            topologies=(fabric("zone", "leaf", HOSTNAME),),
            groups=(gang(min_member=2),),
            pods=(*pods("train", 2, spec(gpu=4)), *pods(None, 1, spec(gpu=1), prefix="solo")),
        ),
        Configuration(),
    )


def written(folder: Path, pictures: tuple[Picture, ...]) -> dict[str, bytes]:
    paths = write_pictures(folder, pictures)
    assert sorted(paths) == sorted(folder.iterdir())
    return {path.name: path.read_bytes() for path in paths}


def test_a_run_over_time_gives_ten_files(tmp_path: Path) -> None:
    files = written(tmp_path, pictures_of_history(story(), HEADING))
    names = ["delay", "fabric", "rack-map", "span", "timeline"]
    assert sorted(files) == sorted(f"{name}.{kind}" for name in names for kind in ("svg", "png"))
    for name in names:
        svg = files[f"{name}.svg"].decode()
        assert any(HEADING.title in text for text in texts(svg))
        root = ElementTree.fromstring(svg)
        width, height = (float(root.get(side, "0")) for side in ("width", "height"))
        assert png_size(files[f"{name}.png"]) == (round(width * SCALE), round(height * SCALE))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path / "first", pictures_of_history(story(), HEADING))
    second = written(tmp_path / "second", pictures_of_history(story(), HEADING))
    assert [name for name in first if first[name] != second[name]] == []


def test_the_map_shows_the_busiest_moment_unless_one_is_chosen() -> None:
    """At minute 0 wide and half hold 14 GPUs, at 10 wide and other 15, at 20 later and other 11."""
    titles = [pictures_of_history(story(), HEADING, at)[0].title for at in (None, 0.0, 1200.0, 1e9)]
    assert titles == [f"Rack map at {minute:g} min" for minute in (10, 0, 20, 40)]


def test_the_map_names_the_gangs_of_its_moment(tmp_path: Path) -> None:
    pictures = pictures_of_history(story(), HEADING, at=1200.0)[:1]
    files = written(tmp_path, pictures)
    said = texts(files["rack-map.svg"].decode())
    assert "later: 2 pods × 4 GPUs in a/l1" in said
    assert not [text for text in said if text.startswith("wide")]
    assert "wide" not in json.dumps(pictures[0].document())
    assert {"n1", "n7", "l1", "single pods", "free"} <= set(said)


def test_a_state_gives_a_map_and_a_fabric(tmp_path: Path) -> None:
    files = written(tmp_path, pictures_of_run(some_run(), HEADING))
    assert sorted(files) == ["fabric.png", "fabric.svg", "rack-map.png", "rack-map.svg"]
    said = texts(files["rack-map.svg"].decode())
    assert "default/train: 2 pods × 4 GPUs in a/l1" in said
    assert "75%" in texts(files["fabric.svg"].decode())


def test_nodes_without_gpus_differ_from_free_ones_and_the_key_has_what_is_drawn(tmp_path: Path) -> None:
    """A gang has all GPUs of n1, and a pod that asks for none is on n2, which has none."""
    keyed = {"single pods", "free", "no GPUs"}
    for nodes, requests, expected in (
        ("a l1 : n1=4 n2=0", spec(), {"no GPUs"}),
        ("a l1 : n1=4 n2=0 n3=4", spec(), {"no GPUs", "free"}),
        ("a l1 : n1=4 n3=4", spec(gpu=1), {"single pods", "free"}),
    ):
        run = simulate(
            Manifests(
                nodes=tuple(draw(nodes, ["zone", "leaf"])),
                topologies=(fabric("zone", "leaf", HOSTNAME),),
                groups=(gang(min_member=1),),
                pods=(*pods("train", 1, spec(gpu=4)), *pods(None, 1, requests, prefix="solo")),
            ),
            Configuration(),
        )
        pictures = pictures_of_run(run, HEADING)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        svg = written(folder, pictures)["rack-map.svg"].decode()
        assert keyed & set(texts(svg)) == expected
        assert (BARE.lower() in fills(svg)) is ("no GPUs" in expected)
        assert ("no GPUs" in pictures[0].notes[0]) is ("no GPUs" in expected)


def test_a_cluster_without_levels_has_no_fabric() -> None:
    run = empty_run("n1=4 n2=4".replace("n1", ": n1"), ())
    assert [picture.name for picture in pictures_of_run(run, HEADING)] == ["rack-map"]


def test_a_cluster_without_nodes_has_no_pictures() -> None:
    run = simulate(Manifests(), Configuration())
    assert pictures_of_run(run, HEADING) == ()


def test_jobs_without_gpus_have_a_map_of_pods_and_no_fabric(tmp_path: Path) -> None:
    """The map shows the moment at which most jobs run."""
    past = history(
        {
            "a": Job(nodes=("n1", "n2"), gpus=0, start=0.0, end=20.0),
            "b": Job(nodes=("n1",), gpus=0, start=10.0, end=20.0),
        },
        until=20.0,
        with_gpus=False,
    )
    pictures = pictures_of_history(past, HEADING)
    assert [picture.name for picture in pictures] == ["rack-map", "timeline", "delay", "span"]
    assert pictures[0].title == "Rack map at 10 s"
    files = written(tmp_path, pictures)
    said = texts(files["rack-map.svg"].decode())
    assert {"a: 2 pods in a/l1", "fewer pods than the fullest node has"} <= set(said)
    assert "no job larger than a node ran" in texts(files["span.svg"].decode())


def test_a_run_of_no_jobs_says_so(tmp_path: Path) -> None:
    files = written(tmp_path, pictures_of_history(history({}, until=0.0), HEADING))
    assert len(files) == 10
    assert "there are no jobs" in texts(files["delay.svg"].decode())


def test_policies_side_by_side(tmp_path: Path) -> None:
    """One panel a size or level, and the two policies in the legend of each."""
    both = {name: [story(name), story(name)] for name in ("ours", "theirs")}
    files = written(tmp_path, distributions(both, HEADING))
    said = texts(files["delay.svg"].decode())
    assert {"2-8 GPUs", "9-64 GPUs", "ours", "theirs"} <= set(said)
    assert {"zone", "leaf"} <= set(texts(files["span.svg"].decode()))


@pytest.mark.parametrize("at", [0.0, 600.0])
def test_free_gpus_stay_white(tmp_path: Path, at: float) -> None:
    files = written(tmp_path, pictures_of_history(story(), HEADING, at=at)[:1])
    assert "#ffffff" in fills(files["rack-map.svg"].decode())
