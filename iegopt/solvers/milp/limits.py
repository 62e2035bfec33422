"""Limits on whole numbers that span many orders of magnitude, as rows that a float64 engine cannot misread.

An engine's tolerance is 1e-6. A byte in a row of gigabytes is less, whatever the row is divided by: presolve takes
what is left of such a row for nothing, or for a contradiction, and proves what is false. So every row is one of whole
numbers up to ``LARGEST``, which is broken by 1 or not at all.

* At first a limit is *relaxed*: needs are rounded down to a grid of so many cells. No plan is cut off: a bound holds,
  and so does that there is no plan.
* Once a plan breaks the limit it is stated *exactly*, in digits of a number system. With a = q·B + r, and so for the
  limit, whose last digit is ρ,

      Σ a·x ≤ limit    ⇔    Σ r·x − B·carry ≤ ρ,    Σ q·x + carry ≤ ⌊limit/B⌋,    carry ∈ {0, 1, …}

  and the second row again, until all of it is below B.
"""

from __future__ import annotations

from dataclasses import dataclass

from iegopt.solvers.milp.variables import Variables

__all__ = ["LARGEST", "Limit", "exactly", "relaxed"]

LARGEST = 10**4
"""Largest coefficient of a row: with integers to 1e-6 its terms are exact to 0.01, of the 1 that it may be short of."""


@dataclass(frozen=True)
class Limit:
    """Σ terms·column ≤ ``most`` in whole numbers, over columns of at most 1."""

    terms: dict[int, int]
    most: int


def relaxed(variables: Variables, limit: Limit) -> None:
    """A row that every plan within the limit keeps; the limit itself where no need has more than ``LARGEST`` units."""
    # What exceeds the limit by itself does so by as little as one likes.
    enough = max(1, limit.most - sum(a for a in limit.terms.values() if a < 0) + 1)
    terms = {column: min(a, enough) for column, a in limit.terms.items()}
    cell = max(1, -(-max(map(abs, terms.values()), default=0) // LARGEST))
    variables.add({column: a // cell for column, a in terms.items() if a // cell}, "<=", limit.most // cell)


def exactly(variables: Variables, limit: Limit) -> None:
    """The limit in digits, a row and a column of carries for each."""
    terms, most = limit.terms, limit.most
    while max(map(abs, terms.values()), default=0) > LARGEST:
        low = {column: a % LARGEST for column, a in terms.items() if a % LARGEST}
        terms = {column: a // LARGEST for column, a in terms.items() if a // LARGEST}
        most, digit = divmod(most, LARGEST)
        over = sum(a * round(variables.upper[column] or 1) for column, a in low.items()) - digit
        if over > 0:
            carry = variables.column(float(-(-over // LARGEST)), integer=True)
            variables.add({**low, carry: -min(LARGEST, over)}, "<=", digit)
            terms[carry] = 1
    variables.add(dict(terms), "<=", most)
