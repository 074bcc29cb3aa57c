"""Names that users choose, as parts of paths."""

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.kube.watch.resources import NODES, PODS, is_name, path_of


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../..", "%2e%2e", "50%", "x" * 254])
def test_names_that_no_server_takes(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ValueError, match="can't be a segment"):
        PODS.item("a", name)
    if name:
        with pytest.raises(ValueError, match="can't be a segment"):
            PODS.collection(name)


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("web-0", "web-0"),
        ("node.example.com", "node.example.com"),
        ("?watch=true", "%3Fwatch%3Dtrue"),
        ("a#b", "a%23b"),
        ("system:node", "system%3Anode"),
        ("ü", "%C3%BC"),
        ("a b\r\n", "a%20b%0D%0A"),
    ],
)
def test_each_segment_is_quoted(name: str, quoted: str) -> None:
    assert PODS.item(name, name, "status") == f"/api/v1/namespaces/{quoted}/pods/{quoted}/status"
    assert NODES.item("ignored", name) == f"/api/v1/nodes/{quoted}"


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_a_path_says_what_its_segments_say_or_is_none(segments: list[str]) -> None:
    if not all(map(is_name, segments)):
        with pytest.raises(ValueError, match="can't be a segment"):
            path_of(*segments)
        return
    path = path_of(*segments)
    parts = urlsplit(f"https://server{path}")
    assert (parts.path, parts.query, parts.fragment, parts.netloc) == (path, "", "", "server")
    assert [unquote(one) for one in path.split("/")[1:]] == segments
