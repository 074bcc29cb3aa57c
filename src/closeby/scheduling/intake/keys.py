"""Keys of work items: a gang, an application and a pod may share a name, so a key also says which it is."""

from typing import Final

from closeby.scheduling.outcomes import ItemKind

#: Begins the key of a plain pod's work item. No namespace holds a colon, so no gang has such a key.
PLAIN: Final = "pod:"
#: Begins the key of an application's work item.
APPLICATION: Final = "app:"

_PREFIXES: Final = {ItemKind.GANG: "", ItemKind.APPLICATION: APPLICATION, ItemKind.POD: PLAIN}


def item_key(kind: ItemKind, name: str) -> str:
    """The key of the item of that kind that is called ``namespace/name``."""
    return f"{_PREFIXES[kind]}{name}"


def kind_of(key: str) -> ItemKind:
    """What a work item is, by its key."""
    if key.startswith(PLAIN):
        return ItemKind.POD
    return ItemKind.APPLICATION if key.startswith(APPLICATION) else ItemKind.GANG


def namespace_of(key: str) -> str:
    """The namespace of a work item, by its key."""
    return name_of(key).partition("/")[0]


def name_of(key: str) -> str:
    """``namespace/name`` of a work item, by its key."""
    return key.removeprefix(PLAIN).removeprefix(APPLICATION)
