"""Compare two trees of sources on random worlds, judge one, or show a world.

python -m tests.random_worlds compare --old ../main/src --new src --worlds 1000 --switch layers
python -m tests.random_worlds check --worlds 1000
python -m tests.random_worlds show 17 --switch layers | closeby simulate -f -
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.random_worlds.comparing import Finding, Findings, run_check, run_comparison
from tests.random_worlds.switches import Size, Switch, Switches
from tests.random_worlds.worlds import draw_world

#: Worlds between two signs of life.
_OFTEN = 500


def main() -> int:
    """1 where the sources violate a rule."""
    arguments = _parser().parse_args()
    switches = Switches.of(arguments.switch, arguments.without, arguments.size)
    if arguments.what == "show":
        documents = draw_world(arguments.seed, switches).documents
        sys.stdout.write(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, indent=1) + "\n"
        )
        return 0
    seeds = range(arguments.first, arguments.first + arguments.worlds)
    worlds = (draw_world(seed, switches) for seed in seeds)
    if arguments.what == "compare":
        return _told(run_comparison(worlds, arguments.old, arguments.new))
    return _told(run_check(worlds, arguments.sources))


def _told(run: Iterator[tuple[Findings, list[Finding]]]) -> int:
    findings = Findings()
    for number, (found, violations) in enumerate(run, 1):
        findings = found
        for one in violations:
            sys.stdout.write(f"seed {one.seed}: {one.kind}: {one.text}\n")
        if number % _OFTEN == 0:
            sys.stderr.write(f"{number} worlds\n")
    sys.stdout.writelines(f"{line}\n" for line in findings.lines())
    return int(findings.violated)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.random_worlds")
    commands = parser.add_subparsers(dest="what", required=True)
    compare = commands.add_parser("compare", help="old sources against new ones")
    compare.add_argument("--old", type=Path, required=True, help="a checkout, or its folder src")
    compare.add_argument("--new", type=Path, default=Path("src"))
    check = commands.add_parser("check", help="one tree of sources against checker and judge")
    check.add_argument("--sources", type=Path, default=Path("src"))
    show = commands.add_parser("show", help="the manifests of one world, as JSON")
    show.add_argument("seed", type=int)
    for one in (compare, check):
        one.add_argument("--worlds", type=int, default=1000)
        one.add_argument("--first", type=int, default=0, help="the first seed")
    for one in (compare, check, show):
        one.add_argument(
            "--switch", action="append", default=[], choices=list(Switch), help="a feature of all"
        )
        one.add_argument("--without", action="append", default=[], choices=list(Switch), help="of none")
        one.add_argument("--size", choices=list(Size))
    return parser


if __name__ == "__main__":
    sys.exit(main())
