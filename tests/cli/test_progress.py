"""A long reading says how far it is, on a terminal only."""

import io
from pathlib import Path

from closeby.cli.reading.progress import Progress
from closeby.lab.benchmarks.dumps import as_json, dumped
from closeby.reading.manifests import read_manifests


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO) -> str:
    """What is written while 1,500 objects come every 0.3 seconds."""
    now = [0.0]
    progress = Progress(stream, "reading the cluster", lambda: now[0])
    for number in (1500, 3000, 4500):
        now[0] += 0.3
        progress.tell(number)
        progress.tell(number + 1)
    progress.clear()
    return stream.getvalue()


def test_a_terminal_has_one_line_that_goes_in_the_end() -> None:
    line = "\rreading the cluster: {} objects"
    assert told(Terminal()) == f"{line.format('3,000')}{line.format('4,500')}\r\x1b[K"


def test_a_pipe_has_nothing() -> None:
    assert told(io.StringIO()) == ""


def test_a_short_reading_has_nothing() -> None:
    stream = Terminal()
    progress = Progress(stream, "reading the cluster", lambda: 0.0)
    progress.tell(10)
    progress.clear()
    assert stream.getvalue() == ""


def test_reading_manifests_says_how_many_objects_it_has(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(as_json(dumped(250, 300)))
    heard: list[int] = []
    read_manifests([str(tmp_path)], progress=heard.append)
    assert heard == [100, 200, 300, 400, 500]
