"""`closeby simulate --plot` and `--html`."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.calling import closeby, racks, report, text, train
from tests.golden.fixture import Golden

CLUSTER = racks({"a/r1": 2, "a/r2": 2, "b/r1": 1})
STATE = text(*CLUSTER, *train(4, 3))
OVER_TIME = ("simulate", "--workload", "seren", "--jobs", "30", "--cluster", "small")


def test_a_state_as_pictures_and_as_one_page(tmp_path: Path, golden: Golden) -> None:
    folder, page = tmp_path / "new" / "pictures", tmp_path / "other" / "report.html"
    result = closeby("simulate", "-f", "-", "--plot", folder, "--html", page, stdin=STATE)
    assert result.exit_code == 0
    golden("simulate-over-time", result.stdout)
    assert result.stderr.splitlines() == [
        f"pictures in {folder}, as .svg and .png: rack-map, fabric",
        f"report in {page}",
    ]
    assert sorted(file.name for file in folder.iterdir()) == [
        "fabric.png",
        "fabric.svg",
        "rack-map.png",
        "rack-map.svg",
    ]
    assert "<td>train</td>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("config", "name"), [((), "default"), (("--config", "closeby"), "closeby")])
def test_a_page_names_the_configuration_that_placed_the_pods(
    tmp_path: Path, config: tuple[str, ...], name: str
) -> None:
    page = tmp_path / "report.html"
    assert closeby("simulate", "-f", "-", "--html", page, *config, stdin=STATE).exit_code == 0
    assert f"configuration {name}" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_over_time_and_the_same_one_again(tmp_path: Path) -> None:
    """Files of the same names are overwritten, by the same bytes."""
    asked = (*OVER_TIME, "--plot", tmp_path / "pictures", "--html", tmp_path / "report.html")
    assert closeby(*asked).exit_code == 0
    first = {file: file.read_bytes() for file in tmp_path.rglob("*.*")}
    assert len(first) == 11
    assert closeby(*asked).exit_code == 0
    assert [file for file in tmp_path.rglob("*.*") if first.get(file) != file.read_bytes()] == []


def test_a_terminal_shows_how_far_drawing_is(tmp_path: Path) -> None:
    """Two pictures and the report."""
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    files = ("--plot", str(tmp_path / "pictures"), "--html", str(tmp_path / "report.html"))
    shown, terminal = os.openpty()
    run = [sys.executable, "-m", "closeby", "simulate", "-f", str(tmp_path / "state.yaml"), *files]
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=terminal, timeout=200, check=False)
    os.close(terminal)
    said = b""
    with suppress(OSError):
        while part := os.read(shown, 65536):
            said += part
    os.close(shown)
    assert done.returncode == 0
    plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", said)
    assert re.search(rb"pictures .* 3/3", plain)
    assert b"report in " in said


def test_the_page_says_what_the_table_says(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = closeby(*OVER_TIME, "--html", page)
    html = page.read_text(encoding="utf-8")
    assert "<h1>seren on small, configuration default</h1>" in html
    for heading in ("Waiting, by size of job", "Use of the GPUs", "Where jobs ran"):
        assert heading in result.stdout
        assert f"<h3>{heading}</h3>" in html


def test_pictures_count_the_jobs_of_the_table(tmp_path: Path) -> None:
    """A fifth large job is too large for the cluster, and with --until some come too late."""
    trace = Path(__file__).parents[2] / "docs" / "examples" / "trace.csv"
    for until in ((), ("--until", "20m")):
        asked = ("simulate", "--trace", trace, "--cluster", "small", *until)
        delays = report(*asked, "--plot", tmp_path)["measures"]["delays"]
        told = [f"{one['size']} GPUs ({one['jobs']} job" for one in delays[2:] if one["jobs"]]
        assert len(told) >= 2
        drawn = (tmp_path / "delay.svg").read_text(encoding="utf-8").replace("&gt;", ">")
        assert [one for one in told if one not in drawn] == []


def test_json_is_left_alone(tmp_path: Path) -> None:
    told = report("simulate", "-f", "-", "--plot", tmp_path, stdin=STATE)
    assert told["kind"] == "SchedulingReport"


def test_the_moment_is_chosen(tmp_path: Path) -> None:
    assert closeby(*OVER_TIME, "--plot", tmp_path, "--plot-at", "0s").exit_code == 2
    assert closeby(*OVER_TIME, "--plot", tmp_path, "--plot-at", "1m").exit_code == 0
    assert "Rack map at" in (tmp_path / "rack-map.svg").read_text(encoding="utf-8")


def test_a_moment_past_the_end_of_the_run_shows_the_end_and_says_so(tmp_path: Path) -> None:
    """The run is as long as its jobs, which nobody knows before; its report is not lost for that."""
    result = closeby(*OVER_TIME, "--plot", tmp_path, "--plot-at", "21600h")
    assert result.exit_code == 0
    (note,) = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    end = re.search(r"Ended .* in (.+) of virtual time", result.stdout)
    assert end is not None
    assert note == (
        "note: --plot-at 900 d is after the end of the run, so that maps show the end, "
        f"{end[1]}; name an earlier moment"
    )
    assert "is after" not in closeby(*OVER_TIME, "--plot", tmp_path, "--plot-at", "1m").stderr


def test_a_moment_past_the_end_that_is_asked_for_is_refused_before_the_run(
    tmp_path: Path, golden: Golden
) -> None:
    result = closeby(*OVER_TIME, "--until", "2h", "--plot", tmp_path / "pictures", "--plot-at", "3h")
    assert (result.exit_code, result.stdout) == (2, "")
    golden("command-errors", result.stderr)
    assert not (tmp_path / "pictures").exists()


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--plot", "", "--plot needs the name of a folder"),
        ("--html", "", "--html needs the name of a file"),
        ("--plot", "file/below", "file is not a folder; check the path"),
        ("--html", "file/below/report.html", "file is not a folder; check the path"),
    ],
)
def test_a_path_that_cannot_be_written_is_an_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, path: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    result = closeby(*OVER_TIME, option, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_pictures_are_drawn_for_readers_of_the_first_line_only(tmp_path: Path) -> None:
    """``closeby … --html report.html | head -1``, whose reader is gone when the table comes."""
    reader, writer = os.pipe()
    os.close(reader)
    page = tmp_path / "report.html"
    run = [sys.executable, "-m", "closeby", *OVER_TIME, "--html", str(page)]
    done = subprocess.run(run, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, f"report in {page}\n")
    assert page.read_text(encoding="utf-8").endswith("</html>\n")


@pytest.mark.parametrize(
    "arguments", [("-f", "-", "--plot", "x", "--plot-at", "1h"), (*OVER_TIME[1:], "--plot-at", "1h")]
)
def test_a_moment_needs_a_run_over_time_and_a_folder(arguments: tuple[str, ...], golden: Golden) -> None:
    result = closeby("simulate", *arguments, stdin=STATE)
    assert result.exit_code == 2
    golden("command-errors", result.stderr)


def test_without_the_drawing_library_the_remedy_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """As on a machine where the extra is not installed; nothing is run first."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = closeby("simulate", "-f", "-", "--plot", tmp_path / "pictures", stdin=STATE)
    assert (result.exit_code, result.stdout) == (2, "")
    golden("command-errors", result.stderr)
    assert not (tmp_path / "pictures").exists()


def test_paths_that_can_not_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for arguments, said in (
        (("--plot", file), f"error: {file}: is a file; --plot needs a folder\n"),
        (("--html", tmp_path), f"error: {tmp_path}: is a folder; --html needs the name of a file\n"),
        (("--html", file / "report.html"), "can't be written"),
    ):
        result = closeby("simulate", "-f", "-", *arguments, stdin=STATE)
        assert result.exit_code == 2
        assert said in result.stderr
    assert file.read_text() == "mine"


def test_a_comparison_has_distributions_and_its_table(tmp_path: Path, golden: Golden) -> None:
    """The same whether runs go on in this process or beside it."""
    policies = ("--config", "closeby", "--config", "most-allocated")
    load = ("--workload", "seren", "--cluster", "small", "--jobs", "20", "--seeds", "2")
    pages = []
    for processes in ("1", "2"):
        folder = tmp_path / processes
        files = ("--plot", str(folder), "--html", str(folder / "report.html"))
        result = closeby("compare", *policies, *load, "--processes", processes, *files)
        assert result.exit_code == 0, result.stderr
        assert sorted(file.stem for file in folder.glob("*.svg")) == ["delay", "span"]
        pages.append((folder / "report.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert "<h1>closeby and most-allocated: seren on small</h1>" in pages[0]
    assert "<td>most-allocated</td>" in pages[0]


def test_a_comparison_shows_no_moment() -> None:
    result = closeby("compare", "--help")
    assert "--plot-at" not in result.stdout
    assert "--html FILE" in result.stdout
