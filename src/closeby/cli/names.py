"""Types of options and arguments: text for the command, completions for a shell."""

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Text = click.ParamType[str]
else:
    # It takes no type arguments in older versions.
    _Text = click.ParamType


class _FileName(_Text):
    """The path of a file or folder; the command itself checks it, and says what is wrong with it."""

    name = "path"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """The shell knows its files better."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class _ConfigurationName(_Text):
    """The name of a built-in configuration, or the path of a file."""

    name = "configuration"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """The names that fit; the shell's files where none does."""
        from click.shell_completion import CompletionItem

        from closeby.plugins.configurations import NAMED

        names = [CompletionItem(name) for name in NAMED if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


FILE_NAME: Final = _FileName()
CONFIGURATION_NAME: Final = _ConfigurationName()
