"""The script that draws inside a report, and the copy of it that the next report uses."""

import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import vl_convert

from closeby.lab.pictures.album import VEGA_LITE

#: What the page needs of the libraries.
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, safe inside an element of a page.

    To put it together takes longer than to draw everything else, and gives the same each time: a copy is kept
    in the user's folder for caches. Where none can be kept it is put together again.
    """
    kept = _place()
    found = _read(kept)
    if found is None:
        found = vl_convert.javascript_bundle(SNIPPET, VEGA_LITE).replace("</script", "<\\/script")
        _keep(kept, found)
    return found


def _place() -> Path | None:
    """The file of the copy; another one for every version of what is put together."""
    versions = (vl_convert.get_vega_version(), VEGA_LITE, vl_convert.get_vega_embed_version(), SNIPPET)
    digest = sha256(" ".join(versions).encode()).hexdigest()
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(folder):
        return None
    return Path(folder) / "closeby" / f"vega-{digest[:16]}.js"


def _read(kept: Path | None) -> str | None:
    """The copy, unless there is none or it is not what was written."""
    if kept is None:
        return None
    try:
        digest, _, text = kept.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if text and digest == _digest(text) else None


def _keep(kept: Path | None, text: str) -> None:
    """Write the copy under its name once it is whole: another run may read it meanwhile."""
    if kept is None:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", encoding="utf-8", dir=kept.parent, delete=False) as file:
            try:
                file.write(f"{_digest(text)}\n{text}")
                file.flush()
                Path(file.name).replace(kept)
            finally:
                Path(file.name).unlink(missing_ok=True)
    except OSError:
        return


def _digest(text: str) -> str:
    return f"// {sha256(text.encode()).hexdigest()}"
