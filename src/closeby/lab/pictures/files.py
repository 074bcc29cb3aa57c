"""Charts as SVG and PNG, drawn without a browser."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from closeby.lab.pictures.album import Picture

#: The version of Vega-Lite that charts are written for, as vl-convert names it.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
#: Where an SVG gives a name to something, or calls it by its name.
_NAMED = re.compile(r'(\bid="|url\(#)((?:clip|gradient_?)\d+)("|\))')
#: Pixels of a PNG for each pixel of its picture.
SCALE = 2.0


def to_svg(document: dict[str, Any]) -> str:
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


def to_png(document: dict[str, Any]) -> bytes:
    """A chart as PNG."""
    return vl_convert.vegalite_to_png(document, vl_version=VEGA_LITE, scale=SCALE, allowed_base_urls=[])


def write_pictures(folder: Path, pictures: Iterable[Picture]) -> tuple[Path, ...]:
    """Each picture as ``<name>.svg`` and ``<name>.png``.

    The folder is made if it is not there; files of these names are overwritten.

    Raises:
        OSError: a file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in pictures:
        document = picture.document()
        svg, png = folder / f"{picture.name}.svg", folder / f"{picture.name}.png"
        svg.write_text(to_svg(document), encoding="utf-8")
        png.write_bytes(to_png(document))
        written += [svg, png]
    return tuple(written)
