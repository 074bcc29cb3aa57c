"""A control plane as a whole: started in order, stopped in reverse, each program at hand for a test."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.access import Access, read_kubeconfig
from tests.control_plane.binaries import Programs
from tests.control_plane.commands import ADMIN, ORDINARY, Settings, commands, make_site
from tests.control_plane.processes import Process, StartError, Usage

_TRIES = 3


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    `kubeconfig` is the administrator's, `ordinary_kubeconfig` that of a user without any rights of its own.
    `controllers` says whether a controller manager belongs to it.
    `processes` has the programs by name, those not started too. A cluster that is not ours has no processes,
    and None for the ordinary user.
    """

    origin: str
    kubeconfig: Path
    ordinary_kubeconfig: Path | None
    controllers: bool
    processes: Mapping[str, Process]

    @property
    def ours(self) -> bool:
        """Whether we started it, so that a test may stop parts of it."""
        return bool(self.processes)

    def access(self) -> Access:
        """How the administrator reaches it."""
        return read_kubeconfig(self.kubeconfig)

    def usage(self) -> dict[str, Usage]:
        """What each running program has used since it started."""
        return {name: process.usage() for name, process in self.processes.items() if process.running}

    @contextlib.contextmanager
    def also(self, program: str) -> Iterator[Process]:
        """Runs one more program meanwhile, such as kube-scheduler; one that runs already is left running."""
        process = self.processes[program]
        ran = process.running
        process.start()
        try:
            yield process
        finally:
            if not ran:
                process.stop()


def existing(kubeconfig: Path) -> ControlPlane:
    """A cluster that runs already."""
    return ControlPlane(f"the cluster of {kubeconfig}", kubeconfig, None, True, {})


@contextlib.contextmanager
def started(programs: Programs, folder: Path, settings: Settings | None = None) -> Iterator[ControlPlane]:
    """A new control plane that keeps its files and logs in `folder`, up to the end of the context.

    Raises StartError, with the end of the log, if a program doesn't come up.
    """
    settings = settings or Settings()
    if programs.path("kube-controller-manager") is None:
        settings = dataclasses.replace(settings, controllers=False)
    control_plane = _start(programs, folder, settings)
    try:
        yield control_plane
    finally:
        _stop(control_plane.processes)
        shutil.rmtree(control_plane.kubeconfig.parent / "etcd", ignore_errors=True)


def _start(programs: Programs, folder: Path, settings: Settings) -> ControlPlane:
    attempt = 0
    while True:
        attempt += 1
        its_folder = folder.resolve() / f"try-{attempt}" if attempt > 1 else folder.resolve()
        its_folder.mkdir(parents=True, exist_ok=True)
        # What a run left there that was killed.
        shutil.rmtree(its_folder / "etcd", ignore_errors=True)
        site = make_site(its_folder)
        processes = {
            name: Process(name, command, its_folder / f"{name}.log")
            for name, command in commands(site, programs, settings).items()
        }
        wanted = {
            "etcd": True,
            "kube-apiserver": True,
            "kube-controller-manager": settings.controllers,
            "kube-scheduler": settings.scheduler,
        }
        try:
            for name, process in processes.items():
                if wanted[name]:
                    process.start()
        except BaseException as error:
            _stop(processes)
            # Another program may have taken a port between our look and our start.
            if isinstance(error, StartError) and "address already in use" in str(error) and attempt < _TRIES:
                continue
            raise
        return ControlPlane(
            programs.origin,
            site.kubeconfigs[ADMIN],
            site.kubeconfigs[ORDINARY],
            settings.controllers,
            processes,
        )


def _stop(processes: Mapping[str, Process]) -> None:
    # An API server that has lost its etcd waits for it before it ends.
    for process in reversed(list(processes.values())):
        process.stop()
