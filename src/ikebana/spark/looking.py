"""Looking at the rows of a table or view, with the methods that PySpark's DataFrame has for it.

`show`, `collect`, `count`, `head`, `first`, `take` and the display in notebooks ask the workers directly: they cost
milliseconds rather than a Spark job, and workers send only the rows that are shown. `toPandas` is Spark's own, with
Spark's types. Rows of a view that has an ORDER BY come in its order, for which all of them have to be fetched; other
rows come in any order.

Each call reads the last closed epoch, except `collect(at=...)`. For several calls on the same rows, hold an epoch and
use `to_df(at=...)`.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, overload

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from ikebana.engine.results import At
from ikebana.errors import IkebanaError, SchemaError
from ikebana.spark.internals import rows_of

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_ROWS = 20
"""How many rows a notebook shows, and `show` by default, as in Spark."""

_SHOWN_CHARACTERS = 20
"""After how many characters a notebook truncates values, as Spark does."""


class DataFrameMethods(ABC):
    """The methods of PySpark's DataFrame that look at rows; a base class of tables and views."""

    name: str

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The columns, as a Spark schema."""

    @abstractmethod
    def to_df(self, at: At = None, *, timeout: float | None = None) -> DataFrame:
        """The rows as a Spark DataFrame."""

    @abstractmethod
    def to_arrow(self, at: At = None, *, timeout: float | None = None) -> pa.Table:
        """The rows as an Arrow table."""

    @abstractmethod
    def _spark(self) -> SparkSession:
        """The SparkSession that shows the rows."""

    @abstractmethod
    def _first_rows(self, limit: int) -> tuple[pa.Table, int]:
        """At most `limit` rows, the first ones if they have an order, and the number of all rows."""

    # Rows.

    def collect(self, at: At = None) -> list[Row]:
        """All rows, as Spark rows; with `at`, those at an epoch or time that is held or retained."""
        return self._as_rows(self.to_arrow(at))

    @overload
    def head(self) -> Row | None: ...

    @overload
    def head(self, n: int) -> list[Row]: ...

    def head(self, n: int | None = None) -> Row | list[Row] | None:
        """The first `n` rows; without `n`, the first row, or None if there is none."""
        if n is not None:
            return self.take(n)
        rows = self.take(1)
        return rows[0] if rows else None

    def first(self) -> Row | None:
        """The first row; None if there is none."""
        return self.head()

    def take(self, num: int) -> list[Row]:
        """The first `num` rows."""
        return self._as_rows(self._first_rows(_checked_number(num))[0])

    def isEmpty(self) -> bool:
        """Whether there are no rows."""
        return self._first_rows(0)[1] == 0

    def toArrow(self) -> pa.Table:
        """All rows as an Arrow table; the same as `to_arrow`."""
        return self.to_arrow()

    def toPandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame with the types that Spark gives it; `to_pandas` has those of Arrow."""
        return self.to_df().toPandas()

    # Showing them.

    def show(self, n: int = _SHOWN_ROWS, truncate: bool | int = True, vertical: bool = False) -> None:
        """Print the first `n` rows, as a DataFrame does.

        truncate: the number of characters after which values are cut off; True for 20, False for all characters.
        vertical: print each value on a line of its own.
        """
        self._frame(self._first_rows(_checked_number(n) + 1)[0]).show(n, truncate, vertical)

    def printSchema(self, level: int | None = None) -> None:
        """Print the columns as a tree, nested ones down to `level`."""
        self._spark().createDataFrame([], self.schema).printSchema(level)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """The name and type of each column."""
        return [(field.name, field.dataType.simpleString()) for field in self.schema]

    def _repr_html_(self) -> str:
        title = f"<p>{html.escape(repr(self).strip('<>'))}</p>"
        try:
            rows, total = self._first_rows(_SHOWN_ROWS)
        except IkebanaError as error:
            return f"{title}<pre>{html.escape(str(error))}</pre>"
        shown = self._frame(rows)._jdf.htmlString(_SHOWN_ROWS, _SHOWN_CHARACTERS)
        return f"{title}{shown}<p>{_count(total, rows.num_rows)}</p>"

    def _as_rows(self, rows: pa.Table) -> list[Row]:
        return list(rows_of(rows, self.schema))

    def _frame(self, rows: pa.Table) -> DataFrame:
        """A DataFrame of rows that are in this process."""
        return self._spark().createDataFrame(rows if rows.num_rows else [], schema=self.schema)


def _checked_number(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise SchemaError(f"{number!r} is not a number of rows", hint="give an integer that is not negative")
    return number


def _count(total: int, shown: int) -> str:
    """
    >>> _count(1, 1), _count(1234, 20)
    ('1 row', '1,234 rows, of which 20 are shown')
    """
    rows = f"{total:,} row{'' if total == 1 else 's'}"
    return rows if total == shown else f"{rows}, of which {shown} are shown"
