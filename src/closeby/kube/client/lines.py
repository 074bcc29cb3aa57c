"""Cuts a stream of bytes into lines of any length."""


class LineSplitter:
    """Keeps what is left of a line until the rest of it comes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without line ends; empty lines are left out."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
        if rest := lines.pop():
            self._parts.append(rest)
        return [line for line in lines if line]
