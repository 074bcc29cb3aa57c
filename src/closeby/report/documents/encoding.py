"""Report records as JSON or YAML: the same keys in the same order, byte for byte the same every time."""

import msgspec
from msgspec import Struct


def to_json(document: Struct) -> str:
    """Indented JSON, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_yaml(document: Struct) -> str:
    """YAML in block style; keys keep the order of the record."""
    return msgspec.yaml.encode(document).decode()
