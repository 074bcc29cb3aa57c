"""The copy of the script that draws inside a report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from closeby.lab.pictures.library import library


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


def test_the_script_is_put_together_once_and_again_where_its_copy_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = library()
    assert "vegaEmbed" in script
    (copy,) = (tmp_path / "closeby").iterdir()
    first = copy.read_text(encoding="utf-8")
    assert first.endswith(script)
    written = copy.stat().st_ino
    library.cache_clear()
    assert library() == script
    assert copy.stat().st_ino == written
    copy.write_text(first[:-100], encoding="utf-8")
    library.cache_clear()
    assert library() == script
    assert list((tmp_path / "closeby").iterdir()) == [copy]
    assert copy.read_text(encoding="utf-8") == first


@pytest.mark.parametrize("folder", ["file/below", "relative"])
def test_no_copy_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", folder if folder == "relative" else str(tmp_path / folder))
    assert "vegaEmbed" in library()
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
