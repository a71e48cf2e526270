"""Queries over relational themes, as data that can be written as SQL, said in words, and varied into near misses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from posttrain.envs._machinery.relations import THEMES, Theme, draw_instance
from posttrain.verifiers._sqlite import database, rows, same_rows


@dataclass(frozen=True)
class Condition:
    """``Condition("age", ">", 5)``; the value is a number, a text, or a subquery that starts with "(SELECT"."""

    column: str
    op: str
    value: Any

    @property
    def is_subquery(self) -> bool:
        return str(self.value).startswith("(SELECT")

    @property
    def sql(self) -> str:
        text = isinstance(self.value, str) and not self.is_subquery
        return f"{self.column} {self.op} " + (f"'{self.value}'" if text else str(self.value))

    @property
    def words(self) -> str:
        value = "the average of all rows" if self.is_subquery else self.value
        said = {">": "over", ">=": "at least", "<": "under", "<=": "at most", "=": "", "!=": "not"}[self.op]
        return f"{self.column} is {said} {value}".replace("  ", " ")


@dataclass(frozen=True)
class Query:
    """One SELECT. ``select`` holds columns and aggregates such as "COUNT(*)"; a ``joined`` one links the theme's two tables."""

    theme: Theme
    select: tuple[str, ...]
    where: tuple[Condition, ...] = ()
    either: bool = False  # conditions by OR
    distinct: bool = False
    joined: bool = False
    group: str = ""
    having: Condition | None = None
    order: tuple[tuple[str, bool], ...] = ()  # (expression, whether descending)
    limit: int = 0

    @property
    def sql(self) -> str:
        t = self.theme
        parts = [f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(self.select)} FROM {t.table}"]
        if self.joined:
            parts.append(f"JOIN {t.other} ON {t.table}.{t.link} = {t.other}.name")
        if self.where:
            parts.append("WHERE " + (" OR " if self.either else " AND ").join(c.sql for c in self.where))
        if self.group:
            parts.append(f"GROUP BY {self.group}")
        if self.having:
            parts.append(f"HAVING {self.having.sql}")
        if self.order:
            parts.append("ORDER BY " + ", ".join(f"{e} DESC" if down else e for e, down in self.order))
        if self.limit:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)

    @property
    def words(self) -> str:
        """The question: names every part, in the order of the columns wanted."""
        what = " and ".join(_said(e) for e in self.select)
        text = f"{'the different values of ' if self.distinct else ''}{what} of {self.theme.table}"
        if self.joined:
            text += f" joined with {self.theme.other} ({self.theme.table}.{self.theme.link} = {self.theme.other}.name)"
        if self.where:
            text += " where " + (" or " if self.either else " and ").join(c.words for c in self.where)
        if self.group:
            text += f", for each {self.group}"
        if self.having:
            text += f", only groups where {_said(self.having.column)} is at least {self.having.value}"
        if self.order:
            text += ", sorted by " + ", then by ".join(f"{_said(e)} {self._direction(e, down)}" for e, down in self.order)
        if self.limit:
            text += f", only the first {self.limit}"
        return text

    @property
    def num_parts(self) -> int:
        """How many things a writer must get right; an aggregate, DISTINCT, a group and HAVING are two, a join is four."""
        columns = sum(1 + (e.endswith(")")) for e in self.select)
        conditions = sum(1 + 2 * c.is_subquery for c in self.where)
        clauses = 2 * (self.distinct + bool(self.group) + (self.having is not None)) + 4 * self.joined + bool(self.limit)
        return columns + conditions + clauses + len(self.order)

    def variants(self) -> Iterator[tuple[str, Query]]:
        """Near misses, each with its name; some may return the same rows by accident."""
        flipped = {">": ">=", ">=": ">", "<": "<=", "<=": "<", "=": "!=", "!=": "="}
        for i, c in enumerate(self.where):
            opposite = "<" if c.op == ">" else ">"  # no row is likely to equal an average
            yield "a wrong comparison", self._where(i, replace(c, op=opposite if c.is_subquery else flipped[c.op]))
            yield "a condition is missing", replace(self, where=self.where[:i] + self.where[i + 1 :])
        if len(self.where) > 1:
            yield "and for or", replace(self, either=not self.either)
        if self.distinct:
            yield "duplicates kept", replace(self, distinct=False)
        if self.having:
            yield "no HAVING", replace(self, having=None)
        if self.order:
            expression, down = self.order[0]
            yield "the wrong way round", replace(self, order=((expression, not down), *self.order[1:]))
            yield "no order", replace(self, order=())
        if self.limit:
            yield "one row more", replace(self, limit=self.limit + 1)
        yield "a column too many", replace(self, select=(*self.select, f"{self.theme.table}.{self.theme.key}"))
        yield "another column", replace(self, select=(f"{self.theme.table}.{self.theme.numbers()[0]}", *self.select[1:]))

    def _where(self, i: int, condition: Condition) -> Query:
        return replace(self, where=(*self.where[:i], condition, *self.where[i + 1 :]))

    def _direction(self, expression: str, down: bool) -> str:
        column = expression.split(".")[-1]
        texts = {self.theme.key, self.theme.link, "name"} | {
            c for columns in (self.theme.columns, self.theme.other_columns) for c, v in columns.items() if isinstance(v[0], str)
        }
        return ("Z to A" if down else "A to Z") if column in texts else ("high to low" if down else "low to high")


def draw_query(rng: random.Random, level: int) -> Query:
    """A random query with the parts of its level (they are listed in ``data/sql_query``)."""
    theme = rng.choice(THEMES)
    if level in (0, 1, 3):
        pool = [theme.key, *theme.numbers(), *theme.texts()]
        number = rng.choice(theme.numbers())
        select = (rng.choice(pool),) if level == 0 else tuple(rng.sample([theme.key, number], 2))
        order = ((number, rng.random() < 0.5), (theme.key, False)) if level == 3 else ()
        where = _conditions(rng, theme, 1 if level == 0 else 2)
        return Query(theme, select, where, either=level > 0 and rng.random() < 0.4, order=order)
    if level in (2, 4, 6):
        return _over_one_table(rng, theme, level)
    return _over_both_tables(rng, theme, level)


def databases_for(
    rng: random.Random, query: Query, num: int, num_rows: int
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """``num`` databases and the slips (note, sql) that they tell from the query; fewer than three slips where it did not work.

    No database is taken on which the query returns nothing, or a single 0 or NULL.
    """
    left = [(note, q.sql) for note, q in query.variants()]
    tolerated = len(left) // 5
    near = {c.column.split(".")[-1]: c.value for c in query.where if not c.is_subquery}
    told: list[tuple[str, str]] = []
    instances: list[dict[str, Any]] = []
    for tries in range(3 * num):
        if tries == num and not instances:
            break
        instance = draw_instance(rng, query.theme, near, num_rows + rng.randint(-1, 2))
        found = _told_apart(query, instance, left)
        if found is None or (left and not found and len(instances) >= num - 2):
            continue
        instances.append(instance)
        told += found
        left = [s for s in left if s not in found]
        if len(instances) == num:
            break
    return instances, told if len(left) <= tolerated and len(instances) >= 3 else []


def _told_apart(query: Query, instance: dict[str, Any], slips: list[tuple[str, str]]) -> list[tuple[str, str]] | None:
    """The slips that this database shows to be wrong; None where the query returns nothing on it."""
    with database(query.theme.schema, instance) as connection:
        expected = rows(connection, query.sql, max_steps=1_000_000, max_rows=2_000)
        if not expected or expected[0][0] in (0, None):
            return None
        got = {sql: rows(connection, sql, max_steps=1_000_000, max_rows=2_000) for _, sql in slips}
    return [s for s in slips if not same_rows(expected, got[s[1]], ordered=bool(query.order))]


def _over_one_table(rng: random.Random, theme: Theme, level: int) -> Query:
    """Level 2: DISTINCT or aggregates; 4: groups; 6: groups with HAVING and an order."""
    text, number = rng.choice(theme.texts()), rng.choice(theme.numbers())
    aggregate = rng.choice(("COUNT(*)", f"SUM({number})", f"MAX({number})", f"MIN({number})", f"AVG({number})"))
    where = _conditions(rng, theme, 2)
    if level == 2:
        if rng.random() < 0.5:
            return Query(theme, (text,), where, distinct=True)
        return Query(theme, ("COUNT(*)", f"MAX({number})") if aggregate == "COUNT(*)" else (aggregate,), where)
    if level == 4:
        return Query(theme, (text, aggregate), where, group=text)
    order = ((text, rng.random() < 0.5),)
    return Query(theme, (text, aggregate), where, group=text, having=Condition("COUNT(*)", ">=", 2), order=order)


def _over_both_tables(rng: random.Random, theme: Theme, level: int) -> Query:
    """Level 5: a join; 7: its groups in order; 8: and an average and a limit; 9: and HAVING and a third aggregate."""
    first, second = rng.sample(theme.numbers(), 2)
    number, key = f"{theme.table}.{second}", f"{theme.table}.{theme.key}"
    text = f"{theme.table}.{rng.choice([c for c in theme.columns if c in theme.texts()])}"
    far_text, far_number = theme.other_columns
    where: tuple[Condition, ...] = (
        _condition(rng, f"{theme.table}.{first}", theme.columns[first]),
        _condition(rng, f"{theme.other}.{far_number}", theme.other_columns[far_number]),
    )
    if level == 5:
        far = f"{theme.other}.{far_text}"
        return Query(theme, (key, far), where, joined=True, order=((key, rng.random() < 0.5),))
    if level >= 8:
        where = (*where, Condition(number, rng.choice("<>"), f"(SELECT AVG({second}) FROM {theme.table})"))
    aggregates = (f"MAX({number})", f"MIN({number})") if level == 9 else (rng.choice((f"SUM({number})", f"MAX({number})")),)
    return Query(
        theme,
        (text, "COUNT(*)", *aggregates),
        where,
        joined=True,
        group=text,
        having=Condition("COUNT(*)", ">=", 2) if level == 9 else None,
        order=(("COUNT(*)", True), (text, False)),
        limit=2 if level >= 8 else 0,
    )


def _conditions(rng: random.Random, theme: Theme, num: int) -> tuple[Condition, ...]:
    """One condition on a number, or two, the second on another number or a text."""
    numbers = rng.sample(theme.numbers(), 2)
    columns = [numbers[0], rng.choice([numbers[1], *(c for c in theme.columns if c in theme.texts())])]
    return tuple(_condition(rng, c, theme.columns[c]) for c in columns[:num])


def _condition(rng: random.Random, column: str, values: tuple[Any, ...]) -> Condition:
    """A comparison with a number well inside the column's range, or with one of its texts."""
    if isinstance(values[0], str):
        return Condition(column, "=", rng.choice(values))
    low, high = values
    edge = (high - low) // 5
    return Condition(column, rng.choice((">", ">=", "<", "<=")), rng.randint(low + edge, high - edge))


def _said(expression: str) -> str:
    """ "AVG(age)" -> "the average age", "COUNT(*)" -> "the number of rows"."""
    if expression == "COUNT(*)":
        return "the number of rows"
    for function, words in (("AVG", "average"), ("SUM", "sum of"), ("MAX", "highest"), ("MIN", "lowest")):
        if expression.startswith(f"{function}("):
            return f"the {words} {expression[4:-1]}"
    return expression
