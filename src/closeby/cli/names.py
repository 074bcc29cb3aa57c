"""Types of options and arguments: text for the command, completions for a shell."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Text = click.ParamType[str]
else:
    # It takes no type arguments in older versions.
    _Text = click.ParamType


#: Bytes of manifests that are read to complete a name.
MOST_BYTES: Final = 5_000_000


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


class _SubjectName(_Text):
    """A pod, gang, application or workload; the command itself looks for it."""

    name = "subject"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """What the manifests contain that were named before with -f; without these the kinds."""
        from click.shell_completion import CompletionItem

        from closeby.report.documents.subjects import APP_GROUP, GANG, POD, WORKLOAD_KINDS

        paths = ctx.params.get("paths") or ()
        names = _subject_names(paths) if paths else ()
        kinds = (f"{kind}/" for kind in (APP_GROUP, GANG, POD, *WORKLOAD_KINDS))
        return [CompletionItem(name) for name in names or kinds if name.startswith(incomplete)]


def _subject_names(paths: Sequence[str]) -> list[str]:
    """``kind/name`` of all that can be explained, unless there is too much to read while a user waits."""
    from closeby.errors import ClosebyError
    from closeby.reading.manifests import read_manifests
    from closeby.report.documents.subjects import APP_GROUP, GANG, POD, workload_names
    from closeby.simulator.expansion import expand

    if sum(os.path.getsize(path) for path in paths if os.path.isfile(path)) > MOST_BYTES:
        return []
    try:
        manifests = read_manifests([path for path in paths if path != "-"])
    except (ClosebyError, OSError):
        return []
    expansion = expand(manifests)
    owners = workload_names(expansion.pods, manifests.workloads)
    return [
        *(f"{GANG}/{one.name}" for one in expansion.groups),
        *(f"{APP_GROUP}/{one.name}" for one in manifests.app_groups),
        *dict.fromkeys(f"{one.split('/')[0]}/{one.split('/')[2]}" for one in owners),
        *(f"{POD}/{one.name}" for one in expansion.pods),
    ]


FILE_NAME: Final = _FileName()
CONFIGURATION_NAME: Final = _ConfigurationName()
SUBJECT_NAME: Final = _SubjectName()
