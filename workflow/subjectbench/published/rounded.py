"""Numbers as far as they are known from print."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

SLACK = 1e-9
"""Bounds that are closer than this count as equal: they were computed in binary."""


@dataclass(frozen=True)
class Rounded:
    """A number with the interval that rounding allows.

    Results of arithmetic have the tightest interval as long as each rounded number occurs once in a
    formula; otherwise a wider one, so that what is outside is always impossible.

    Attributes:
        value: from the digits as they stand.
        low: smallest possible value.
        high: largest possible value.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, text: str) -> Rounded:
        """Read printed digits: ``"0.272"`` may be anything from 0.2715 to 0.2725.

        Raises:
            ValueError: not a plain decimal number.
        """
        try:
            number = Decimal(text)
        except InvalidOperation as error:
            raise ValueError(f"'{text}' is no decimal number") from error
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int):
            raise ValueError(f"'{text}' is no decimal number")
        half = Decimal(5).scaleb(exponent - 1)
        return cls(float(number), float(number - half), float(number + half))

    @classmethod
    def exactly(cls, value: float) -> Rounded:
        """A number that was not rounded."""
        return cls(float(value), float(value), float(value))

    def __add__(self, other: Rounded | float) -> Rounded:
        """Sum."""
        b = _rounded(other)
        return Rounded(self.value + b.value, self.low + b.low, self.high + b.high)

    def __sub__(self, other: Rounded | float) -> Rounded:
        """Difference."""
        b = _rounded(other)
        return Rounded(self.value - b.value, self.low - b.high, self.high - b.low)

    def __mul__(self, other: Rounded | float) -> Rounded:
        """Product."""
        b = _rounded(other)
        ends = [x * y for x in (self.low, self.high) for y in (b.low, b.high)]
        return Rounded(self.value * b.value, min(ends), max(ends))

    def __truediv__(self, other: Rounded | float) -> Rounded:
        """Quotient.

        Raises:
            ZeroDivisionError: the divisor may be zero.
        """
        b = _rounded(other)
        if b.low <= 0 <= b.high:
            raise ZeroDivisionError(f"{b} may be zero")
        return self * Rounded(1 / b.value, 1 / b.high, 1 / b.low)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Rounded:
        """A number less this one."""
        return _rounded(other) - self

    def __rtruediv__(self, other: float) -> Rounded:
        """A number over this one."""
        return _rounded(other) / self

    def may_equal(self, other: Rounded) -> bool:
        """Whether one number can be behind both."""
        return self.low <= other.high + SLACK and other.low <= self.high + SLACK

    def surely_above(self, other: Rounded) -> bool:
        """Whether rounding cannot have exchanged the order."""
        return self.low > other.high + SLACK


def _rounded(number: Rounded | float) -> Rounded:
    return number if isinstance(number, Rounded) else Rounded.exactly(number)
