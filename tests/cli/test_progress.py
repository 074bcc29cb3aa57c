"""A long reading of a cluster says how far it is, on a terminal only."""

import io

from closeby.cli.reading.cluster import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO) -> str:
    """What is written while 1,500 objects come every 0.3 seconds."""
    now = [0.0]
    progress = Progress(stream, lambda: now[0])
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
    progress = Progress(stream, lambda: 0.0)
    progress.tell(10)
    progress.clear()
    assert stream.getvalue() == ""
