"""What the page about operating closeby says is so."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.helm import CHART, PLAIN, ROOT, objects, rendered
from tests.reading.manifest_text import read_good

PAGE = (ROOT / "docs" / "operating.md").read_text()


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_its_values_are_values_of_the_chart() -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    named = {
        *re.findall(r"--set ([a-z][\w.]+)=", PAGE),
        *re.findall(r"`((?:definitions|controllers)\.\w+)", PAGE),
    }
    table = PAGE[PAGE.index("### Values that matter") : PAGE.index("## How pods ask")]
    named |= {
        one for one in re.findall(r"`([a-z]\w+(?:\.\w+)*)`", table.replace("`.from`", "")) if "." in one
    }
    assert len(named) >= 8
    for path in named:
        found: Any = given
        for step in path.split("."):
            assert step in found, path
            found = found[step]


def test_its_example_makes_sense_to_closeby() -> None:
    # The others are parts of objects.
    (example,) = (one for one in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL) if "kind: " in one)
    manifests = read_good(example)
    assert [one.name for one in manifests.groups] == ["train"]
    assert manifests.pods[0].group == "train"
    assert [one.conditions for one in manifests.groups] == [()]
    assert [one.conditions for one in manifests.topologies] == [()]


def test_its_way_to_name_an_image_names_all_images(helm: Path) -> None:
    pattern, replacement = re.findall(r"sed 's\|([^|]+)\|([^|]+)\|' deploy/closeby.yaml", PAGE)[0]
    named = [
        line for line in PLAIN.read_text().replace(pattern, replacement).splitlines() if "image: " in line
    ]
    deployments = [one for one in objects(rendered(helm)) if one["kind"] == "Deployment"]
    assert len(named) == len(deployments)
    assert all("image: registry.example.com/closeby:" in line for line in named)


def test_it_names_every_kind_of_object_that_the_chart_makes(helm: Path) -> None:
    kinds = {one["kind"] for one in objects(rendered(helm))}
    table = PAGE[PAGE.index("### What is installed") : PAGE.index("### Values that matter")]
    for kind in kinds - {"CustomResourceDefinition", "ServiceAccount", "Service"}:
        assert kind.removesuffix("Binding") in table, kind
