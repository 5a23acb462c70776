# pyright: basic
"""Lists of a run's rows, by DuckDB: the filters of `filters.py` as SQL.

Rows come in the order in which they are stored. If a candidate has several rewards, as imported
candidates may, the last one counts.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from ....configs.mistakes import did_you_mean, list_names
from ....stores.derived import scan_derived
from ....stores.lake import RunReader
from ....stores.schemas import SCHEMAS
from ....stores.stage_files import RowRange
from ....stores.views import lazy_rows
from .duckdb_rows import (
    PLACE,
    SqlError,
    among,
    cursor,
    literal,
    quote_name,
    select_rows,
    sentence,
    stream_rows,
)
from .filters import BY_CRITIQUE, FILTERS, JOINED, TABLES, Filter, RowTable
from .runs import require_iteration

if TYPE_CHECKING:
    import duckdb

FEW = 1000
"""Of at most this many rows, the places are found first. Only there all columns are read."""


class ListError(ValueError):
    """A filter or a sort column that a list does not have."""

    code = "LPF-205"


def table_of(name: str) -> RowTable:
    """Return the list of a table; for a table without a defined list, its columns.

    Raises:
        ListError: if the table does not exist.
    """
    check("table", name, SCHEMAS)
    return TABLES.get(name) or RowTable(stored=SCHEMAS[name].names)


def rows(
    run: RunReader,
    table: str,
    filters: Mapping[str, object] | None = None,
    *,
    iteration: int | None = None,
    derived: str | None = None,
    columns: Sequence[str] | None = None,
    sort: str | None = None,
    limit: int | None = None,
    start: int = 0,
    where: Sequence[str] = (),
) -> pl.LazyFrame:
    """Return the rows of a table that pass the filters, as they are committed now.

    Args:
        run: the run, which must stay open until the rows are collected.
        table: the table's name.
        filters: values by which to filter, of `Filters`; None disables a filter.
        iteration: the iteration whose rows are wanted; None is all.
        derived: the derived table to read instead of the run's own rows.
        columns: the columns to return; by default the table's, and those added to it.
        sort: the column to sort by, in descending order after a dash.
        limit: the most rows to return.
        start: how many rows to skip.
        where: further conditions in SQL.

    Raises:
        ListError: if the table lacks such a filter or column, or the run such a word.
        DerivedError: if the derived table does not exist.
        DamagedError: if a file was altered.
    """
    about = table_of(table)
    given = (filters or {}).items()
    values = {name: value for name, value in given if value is not None and value is not False}
    for name in values:
        check("filter", name, about.filters)
    require_iteration(run, iteration)
    instead = {} if derived is None else {table: scan_derived(run.folder, derived, table)}
    for name, value in values.items():
        _require_known(run, table, about, name, value, instead)
    conditions = [*where, *_conditions(about, values)]
    if derived is not None and iteration is not None:
        conditions.append(f"iteration = {iteration}")
    shown = [*(columns or [*about.stored, *about.added])]
    added = [name for name in about.added if name in shown]
    ranked = None if sort is None else _order(about, sort)
    few = limit is not None and limit <= FEW and derived is None
    sql = _select(
        about,
        table,
        [PLACE] if few else shown,
        where=conditions,
        order=ranked,
        limit=limit,
        start=start,
    )
    lookups = " ".join(JOINED[name][1] for name in added)
    state = QueryTables(
        run,
        f"{sql} {lookups}",
        {table: iteration, "critiques": iteration},
        instead,
    )
    types = {
        **pl.Schema(SCHEMAS[table]),
        **{name: pl.Float64 if name == "reward" else pl.String for name in about.added},
    }
    schema = {name: types[name] for name in shown}
    if not few:
        return stream_rows(lambda: state.answer(sql, in_order=ranked is None), schema)

    def page() -> pl.LazyFrame:
        places = state.frame(sql, in_order=ranked is None)[PLACE]
        return state.at(table, places.to_list(), shown, added).lazy()

    return lazy_rows(schema, page)


class QueryTables:
    """The tables of a run that a query names, in the state of the moment when this is made.

    `iterations` names the iteration of a table's rows, if only those are wanted. `instead` has
    rows to be used instead of a table's own. The files that the query will read are verified.
    """

    def __init__(
        self,
        run: RunReader,
        sql: str,
        iterations: Mapping[str, int | None] | None = None,
        instead: Mapping[str, pl.LazyFrame] | None = None,
    ) -> None:
        names, iterations, instead = _names(sql), iterations or {}, instead or {}
        with run.journal.snapshot():
            self._rows = {
                table: run.table_rows(table, iteration=iterations.get(table))
                for table in SCHEMAS
                if table in names
            }
        self._ranges = {
            table: [RowRange(first=0, frame=instead[table])]
            if table in instead
            else stored.ranges(names & {*SCHEMAS[table].names})
            for table, stored in self._rows.items()
        }

    @contextmanager
    def answer(self, sql: str, *, in_order: bool = False) -> "Generator[duckdb.DuckDBPyRelation]":
        """Yield the answer of a query that names no other tables and columns.

        With `in_order`, the rows have the order of the stored rows even if the query has joins.

        Raises:
            SqlError: with DuckDB's message.
        """
        import duckdb

        names = _names(sql)
        joins = len(names & {*self._ranges}) > 1
        connection = cursor(joins_in_order=in_order and joins)
        try:
            tables = [
                f"{table} as not materialized ({select_rows(connection, ranges, columns)})"
                for table, ranges in self._ranges.items()
                if table in names
                and (columns := [n for n in (*SCHEMAS[table].names, PLACE) if n in names])
            ]
            yield connection.sql(f"with {', '.join(tables)} {sql}" if tables else sql)
        except duckdb.Error as error:
            raise SqlError(sentence(error)) from error
        finally:
            connection.close()

    def frame(self, sql: str, *, in_order: bool = False) -> pl.DataFrame:
        """Return the answer of a query.

        Raises:
            SqlError: with DuckDB's message.
        """
        with self.answer(sql, in_order=in_order) as relation:
            return pl.DataFrame(relation.to_arrow_table())

    def at(
        self, table: str, places: Sequence[int], shown: Sequence[str], added: Sequence[str]
    ) -> pl.DataFrame:
        """Return columns of the rows at these places; those that are `added` are looked up."""
        keys = [JOINED[name][0] for name in added]
        stored = [name for name in SCHEMAS[table].names if name in {*shown, *keys, "prompt_id"}]
        found = self._rows[table].at(places, stored)
        for name, key in zip(added, keys, strict=True):
            # Looked up by prompt, too: files are sorted by prompt, so few row groups are read.
            about = {key, "prompt_id"}
            of = " and ".join(among(each, found[each].unique().to_list()) for each in about)
            looked_up = self.frame(JOINED[name][1].format(of=f"where {of}"))
            found = found.join(looked_up, on=key, how="left", maintain_order="left")
        return found.select(shown)


def words(run: RunReader, table: str, name: str, most: int) -> list[str]:
    """Return values that a filter can have; they are looked for in the first `most` rows."""
    sql = _words(table, table_of(table), FILTERS[name][1])
    found = QueryTables(run, sql).frame(f"select distinct word from ({sql} limit {most})")
    return sorted(found["word"].drop_nulls().to_list())


def check(what: str, word: str, known: Iterable[str]) -> None:
    """Require that a word is one of those that a run has.

    Raises:
        ListError: naming those that it has.
    """
    there = sorted(set(known))
    if word not in there:
        raise ListError(
            f"no {what} {word!r} here; {did_you_mean(word, there)}use one of: {list_names(there)}"
        )


def _names(sql: str) -> set[str]:
    """Return the words of a query that can name tables and columns."""
    return set(re.findall(r"\w+", re.sub(r"'(?:[^']|'')*'", "", sql)))


def _select(
    about: RowTable,
    table: str,
    columns: Sequence[str],
    *,
    where: Sequence[str],
    order: str | None,
    limit: int | None,
    start: int,
) -> str:
    """Return the SELECT of columns of the rows that pass."""
    named = _names(" ".join([*columns, *where, order or ""]))
    computed = "".join(
        f", {sql} as {name}" for name, sql in about.computed.items() if name in named
    )
    joins = "".join(
        f" left join ({select.format(of='')}) as of_{name} using ({key})"
        for name, (key, select) in JOINED.items()
        if name in named and name not in {*about.stored, *about.computed}
    )
    return (
        f"select {', '.join(map(quote_name, columns))} "
        f"from (select *{computed} from {table}) as listed{joins}"
        + (f" where {' and '.join(where)}" if where else "")
        + (f" order by {order}" if order else "")
        + (f" limit {limit} offset {start}" if limit is not None else "")
    )


def _order(about: RowTable, sort: str) -> str:
    """Return the sort order, in SQL; rows of equal rank are sorted by their ids.

    Raises:
        ListError: if the column does not exist.
    """
    column = sort.removeprefix("-")
    check("column to sort by", column, about.columns)
    way = "desc" if sort.startswith("-") else "asc"
    return f"{quote_name(column)} {way} nulls last" + (f", {about.key}" if about.key else "")


def _conditions(about: RowTable, values: Mapping[str, Any]) -> list[str]:
    """Return the filters in SQL."""
    by_critique = BY_CRITIQUE if about.candidate else frozenset[str]()
    conditions = list[str]()
    for name, value in values.items():
        condition = FILTERS[name][1]
        if condition.operator == "~":
            matches = _pattern(str(value))
            found = (f"regexp_matches({text}, {matches})" for text in about.texts)
            conditions.append(f"({' or '.join(found)})")
        elif name not in by_critique:
            conditions.append(f"{condition.column} {condition.operator} {literal(value)}")
    return [*conditions, *_by_critique(about, values)]


def _by_critique(about: RowTable, values: Mapping[str, Any]) -> list[str]:
    """Return the condition on a candidate's critiques: one of them must meet all of it."""
    if not about.candidate:
        return []
    aspect = [
        f"a.{field} = {literal(values[name])}"
        for name, field in (("aspect", "name"), ("rating", "rating"))
        if name in values
    ]
    conditions = ["status != 'scored'"] if "unscored" in values else []
    if aspect:
        conditions.append(f"len(list_filter(aspects, lambda a: {' and '.join(aspect)})) > 0")
    if not conditions or about.key == "critique_id":
        return conditions
    rated = f"select candidate_id from critiques where {' and '.join(conditions)}"
    return [f"{about.candidate} in ({rated})"]


def _words(table: str, about: RowTable, condition: Filter) -> str:
    """Return the SELECT of the values that a filter can have."""
    judged = bool(about.candidate)
    return condition.words.format(
        column=condition.column,
        table=table,
        aspect="unnest(aspects).name" if judged else "aspect",
        judged="critiques" if judged else table,
    )


def _require_known(
    run: RunReader,
    table: str,
    about: RowTable,
    name: str,
    value: Any,
    instead: Mapping[str, pl.LazyFrame],
) -> None:
    """Require that a run has the value of a filter, if not all are possible."""
    sql = _words(table, about, FILTERS[name][1])
    if not sql:
        return
    tables = QueryTables(run, sql, instead=instead)
    if not tables.frame(f"select word from ({sql}) where word = {literal(value)} limit 1").height:
        known = tables.frame(f"select distinct word from ({sql})")["word"]
        check(name, value, known.drop_nulls().to_list())


def _pattern(text: str) -> str:
    """Return the pattern that finds `text`, and how it is looked for, in SQL.

    Raises:
        ListError: if it is an invalid regular expression.
    """
    if not (len(text) > 1 and text.startswith("/") and text.endswith("/")):
        return f"{literal(text)}, 'il'"  # in any case, literally
    import duckdb

    pattern = literal(text[1:-1])
    try:
        with cursor() as connection:
            connection.execute(f"select regexp_matches('', {pattern})").fetchall()
    except duckdb.Error as error:
        raise ListError(f"--text {text} is not a valid regular expression") from error
    return pattern
