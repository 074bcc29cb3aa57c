"""The plain YAML is written as the API server keeps it: applied again, it changes nothing."""

import asyncio
from typing import Any

from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.deploy.installed import applied_plain, apply

#: Lists whose entries `kubectl apply` merges one by one. It replaces others as wholes: a default that the
#: server adds to an entry there is a difference.
_MERGED = ("containers", "ports", "volumeMounts", "volumes")


def differences(written: Any, kept: Any, at: str = "") -> list[str]:
    """Where what the server keeps is not what was written; what it adds to a map is no difference."""
    if isinstance(written, dict) and isinstance(kept, dict):
        found = []
        for key, value in written.items():
            pairs = [(value, kept.get(key))]
            if key in _MERGED and len(value) == len(kept.get(key, ())):
                pairs = list(zip(value, kept[key], strict=True))
            for ours, theirs in pairs:
                found += differences(ours, theirs, f"{at}.{key}")
        return found
    return [] if written == kept else [at]


def test_the_plain_yaml_applied_again_changes_nothing(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with Api(control_plane.access()) as api, applied_plain(api) as release:
            for one in release.objects:
                name = f"{one['kind']} {one['metadata']['name']}"
                first, second = await apply(api, one), await apply(api, one)
                assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"], name
                assert [name + at for at in differences(one, second)] == []

    asyncio.run(run())
