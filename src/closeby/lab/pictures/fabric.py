"""The fabric as a tree: how busy each domain is, and how much modelled traffic crosses its uplink."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor

import altair as alt
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.paper import INK, PALE_INK, THERE, Sheet, data
from closeby.lab.pictures.scene import Scene
from closeby.objects.arrays import Floats, Ints
from closeby.objects.words import path_text, plural
from closeby.quality.contention import tier_above, uplink_uses, uplinks
from closeby.quality.model import DEFAULT_MODEL, Model
from closeby.quality.placements import placements
from closeby.quality.rings import rings
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree


class Loads(Struct, frozen=True, kw_only=True, eq=False):
    """What tenants bring upon the domains of one level; shapes (R,), one row a tenant and domain it uses."""

    level: int
    tenants: Ints
    domains: Ints
    #: How much of the scene's resource the tenant holds there.
    held: Floats
    #: Modelled flows up from the domain.
    flows: Floats
    #: Full links that the uplink of each of the level's D domains is worth; shape (D,). That of the whole
    #: cluster, which no flow leaves, is nan.
    links: Floats


def loads_of(scene: Scene, levels: int, model: Model = DEFAULT_MODEL) -> tuple[Loads, ...]:
    """The loads of the whole cluster, then of the coarsest so many levels above single nodes."""
    found = placements(scene.tree, scene.offsets, scene.slots)
    uses = uplink_uses(found, rings(found), scene.links_of_pods)
    worth = uplinks(model, scene.tree, scene.links_of_nodes)
    loads = []
    for level in range(ROOT_LEVEL, levels):
        tenants, domains, held = _held(scene, level)
        flows = np.zeros(len(tenants))
        here = uses.level == level
        # A tenant that sends from a domain holds something there, and rows ascend by tenant and domain.
        count = np.intp(scene.tree.count(level))
        rows = np.searchsorted(tenants * count + domains, uses.job[here] * count + uses.domain[here])
        flows[rows] = uses.flows[here]
        loads.append(
            Loads(
                level=level,
                tenants=tenants,
                domains=domains,
                held=held,
                flows=flows,
                links=np.full(1, np.nan) if level == ROOT_LEVEL else worth[level],
            )
        )
    return tuple(loads)


def _held(scene: Scene, level: int) -> tuple[Ints, Ints, Floats]:
    """Tenants, domains, and what they hold there, ascending."""
    tree = scene.tree
    inside = scene.slots < len(tree.position_of)
    positions = np.full(len(scene.slots), tree.size, dtype=np.intp)
    positions[inside] = tree.position_of[scene.slots[inside]]
    known = positions < tree.size
    at = tree.domain_at[level] if level > ROOT_LEVEL else np.zeros(tree.size, dtype=np.intp)
    count = tree.count(level)
    keys = scene.tenant_of[known] * np.intp(count) + at[positions[known]]
    rows, row = np.unique(keys, return_inverse=True)
    held = np.bincount(row.reshape(-1), weights=scene.amounts[known], minlength=len(rows))
    return rows // count, rows % count, held.astype(np.float64)


WIDTH = 1000.0
#: Room to the left for the names of levels.
MARGIN = 84.0
#: A level with more domains is not drawn, nor are those below it.
MOST_DOMAINS = 800
#: Height of a domain's bar, and of the links between levels.
BAR = 26.0
LINKS = 84.0
#: Gap between domains of different parents, as a share of the width.
GAP = 0.012
#: Width of a link that carries nothing, and of the busiest of the run; colours of none, of a flow for each
#: full link, and of the busiest beyond that.
THIN = 0.6
THICK = 9.0
BUSY = ("#F3F4F6", "#6BAED6", "#08306B")
CROSSED = ("#D9DCE2", "#F5A65B", "#8C2D04")
LETTER = 6.2
#: Room that a share in figures needs.
SHARE_WIDTH = 36


class Limbs(Struct, frozen=True, kw_only=True, eq=False):
    """The D domains that are drawn, from the root down, with their bars; shapes (D,)."""

    domains: tuple[Domain, ...]
    #: Index of the domain above; the root's is its own.
    above: NDArray[np.intp]
    left: Floats
    right: Floats
    top: Floats
    #: Levels that are drawn, coarse to fine.
    levels: int


def limbs_of(tree: Tree) -> Limbs | None:
    """Where the tree's domains lie: each above what it holds. None when there are no levels to draw."""
    levels = 0
    while levels < tree.node_level and tree.count(levels) <= MOST_DOMAINS:
        levels += 1
    if not levels or not tree.size:
        return None
    left = {ROOT: MARGIN + 0.3 * (WIDTH - MARGIN)}
    right = {ROOT: MARGIN + 0.7 * (WIDTH - MARGIN)}
    left.update(_finest(tree, levels - 1)[0])
    right.update(_finest(tree, levels - 1)[1])
    for level in range(levels - 2, ROOT_LEVEL, -1):
        for index in range(tree.count(level)):
            first, end = tree.within(Domain(level, index), level + 1)
            left[Domain(level, index)] = left[Domain(level + 1, first)]
            right[Domain(level, index)] = right[Domain(level + 1, end - 1)]
    domains = [ROOT, *(Domain(level, index) for level in range(levels) for index in range(tree.count(level)))]
    number = {domain: index for index, domain in enumerate(domains)}
    return Limbs(
        domains=tuple(domains),
        above=np.asarray([number[tree.ancestor(one, max(one.level - 1, ROOT_LEVEL))] for one in domains]),
        left=np.asarray([left[one] for one in domains]),
        right=np.asarray([right[one] for one in domains]),
        top=np.asarray([(one.level + 1) * (BAR + LINKS) for one in domains]),
        levels=levels,
    )


def _finest(tree: Tree, level: int) -> tuple[dict[Domain, float], dict[Domain, float]]:
    """Left and right ends of the domains of the lowest level drawn: equally wide, apart by parents."""
    count = tree.count(level)
    parents = [tree.ancestor(Domain(level, index), level - 1) for index in range(count)]
    gaps = np.cumsum([0, *(one != other for one, other in pairwise(parents))])
    room = WIDTH - MARGIN
    gap = min(GAP * room, 0.25 * room / max(int(gaps[-1]), 1))
    wide = (room - gap * gaps[-1]) / count
    lefts = MARGIN + np.arange(count) * wide + gaps * gap
    inner = min(wide * 0.15, 3.0)
    ends = [(Domain(level, index), float(at)) for index, at in enumerate(lefts.tolist())]
    return dict(ends), {one: at + wide - inner for one, at in ends}


def fabric(scene: Scene, limbs: Limbs) -> alt.LayerChart:
    """The tree at the moment that the parameter ``moment`` holds."""
    sheet = Sheet(WIDTH, (limbs.levels + 1) * (BAR + LINKS) - LINKS + 2)
    loads = loads_of(scene, limbs.levels)
    base = _at_moment(scene, limbs, loads)
    layers = [
        _links(sheet, base, greatest_load(scene, loads), with_rings=scene.has_rings),
        _bars(sheet, base, scene),
        _shares(sheet, base),
        *_names(sheet, scene, limbs),
    ]
    chart: alt.LayerChart = (
        alt.LayerChart(layer=layers)
        .resolve_scale(color="independent")
        .properties(width=sheet.width, height=sheet.height, name="fabric")
    )
    return chart


def _capacities(scene: Scene, limbs: Limbs) -> Floats:
    at = scene.capacity[scene.tree.slot_at]
    spans = [scene.tree.span(domain) for domain in limbs.domains]
    return np.asarray([float(at[first:end].sum()) for first, end in spans])


def greatest_load(scene: Scene, loads: Sequence[Loads]) -> float:
    """The most flows per full link that ever cross an uplink: the scale stands still."""
    most = 0.0
    for one in loads:
        if one.level == ROOT_LEVEL or not len(one.domains):
            continue
        # Flows come and go with their tenants: a running sum over starts and ends, domain by domain.
        domain = np.concatenate((one.domains, one.domains))
        when = np.concatenate((scene.since[one.tenants], scene.until[one.tenants]))
        change = np.concatenate((one.flows, -one.flows))
        order = np.lexsort((change, when, domain))
        most = max(most, float((np.cumsum(change[order]) / one.links[domain[order]]).max()))
    return most


def _at_moment(scene: Scene, limbs: Limbs, loads: Sequence[Loads]) -> alt.Chart:
    """One row a domain with what it holds and what leaves it; domains without any have a row of nothing."""
    size = len(limbs.domains)
    tenants = np.concatenate([one.tenants for one in loads])
    # The domains of a level follow those of the level above, as they do in ``limbs``.
    firsts = np.cumsum([0, *(len(one.links) for one in loads)])
    domains = [first + one.domains for first, one in zip(firsts.tolist(), loads, strict=False)]
    rows = data(
        domain=np.concatenate([*domains, np.arange(size)]),
        held=np.concatenate([*(one.held for one in loads), np.zeros(size)]),
        flows=np.concatenate([*(one.flows for one in loads), np.zeros(size)]),
        since=np.concatenate([scene.since[tenants], np.full(size, -1.0)]),
        until=np.concatenate([scene.until[tenants], np.full(size, 1e12)]),
    )
    middle = (limbs.left + limbs.right) / 2
    links = np.concatenate([one.links for one in loads])
    places = data(
        domain=np.arange(size),
        left=limbs.left,
        right=limbs.right,
        top=limbs.top,
        bottom=limbs.top + BAR,
        middle=middle,
        above=middle[limbs.above],
        above_bottom=limbs.top[limbs.above] + BAR,
        capacity=_capacities(scene, limbs),
        links=np.where(np.isnan(links), 0.0, links),
        name=[path_text(scene.tree.path(domain)) for domain in limbs.domains],
    )
    looked_up = [
        *("left", "right", "top", "bottom", "middle", "above", "above_bottom", "capacity", "links", "name")
    ]
    chart: alt.Chart = (
        alt.Chart(rows)
        .transform_filter(THERE)
        .transform_aggregate(held="sum(held)", flows="sum(flows)", groupby=["domain"])
        .transform_lookup("domain", alt.LookupData(places, "domain", looked_up))
        .transform_calculate(
            busy="datum.capacity > 0 ? datum.held / datum.capacity : 0",
            crossing="datum.links > 0 ? datum.flows / datum.links : 0",
        )
    )
    return chart


def _links(sheet: Sheet, base: alt.Chart, most: float, *, with_rings: bool) -> alt.Chart:
    """Uplinks, wider and redder the more flows share each of their links."""
    # Up to 1 every flow has a link of its own: the scale never ends below, nor right behind it.
    end = 1.0 if most <= 1 else max(most, 2.0)
    domain = [0.0, 1.0, end] if end > 1 else [0.0, 1.0]
    inks = list(CROSSED) if end > 1 else list(CROSSED[:2])
    marks = [0.0, 1.0, *([floor(end * 10) / 10] if end > 1 else [])]
    legend = alt.Legend(format=".1~f", values=marks, gradientLength=90, orient="right")
    chart: alt.Chart = (
        base.transform_filter("datum.domain > 0")
        .mark_rule()
        .encode(
            x=sheet.x("middle"),
            x2="above:Q",
            y=sheet.y("top"),
            y2="above_bottom:Q",
            size=alt.Size(
                "crossing:Q", scale=alt.Scale(domain=[0, end], range=[THIN, THICK], zero=False), legend=None
            ),
            color=alt.Color(
                "crossing:Q",
                scale=alt.Scale(domain=domain, range=inks, interpolate="rgb"),
                title=["flows per full", "link of an uplink"],
                legend=legend if with_rings else None,
            ),
            tooltip=_tooltip(),
        )
    )
    return chart


def _bars(sheet: Sheet, base: alt.Chart, scene: Scene) -> alt.Chart:
    chart: alt.Chart = base.mark_rect(stroke="#9CA3AF", strokeWidth=0.5).encode(
        x=sheet.x("left"),
        x2="right:Q",
        y=sheet.y("top"),
        y2="bottom:Q",
        color=alt.Color(
            "busy:Q",
            scale=alt.Scale(domain=[0, 0.5, 1], range=list(BUSY), interpolate="rgb"),
            title=f"{scene.unit} busy",
            legend=alt.Legend(format=".0%", gradientLength=90, orient="right"),
        ),
        tooltip=_tooltip(),
    )
    return chart


def _shares(sheet: Sheet, base: alt.Chart) -> alt.Chart:
    """How busy, in figures, on the bars that have room for it."""
    chart: alt.Chart = (
        base.transform_filter(f"datum.right - datum.left > {SHARE_WIDTH}")
        .mark_text(fontSize=10, baseline="middle", yOffset=BAR / 2)
        .encode(
            x=sheet.x("middle"),
            y=sheet.y("top"),
            text=alt.Text("busy:Q", format=".0%"),
            color=alt.condition("datum.busy > 0.4", alt.value("#FFFFFF"), alt.value(INK)),
        )
    )
    return chart


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="domain"),
        alt.Tooltip("busy:Q", title="busy", format=".0%"),
        alt.Tooltip("held:Q", title="held", format=",.0f"),
        alt.Tooltip("capacity:Q", title="of", format=",.0f"),
        alt.Tooltip("flows:Q", title="flows out (model)", format=",.0f"),
        alt.Tooltip("links:Q", title="full links of the uplink (model)", format=",.1~f"),
        alt.Tooltip("crossing:Q", title="flows per full link (model)", format=".2~f"),
    ]


def _names(sheet: Sheet, scene: Scene, limbs: Limbs) -> Iterator[alt.Chart]:
    """Levels at the left; above its bar the name of each domain that has room for it."""
    names = ["all", *scene.tree.level_names[: limbs.levels]]
    counts = [1, *(scene.tree.count(level) for level in range(limbs.levels))]
    labels = [
        name if name == "all" else plural(count, name) for name, count in zip(names, counts, strict=True)
    ]
    rows = data(
        left=np.zeros(len(labels)), middle=np.arange(len(labels)) * (BAR + LINKS) + BAR / 2, name=labels
    )
    yield (
        alt.Chart(rows)
        .mark_text(align="left", baseline="middle", fontSize=11, color=PALE_INK)
        .encode(x=sheet.x("left"), y=sheet.y("middle"), text="name:N")
    )
    if scene.has_rings:
        yield _worths(sheet, scene, limbs.levels)
    labelled = [
        (index, scene.tree.path(domain)[-1] or "–")
        for index, domain in enumerate(limbs.domains)
        if domain != ROOT
    ]
    fitting = [
        (index, name)
        for index, name in labelled
        if len(name) * LETTER + 6 <= limbs.right[index] - limbs.left[index]
    ]
    chosen = [index for index, _ in fitting]
    written = data(
        left=limbs.left[chosen] + 4, middle=limbs.top[chosen] - 7, name=[name for _, name in fitting]
    )
    yield (
        alt.Chart(written)
        .mark_text(align="left", baseline="middle", fontSize=10, color=INK)
        .encode(x=sheet.x("left"), y=sheet.y("middle"), text="name:N")
    )


def _worths(sheet: Sheet, scene: Scene, levels: int) -> alt.Chart:
    """At the left of the uplinks of a level: by how much the model has them narrower than the links below."""
    tiers = [tier_above(DEFAULT_MODEL, scene.tree, level) for level in range(levels)]
    rows = data(
        left=np.zeros(levels),
        middle=np.arange(levels) * (BAR + LINKS) + BAR + LINKS / 2,
        worth=[f"uplinks 1:{tier.oversubscription:g}" for tier in tiers],
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_text(align="left", baseline="middle", fontSize=10, color=PALE_INK)
        .encode(x=sheet.x("left"), y=sheet.y("middle"), text="worth:N")
    )
    return chart
