"""Changes one module in hundreds of small ways and says which changes no test notices.

``make mutants MODULE=src/closeby/scheduling/steps.py TESTS=tests/scheduling/test_budgets.py``

mutmut makes the changes and runs the tests in a copy of the repository. It is no part of the development
environment: this installs it into ``.venv/.mutmut`` once.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLED = ROOT / ".venv" / ".mutmut"
MUTMUT = "mutmut==3.8.1"
#: After the packages of the environment, so that those have precedence.
RUN = "import sys; sys.path.append({!r}); from mutmut.__main__ import cli; cli()"
SETTINGS = """\
[mutmut]
source_paths=src
only_mutate={module}
pytest_add_cli_args_test_selection={tests}
pytest_add_cli_args=
    -p
    no:cacheprovider
    -m
    not live and not soak
    --seed=1
also_copy=
    README.md
    docs
    deploy
    Makefile
"""


def main() -> int:
    """Print the survivors with their differences; returns 1 where there are some."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("module", help="the module to change, below src/closeby")
    parser.add_argument("tests", nargs="+", help="the files or folders of tests that should notice")
    given = parser.parse_args()
    for path in (given.module, *given.tests):
        if not (ROOT / path).exists():
            parser.error(f"there is no {path}")
    if not INSTALLED.exists():
        uv = ROOT / ".venv" / "bin" / "uv"
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", INSTALLED, MUTMUT],
            check=True,
        )
    with tempfile.TemporaryDirectory(prefix="closeby-mutants-") as folder:
        copy = Path(folder)
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        tests = "".join(f"\n    {test}" for test in given.tests)
        (copy / "setup.cfg").write_text(SETTINGS.format(module=given.module, tests=tests))
        subprocess.run(_mutmut("run"), cwd=copy, check=True)
        results = subprocess.run(_mutmut("results"), cwd=copy, capture_output=True, text=True, check=True)
        unnoticed = [line for line in results.stdout.splitlines() if line.endswith(("survived", "no tests"))]
        survivors = [line.split(":")[0].strip() for line in unnoticed]
        for survivor in survivors:
            subprocess.run(_mutmut("show", survivor), cwd=copy, check=True)
        sys.stdout.write(f"{len(survivors)} changes survived\n")
    return 1 if survivors else 0


def _mutmut(*arguments: str) -> list[str]:
    return [sys.executable, "-c", RUN.format(str(INSTALLED)), *arguments]


if __name__ == "__main__":
    sys.exit(main())
