"""Records of the rooms below as the report writes them: the same fields, in camel case."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


def in_camel_case(value: object) -> Any:
    """Records as mappings, field by field; keys of mappings, which are names, stay as they are."""
    if isinstance(value, Struct):
        return {_camel(name): in_camel_case(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: in_camel_case(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [in_camel_case(one) for one in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
