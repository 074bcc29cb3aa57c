"""Certificates and keys in memory, as files: OpenSSL reads them from nothing else."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which only this process can read; gone after the context.

    On Linux it lies in memory: a container's root file system may be read-only.
    """
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("closeby"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="closeby-") as folder:
        path = Path(folder, "content.pem")
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)
