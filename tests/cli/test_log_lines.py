"""Lines of the log: one line a fact, of bounded length, that no object and no peer can forge."""

import json
import logging
from typing import Any

import pytest
from aiohttp.http_exceptions import BadStatusLine

from closeby.cli.operating.log_lines import (
    LONGEST_TRACEBACK,
    LONGEST_VALUE,
    LibraryLines,
    json_line,
    text_line,
)

Capture = pytest.CaptureFixture[str]
#: What an annotation of 256 KiB may hold.
HOSTILE = [
    "x" * 262_144,
    "ü" * 131_072,
    "\x1b[2J" * 65_536,
    "a b\n" * 65_536,
    '"\\' * 131_072,
    "\x00" * 262_144,
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("write", [text_line, json_line])
def test_no_value_makes_a_line_long(write: Any, value: str, capsys: Capture) -> None:
    write("problem", object="Pod/a/b", problem=value, traceback=value)
    line = capsys.readouterr().err
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert len(line.encode()) <= LONGEST_VALUE + LONGEST_TRACEBACK + 200


def test_objects_write_no_lines_of_their_own(capsys: Capture) -> None:
    text_line(
        "problem", problem="x\ntime=2030-01-01T00:00:00.000Z level=info msg=placed", object="\x1b[31mred"
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert 'problem="x\\ntime=' in line
    assert "\\u001b[31mred" in line


def test_json_is_json_whatever_the_values_are(capsys: Capture) -> None:
    json_line(
        "m",
        warning=True,
        nan=float("nan"),
        inf=float("inf"),
        half=0.5,
        count=3,
        yes=True,
        nothing=None,
        empty="",
        listed=["a", 1],
        many=list(range(10_000)),
        lone="\ud800",
    )
    found = json.loads(capsys.readouterr().err, parse_constant=pytest.fail)
    assert found.pop("time").endswith("Z")
    many = found.pop("many")
    assert isinstance(many, str) and len(many) <= LONGEST_VALUE
    assert found.pop("lone") in ("\ud800", "?")
    assert found == {
        "level": "warning",
        "msg": "m",
        "nan": "nan",
        "inf": "inf",
        "half": 0.5,
        "count": 3,
        "yes": True,
        "listed": ["a", 1],
    }


class TestLibraries:
    """What libraries log by themselves would be tracebacks of many lines, as many as a stranger likes."""

    @pytest.fixture
    def lines(self) -> list[dict[str, object]]:
        return []

    @pytest.fixture
    def now(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def logger(self, lines: list[dict[str, object]], now: list[float]) -> logging.Logger:
        def write(message: str, /, *, warning: bool = False, **fields: object) -> None:
            lines.append({"msg": message, **fields})

        logger = logging.Logger("aiohttp.server")
        logger.addHandler(LibraryLines(write, lambda: now[0]))
        return logger

    def test_of_one_kind_of_message_one_a_minute(
        self, logger: logging.Logger, lines: list[dict[str, object]], now: list[float]
    ) -> None:
        for i in range(1000):
            logger.error("it broke for %s", f"peer {i}")
        logger.error("another")
        assert [one["text"] for one in lines] == ["it broke for peer 0", "another"]
        now[0] = 61.0
        logger.error("it broke for %s", "peer 1000")
        assert lines[-1]["left_out"] == 999

    def test_what_is_no_http_is_no_line(self, logger: logging.Logger, lines: list[dict[str, object]]) -> None:
        try:
            raise BadStatusLine("\x16\x03\x01")
        except BadStatusLine:
            logger.exception("Error handling request from %s", "10.0.0.1")
        assert lines == []

    def test_faults_come_with_their_traceback(
        self, logger: logging.Logger, lines: list[dict[str, object]]
    ) -> None:
        def deep(calls: int) -> None:
            if calls == 0:
                raise ValueError("x" * 1_000_000)
            deep(calls - 1)

        try:
            deep(900)
        except ValueError:
            logger.exception("Error handling request from %s", "10.0.0.1")
        (line,) = lines
        assert "ValueError: xxx" in str(line["traceback"])
        assert len(str(line["traceback"])) < LONGEST_TRACEBACK

    def test_a_message_that_can_not_be_formatted(
        self, logger: logging.Logger, lines: list[dict[str, object]]
    ) -> None:
        template = "%s and %s"
        logger.error(template, "one")
        assert lines[0]["text"] == "%s and %s"
