"""What the code says in one place only: keys of labels and annotations, times, YAML."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import closeby

SOURCES = Path(closeby.__file__).parent
#: A key of a label or annotation, or the API version of closeby's own objects.
KEY = re.compile(
    r"([a-z0-9-]+\.)*(closeby\.dev|kubernetes\.io|x-k8s\.io|k8s\.aws|volcano\.sh|kai\.scheduler|topograph\.run)"
    r"/[A-Za-z0-9][A-Za-z0-9._-]*"
)
#: API versions and groups of others, which their reader and their writer know.
VERSION = re.compile(r"/v[0-9][a-z0-9]*$")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCES.rglob("*.py")):
        yield str(path.relative_to(SOURCES)), ast.parse(path.read_text(encoding="utf-8"))


def docstrings(module: ast.Module) -> set[int]:
    return {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}


def test_each_key_is_written_once() -> None:
    places: dict[str, list[str]] = {}
    for name, module in modules():
        prose = docstrings(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                own = node.value == "closeby.dev/v1alpha1"
                if KEY.fullmatch(node.value) and (own or not VERSION.search(node.value)):
                    places.setdefault(node.value, []).append(f"{name}:{node.lineno}")
    assert len(places) > 40
    assert {key: found for key, found in places.items() if len(found) > 1} == {}


def test_times_are_formatted_in_one_module() -> None:
    using = {
        name
        for name, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and node.attr in ("isoformat", "strftime", "fromtimestamp")
    }
    assert using == {"objects/quantities.py"}


def test_yaml_is_read_in_one_module_and_kubeconfigs_in_another() -> None:
    """Benchmarks and reports write it."""
    importing = {
        name
        for name, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Import) and any(one.name == "yaml" for one in node.names)
    }
    assert importing - {"lab/benchmarks/dumps.py", "report/documents/common.py"} == {
        "reading/decoding/yaml_values.py",
        "kube/client/kubeconfig.py",
    }


def test_a_problem_and_a_line_of_the_log_have_one_shape() -> None:
    classes: dict[str, list[str]] = {}
    for name, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(name)
    assert classes["Say"] == ["objects/process.py"]
    assert classes["Problem"] == ["objects/reasons.py"]
    assert not {"Trouble", "Fault", "Mistake", "ConfigurationMistake", "ManifestError"} & classes.keys()
