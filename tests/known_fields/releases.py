"""Compares the table with the releases of a project: `python -m tests.known_fields.releases CLONE`.

CLONE is a git clone of Kueue, KAI, Volcano or another project that defines custom resources. For the last
patch of each release one line says which fields its definitions have that the table does not.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from closeby.reading.known_fields import table
from tests.known_fields.__main__ import Types, of_definition

_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_DEFINITIONS = re.compile(r"crds?/.*\.ya?ml$")


def main(clone: Path) -> None:
    """Prints a line for each release, the newest first."""
    for tag in _releases(clone):
        types: Types = {}
        kinds: dict[str, str] = {}
        for definition in _definitions(clone, tag):
            of_definition(definition, types, kinds)
        known = table().types
        lacking = [f"{name}.{field}" for name in types for field in types[name].keys() - known.get(name, {})]
        said = ", ".join(sorted(lacking)) or "all fields are known"
        sys.stdout.write(f"{tag}: {', '.join(sorted(kinds)) or 'no kind that is read'}: {said}\n")


def _git(clone: Path, *arguments: str) -> str:
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _releases(clone: Path) -> list[str]:
    """The last patch of each release, the newest first."""
    last: dict[tuple[str, str], str] = {}
    for tag in _git(clone, "tag", "--sort=-v:refname").split():
        found = _RELEASE.fullmatch(tag)
        if found:
            last.setdefault((found[1], found[2]), tag)
    return list(last.values())


def _definitions(clone: Path, tag: str) -> Iterator[dict[str, object]]:
    seen: set[tuple[str, str]] = set()
    for path in _git(clone, "ls-tree", "-r", "--name-only", tag).splitlines():
        if not _DEFINITIONS.search(path):
            continue
        # Of a chart's template, lines are left out; what is no YAML even so stands elsewhere too.
        lines = [line for line in _git(clone, "show", f"{tag}:{path}").splitlines() if "{{" not in line]
        try:
            documents = list(yaml.load_all("\n".join(lines), Loader=yaml.CSafeLoader))
        except yaml.YAMLError:
            continue
        for found in documents:
            if not isinstance(found, dict) or found.get("kind") != "CustomResourceDefinition":
                continue
            if not all("schema" in one for one in found.get("spec", {}).get("versions", [{}])):
                continue  # A patch of a definition, or one without schemas.
            kind = found["spec"]["group"], found["spec"]["names"]["kind"]
            if kind not in seen:
                seen.add(kind)
                yield found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
