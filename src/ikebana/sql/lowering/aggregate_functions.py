"""Catalyst's aggregate functions, as those of `ikebana.reducers`: shared by groups and windows.

`SUMS` are computed from sums, `GATHERED` from all values of a group; a few that need neither are in `aggregates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal as OneOf

from ikebana.errors import SqlError
from ikebana.expressions import Column, Expression, Literal
from ikebana.expressions.core.builders import is_not_null, null_unless
from ikebana.expressions.core.tree import Tree
from ikebana.reducers import sums
from ikebana.reducers.gathering import (
    Bits,
    Collect,
    ExtremeBy,
    GatherCall,
    Joined,
    Mode,
    Percentile,
    Product,
)
from ikebana.sql.lowering.limits import ordered, sort_key

# Sums.

SumBuilder = Callable[[Sequence[Column], bool], sums.Aggregate]
"""From the columns of the arguments, and whether ANSI mode is on."""


def sum_of(function: Tree, columns: Sequence[Column], ansi: bool, is_try: bool) -> sums.Aggregate:
    """An aggregate of `SUMS`; if `is_try`, it is null where it would overflow."""
    aggregate = SUMS[function.kind](columns, ansi and not is_try)
    if is_try and isinstance(aggregate, sums.Sum | sums.Mean):
        return replace(aggregate, null_on_overflow=True)
    if isinstance(aggregate, sums.Variance | sums.Moment | sums.Bivariate):
        return replace(aggregate, undefined_is_nan=function.fields.get("nullOnDivideByZero") is False)
    return aggregate


def both_or_neither(left: Expression, right: Expression) -> list[Expression]:
    """Two arguments, each null where the other one is null."""
    return [
        null_unless(is_not_null(right), left) if right.nullable else left,
        null_unless(is_not_null(left), right) if left.nullable else right,
    ]


def _count(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Count(tuple(column.name for column in columns if column.nullable))


def _sum(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Sum(columns[0].name, columns[0].type, columns[0].nullable, ansi)


def _mean(columns: Sequence[Column], ansi: bool) -> sums.Aggregate:
    return sums.Mean(columns[0].name, columns[0].type, columns[0].nullable, ansi)


def _variance(*, sample: bool, root: bool) -> SumBuilder:
    return lambda columns, ansi: sums.Variance(columns[0].name, sample, root, columns[0].nullable)


def _moment(function: str) -> SumBuilder:
    return lambda columns, ansi: sums.Moment(False, function, columns[0].name, columns[0].nullable)


def _bivariate(function: str) -> SumBuilder:
    """Of y and x, in this order."""
    return lambda columns, ansi: sums.Bivariate(False, function, columns[1].name, columns[0].name, columns[0].nullable)


BIVARIATE: Mapping[str, SumBuilder] = {
    "Corr": _bivariate("corr"),
    "CovPopulation": _bivariate("covar_pop"),
    "CovSample": _bivariate("covar_samp"),
    "RegrSXY": _bivariate("regr_sxy"),
    "RegrSlope": _bivariate("regr_slope"),
    "RegrIntercept": _bivariate("regr_intercept"),
    "RegrR2": _bivariate("regr_r2"),
}

SUMS: Mapping[str, SumBuilder] = {
    "Count": _count,
    "HyperLogLogPlusPlus": _count,  # of distinct values: exact, unlike Spark's
    "Sum": _sum,
    "Average": _mean,
    "StddevSamp": _variance(sample=True, root=True),
    "StddevPop": _variance(sample=False, root=True),
    "VarianceSamp": _variance(sample=True, root=False),
    "VariancePop": _variance(sample=False, root=False),
    "Skewness": _moment("skewness"),
    "Kurtosis": _moment("kurtosis"),
    "RegrReplacement": _moment("sum of squares"),  # regr_sxx and regr_syy
    **BIVARIATE,
}


# Gathered values.

Arguments = Sequence[Expression]
GatherBuilder = Callable[[str, Tree, Arguments], GatherCall]
"""From the name of the result, the function, and its arguments: columns, or literals in `WITH_LITERALS`."""


def gathered_by(name: str, function: Tree, inputs: Arguments, is_distinct: bool) -> GatherCall:
    """An aggregate of `GATHERED`. Those in `OF_DISTINCT` must be given distinct rows."""
    call = GATHERED[function.kind](name, function, inputs)
    return replace(call, distinct=True) if is_distinct and isinstance(call, Collect | Joined) else call


def _collect(*, distinct: bool) -> GatherBuilder:
    return lambda name, tree, inputs: Collect(name, _name(inputs[0]), distinct, tree.fields.get("ignoreNulls") is False)


def _extreme_by(*, greatest: bool) -> GatherBuilder:
    return lambda name, tree, inputs: ExtremeBy(name, _name(inputs[0]), _name(ordered(inputs[1])), greatest)


def _mode(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
    return Mode(name, _name(inputs[0]), greatest=tree.fields.get("reverseOpt") is False)


def _bits(operation: OneOf["and", "or", "xor"]) -> GatherBuilder:
    return lambda name, tree, inputs: Bits(name, _name(inputs[0]), operation)


def _product(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
    return Product(name, _name(inputs[0]))


def _joined(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
    """Strings, a delimiter, and the order in which they are joined."""
    values, delimiter, *sorted_by = inputs
    if not isinstance(delimiter, Literal):
        raise SqlError("the delimiter of listagg must be a constant in a maintained view")
    empty: str | bytes = b"" if _is_binary(values) else ""
    orders = [child for child in tree.children if child.kind == "SortOrder"]
    keys = [
        sort_key(order, column.name)
        for order, column in zip(orders, sorted_by, strict=True)
        if isinstance(column, Column)
    ]
    return Joined(name, _name(values), empty if delimiter.value is None else delimiter.value, tuple(keys))


def _is_binary(expression: Expression) -> bool:
    return str(expression.type) == "binary"


def _percentile(*, discrete: bool) -> GatherBuilder:
    def percentile(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
        value, fraction, *frequencies = inputs
        fractions, is_list = _fractions(fraction)
        frequency = next((_name(column) for column in frequencies if isinstance(column, Column)), None)
        return Percentile(name, _name(value), fractions, is_list, discrete, bool(tree.fields.get("reverse")), frequency)

    return percentile


def _fractions(fraction: Expression) -> tuple[tuple[float, ...], bool]:
    """The fractions of a percentile, and whether they are a list."""
    if not isinstance(fraction, Literal):
        raise SqlError("the fraction of a percentile must be a constant in a maintained view")
    is_list = isinstance(fraction.value, Sequence)
    return tuple(map(float, fraction.value if is_list else [fraction.value])), is_list


def _approximate_percentile(name: str, tree: Tree, inputs: Arguments) -> GatherCall:
    """Exact, unlike Spark's: the accuracy, which is the third argument, has no effect."""
    fractions, is_list = _fractions(inputs[1])
    return Percentile(name, _name(inputs[0]), fractions, is_list, discrete=True, own_type=True)


def _name(argument: Expression) -> str:
    """The name of an argument that is a column."""
    if not isinstance(argument, Column):
        raise SqlError("an aggregate of a constant is not supported in a maintained view", detail=f"of {argument}")
    return argument.name


GATHERED: Mapping[str, GatherBuilder] = {
    "CollectSet": _collect(distinct=True),
    "CollectList": _collect(distinct=False),
    "MaxBy": _extreme_by(greatest=True),
    "MinBy": _extreme_by(greatest=False),
    "Mode": _mode,
    "Percentile": _percentile(discrete=False),
    "PercentileCont": _percentile(discrete=False),
    "PercentileDisc": _percentile(discrete=True),
    "ApproximatePercentile": _approximate_percentile,
    "BitAndAgg": _bits("and"),
    "BitOrAgg": _bits("or"),
    "BitXorAgg": _bits("xor"),
    "Product": _product,
    "ListAgg": _joined,
}

WITH_LITERALS = frozenset({"Percentile", "PercentileCont", "PercentileDisc", "ApproximatePercentile", "ListAgg"})
"""The functions of which constant arguments are options."""

OF_DISTINCT = frozenset(
    {"Mode", "Percentile", "PercentileCont", "PercentileDisc", "ApproximatePercentile", "BitXorAgg", "Product"}
)
"""The functions that, with DISTINCT, are computed from distinct rows. Others are not affected, or do so themselves."""
