"""Shells and kubectl complete the names of what is in a cluster, quickly or not at all."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World, world

BIN = Path(sys.executable).parent
#: The programs that complete, by their functions.
COMPLETING = {
    "closeby": ("closeby.cli.main", "main"),
    "kubectl_complete-closeby": ("closeby.cli.completion", "complete_for_kubectl"),
}
OWNED = {
    "train-0": ("Job", "train", {}),
    "js-w-0-0-x": ("Job", "js-w-0", {"jobset.sigs.k8s.io/jobset-name": "js"}),
    "web-5d8-abc": ("ReplicaSet", "web-5d8", {"pod-template-hash": "5d8"}),
}
NAMES = {
    "podgroup/train",
    *("job/train", "job/js-w-0", "jobset/js", "replicaset/web-5d8", "deployment/web"),
    *("pod/alone", *(f"pod/{name}" for name in OWNED)),
}


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """Of a user whose context has a namespace with a gang, and pods of several owners."""

    async def fill() -> None:
        async with world(control_plane, namespace) as it:
            await it.create_group("train", 1)
            await it.create(it.pod("alone"), *(_owned(it, name) for name in OWNED))

    asyncio.run(fill())
    yield _kubeconfig(Path(control_plane.kubeconfig).read_text(), tmp_path, namespace)


def _owned(it: World, name: str) -> Object:
    kind, owner, labels = OWNED[name]
    pod = it.pod(name)
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    pod["metadata"] |= {"labels": labels, "ownerReferences": [reference]}
    return pod


def _kubeconfig(text: str, folder: Path, namespace: str, server: str = "") -> Path:
    found = yaml.safe_load(text)
    for context in found["contexts"]:
        context["context"]["namespace"] = namespace
    for cluster in found["clusters"]:
        cluster["cluster"]["server"] = server or cluster["cluster"]["server"]
    file = folder / "kubeconfig.yaml"
    file.write_text(yaml.safe_dump(found))
    return file


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shells find closeby's own."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")


@pytest.fixture
def patience(programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs wait longer for the cluster than a user would: the machine may have more to do."""
    for name, (module, function) in COMPLETING.items():
        script = tmp_path / name
        lines = (
            f"#!{sys.executable}",
            "import sys",
            "from closeby.cli import names",
            f"from {module} import {function}",
            "names.PATIENCE = 60.0",
            f"sys.exit({function}())",
        )
        script.write_text("\n".join(lines))
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def run(kubeconfig: Path, *command: str) -> list[str]:
    """What a program prints for this user; skipped where there is no such program."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60)
    assert done.stderr == "" or command[0] == "kubectl"  # Which says there what it was told.
    return [line for line in done.stdout.splitlines() if line]


def bash(kubeconfig: Path, *words: str) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        "source <(closeby completion bash)\n"
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        "_closeby_completion closeby\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(run(kubeconfig, "bash", "--norc", "-c", script))


def zsh(kubeconfig: Path, *words: str) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        "autoload -U compinit; compinit -D -u; source <(closeby completion zsh)\n"
        "compadd() { print -l -- $completions }\n"
        f"words=({quoted}); CURRENT={len(words)}\n"
        "_closeby_completion"
    )
    return set(run(kubeconfig, "zsh", "-f", "-c", script))


def fish(kubeconfig: Path, *words: str) -> set[str]:
    script = f"closeby completion fish | source; complete -C '{' '.join(words)}'"
    return set(run(kubeconfig, "fish", "--no-config", "-c", script))


def kubectl(kubeconfig: Path, *words: str) -> set[str]:
    *lines, directive = run(kubeconfig, "kubectl", "__complete", *words)
    assert directive == ":4"
    return set(lines)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("shell", [bash, zsh, fish, kubectl])
def test_every_shell_offers_what_is_in_the_namespace(shell: object, kubeconfig: Path) -> None:
    assert callable(shell)
    assert shell(kubeconfig, "closeby", "explain", "") == NAMES
    assert shell(kubeconfig, "closeby", "explain", "job/") == {"job/train", "job/js-w-0"}


@pytest.mark.usefixtures("patience")
def test_names_without_a_kind_namespaces_and_options_count(kubeconfig: Path, namespace: str) -> None:
    assert bash(kubeconfig, "closeby", "explain", "alo") == {"alone"}
    # Pods, kinds and groups that have one name are one.
    assert bash(kubeconfig, "closeby", "explain", "tra") == {"train", "train-0"}
    assert bash(kubeconfig, "closeby", "explain", "-n", namespace) == {namespace}
    empty = bash(kubeconfig, "closeby", "explain", "-n", "no-such-namespace", "")
    assert {"pod/", "podgroup/", "job/"} <= empty
    other = Path("/no/such/file")
    assert bash(other, "closeby", "explain", "--kubeconfig", str(kubeconfig), "pod/al") == {"pod/alone"}


@pytest.mark.parametrize("kind", ["refuses", "is silent", "is nowhere"])
def test_a_cluster_that_does_not_answer_offers_kinds_soon_and_says_nothing(
    kind: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if kind == "refuses":
            listening.close()
        host = "no-such-host.invalid" if kind == "is nowhere" else "127.0.0.1"
        text = Path(control_plane.kubeconfig).read_text()
        file = _kubeconfig(text, tmp_path, "default", f"https://{host}:{port}")
        began = time.monotonic()
        assert {"pod/", "podgroup/", "job/"} <= bash(file, "closeby", "explain", "")
        # Starting a shell and two processes on a slow machine takes a while, too.
        assert time.monotonic() - began < 30
