"""`python -m singa_lite.memory solve PROBLEM.csv`: place the requests of a file.

Exit status: 0 if a placement was found (within the capacity, if one is given), 1 if not, 2 for bad input. The
last line is `arena=… floor=… proved=… seconds=…`, in bytes and seconds. `proved` is true if no arena can be
smaller; after status 1, if no placement within the capacity exists. Then `arena` is the smallest one found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import StringIO

from singa_lite.common.atomic import write_anew
from singa_lite.common.terminal import escape_streams
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.csv_file import read_problem, write_solution
from singa_lite.compiler.placement.infeasible import conflict_set
from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import CapacityError, Plan, PlanError, Request

NAMED = 50  # requests of a conflicting set that are listed one by one


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return _solve(parsed)
    except (PlanError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m singa_lite.memory", description=__doc__.split("\n\n")[1])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    solve = commands.add_parser("solve", help="find offsets for the requests of a file")
    solve.add_argument("problem", metavar="PROBLEM.csv", help="columns id,lower,upper,size[,alignment]")
    solve.add_argument("--capacity", type=int, metavar="BYTES", help="find any placement within so many bytes")
    solve.add_argument("--seconds", type=float, default=60.0, metavar="S", help="time limit (default: 60)")
    solve.add_argument("--out", metavar="SOLUTION.csv", help="where to write the offsets (default: standard output)")
    return parser


def _solve(parsed: argparse.Namespace) -> int:
    requests = read_problem(parsed.problem)
    try:
        result = plan(requests, capacity=parsed.capacity, seconds=parsed.seconds)
    except CapacityError as error:
        print(f"not solved: {error}", file=sys.stderr)
        if error.proved:
            _explain(requests, error.capacity, parsed.seconds)
        _conclude(error.best, error.proved)
        return 1
    check(requests, result.offsets, result.arena)
    _write(requests, result, parsed.out)
    _conclude(result, result.proved)
    return 0


def _write(requests: Sequence[Request], result: Plan, path: str | None) -> None:
    if path is None:
        write_solution(requests, result.offsets, sys.stdout)
        return
    text = StringIO(newline="")
    write_solution(requests, result.offsets, text)
    write_anew(path, text.getvalue())


def _explain(requests: Sequence[Request], capacity: int, seconds: float) -> None:
    """Name requests that cannot live together, on standard error."""
    found = conflict_set(requests, capacity, proved=True, seconds=seconds)
    total = sum(request.size for request in found.requests)
    where = "" if found.step is None else f", all alive at step {found.step}"
    degree = "without any one of them it can" if found.irreducible else "perhaps not all of them are needed"
    print(
        f"{len(found.requests)} requests of {total} bytes together{where}, cannot live in {capacity} bytes; {degree}:",
        file=sys.stderr,
    )
    for request in found.requests[:NAMED]:
        print(f"  {request.id}: {request.size} bytes, steps {request.start} to {request.stop}", file=sys.stderr)
    if len(found.requests) > NAMED:
        print(f"  and {len(found.requests) - NAMED} more", file=sys.stderr)


def _conclude(result: Plan, proved: bool) -> None:
    said = str(proved).lower()
    print(f"arena={result.arena} floor={result.floor} proved={said} seconds={result.seconds:.3f}")


if __name__ == "__main__":
    escape_streams()
    sys.exit(main())
