"""Completion of commands, options, files and names, by the shells themselves and by kubectl."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def completed_by(*command: str) -> list[str]:
    """What a program prints that finds `closeby` in its PATH; skipped where there is no such program."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60)
    return done.stdout.splitlines()


def bash(*words: str) -> list[str]:
    """What bash would offer after these words, of which the last one may be incomplete."""
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        "source <(closeby completion bash)\n"
        'compopt() { echo "compopt $1 $2"; }\n'
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
        "_closeby_completion closeby\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return [line for line in completed_by("bash", "--norc", "-c", script) if line]


def test_bash_completes_commands() -> None:
    assert bash("closeby", "s") == ["simulate", "scheduler", "schema"]
    assert bash("closeby", "discover", "nv") == ["nvidia-smi"]


def test_bash_completes_options_and_their_values() -> None:
    assert bash("closeby", "simulate", "--outp") == ["--output"]
    assert bash("closeby", "simulate", "-o", "") == ["table", "json", "yaml", "csv"]


def test_bash_completes_names_of_configurations_or_else_files() -> None:
    assert "slurm-tree" in bash("closeby", "compare", "--config", "slurm")
    assert bash("closeby", "simulate", "--config", "./") == ["compopt -o default"]


@pytest.mark.parametrize("option", ["-f", "--kubeconfig"])
def test_bash_completes_files(option: str) -> None:
    assert bash("closeby", "explain", option, "") == ["compopt -o default"]


def test_fish_completes_commands() -> None:
    script = "closeby completion fish | source; complete -C 'closeby expl'"
    (line,) = completed_by("fish", "--no-config", "-c", script)
    assert line.split("\t")[0] == "explain"


def test_zsh_accepts_the_script() -> None:
    script = "autoload -U compinit; compinit -D -u; source <(closeby completion zsh); print $_comps[closeby]"
    assert completed_by("zsh", "-f", "-c", script) == ["_closeby_completion"]


def kubectl(*words: str) -> tuple[set[str], str]:
    """The completions that kubectl offers after `kubectl closeby`, and its directive."""
    *lines, directive = completed_by("kubectl", "__complete", "closeby", *words)
    return {line.split("\t")[0] for line in lines}, directive


def test_kubectl_completes_commands_and_options() -> None:
    assert kubectl("to") == ({"topology"}, ":4")
    assert kubectl("simulate", "-o", "") == ({"table", "json", "yaml", "csv"}, ":4")


def test_kubectl_completes_files() -> None:
    assert kubectl("simulate", "-f", "") == (set(), ":0")


def test_an_unknown_shell_is_refused() -> None:
    command = [str(BIN / "closeby"), "completion", "csh"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"_CLOSEBY_COMPLETE": "bash_complete"},
        {"_CLOSEBY_COMPLETE": "bash_complete", "COMP_WORDS": "x", "COMP_CWORD": "abc"},
        {"_CLOSEBY_COMPLETE": "csh_source"},
    ],
)
def test_odd_variables_of_completion_complete_nothing(variables: dict[str, str]) -> None:
    done = subprocess.run(
        [str(BIN / "closeby")], capture_output=True, text=True, check=False, env=os.environ | variables
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_an_empty_variable_of_completion_disables_nothing() -> None:
    variables = os.environ | {"_CLOSEBY_COMPLETE": ""}
    done = subprocess.run(
        [str(BIN / "closeby"), "--version"], capture_output=True, text=True, check=True, env=variables
    )
    assert done.stdout.startswith("closeby ")
