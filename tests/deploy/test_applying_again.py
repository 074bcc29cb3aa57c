"""The plain YAML is written as the API server keeps it: applied again, it changes nothing."""

import asyncio
from typing import Any

from tests.control_plane.api import Api, Object
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


#: What changes with each write, whoever it is by.
OF_THE_SERVER = ("resourceVersion", "managedFields")


def content(one: Object) -> Object:
    """An object without what the server itself writes meanwhile, as the status of a policy."""
    metadata = {key: value for key, value in one["metadata"].items() if key not in OF_THE_SERVER}
    return {**one, "metadata": metadata, "status": None}


def test_the_plain_yaml_applied_again_changes_nothing(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with Api(control_plane.access()) as api, applied_plain(api) as release:
            for one in release.objects:
                name = f"{one['kind']} {one['metadata']['name']}"
                first, second = await apply(api, one), await apply(api, one)
                assert content(first) == content(second), name
                assert [name + at for at in differences(one, second)] == []

    asyncio.run(run())
