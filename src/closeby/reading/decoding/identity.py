"""How objects are called in messages."""

from closeby.reading.decoding.wire import Meta

DEFAULT_NAMESPACE = "default"


def namespace_of(meta: Meta) -> str:
    """The namespace of a namespaced object."""
    return meta.namespace or DEFAULT_NAMESPACE


def object_id(kind: str, namespace: str, name: str) -> str:
    """``Kind/namespace/name``, or ``Kind/name`` for an object without a namespace."""
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"
