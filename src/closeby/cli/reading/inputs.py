"""What a command reads, and what it says when that can't be used."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from closeby.applications.networks import ALL_NAMESPACES, NetworkScope
from closeby.cli.options import Sources
from closeby.cli.reading.progress import Progress
from closeby.errors import ClosebyError, ConfigurationError
from closeby.objects.words import harmless, similar
from closeby.plugins.configurations import DEFAULT, NAMED
from closeby.reading.configuration import Configuration, read_configuration
from closeby.reading.manifests import Manifests, read_manifests

if TYPE_CHECKING:
    from closeby.cli.reading.cluster import ReadCluster


class Unusable(ClosebyError, click.ClickException):  # noqa: N818 - it is how a command ends
    """Arguments or input that nothing can be done with."""

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))

    def show(self, file: object = None) -> None:
        for line in self.message.splitlines():
            click.echo(f"error: {harmless(line)}", err=True)


class Inputs(Struct, frozen=True, kw_only=True):
    """What was read. ``errors`` is only there with ``--keep-going``."""

    manifests: Manifests
    configuration: Configuration
    errors: tuple[str, ...] = ()
    #: Whose pending pods are decided; None: all.
    scheduler_name: str | None = None
    #: Whose NetworkTopologies count.
    networks: NetworkScope = ALL_NAMESPACES


def read_inputs(sources: Sources) -> Inputs:
    """Read manifests and configuration.

    Raises:
        Unusable: something can't be read and ``--keep-going`` was not chosen, or nothing at all can be read.
    """
    configuration = read_configuration_file(sources.config_path)
    progress = Progress(sys.stderr, "reading manifests")
    try:
        manifests = read_manifests(sources.paths, progress=progress.tell)
    finally:
        progress.clear()
    errors = tuple(str(error) for error in manifests.errors)
    if errors and not sources.keep_going:
        raise Unusable(*errors, "nothing was done; fix this, or skip it with --keep-going")
    if errors and not _anything(manifests):
        raise Unusable(*errors, "nothing could be read")
    for error in errors:
        click.echo(f"skipped: {harmless(error)}", err=True)
    return Inputs(
        manifests=manifests,
        configuration=configuration,
        errors=errors,
        scheduler_name=sources.scheduler_name,
    )


def read_cluster_or_files(sources: Sources) -> "tuple[Inputs, ReadCluster | None]":
    """As ``read_inputs``; without paths the live cluster, which comes second then.

    Raises:
        Unusable: see ``read_inputs``; or the cluster can't be read.
    """
    if sources.paths:
        return read_inputs(sources), None
    from closeby.cli.reading.cluster import read_live

    return read_live(sources)


@contextmanager
def usable_configuration() -> Iterator[None]:
    """Says what is wrong with a configuration whose plugins or arguments turn out to be wrong."""
    try:
        yield
    except ConfigurationError as error:
        raise Unusable(*error.lines) from error


def read_configuration_file(path: str | None) -> Configuration:
    """The configuration at ``path``, else the one of that name; None for the default one.

    Says what was left aside in it.

    Raises:
        Unusable: it can't be read.
    """
    if path is None:
        return NAMED[DEFAULT]
    if path in NAMED and not Path(path).is_file():
        return NAMED[path]
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        meant = similar(path, NAMED)
        remedy = f"did you mean {meant}?" if meant else f"known configurations: {', '.join(NAMED)}"
        raise Unusable(f"{path}: is neither a file nor a known configuration; {remedy}") from error
    except OSError as error:
        raise Unusable(f"{path}: can't be read: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    with usable_configuration():
        configuration = read_configuration(text, path)
    # A plugin may be beside the configuration that names it. At the end of the path, so that no file there
    # takes the place of an installed module.
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    for notice in configuration.notices:
        click.echo(f"note: {notice}", err=True)
    return configuration


def _anything(manifests: Manifests) -> bool:
    return bool(
        manifests.nodes or manifests.pods or manifests.workloads or manifests.groups or manifests.topologies
    )
