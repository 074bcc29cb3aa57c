"""How large the source may be: every figure only falls. Who needs more takes it from elsewhere."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "closeby"
#: Lines outside of the laboratory.
LINES = 101_200
#: Modules without ``__init__.py``.
MODULES = 557
#: Modules that exactly one other module imports: files that were cut out of files.
IMPORTED_ONCE = 165
#: Modules that ``closeby simulate`` of the tour loads.
LOADED = 311


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py"]


def test_the_source_does_not_grow() -> None:
    lines = [len(path.read_text().splitlines()) for path in modules() if SOURCE / "lab" not in path.parents]
    assert sum(lines) <= LINES
    assert len(modules()) <= MODULES


def test_few_modules_have_a_single_importer() -> None:
    importers: dict[str, set[Path]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("closeby."):
                importers[node.module or ""].add(path)
    names = {".".join(("closeby", *path.relative_to(SOURCE).with_suffix("").parts)) for path in modules()}
    assert sum(len(importers[name]) == 1 for name in names) <= IMPORTED_ONCE


def test_a_simulation_loads_few_modules() -> None:
    tour = ROOT / "docs" / "examples" / "tour"
    code = (
        f"import sys; sys.argv = ['closeby', 'simulate', '-f', {str(tour)!r}]\n"
        "from closeby.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sum(name.startswith('closeby.') for name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stderr.splitlines()[-1]) <= LOADED
