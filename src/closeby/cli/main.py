"""The command `closeby` (and `kubectl closeby`): one thin file per command, imported when it is called."""

import contextlib
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import PurePath
from types import TracebackType
from typing import Any

import click

from closeby import full_version

#: Commands in the order of `closeby --help`; each is the attribute ``command`` of a module of this folder.
COMMANDS = (
    "demo",
    "simulate",
    "compare",
    "topology",
    "explain",
    "discover",
    "scheduler",
    "controllers",
    "agent",
    "bench",
    "schema",
    "completion",
)

#: Exit code when arguments or input, which a plugin of the user's is too, can't be used.
UNUSABLE = 2
#: Exit codes that a shell expects of a program that was interrupted, or whose reader went away.
INTERRUPTED = 130
READER_GONE = 141


class Misused(click.ClickException):
    """Arguments that click refuses, reported as all other errors are, and where the right ones are listed."""

    exit_code = UNUSABLE

    def __init__(self, error: click.UsageError) -> None:
        lines = [f"error: {_as_ours(_with_names(error))}"]
        if error.ctx is not None:
            lines.append(f"See `{error.ctx.command_path} --help`.")
        super().__init__("\n".join(lines))

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


def _with_names(error: click.UsageError) -> str:
    """The message, with the names that were probably meant; an argument is called as in the usage, without
    its choices.
    """
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument) and error.param.name:
        error.param_hint = (error.param.metavar or error.param.name.upper()).strip("[].")
    said = error.format_message()
    if not isinstance(error.ctx and error.ctx.command, click.Group) or "No such command" not in said:
        return said
    import difflib

    assert error.ctx is not None
    assert isinstance(error.ctx.command, click.Group)
    wrong = said.split("'")[1]
    close = difflib.get_close_matches(wrong, error.ctx.command.list_commands(error.ctx), n=1)
    return f"{error.message} (Did you mean {close[0]}?)" if close else error.message


def _as_ours(said: str) -> str:
    """A message of click's: in lower case, without a full stop, and with a remedy after a semicolon."""
    said = re.sub(r"\.? \(?Did you mean(?: one of:)? (.+?)\?\)?$", r"; did you mean \1?", said)
    said = re.sub(r"\. Choose from:\s+(.+)$", _choices, said, flags=re.DOTALL)
    said = re.sub(r"a valid integer( range)?", "a whole number", said)
    said = re.sub(r"a valid float( range)?", "a number", said)
    first = said[:1].lower() if said[1:2].islower() else said[:1]
    return first + said[1:].removesuffix(".")


def _choices(found: re.Match[str]) -> str:
    return f"; choose from {', '.join(found[1].replace(',', ' ').split())}"


@contextmanager
def _one_style() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise Misused(error) from error


class _Commands(click.Group):
    """Finds a command's file by its name."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _one_style():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _one_style():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"closeby.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None


def _show_version(ctx: click.Context) -> None:
    click.echo(f"closeby {full_version()}")
    ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, option, wanted: _show_version(ctx) if wanted else None,
    help="Show the version and exit.",
)
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, option, wanted: _show_tracebacks() if wanted else None,
    help="Show a traceback when closeby itself fails.",
)
def cli() -> None:
    """Put the pods that talk to each other close to each other.

    closeby is a network-topology-aware scheduler for Kubernetes. Start with `closeby demo`.
    """


def main() -> None:
    """Run the command line.

    Exit codes: 0 a report was printed, 1 a fault of closeby, 2 unusable arguments or input, 3 with
    ``--strict`` when something stayed pending.
    """
    sys.excepthook = _our_fault
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a character gets a question mark rather than a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    called = PurePath(sys.argv[0]).stem
    sys.exit(_run("kubectl closeby" if called.startswith("kubectl") else "closeby"))


def _run(program: str) -> int:
    """Run the command that the arguments name; returns the exit code.

    Not left to click's own ``main``, which exits with 1 when the reader of a pipe goes away.
    """
    try:
        if os.environ.get("_CLOSEBY_COMPLETE"):
            from closeby.cli.completion import complete

            complete()
        code = _invoke(program)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone, as in `closeby … | head`.
        from closeby.cli.output import discard_output

        discard_output()
        return READER_GONE
    except Exception as error:
        from closeby.cli.faults import fault_of_plugin, output_refused, without_laboratory

        said = without_laboratory(error) or fault_of_plugin(error) or output_refused(error)
        if said is None or sys.excepthook is sys.__excepthook__:
            raise
        _tell(f"error: {said}; `closeby --debug …` shows the traceback")
        return UNUSABLE
    return code


def _invoke(program: str) -> int:
    try:
        with cli.make_context(program, sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return 0


def _show(error: click.ClickException) -> None:
    """As click shows it, but every message begins with ``error:``."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        error.show()
    lines = text.getvalue().splitlines()
    _tell(*(f"error: {one.removeprefix('Error: ')}" if one.startswith("Error: ") else one for one in lines))


def _tell(*lines: str) -> None:
    """Why the command ends, on standard error: as one line of JSON where log lines are to be JSON."""
    given = sys.argv[1:]
    if "--log-format=json" not in given and ("--log-format", "json") not in pairwise(given):
        click.echo("\n".join(lines), err=True)
        return
    from closeby.cli.operating.log_lines import json_line

    json_line("exiting", level="error", error="\n".join(lines).removeprefix("error: "))


def _show_tracebacks() -> None:
    sys.excepthook = sys.__excepthook__


def _our_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What the user sees of a fault of ours; Python then exits with 1."""
    where = traceback.extract_tb(trace)[-1:]
    place = f" ({PurePath(where[0].filename).name}:{where[0].lineno})" if where else ""
    _tell(
        f"closeby failed: {kind.__name__}: {error}{place}",
        "This is a fault of closeby and not of your input. "
        "`closeby --debug …` shows the traceback; please report it.",
    )
