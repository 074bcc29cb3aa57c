"""The entry point itself: how fast it answers, and what it says when something goes wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

import closeby as package
from closeby.cli import main
from closeby.cli.main import cli
from closeby.cli.names import OneOf
from tests.cli.calling import closeby, racks, text

TOUR = str(Path(__file__).parents[2] / "docs/examples/tour")


def python(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


def test_the_version_of_a_checkout_names_its_commit() -> None:
    said = closeby("--version").stdout
    commit = re.fullmatch(rf"closeby {re.escape(package.__version__)}(\+[0-9a-f]{{12}}(\.dirty)?)?\n", said)
    assert commit is not None, said
    assert bool(commit[1]) == (Path(__file__).parents[2] / ".git").exists()


def test_version_and_help() -> None:
    shown = closeby("--help").stdout
    assert "..." not in shown.split("Commands:")[1], "a summary is cut off"
    for name in main.COMMANDS:
        assert f"  {name} " in shown
        assert closeby(name, "--help").exit_code == 0
    assert closeby("no-such-command").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulat",), "no such command 'simulat'; did you mean simulate?"),
        (("discover", "slrum"), "no such command 'slrum'; did you mean slurm?"),
        (
            ("simulate", "--filenam", "x"),
            "no such option '--filenam'; did you mean '--failures', '--filename'?",
        ),
        (("simulate", "--jobs", "ten"), "invalid value for '--jobs': 'ten' is not a whole number"),
        (("explain",), "missing argument POD|PODGROUP|APPGROUP|WORKLOAD"),
        (("discover", "diff"), "missing argument A"),
        (("completion",), "missing argument SHELL; choose from bash, zsh, fish"),
        (("bench", "--only", "x"), "'x' is not a known benchmark; known benchmarks: placement,"),
        (("discover", "labels", "--preset", "x"), "'x' is not a known preset; known presets: "),
    ],
)
def test_errors_of_arguments_read_like_all_others(arguments: tuple[str, ...], said: str) -> None:
    result = closeby(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {said}")
    assert "Usage:" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("simulate", "--workload", "sern"), "seren"),
        (("simulate", "--workload", "seren", "--cluster", "smal"), "small"),
        (("compare", "--workload", "kalso", "--config", "closeby", "--config", "slurm-tree"), "kalos"),
        (("simulate", "--workload", "seren", "--cluster", "small", "--required", "leef"), "leaf"),
        (("simulate", "-f", TOUR, "--config", "kube-schedule"), "kube-scheduler"),
        (("simulate", "-f", TOUR, "-o", "jsn"), "json"),
        (("simulate", "-f", TOUR, "--explain=al"), "all"),
        (("topology", "-f", TOUR, "--level", "rak"), "rack"),
        (("topology", "-f", TOUR, "--topology", "fabrik"), "fabric"),
        (("bench", "--only", "placemnt"), "placement"),
        (("discover", "labels", "--preset", "eeks"), "eks"),
        (("discover", "slurm", "x", "-o", "lables"), "labels"),
        (("discover", "diff", "x", "y", "--from", "slrum"), "slurm"),
        (("controllers", "--only", "pod-gruper"), "pod-grouper"),
        (("agent", "--probe", "tpc"), "tcp"),
        (("scheduler", "--log-format", "jsn"), "json"),
        (("completion", "zhs"), "zsh"),
        (("schema", "explanaton"), "Explanation"),
        (("schema", "simulate"), "SchedulingReport or SimulationReport"),
        (("schema", "discover diff"), "DiscoveryDiff"),
    ],
)
def test_a_known_name_that_is_misspelt_is_said(arguments: tuple[str, ...], meant: str) -> None:
    result = closeby(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].endswith(f"did you mean {meant}?")


def test_every_choice_of_the_command_line_says_what_was_meant() -> None:
    def choices(command: click.Command, path: str) -> Iterator[tuple[str, object]]:
        for param in command.params:
            if isinstance(param.type, click.Choice):
                yield f"{path} {param.name}", param.type
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                yield from choices(inner, f"{path} {name}")

    found = dict(choices(cli, "closeby"))
    assert len(found) > 8
    assert [name for name, kind in found.items() if not isinstance(kind, OneOf)] == []


def test_help_waits_for_nothing_heavy() -> None:
    """A start takes a tenth of a second because numpy, rich and YAML are imported by those who need them."""
    code = (
        "import sys; from closeby.cli.main import cli; cli.main(['--help'], standalone_mode=False); "
        "sys.exit(' '.join({'numpy', 'rich', 'yaml', 'msgspec'} & sys.modules.keys()))"
    )
    done = python("-c", code)
    assert done.stderr.strip() == ""


def test_json_does_not_wait_for_what_draws_tables() -> None:
    code = (
        "import sys; from closeby.cli.main import cli; "
        "cli.main(['simulate', '-f', '-', '-o', 'json'], standalone_mode=False); "
        "sys.exit('rich' if 'rich' in sys.modules else 0)"
    )
    done = python("-c", code, stdin=text(*racks({"a/r": 1})))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """As in `closeby demo | head -1`, but gone before the first line."""
    with subprocess.Popen(
        [sys.executable, "-m", "closeby", "demo", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == main.READER_GONE


def test_a_fault_of_ours_is_one_short_message() -> None:
    """A command whose module is missing stands for any fault; --debug shows where it broke."""
    code = "import closeby.cli.main as m; m.COMMANDS = ('no_such_module',); m.main()"
    short = python("-c", code, "no_such_module")
    assert short.returncode == 1
    assert short.stderr.startswith("closeby failed: ")
    assert "Traceback" not in short.stderr
    assert "--debug" in short.stderr
    long = python("-c", code, "--debug", "no_such_module")
    assert long.returncode == 1
    assert "Traceback" in long.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_that_can_not_show_a_character_gets_a_question_mark(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "closeby", "topology", "-f", "-"],
        input=text(*racks({"a/r": 1})).encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert (b"?" in done.stdout) == (encoding == "ascii")


def test_no_colour_wins_over_forced_colour() -> None:
    environment = {**os.environ, "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "closeby", "topology", "-f", "-"]
    manifests = text(*racks({"a/r": 1})).encode()
    coloured = subprocess.run(command, input=manifests, capture_output=True, check=True, env=environment)
    plain = subprocess.run(
        command, input=manifests, capture_output=True, check=True, env={**environment, "NO_COLOR": "1"}
    )
    assert b"\x1b[1;36m" in coloured.stdout
    assert b"\x1b[1;36m" not in plain.stdout


def test_an_unknown_benchmark_names_the_known_ones() -> None:
    result = closeby("bench", "--only", "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "placement" in result.stderr


def shell(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", script, "sh", sys.executable], capture_output=True, text=True, check=False, input=""
    )


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        ("<&-", "standard input: can't be read"),
        (">&-", "standard output is closed"),
        ("> /dev/full", "the report can't be written: No space left on device"),
    ],
)
@pytest.mark.parametrize("output", ["json", "table"])
def test_streams_that_are_closed_or_full(redirection: str, said: str, output: str) -> None:
    given = "" if "<" in redirection else "echo '# no object' | "
    done = shell(f'{given}"$1" -m closeby simulate -f - -o {output} {redirection}')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
    assert "fault" not in done.stderr


@pytest.mark.parametrize("command", ["schema SchedulingReport", "completion bash", "--help"])
def test_a_full_disk_is_no_fault_of_closeby(command: str) -> None:
    done = shell(f'"$1" -m closeby {command} > /dev/full')
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output can't be written: No space left on device")


def test_what_the_input_says_does_not_steer_the_terminal() -> None:
    """Neither in a report nor in an error."""
    red = "\x1b[31mred"
    result = closeby("topology", "-f", "-", stdin=text(*racks({f"a/{red}": 1})))
    assert "\\x1b[31mred" in result.stdout
    wrong = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": red}}
    errors = closeby("topology", "-f", "-", stdin=text(wrong)).stderr
    assert "Node/\\x1b[31mred" in errors
    assert "\x1b" not in result.stdout + errors


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_the_input_says_does_not_steer_a_terminal_that_shows_a_document(output: str) -> None:
    """One byte of 8-bit terminals begins a command too, and text may run backwards."""
    name = "\x9b31mred\x7f\u202eeulb ü"
    shown = closeby("topology", "-f", "-", "-o", output, stdin=text(*racks({f"a/{name}": 1}))).stdout
    assert not {one for one in shown if one != "\n" and not one.isprintable()}
    document = json.loads(shown) if output == "json" else yaml.safe_load(shown)
    racks_shown = {one["path"][1] for one in document["topologies"][0]["domains"] if len(one["path"]) > 1}
    assert racks_shown == {name}


@pytest.mark.parametrize(
    ("columns", "width"), [("0", 100), ("1", 20), ("60", 60), ("99999999", 1000), ("x", 100)]
)
def test_any_number_of_columns(columns: str, width: int) -> None:
    result = closeby("topology", "-f", "-", stdin=text(*racks({"a/r": 1})), environment={"COLUMNS": columns})
    lines = result.stdout.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("arguments", [["nonsense"], ["explain"], ["explain", "x", "-f", "/nowhere"]])
def test_every_error_begins_in_the_same_way(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["closeby", *arguments])
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("error: ") for line in lines)
    assert not any(line.startswith("Error: ") for line in lines)
