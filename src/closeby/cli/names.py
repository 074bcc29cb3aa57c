"""Types of options and arguments: text for the command, completions for a shell."""

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from closeby.kube.client.connection import Connection
    from closeby.kube.client.transport import Transport

    _Text = click.ParamType[str]
    _Choice = click.Choice[str]
else:
    # They take no type arguments in older versions.
    _Text = click.ParamType
    _Choice = click.Choice


#: Bytes of manifests that are read to complete a name.
MOST_BYTES: Final = 5_000_000
#: Seconds that a user waits for names of a cluster.
PATIENCE: Final = 2.0


class OneOf(_Choice):
    """One of some names; a wrong one is met with the one that was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself."""
        if value not in self.choices:
            self.fail(self.refusal(str(value)), param, ctx)
        return super().convert(value, param, ctx)

    def refusal(self, value: str) -> str:
        """What is wrong with a value."""
        from closeby.objects.words import suggestion

        known = ", ".join(map(repr, self.choices))
        return f"{value!r} is not one of {known}{suggestion(value, self.choices)}"


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
        """What the manifests contain that were named before with -f, or the namespace in the cluster; where
        there is nothing, the kinds.
        """
        from click.shell_completion import CompletionItem

        from closeby.report.documents.subjects import APP_GROUP, GANG, POD, WORKLOAD_KINDS

        paths = ctx.params.get("paths") or ()
        names = _subject_names(paths) if paths else _names_in_cluster(ctx)
        kinds = [f"{kind}/" for kind in (APP_GROUP, GANG, POD, *WORKLOAD_KINDS)]
        # A name may be given without its kind.
        alone = list(dict.fromkeys(name.partition("/")[2] for name in names))
        for offered in (names, alone, kinds):
            fitting = [CompletionItem(name) for name in offered if name.startswith(incomplete)]
            if fitting:
                return fitting
        return []


class _NamespaceName(_Text):
    """A namespace; the command itself says that there is none of that name."""

    name = "namespace"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Those of the cluster."""
        from click.shell_completion import CompletionItem

        async def ask(transport: "Transport", connection: "Connection") -> list[str]:
            from closeby.kube.state.listing import namespaces

            return await namespaces(transport)

        names = () if ctx.params.get("paths") else _asked(ctx, ask)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _names_in_cluster(ctx: click.Context) -> list[str]:
    """``kind/name`` of what can be explained in the namespace that was named before, or the context's."""

    async def ask(transport: "Transport", connection: "Connection") -> list[str]:
        from closeby.kube.state.listing import names_in

        return await names_in(transport, ctx.params.get("namespace") or connection.namespace)

    return _asked(ctx, ask)


def _asked(
    ctx: click.Context, ask: "Callable[[Transport, Connection], Coroutine[Any, Any, list[str]]]"
) -> list[str]:
    """What the cluster answers that the options before name; nothing where it does not answer soon."""
    import asyncio
    import threading

    from closeby.kube.client.connection import connect
    from closeby.objects.process import Contained
    from closeby.objects.reasons import Problem

    connection = connect(ctx.params.get("kubeconfig"), ctx.params.get("context"))
    if isinstance(connection, Problem):
        return []
    from closeby.kube.client.transport import Transport

    found: list[str] = []

    async def names() -> None:
        async with asyncio.timeout(PATIENCE), Transport(connection) as transport:
            found.extend(await ask(transport, connection))

    def run() -> None:
        # A user who presses the tab key has asked for no message.
        with Contained():
            asyncio.run(names())

    # Looking up the server's address can't be interrupted, so the thread may outlive our patience.
    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return found if not asking.is_alive() else []


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
NAMESPACE_NAME: Final = _NamespaceName()
