"""What `--help` says: the same of one option in every command, and nothing that is not so."""

import re
from collections.abc import Iterator

import click
import pytest

from closeby.cli.main import cli
from closeby.lab.replay.clusters import SHAPES
from closeby.lab.workloads.generating import WORKLOADS
from tests.cli.calling import closeby

#: Options that are another thing in another command, or the same of another thing.
DIFFER = {
    "--config",  # many are compared
    "--dry-run",  # what is left out
    "--filename",  # what the manifests are read for, and what is read without
    "--jobs",  # how many there usually are
    "--labels",
    "--namespace",
    "--only",
    "--output",
    "--pod-grouper",  # what is so where nothing is said
    "--resource",  # what is counted where none is named
    "--scheduler-name",
    "--timeout",
    "--topology",
}
#: Examples are printed as they are, and must fit a terminal of this width.
WIDTH = 110


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))


def options() -> Iterator[tuple[str, click.Option]]:
    for command in COMMANDS.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield max(parameter.opts, key=len), parameter


def test_an_option_means_the_same_in_every_command() -> None:
    said: dict[str, set[str | None]] = {}
    for name, option in options():
        said.setdefault(name, set()).add(option.help)
    assert {name for name, texts in said.items() if len(texts) > 1} == DIFFER


def test_every_option_has_a_sentence() -> None:
    for name, option in options():
        sentence = re.sub(r"  \[default: .*\]$", "", option.help or "")
        assert re.match(r"[A-Z`]|iperf3", sentence), name
        # What ends with an example has no full stop that could be taken for a part of it.
        assert sentence.endswith((".", "mlx5_[0-7]")) or ": " in sentence, (name, sentence)


def test_no_type_of_the_library_is_shown() -> None:
    for path in COMMANDS:
        shown = closeby(*path, "--help").stdout
        assert not re.search(r"\b(INTEGER|FLOAT|TEXT) ?(RANGE)?\b", shown), path


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_lines_that_are_not_wrapped_are_short(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].help or ""
    examples = [line for block in text.split("\n\n") if block.startswith("\b") for line in block.splitlines()]
    assert max(map(len, examples), default=0) <= WIDTH


def test_names_in_help_exist() -> None:
    shown = " ".join(closeby("simulate", "--help").stdout.split())
    clusters = re.search(r"synthetic cluster .*?: ([a-z0-9, ]+)\.", shown)
    assert clusters is not None
    assert set(re.split(r", | or ", clusters[1])) == set(SHAPES)
    workloads = re.search(r"synthetic workload, such as ([a-z, ]+);", shown)
    assert workloads is not None
    assert set(re.split(r", | or ", workloads[1])) <= set(WORKLOADS)
    assert closeby("simulate", "--workload", "nope").stderr.count("seren") == 1


def test_help_lists_the_options_for_runs_over_time_correctly() -> None:
    command = COMMANDS["simulate",]
    names = [max(one.opts, key=len) for one in command.params if isinstance(one, click.Option)]
    later = names[names.index("--workload") + 2 :]
    for name in later:
        flag = name in ("--from-empty", "--full", "--deadlines")
        value = "rack=1" if name in ("--segment", "--failures") else "1"
        result = closeby("simulate", "-f", "-", name, *(() if flag else (value,)), stdin="")
        assert f"{name} belongs to a run over time" in result.stderr, name
    for given in (("--explain",), ("--scheduler-name", "x")):
        result = closeby("simulate", "--workload", "seren", *given)
        assert f"{given[0]} is for the pods of manifests" in result.stderr
