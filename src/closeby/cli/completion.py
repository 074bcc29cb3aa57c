"""`closeby completion`, and what shells and kubectl call when a user presses the tab key."""

import os
import sys
from typing import Final, NoReturn

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class, shell_complete

from closeby.cli.main import cli
from closeby.cli.names import OneOf

SHELLS: Final = ("bash", "zsh", "fish")
#: Set by the scripts that this command prints.
VARIABLE: Final = "_CLOSEBY_COMPLETE"
#: What kubectl's completion is to do beside showing the lines (Cobra's ``ShellCompDirective``).
_WITH_FILES: Final = 0
_WITHOUT_FILES: Final = 4


@click.command()
@click.argument("shell", type=OneOf(SHELLS))
def command(shell: str) -> None:
    """Print a script that completes commands, options and names.

    \b
      bash   source <(closeby completion bash)
      zsh    source <(closeby completion zsh)
      fish   closeby completion fish | source

    Put the line into the shell's start-up file to keep it. `kubectl closeby` completes too, once kubectl's
    own completion is on and `kubectl_complete-closeby` is in the PATH.
    """
    click.echo(_completion(shell).source())


def complete() -> NoReturn:
    """Answers a script that this command printed."""
    try:
        code = shell_complete(cli, {}, "closeby", VARIABLE, os.environ[VARIABLE])
    except (KeyError, ValueError, IndexError):
        code = 1  # COMP_WORDS and COMP_CWORD are not as a shell sets them.
    _leave(code)


def complete_for_kubectl() -> None:
    """Answers kubectl, which passes the words after ``kubectl closeby``; the last one may be incomplete.

    The answer has a line for each completion, with its help after a tab, and then a directive (Cobra).
    """
    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, "closeby", VARIABLE).get_completions(words, incomplete)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_WITH_FILES if any(_is_path(item) for item in items) else _WITHOUT_FILES}")
    _leave(0)


def _leave(code: int) -> NoReturn:
    """Ends at once, whatever a cluster has not answered yet."""
    sys.stdout.flush()
    os._exit(code)


def _is_path(item: CompletionItem) -> bool:
    return item.type in ("file", "dir")


def _completion(shell: str) -> ShellComplete:
    found = get_completion_class(shell)
    assert found is not None, shell
    return found(cli, {}, "closeby", VARIABLE)
