"""The fabric as a tree: how busy each domain is, and how much modelled traffic crosses its uplink."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import floor
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from closeby.lab.pictures.boxes import shared_beginning, told_apart
from closeby.lab.pictures.drawn_domains import BAR, LETTER, LINKS, WIDTH, DrawnDomains
from closeby.lab.pictures.paper import (
    INK,
    PALE_INK,
    THERE,
    Rows,
    Sheet,
    Spec,
    calculated,
    constant,
    data,
    either,
    label,
    lookup,
    marks,
    quantity,
    where,
    words,
)
from closeby.lab.pictures.scene import Scene
from closeby.objects.arrays import Floats, Ints
from closeby.objects.words import path_text
from closeby.quality.contention import tier_above, uplink_uses, uplinks
from closeby.quality.model import DEFAULT_MODEL, Model, rings
from closeby.quality.placements import placements
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


#: Width of a link that carries nothing, and of the busiest of the run; colours of none, of a flow for each
#: full link, and of the busiest beyond that.
THIN = 0.6
THICK = 9.0
BUSY = ("#F3F4F6", "#6BAED6", "#08306B")
CROSSED = ("#D9DCE2", "#F5A65B", "#8C2D04")
#: Height of the line that says what "…" stands for.
NOTE = 18.0
#: Legends at the right of the tree.
BESIDE: Spec = {"gradientLength": 90, "orient": "right"}
#: Room that a share in figures needs.
SHARE_WIDTH = 36


def fabric(scene: Scene, drawn: DrawnDomains) -> Spec:
    """The tree at the moment that the parameter ``moment`` holds."""
    note = NOTE if scene.has_rings or _domain_names(scene.tree, drawn)[1] else 0.0
    sheet = Sheet(WIDTH, (drawn.levels + 1) * (BAR + LINKS) - LINKS + 2 + note)
    loads = loads_of(scene, drawn.levels)
    base = _at_moment(scene, drawn, loads)
    most = greatest_load(scene, loads)
    layers = [
        _links(sheet, base, most, with_rings=scene.has_rings),
        _bars(sheet, base, scene),
        _shares(sheet, base),
        *_names(sheet, scene, drawn),
        *(_widths(sheet, most) if scene.has_rings else ()),
    ]
    return sheet.sized(*layers, name="fabric", resolve={"scale": {"color": "independent"}})


class Domains(NamedTuple):
    """What each domain holds and sends: rows, and the transforms that make one of each domain's."""

    rows: Rows
    steps: tuple[Spec, ...]


def _capacities(scene: Scene, drawn: DrawnDomains) -> Floats:
    at = scene.capacity[scene.tree.slot_at]
    spans = [scene.tree.span(domain) for domain in drawn.domains]
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


def _at_moment(scene: Scene, drawn: DrawnDomains, loads: Sequence[Loads]) -> Domains:
    """One row a domain with what it holds and what leaves it; domains without any have a row of nothing."""
    size = len(drawn.domains)
    tenants = np.concatenate([one.tenants for one in loads])
    number = {domain: index for index, domain in enumerate(drawn.domains)}
    at = np.concatenate(
        [
            np.asarray([number.get(Domain(one.level, index), -1) for index in range(len(one.links))])[
                one.domains
            ]
            for one in loads
        ]
    )
    shown = (at >= 0) & scene.drawn[tenants]
    tenants = tenants[shown]
    failing = [
        (number[above], row)
        for row, slot in enumerate(scene.outages.slots.tolist())
        for above in _above(scene.tree, slot, drawn.levels)
        if above in number
    ]
    failed, out = np.asarray(failing, dtype=np.intp).reshape(-1, 2).T
    none = np.zeros(size + len(failed))
    rows = data(
        domain=np.concatenate([at[shown], np.arange(size), failed]),
        held=np.concatenate([np.concatenate([one.held for one in loads])[shown], none]),
        flows=np.concatenate([np.concatenate([one.flows for one in loads])[shown], none]),
        lost=np.concatenate([np.zeros(len(tenants) + size), scene.capacity[scene.outages.slots[out]]]),
        since=np.concatenate([scene.since[tenants], np.full(size, -1.0), scene.outages.begin[out]]),
        until=np.concatenate([scene.until[tenants], np.full(size, 1e12), scene.outages.end[out]]),
    )
    middle = (drawn.left + drawn.right) / 2
    worth = {one.level: one.links for one in loads}
    links = np.asarray([worth[domain.level][domain.index] for domain in drawn.domains])
    places = data(
        domain=np.arange(size),
        left=drawn.left,
        right=drawn.right,
        top=drawn.top,
        bottom=drawn.top + BAR,
        middle=middle,
        above=middle[drawn.above],
        above_bottom=drawn.top[drawn.above] + BAR,
        capacity=_capacities(scene, drawn),
        links=np.where(np.isnan(links), 0.0, links),
        name=[path_text(scene.tree.path(domain)) for domain in drawn.domains],
    )
    fields = (
        *("left", "right", "top", "bottom", "middle", "above", "above_bottom", "capacity", "links", "name"),
    )
    steps = (
        where(THERE),
        summed("domain", held="held", flows="flows", lost="lost"),
        lookup("domain", places, *fields),
        *calculated(
            usable="datum.capacity - datum.lost",
            busy="datum.usable > 0 ? datum.held / datum.usable : 0",
            crossing="datum.links > 0 ? datum.flows / datum.links : 0",
        ),
    )
    return Domains(rows, steps)


def _above(tree: Tree, slot: int, levels: int) -> Iterator[Domain]:
    """The whole cluster, and the domains of the coarsest so many levels that hold a slot."""
    yield ROOT
    position = int(tree.position_of[slot])
    for level in range(levels):
        yield Domain(level, int(tree.domain_at[level][position]))


def summed(by: str, **fields: str) -> Spec:
    """A transform that makes one row of those of a group, with sums of fields under new names."""
    sums = [{"op": "sum", "field": field, "as": name} for name, field in fields.items()]
    return {"aggregate": sums, "groupby": [by]}


def _links(sheet: Sheet, base: Domains, most: float, *, with_rings: bool) -> Spec:
    """Uplinks, wider and redder the more flows share each of their links."""
    end = _greatest(most)
    domain = [0.0, 1.0, end] if end > 1 else [0.0, 1.0]
    inks = list(CROSSED) if end > 1 else list(CROSSED[:2])
    values = [0.0, 1.0, *([floor(end * 10) / 10] if end > 1 else [])]
    encoding = {
        **sheet.between("middle", "top", "above", "above_bottom"),
        "size": quantity(
            "crossing", scale={"domain": [0, end], "range": [THIN, THICK], "zero": False}, legend=None
        ),
        "color": quantity(
            "crossing",
            scale={"domain": domain, "range": inks, "interpolate": "rgb"},
            title=["flows per full", "link of an uplink"],
            legend={**BESIDE, "format": ".1~f", "values": values} if with_rings else None,
        ),
        "tooltip": TOOLTIP,
    }
    return marks(base.rows, "rule", encoding, *base.steps, where("datum.domain > 0"))


def _widths(sheet: Sheet, most: float) -> Iterator[Spec]:
    """What the width of a link means, below the tree."""
    end = _greatest(most)
    values = [0.0, 1.0, *([floor(end * 10) / 10] if end > 1 else [])]
    left = WIDTH - 90.0 * len(values) + 90.0 * np.arange(len(values))
    middle = np.full(len(values), sheet.height - NOTE / 2)
    rows = data(
        left=left,
        right=left + 34,
        middle=middle,
        number=np.arange(len(values)),
        text=[f"{mark:g}" for mark in values],
    )
    # A scale of widths is that of the links.
    place = sheet.between("left", "middle", "right", "middle")
    for number, mark in enumerate(values):
        width = THIN + (THICK - THIN) * mark / end
        here = where(f"datum.number === {number}")
        yield marks(rows, "rule", place, here, color=PALE_INK, strokeWidth=width)
    text = {**sheet.at("left", "middle"), "text": label("text")}
    yield words(rows, text, fontSize=10, dx=40, color=PALE_INK)
    place = {"x": constant(float(left[0]) - 10), "y": constant(sheet.height - NOTE / 2)}
    title = data(text=["flows per full link of an uplink"])
    yield words(title, {**place, "text": label("text")}, align="right", fontSize=10, color=PALE_INK)


def _greatest(most: float) -> float:
    """Where the scale of links ends: up to 1 every flow has a link of its own, so it never ends below, nor
    right behind it."""
    return 1.0 if most <= 1 else max(most, 2.0)


def busy_colour(scene: Scene) -> Spec:
    """How much of a domain is busy, with the legend for it."""
    return quantity(
        "busy",
        scale={"domain": [0, 0.5, 1], "range": list(BUSY), "interpolate": "rgb", "clamp": True},
        title=f"{scene.unit} busy",
        legend={**BESIDE, "format": ".0%"},
    )


def _bars(sheet: Sheet, base: Domains, scene: Scene) -> Spec:
    encoding = {**sheet.box, "color": busy_colour(scene), "tooltip": TOOLTIP}
    return marks(base.rows, "rect", encoding, *base.steps, stroke="#9CA3AF", strokeWidth=0.5)


def _shares(sheet: Sheet, base: Domains) -> Spec:
    """How busy, in figures, on the bars that have room for it."""
    encoding = {
        **sheet.at("middle", "top"),
        "text": quantity("busy", format=".0%"),
        "color": either("datum.busy > 0.4", "#FFFFFF", INK),
    }
    roomy = where(f"datum.right - datum.left > {SHARE_WIDTH}")
    return words(base.rows, encoding, *base.steps, roomy, align="center", fontSize=10, yOffset=BAR / 2)


TOOLTIP = [
    label("name", title="domain"),
    quantity("busy", title="busy", format=".0%"),
    quantity("held", title="held", format=",.0f"),
    quantity("usable", title="of", format=",.0f"),
    quantity("flows", title="flows out (model)", format=",.0f"),
    quantity("links", title="full links of the uplink (model)", format=",.1~f"),
    quantity("crossing", title="flows per full link (model)", format=".2~f"),
]


def _names(sheet: Sheet, scene: Scene, drawn: DrawnDomains) -> Iterator[Spec]:
    """Levels at the left; above its bar the name of each domain that has room for it."""
    labels = drawn.labels
    rows = data(
        left=np.zeros(len(labels)), middle=np.arange(len(labels)) * (BAR + LINKS) + BAR / 2, name=labels
    )
    place = {**sheet.at("left", "middle"), "text": label("name")}
    yield words(rows, place, fontSize=11, color=PALE_INK)
    if scene.has_rings:
        yield _worths(sheet, scene, drawn.levels)
    shown, beginning = _domain_names(scene.tree, drawn)
    chosen = [index for index, name in enumerate(shown) if name]
    written = data(
        left=drawn.left[chosen] + 4, middle=drawn.top[chosen] - 7, name=[shown[index] for index in chosen]
    )
    # Links end behind the names of others than their own.
    yield words(written, place, fontSize=10, color="#FFFFFF", stroke="#FFFFFF", strokeWidth=3)
    yield words(written, place, fontSize=10, color=INK)
    if beginning:
        note = data(text=[f"… stands for what names begin with, such as {beginning}"])
        place = {"x": constant(0), "y": constant(sheet.height - NOTE / 2), "text": label("text")}
        yield words(note, place, fontSize=10, color=PALE_INK)


def _domain_names(tree: Tree, drawn: DrawnDomains) -> tuple[list[str], str]:
    """What is written above each bar, empty where there is no room, and what "…" stands for."""
    shown = [""] * len(drawn.domains)
    beginning = ""
    rows = range(1, len(shown))
    for _, group in groupby(rows, key=lambda row: (drawn.domains[row].level, int(drawn.above[row]))):
        siblings = list(group)
        names = [tree.path(drawn.domains[row])[-1] or "" for row in siblings]
        room = float((drawn.right - drawn.left)[siblings].min()) - 6
        told = told_apart(names, room, LETTER)
        if told[0].startswith("…"):
            beginning = shared_beginning(names)
        for row, name in zip(siblings, told, strict=True):
            shown[row] = name
    return shown, beginning


def _worths(sheet: Sheet, scene: Scene, levels: int) -> Spec:
    """At the left of the uplinks of a level: by how much the model has them narrower than the links below."""
    tiers = [tier_above(DEFAULT_MODEL, scene.tree, level) for level in range(levels)]
    rows = data(
        left=np.zeros(levels),
        middle=np.arange(levels) * (BAR + LINKS) + BAR + LINKS / 2,
        worth=[f"uplinks 1:{tier.oversubscription:g}" for tier in tiers],
    )
    place = {**sheet.at("left", "middle"), "text": label("worth")}
    return words(rows, place, fontSize=10, color=PALE_INK)
