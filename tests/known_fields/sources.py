"""Gets what others publish: the schemas of Kubernetes and the definitions of custom resources.

The schemas come out of Go's modules. The definitions come out of git clones, which are made below a folder
when they are not there yet.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.known_fields import Project

_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(-.+)?")
_DEFINITIONS = re.compile(r"(crds?|bases?)/.*\.ya?ml$")
#: Folders that repeat the definitions of others, or those of the project itself.
_COPIES = re.compile(r"(^|/)(charts?|helm-chart|installer|tests?|third_party_crds|v1beta1)/")


def openapi(version: str) -> Iterator[Mapping[str, Any]]:
    """The OpenAPI v3 documents of a release of Kubernetes."""
    module = f"k8s.io/kubernetes@{version}"
    command = ["go", "mod", "download", "-json", module]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for path in sorted(Path(found["Dir"], "api/openapi-spec/v3").glob("*.json")):
        yield json.loads(path.read_text())


def definitions(project: Project, clones: Path) -> Iterator[tuple[tuple[int, int], list[dict[str, Any]]]]:
    """The definitions of each release, the oldest first: those of its last patch."""
    clone = clones / project.repository.rpartition("/")[2]
    if not clone.exists():
        url = f"https://github.com/{project.repository}"
        subprocess.run(["git", "clone", "--bare", "--quiet", url, str(clone)], check=True)
    for release, tag in sorted(_releases(clone, project).items()):
        yield release, list(_definitions(clone, tag))


def _git(clone: Path, *arguments: str) -> str:
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _releases(clone: Path, project: Project) -> dict[tuple[int, int], str]:
    """The tag of the last patch of each release."""
    last: dict[tuple[int, int], str] = {}
    for tag in _git(clone, "tag", "--sort=-creatordate").split():
        found = _RELEASE.fullmatch(tag)
        if found and (project.pre_releases or found[4] is None):
            release = int(found[1]), int(found[2])
            if release[0] in project.majors and project.oldest <= release <= project.newest:
                last.setdefault(release, tag)
    return last


def _definitions(clone: Path, tag: str) -> Iterator[dict[str, Any]]:
    files = _git(clone, "ls-tree", "-r", "--name-only", tag).splitlines()
    paths = [one for one in files if _DEFINITIONS.search(one)]
    own = [one for one in paths if not _COPIES.search(one)]
    for path in own or paths:
        # Of a chart's template, lines are left out; what is no YAML even so stands elsewhere too.
        lines = [line for line in _git(clone, "show", f"{tag}:{path}").splitlines() if "{{" not in line]
        try:
            documents = list(yaml.load_all("\n".join(lines), Loader=yaml.CSafeLoader))
        except yaml.YAMLError:
            continue
        for found in documents:
            if not isinstance(found, dict) or found.get("kind") != "CustomResourceDefinition":
                continue
            # Neither a patch of a definition, nor one without schemas.
            if all("schema" in one for one in found.get("spec", {}).get("versions", [{}])):
                yield found
