"""The options `--plot` and `--html`, and what writes the files that they ask for."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from closeby.cli.names import FILE_NAME
from closeby.cli.options import Command, Seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.lab.documents.comparison import ComparisonReport
    from closeby.lab.documents.simulation import SimulationReport
    from closeby.lab.pictures.album import Picture
    from closeby.lab.replay.history import History
    from closeby.report.documents.scheduling import SchedulingReport
    from closeby.simulator.runs import Run


def check_written(written: Mapping[str, str | None], read: Iterable[str | None]) -> None:
    """Says at once that a file would be lost; ``written`` holds file names by option.

    ``read`` names files and folders, of which all manifests are read.

    Raises:
        UsageError: it would be, or the file would have the name that stands for standard input.
    """
    from closeby.reading.decoding.sources import STDIN, find_files

    named = [path for path in read if path]
    kept = {Path(path).resolve() for path in (*named, *find_files(named)[0])}
    options: dict[Path, str] = {}
    for option, path in written.items():
        if not path:
            continue
        if path == STDIN:
            raise click.UsageError(f"{option} writes to a file and not to standard output: name one")
        place = Path(path).resolve()
        if place in kept:
            raise click.UsageError(f"{option} {path} would overwrite a file that is read; name another one")
        other = options.setdefault(place, option)
        if other != option:
            raise click.UsageError(f"{other} and {option} both write {path}; name another file for one")


Views = Callable[[], "Iterable[RenderableType]"]

LIBRARIES = ("vl_convert",)


class Pictures(NamedTuple):
    """Which pictures are wanted."""

    folder: str | None
    page: str | None
    #: The moment that maps show, in seconds; None leaves it to them.
    at: float | None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to draw."""
        return self.folder is not None or self.page is not None

    def check(self, *, over_time: bool, until: float | None = None) -> None:
        """Says at once what would keep the files from being written after a long run.

        ``until`` is when a run over time stops, as far as that is known; seconds.

        Raises:
            Unusable: what draws is not installed, or a path can't be written to.
        """
        from closeby.cli.reading.inputs import Unusable

        if self.at is not None and not (over_time and self.folder is not None):
            raise click.UsageError("--plot-at is the moment of a run over time that --plot shows: add both")
        if self.at is not None and until is not None and self.at > until:
            from closeby.objects.words import time_text

            raise click.UsageError(
                f"--plot-at {time_text(self.at)} is after --until {time_text(until)}, when the run stops: "
                "name an earlier moment or a later end"
            )
        if not self.wanted:
            return
        if any(find_spec(name) is None for name in LIBRARIES):
            raise Unusable(
                "--plot and --html need what draws; pip install '.[lab]' in the folder of closeby's source"
            )
        if self.folder is not None:
            if not self.folder:
                raise click.UsageError("--plot needs the name of a folder; . is the one you are in")
            if Path(self.folder).exists() and not Path(self.folder).is_dir():
                raise Unusable(f"{self.folder}: is a file; --plot needs a folder")
            _check_writable(Path(self.folder))
        if self.page is not None:
            if not self.page:
                raise click.UsageError("--html needs the name of a file")
            if Path(self.page).is_dir():
                raise Unusable(f"{self.page}: is a folder; --html needs the name of a file")
            _check_writable(Path(self.page))

    def of_run(self, run: "Run", report: "SchedulingReport", config_path: str | None, views: Views) -> None:
        """Draw the state after a run over manifests, if it is wanted.

        Raises:
            Unusable: a file can't be written.
        """
        if not self.wanted:
            return
        from closeby.lab.pictures.album import heading_of_scheduling, pictures_of_run
        from closeby.lab.pictures.page import page_of_run
        from closeby.plugins.configurations import DEFAULT

        policy = DEFAULT if config_path is None else Path(config_path).stem
        heading = heading_of_scheduling(report, run.engine.cluster.node_count, policy)
        self._write(lambda: pictures_of_run(run, heading), lambda: page_of_run(run, heading, views()))

    def of_history(self, history: "History", report: "SimulationReport", views: Views) -> None:
        """Draw a run over time, if it is wanted.

        Raises:
            Unusable: a file can't be written.
        """
        if not self.wanted:
            return
        from closeby.lab.pictures.album import heading_of_simulation, not_drawn, pictures_of_history
        from closeby.lab.pictures.page import page_of_history

        if self.at is not None and self.at > history.until:
            from closeby.objects.words import time_text

            asked, end = time_text(self.at), time_text(history.until)
            click.echo(
                f"note: --plot-at {asked} is after the end of the run, so that maps show the end, {end}; "
                "name an earlier moment",
                err=True,
            )
        heading = heading_of_simulation(report)
        self._write(
            lambda: pictures_of_history(history, heading, self.at),
            lambda: page_of_history(history, heading, views(), self.at),
            not_drawn({history.policy: [history]}),
        )

    def of_comparison(
        self, histories: "Mapping[str, Sequence[History]]", report: "ComparisonReport", views: Views
    ) -> None:
        """Draw the distributions of several policies side by side, if it is wanted.

        ``histories`` holds the runs of each policy.

        Raises:
            Unusable: a file can't be written.
        """
        if not self.wanted:
            return
        from closeby.lab.pictures.album import distributions, heading_of_comparison, not_drawn
        from closeby.lab.pictures.page import page_of_comparison

        heading = heading_of_comparison(report)
        self._write(
            lambda: distributions(histories, heading),
            lambda: page_of_comparison(histories, heading, views()),
            not_drawn(histories),
        )

    def _write(
        self, pictures: "Callable[[], tuple[Picture, ...]]", page: Callable[[], str], left_out: str = ""
    ) -> None:
        """Draw and write, and say so on standard error, and what is left out."""
        from closeby.cli.reading.inputs import Unusable
        from closeby.cli.simulating.given import progress_of
        from closeby.lab.pictures.album import write_pictures

        drawn = () if self.folder is None else pictures()
        steps = len(drawn) + (self.page is not None)
        try:
            with progress_of("pictures" if drawn else "report", steps) as progress:
                if self.folder is not None:
                    write_pictures(Path(self.folder), drawn, progress)
                if self.page is not None:
                    Path(self.page).parent.mkdir(parents=True, exist_ok=True)
                    Path(self.page).write_text(page(), encoding="utf-8")
                    if progress is not None:
                        progress(steps)
        except OSError as error:
            path = error.filename or self.folder or self.page
            raise Unusable(f"{path}: can't be written: {error.strerror or error}; check the path") from error
        if self.folder is not None:
            names = ", ".join(picture.name for picture in drawn) or "none, as there are no nodes"
            click.echo(f"pictures in {self.folder}, as .svg and .png: {names}", err=True)
            if left_out:
                click.echo(left_out, err=True)
        if self.page is not None:
            click.echo(f"report in {self.page}", err=True)


def _check_writable(path: Path) -> None:
    """Says whether a file or folder can't be made or written, as far as that is known beforehand.

    Raises:
        Unusable: it could not.
    """
    from closeby.cli.reading.inputs import Unusable

    there = next((one for one in (path, *path.absolute().parents) if one.exists()), path)
    if there != path and not there.is_dir():
        raise Unusable(f"{path}: can't be written: {there} is not a folder; check the path")
    if not os.access(there, os.W_OK):
        raise Unusable(f"{path}: can't be written: you may not write to {there}; check the path")


def draws(command: Command) -> Command:
    """``--plot DIR``, ``--plot-at TIME`` and ``--html FILE``; the command gets them as ``pictures``."""

    @_PLOT
    @click.option(
        "--plot-at",
        "at",
        type=Seconds(),
        help="The point in simulated time that the maps of --plot show, such as 36h, 2d, or 7200 for "
        "seconds. Past the end of the run they show the end.  [default: the busiest point]",
    )
    @_HTML
    @wraps(command)
    def with_pictures(*, folder: str | None, at: float | None, page: str | None, **options: object) -> None:
        command(pictures=Pictures(folder, page, at), **options)

    return with_pictures


def draws_distributions(command: Command) -> Command:
    """``--plot DIR`` and ``--html FILE``, for pictures that show no moment."""

    @_PLOT
    @_HTML
    @wraps(command)
    def with_pictures(*, folder: str | None, page: str | None, **options: object) -> None:
        command(pictures=Pictures(folder, page, None), **options)

    return with_pictures


_PLOT = click.option(
    "--plot",
    "folder",
    metavar="DIR",
    type=FILE_NAME,
    help="Write plots to this directory, as SVG and PNG; files of the same names are overwritten.",
)
_HTML = click.option(
    "--html",
    "page",
    metavar="FILE",
    type=FILE_NAME,
    help="Write the report and its plots to one self-contained HTML file.",
)
