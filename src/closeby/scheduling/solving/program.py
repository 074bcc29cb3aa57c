"""Integer programs: whole numbers between bounds, and rows that limit sums of them.

HiGHS (``highspy``) solves them, on one thread and with the same result each time. It computes with floating
point numbers, so its answers are checked with whole ones: values have to keep all rows, and what it takes for
infeasible is proven by weightings of the rows (Farkas' lemma) or not at all. A program holds all that there
is to know of a problem: it may be solved in another thread, and later.
"""

from collections.abc import Hashable, Iterable, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs
from msgspec import Struct

from closeby.objects.arrays import Floats, Ints

#: Weights of rows are rounded to whole multiples of one part in so many of the largest.
_SCALE: Final = 1 << 20
#: By how much a number of the solver may differ from the whole one that it stands for.
_ROUNDING: Final = 1e-5
#: Numbers beyond this would not be exact.
_LARGEST: Final = 1 << 40
#: Steps for one linear program of a proof.
_RELAXATION: Final = 10
_INFEASIBLE: Final = highspy.HighsModelStatus.kInfeasible


class Verdict(Enum):
    """What is known of a problem."""

    FEASIBLE = "feasible"
    #: Proven.
    INFEASIBLE = "infeasible"
    #: Not decided within the limit of steps.
    UNDECIDED = "undecided"


class Solution(Struct, frozen=True, eq=False):
    """What came out."""

    verdict: Verdict
    #: The value of each column, (columns,); empty unless feasible.
    values: Ints
    #: Whether no other values cost less.
    best: bool = False
    #: How much of the limit it took.
    steps: int = 0


_NO_VALUES: Final = np.zeros(0, dtype=np.int64)


class Program:
    """Columns and rows, which are only ever added."""

    def __init__(self) -> None:
        self._least: list[int] = []
        self._most: list[int] = []
        self._costs: list[int] = []
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._factors: list[int] = []
        self._row_least: list[int | None] = []
        self._row_most: list[int | None] = []
        #: A row asks for what no values are.
        self._impossible = False

    @property
    def key(self) -> Hashable:
        """Programs with equal keys are the same problem."""
        rows = self._starts, self._columns, self._factors, self._row_least, self._row_most
        whole = repr((self._least, self._most, self._costs, rows, self._impossible))
        return blake2b(whole.encode(), digest_size=16).digest()

    @property
    def size(self) -> int:
        """How many columns there are."""
        return len(self._least)

    def column(self, most: int, *, least: int = 0, cost: int = 0) -> int:
        """A whole number from ``least`` to ``most``; returns its place."""
        self._least.append(least)
        self._most.append(most)
        self._costs.append(cost)
        return len(self._least) - 1

    def row(
        self, terms: Iterable[tuple[int, int]], *, least: int | None = None, most: int | None = None
    ) -> None:
        """The sum of some columns, each times a factor, is from ``least`` to ``most``.

        ``terms``: places of different columns with their factors.
        """
        for place, factor in terms:
            if factor:
                self._columns.append(place)
                self._factors.append(factor)
        if least is not None and most is not None and least > most:
            self._impossible = True
        if self._starts[-1] == len(self._columns):
            self._impossible |= (least or 0) > 0 or (most is not None and most < 0)
        self._starts.append(len(self._columns))
        self._row_least.append(least)
        self._row_most.append(most)

    def cost(self, costs: Sequence[int]) -> None:
        """Costs of all columns, in place of those that they have."""
        self._costs = list(costs)

    def holds(self, values: Ints) -> bool:
        """Whether these values keep all bounds and rows."""
        least, most = np.asarray(self._least), np.asarray(self._most)
        if bool(((values < least) | (values > most)).any()):
            return False
        sums = self._sums(values)
        return all(
            (least is None or least <= total) and (most is None or total <= most)
            for total, least, most in zip(sums, self._row_least, self._row_most, strict=True)
        )

    def solve(self, steps: int, *, proof: bool = True) -> Solution:
        """The values that cost least, or any where nothing costs; ``steps`` limits the work.

        Where the steps do not last for a proof that values cost least, they are given as not ``best``.
        Without ``proof`` the solver is believed that there are none.
        """
        if self._impossible:
            return Solution(Verdict.INFEASIBLE, _NO_VALUES)
        if not self.size:
            return Solution(Verdict.FEASIBLE, _NO_VALUES, True)
        limit = _Limit(steps)
        solver = self._solver(limit)
        solver.run()
        status = solver.getModelStatus()
        if status == _INFEASIBLE:
            proven = not proof or self._proven(limit)
            verdict = Verdict.INFEASIBLE if proven else Verdict.UNDECIDED
            return Solution(verdict, _NO_VALUES, steps=limit.taken)
        values = _whole(solver.getSolution().col_value)
        if values is None or len(values) != self.size or not self.holds(values):
            return Solution(Verdict.UNDECIDED, _NO_VALUES, steps=limit.taken)
        best = status == highspy.HighsModelStatus.kOptimal
        return Solution(Verdict.FEASIBLE, values, best, limit.taken)

    def _solver(self, limit: "_Limit") -> _Highs:
        # ``Highs`` of the package prints a line as it is made, which would be part of JSON on stdout.
        solver = _Highs()
        options: dict[str, Any] = {
            "output_flag": False,
            "threads": 1,
            "random_seed": 0,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.5,
        }
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.passModel(self._model())
        solver.setCallback(limit.interrupt, None)
        solver.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
        solver.startCallback(highspy.cb.HighsCallbackType.kCallbackSimplexInterrupt)
        return solver

    def _model(self) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.size, len(self._row_least)
        model.col_cost_ = np.asarray(self._costs, dtype=np.float64)
        model.col_lower_ = np.asarray(self._least, dtype=np.float64)
        model.col_upper_ = np.asarray(self._most, dtype=np.float64)
        model.row_lower_ = np.asarray([-np.inf if one is None else one for one in self._row_least])
        model.row_upper_ = np.asarray([np.inf if one is None else one for one in self._row_most])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self._starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self._columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self._factors, dtype=np.float64)
        model.integrality_ = [highspy.HighsVarType.kInteger] * self.size
        return model

    def _sums(self, values: Ints) -> list[int]:
        """The sum of each row."""
        columns = np.asarray(self._columns, dtype=np.intp)
        until = np.concatenate([[0], np.cumsum(np.asarray(self._factors, dtype=np.int64) * values[columns])])
        sums: list[int] = np.diff(until[np.asarray(self._starts)]).tolist()
        return sums

    # Proofs

    def _proven(self, limit: "_Limit") -> bool:
        """Whether there are certainly no values, as linear programs show: each half of a column by itself."""
        solver = self._solver(limit)
        solver.setOptionValue("solve_relaxation", True)
        solver.setOptionValue("presolve", "off")
        places = np.arange(self.size, dtype=np.int32)
        halves = [(np.asarray(self._least, dtype=np.int64), np.asarray(self._most, dtype=np.int64))]
        while halves:
            least, most = halves.pop()
            if not limit.take(_RELAXATION):
                return False
            solver.changeColsBounds(self.size, places, least.astype(np.float64), most.astype(np.float64))
            solver.run()
            status = solver.getModelStatus()
            if status == _INFEASIBLE:
                _, there, ray = solver.getDualRay()  # type: ignore[attr-defined]
                if not there or not self._refuted(np.asarray(ray), least, most):
                    return False
                continue
            if status != highspy.HighsModelStatus.kOptimal:
                return False
            found = np.asarray(solver.getSolution().col_value)
            apart = np.abs(found - np.round(found))
            place = int(apart.argmax())
            if apart[place] < _ROUNDING:
                return False  # The solver contradicts itself.
            middle = int(np.floor(found[place]))
            below, above = most.copy(), least.copy()
            below[place], above[place] = middle, middle + 1
            halves += [(least, below), (above, most)]
        return True

    def _refuted(self, weights: Floats, least: Ints, most: Ints) -> bool:
        """Whether a weighted sum of the rows can't be as large as the rows ask, for any values in the bounds.

        All of it is in whole numbers, so that it is a proof whatever the weights are.
        """
        largest = float(np.abs(weights).max(initial=0.0))
        if not np.isfinite(largest) or not largest:
            return False
        whole = np.round(weights * (_SCALE / largest)).astype(np.int64).tolist()
        for sign in (1, -1):
            asked = 0
            for weight, low, high in zip(whole, self._row_least, self._row_most, strict=True):
                side = low if sign * weight > 0 else high
                if weight and side is None:
                    break
                asked += sign * weight * (side or 0)
            else:
                if asked > self._most_of([sign * weight for weight in whole], least, most):
                    return True
        return False

    def _most_of(self, weights: Sequence[int], least: Ints, most: Ints) -> int:
        """The largest weighted sum of rows within the bounds of columns."""
        factors = [0] * self.size
        for row, weight in enumerate(weights):
            for at in range(self._starts[row], self._starts[row + 1]) if weight else ():
                factors[self._columns[at]] += weight * self._factors[at]
        return sum(
            factor * (high if factor > 0 else low)
            for factor, low, high in zip(factors, least.tolist(), most.tolist(), strict=True)
        )


class _Limit:
    """Counts steps down: calls by the solver, and linear programs of a proof."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.taken = 0

    def take(self, steps: int) -> bool:
        """So many more; False when no more are allowed."""
        self.taken += steps
        return self.taken <= self._steps

    def interrupt(
        self,
        kind: highspy.cb.HighsCallbackType,
        message: str,
        said: highspy.cb.HighsCallbackOutput,
        answer: highspy.cb.HighsCallbackInput,
        data: object,
    ) -> None:
        """Called by the solver from time to time; it ends where the limit is reached."""
        if not self.take(1):
            answer.user_interrupt = True


def _whole(values: Sequence[float]) -> Ints | None:
    """The whole numbers that the solver's stand for; None where they stand for none."""
    found = np.asarray(values, dtype=np.float64)
    rounded = np.round(found)
    if not np.isfinite(found).all() or (np.abs(found - rounded) > _ROUNDING).any():
        return None
    if (np.abs(rounded) > _LARGEST).any():
        return None
    return rounded.astype(np.int64)
