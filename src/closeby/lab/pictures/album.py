"""All pictures of a run, of a state, or of several runs, each with its heading and its files (SVG, PNG)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import vl_convert
from msgspec import UNSET, Struct
from msgspec.structs import replace

from closeby.lab.pictures.boxes import boxes_of
from closeby.lab.pictures.cdfs import delay_cdfs, span_cdfs, talk_cdfs
from closeby.lab.pictures.drawn_domains import drawn_domains
from closeby.lab.pictures.fabric import fabric
from closeby.lab.pictures.heat_map import MOST_BARS, heat_map, tiles_of
from closeby.lab.pictures.paper import Spec, finished, moment_of, nothing_sought
from closeby.lab.pictures.rack_map import rack_map
from closeby.lab.pictures.scene import GPU, POD, Scene, scene_of
from closeby.lab.pictures.snapshot import snapshot
from closeby.lab.pictures.timeline import axis_of, timeline
from closeby.lab.replay.history import History
from closeby.objects.words import plural
from closeby.simulator.runs import Run

if TYPE_CHECKING:
    from closeby.lab.documents.comparison import ComparisonReport
    from closeby.lab.documents.simulation import SimulationReport
    from closeby.report.documents.scheduling import SchedulingReport


class Heading(Struct, frozen=True, kw_only=True):
    """``seren on lingjun, configuration default``, and its numbers."""

    title: str
    details: str


def heading_of_simulation(report: "SimulationReport") -> Heading:
    """Workload, cluster and configuration; then size, load, seed and what was asked of the topology."""
    workload, cluster, policy = report.workload, report.cluster, report.policy
    details = [plural(workload.jobs, "job")]
    if workload.load is not None:
        details.append(f"load {workload.load:g}")
    if workload.seed is not None:
        details.append(f"seed {workload.seed}")
    room = plural(cluster.gpus, "GPU") if cluster.gpus else f"{cluster.cores:,.0f} cores"
    details.append(f"{plural(cluster.nodes, 'node')} with {room}")
    for what, level in (("required", policy.required), ("preferred", policy.preferred)):
        if level is not None:
            details.append(f"{what} {level}")
    segments = () if policy.segments is UNSET else policy.segments
    details += [f"segments of {one.size} in one {one.level}" for one in segments]
    if report.failures is not UNSET:
        failures = report.failures
        details.append(f"{plural(failures.nodes, 'node')} of each {failures.level} out of order")
    return Heading(
        title=f"{workload.name} on {cluster.name}, configuration {policy.name}", details=", ".join(details)
    )


def heading_of_scheduling(report: "SchedulingReport", nodes: int, policy: str) -> Heading:
    """How many pods have a node, then the size of the cluster, the configuration, and the gangs that wait."""
    placed = sum(pod.node is not None for pod in report.pods)
    details = [plural(nodes, "node"), f"configuration {policy}"]
    waiting = sum(group.reason is not None for group in report.groups)
    if waiting:
        details.append(f"{plural(waiting, 'gang')} waiting")
    return Heading(
        title=f"{placed:,} of {plural(len(report.pods), 'pod')} on nodes", details=", ".join(details)
    )


def heading_of_comparison(report: "ComparisonReport") -> Heading:
    """The policies, what they were compared on, and how many runs there are of each."""
    workload, cluster = report.workload, report.cluster
    details = [plural(workload.jobs, "job")]
    if workload.load is not None:
        details.append(f"load {workload.load:g}")
    if workload.seeds:
        details.append(plural(len(workload.seeds), "seed"))
    room = plural(cluster.gpus, "GPU") if cluster.cores is UNSET else f"{cluster.cores:,.0f} cores"
    details.append(f"{plural(cluster.nodes, 'node')} with {room}")
    *others, last = report.policies
    policies = f"{', '.join(others)} and {last}" if others else last
    return Heading(
        title=f"{policies}: {workload.name} on {cluster.name}",
        details=", ".join(details),
    )


#: Clusters with more nodes have no map: it would be unreadable.
MOST_NODES = 20_000

FLOWS = (
    "Flows are modelled, not measured: a gang sends around the ring of its ranks, one for each GPU of a pod.",
    "An uplink has a link for each GPU below, over the oversubscription; beyond 1 a link, flows share links.",
)
DELAY = "From submission to start; jobs that never started count with what they had waited in the end."
SPAN = "Jobs larger than a node, weighted by GPU-time; 1 is as close together as an empty cluster allows."

TALK = "Pairs are pods that call each other. An application counts by the time that it ran."
NO_SPAN = (
    "Excess span is not drawn: it exists only for jobs that need several nodes, and applications do not."
)


class Picture(Struct, frozen=True, kw_only=True, eq=False):
    """One chart; its files are ``<name>.svg`` and ``<name>.png``."""

    name: str
    title: str
    #: How to read it, in sentences of a line each.
    notes: tuple[str, ...]
    chart: Spec
    heading: Heading
    #: The moment that the chart shows, if it shows one.
    moment: float | None = None

    def document(self) -> Spec:
        """The chart as a Vega-Lite document with its title and its notes."""
        lines = [self.heading.title, self.heading.details, *self.notes]
        parameters = () if self.moment is None else (moment_of(self.moment), nothing_sought())
        return finished(self.chart, self.title, [line for line in lines if line], *parameters)


def pictures_of_run(run: Run, heading: Heading) -> tuple[Picture, ...]:
    """``rack-map`` and ``fabric`` of the state after a run over manifests."""
    return _maps(snapshot(run), heading, 0, "")


def pictures_of_history(history: History, heading: Heading, at: float | None = None) -> tuple[Picture, ...]:
    """``rack-map`` and ``fabric`` at the moment ``at`` (seconds; None: when most GPUs are busy), and
    ``timeline`` and ``distributions`` of the whole run."""
    scene = scene_of(history, at)
    stop = stop_of(history, scene, at)
    when = f" at {scene.moments.named(stop)}"
    over_time = Picture(
        name="timeline",
        title="Utilisation and queue over time",
        notes=axis_of(history, scene.moments).notes,
        chart=timeline(history, scene.moments),
        heading=heading,
    )
    return (
        *_maps(scene, heading, stop, when),
        over_time,
        *distributions({history.policy: [history]}, heading),
    )


def distributions(histories: Mapping[str, Sequence[History]], heading: Heading) -> tuple[Picture, ...]:
    """``delay``, and ``span`` or ``talk``, with a line for each policy if there are several.

    The runs of one policy, such as those of several seeds, are taken together. Which of the two depends on
    whether jobs are gangs or applications.
    """
    where = (
        ("talk", "Traffic between pods", TALK, talk_cdfs(histories))
        if are_applications(histories)
        else ("span", "Excess span", SPAN, span_cdfs(histories))
    )
    found = (("delay", "Queueing delay", DELAY, delay_cdfs(histories)), where)
    return tuple(
        Picture(name=name, title=title, notes=(note,), chart=chart, heading=heading)
        for name, title, note, chart in found
    )


def not_drawn(histories: Mapping[str, Sequence[History]]) -> str:
    """Says which distribution is not drawn, and why; empty if all are."""
    return NO_SPAN if are_applications(histories) else ""


def are_applications(histories: Mapping[str, Sequence[History]]) -> bool:
    """Whether some job is an application."""
    return any(run.jobs.graphs for runs in histories.values() for run in runs)


def stop_of(history: History, scene: Scene, at: float | None) -> int:
    """The last stop of the slider up to a time; None: the first at which most GPUs are busy, or else
    most cores or pods."""
    if at is not None:
        return scene.moments.holding(at)
    stops = scene.moments.stops
    times = scene.moments.in_units(history.samples.times)
    index = np.searchsorted(times, stops, side="right") - 1
    if scene.resource != GPU:
        running = (scene.since <= stops[:, None]) & (stops[:, None] < scene.until)
        held = np.bincount(scene.tenant_of, weights=scene.amounts, minlength=len(scene.tenants))
        return int(np.argmax(running @ held))
    busy = np.where(index >= 0, history.samples.busy[index], 0) if len(times) else np.zeros(1)
    return int(np.argmax(busy))


def notes_on(scene: Scene) -> tuple[str, ...]:
    """What a report says about its maps: how to read them, and what they do not show."""
    sentences = [bars_note(scene)] if scene.tree.size else []
    sentences += FLOWS if _has_flows(scene) else ()
    sentences += scene.left_out
    if scene.tree.size > MOST_NODES and tiles_of(scene.tree) is None:
        sentences.append(
            f"A rack map is not drawn for {plural(scene.tree.size, 'node')}: {MOST_NODES:,} are the most."
        )
    drawn = drawn_domains(scene.tree)
    if scene.resource == POD:
        sentences.append(
            "The load of a fabric is not drawn: it is measured in GPUs or cores, and the jobs ask for "
            "neither."
        )
    elif drawn is None:
        sentences.append(
            "There is no fabric to draw: the topology has no level above nodes that could be drawn."
        )
    elif drawn.levels < scene.tree.node_level:
        hidden = scene.tree.level_names[drawn.levels]
        sentences.append(
            f"The fabric is drawn down to the level above {hidden}, of which there are too many."
        )
    return tuple(sentences)


def maps_of(scene: Scene) -> dict[str, Spec]:
    """``rack-map`` and ``fabric``, as far as they can be drawn."""
    found = {}
    tiles = tiles_of(scene.tree)
    if tiles is not None:
        found["rack-map"] = heat_map(scene, tiles)
    elif scene.tree.size and scene.tree.size <= MOST_NODES:
        found["rack-map"] = rack_map(scene, boxes_of(scene.tree))
    drawn = drawn_domains(scene.tree)
    if drawn is not None and scene.resource != POD:
        found["fabric"] = fabric(scene, drawn)
    return found


TITLES = {"rack-map": "Rack map", "fabric": "Fabric and load"}


def _notes(name: str, scene: Scene) -> tuple[str, ...]:
    if name == "rack-map":
        return (bars_note(scene),)
    return FLOWS if _has_flows(scene) else ()


def hint_on(scene: Scene) -> str:
    """What the pointer does on the map of a report."""
    if tiles_of(scene.tree) is None:
        return "Point at a gang to see where the rest of it is."
    return "Point at a tile for its domain; search for a gang to see where it is."


def bars_note(scene: Scene) -> str:
    """What a bar of the rack map is."""
    if tiles_of(scene.tree) is not None:
        return (
            f"More than {MOST_BARS:,} nodes are drawn by domains: the colour of a tile says how many of its "
            f"{scene.unit} are held."
        )
    if scene.resource == POD:
        return "A bar is a node; a full one has as many pods as any node ever has."
    bare = scene.capacity[scene.tree.slot_at] == 0
    without = f" A narrow grey one has no {scene.unit}." if bare.any() else ""
    return f"A bar is a node with all of its {scene.unit}; the used part is coloured.{without}"


def _has_flows(scene: Scene) -> bool:
    """Whether a fabric is drawn on which gangs send."""
    return scene.resource != POD and scene.has_rings and drawn_domains(scene.tree) is not None


def _maps(scene: Scene, heading: Heading, stop: int, when: str) -> tuple[Picture, ...]:
    moment = scene.moments.at(stop)
    return tuple(
        Picture(
            name=name,
            title=f"{TITLES[name]}{when}",
            notes=_notes(name, scene),
            chart=chart,
            heading=heading,
            moment=moment,
        )
        for name, chart in maps_of(replace(scene, only=moment)).items()
    )


#: The version of Vega-Lite that charts are written for, as vl-convert names it.
VEGA_LITE = "6.4"
#: Where an SVG gives a name to something, or calls it by its name.
_NAMED = re.compile(r'(\bid="|url\(#)((?:clip|gradient_?)\d+)("|\))')
#: Pixels of a PNG for each pixel of its picture.
SCALE = 2.0


def to_svg(document: Spec) -> str:
    """A chart as SVG."""
    drawn = vl_convert.vegalite_to_svg(document, vl_version=VEGA_LITE, allowed_base_urls=[])
    # Its names for clips and gradients go on counting from picture to picture.
    names = {
        name: f"{name.rstrip('0123456789')}{number}" for number, name in enumerate(_names(drawn), start=1)
    }
    return _NAMED.sub(lambda found: f"{found[1]}{names[found[2]]}{found[3]}", drawn)


def _names(svg: str) -> Iterable[str]:
    """Names inside the picture, in the order in which they appear."""
    return dict.fromkeys(found[2] for found in _NAMED.finditer(svg))


def to_png(svg: str) -> bytes:
    """A chart that was drawn as SVG as PNG."""
    return vl_convert.svg_to_png(svg, scale=SCALE)


def write_pictures(
    folder: Path, pictures: Iterable[Picture], progress: Callable[[int], None] | None = None
) -> tuple[Path, ...]:
    """Each picture as ``<name>.svg`` and ``<name>.png``.

    The folder is made if it is not there; files of these names are overwritten. ``progress`` hears how many
    pictures are written.

    Raises:
        OSError: a file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, picture in enumerate(pictures, start=1):
        written += _written(folder, picture.name, picture.document())
        if progress is not None:
            progress(number)
    return tuple(written)


def _written(folder: Path, name: str, document: Spec) -> tuple[Path, Path]:
    drawn = to_svg(document)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    svg.write_text(drawn, encoding="utf-8")
    png.write_bytes(to_png(drawn))
    return svg, png
