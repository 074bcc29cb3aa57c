"""Decides worlds with the sources on its path, one JSON document a line in and one answer a line out.

It runs as a program of its own, so that two trees of sources can decide the same worlds.
"""

import io
import json
import sys
from time import process_time
from typing import Any

from closeby.cli.main import cli

#: The time by which the work of victims counts as lost, as in ``facts``.
NOW = "2026-01-02T00:00:00Z"


def decide(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Where ``closeby simulate`` puts the pods, as its report says."""
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}).encode()
    sys.stdin = io.TextIOWrapper(io.BytesIO(manifests))
    written, sys.stdout = sys.stdout, io.StringIO()
    try:
        began = process_time()
        cli.main(
            ["simulate", "-f", "-", "-o", "json", "--now", NOW], prog_name="closeby", standalone_mode=False
        )
        seconds = process_time() - began
        report = json.loads(sys.stdout.getvalue())
    finally:
        sys.stdout = written
    return {"report": report, "seconds": seconds}


def main() -> None:
    """Until the input ends."""
    answers = sys.stdout
    for line in sys.stdin.buffer:
        try:
            answer = decide(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
