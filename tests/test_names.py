"""A name means one thing: no two public classes in ``src`` share one."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
#: The object that users write, and the plugin that is configured under the same name.
ALLOWED = {"NetworkTopology"}
#: Records that decode one kind of object; each is local to its module.
LOCAL = "Wire"


def test_no_two_public_classes_share_a_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(SOURCES)))
    shared = {name: where for name, where in modules.items() if len(where) > 1 and not name.endswith(LOCAL)}
    assert shared.keys() == ALLOWED, shared
