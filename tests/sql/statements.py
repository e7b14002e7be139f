"""Statements and the tables they are about, as data, and the plans that Spark makes of them: for tests without Java.

Each has a file in `plans/`, which `python -m tests.sql.record_plans` writes. `planned` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from ikebana.expressions import Config
from ikebana.sql.planned import Planned, PythonCode

TABLES = {
    "orders": "id BIGINT NOT NULL, customer BIGINT, day DATE NOT NULL, price DECIMAL(15,2) NOT NULL, "
    "status STRING NOT NULL, note STRING",
    "items": "order_id BIGINT NOT NULL, line INT NOT NULL, part BIGINT, quantity INT, price DECIMAL(15,2), tax DOUBLE",
    "customers": "id BIGINT NOT NULL, name STRING NOT NULL, nation INT, credit DECIMAL(15,2)",
    "nations": "id INT NOT NULL, name STRING NOT NULL, region INT",
    "edges": "src BIGINT NOT NULL, dst BIGINT NOT NULL, weight INT",
    "events": "at TIMESTAMP NOT NULL, device STRING, reading DOUBLE, tags ARRAY<STRING>, "
    "place STRUCT<x: DOUBLE, y: DOUBLE>, done BOOLEAN",
    "stock": "shop INT NOT NULL, goods MAP<STRING, INT>, moves ARRAY<STRUCT<n: INT, at: DATE>>",
}
"""Columns by table."""

KEYS = {"orders": ("id",), "items": ("order_id", "line"), "customers": ("id",), "nations": ("id",)}
"""Those that have a key."""


def doubled(x: int | None) -> int | None:
    """A function for the statements: `doubled(x)`."""
    return None if x is None else 2 * x


def shouted(text: str | None) -> str | None:
    """Another: `shouted(text)`."""
    return None if text is None else text.upper() + "!"


FUNCTIONS = {"doubled": (doubled, "bigint"), "shouted": (shouted, "string")}
"""Python functions by name, and what they return."""


def nested(before: str, inner: str, after: str, depth: int = 200) -> str:
    """Something inside itself, so many times."""
    return before * depth + inner + after * depth


STATEMENTS: dict[str, str] = {
    # Rows.
    "all_columns": "SELECT * FROM orders",
    "some_columns": "SELECT note, id FROM orders",
    "no_columns": "SELECT 1 AS one FROM orders",
    "arithmetic": "SELECT order_id, quantity * price AS cost, price * (1 + tax) AS taxed, line + 1 AS next, "
    "-quantity AS negative, quantity / 2 AS half, quantity % 3 AS rest, quantity DIV 2 AS whole FROM items",
    "filter": "SELECT id FROM orders WHERE price > 10.5 AND status = 'open' AND note IS NOT NULL",
    "three_valued": "SELECT id FROM orders WHERE NOT (customer = 3 OR note = 'x') OR customer IS NULL",
    "case": "SELECT id, CASE WHEN price > 100 THEN 'big' WHEN price > 10 THEN 'medium' ELSE 'small' END AS size, "
    "CASE status WHEN 'open' THEN 1 END AS is_open, IF(note IS NULL, 0, 1) AS noted, coalesce(note, status) AS text, "
    "nullif(status, 'open') AS closed FROM orders",
    "case_nested": "SELECT id, "
    f"{nested('CASE WHEN customer > 3 THEN 1 ELSE ', 'customer', ' END')} AS e, "
    f"{nested('CASE WHEN customer < 9 THEN ', 'customer', ' ELSE 0 END')} AS t, "
    f"{nested('CASE WHEN ', 'customer', ' > 3 THEN customer - 2 ELSE customer + 1 END', 20)} AS w, "
    f"{nested('IF(customer = 5, id, ', 'customer', ')')} AS i, "
    f"{nested('coalesce(CASE WHEN customer = 5 THEN id END, ', 'customer', ')')} AS c, "
    "CASE WHEN CASE WHEN note IS NULL THEN id > 5 ELSE EXISTS (SELECT 1 FROM items WHERE order_id = id) END THEN 1 END "
    "AS s FROM orders",
    "case_lists": "SELECT id, CASE WHEN id > 30 THEN array(id) ELSE array(0, customer) END AS a, "
    "coalesce(IF(id > 50, array(customer), NULL), array(id)) AS b, "
    "IF(id > 9, named_struct('x', id), named_struct('x', customer)) AS c FROM orders",
    "texts": "SELECT id, upper(status) AS u, length(note) AS n, concat(status, '-', note) AS c, substring(note, 2, 3) "
    "AS s, trim(note) AS t, replace(note, 'a', 'b') AS r, status || note AS p FROM orders",
    "like": "SELECT id FROM orders WHERE note LIKE '%a_b%' OR status LIKE 'op%' OR note LIKE '%x%' OR note "
    "RLIKE '^a+$'",
    "in_list": "SELECT id FROM orders WHERE status IN ('open', 'shipped') AND customer NOT IN (1, 2, 3)",
    "in_long_list": f"SELECT id FROM orders WHERE customer IN ({', '.join(map(str, range(20)))})",
    "dates": "SELECT id, year(day) AS y, month(day) AS m, day + INTERVAL 3 DAYS AS later, "
    "datediff(day, DATE '2024-01-01') AS passed, date_trunc('MONTH', day) AS start, add_months(day, 1) AS next "
    "FROM orders WHERE day BETWEEN DATE '2024-01-01' AND DATE '2024-01-01' + INTERVAL 1 YEAR",
    "casts": "SELECT CAST(price AS INT) AS i, CAST(id AS STRING) AS s, CAST(day AS TIMESTAMP) AS t, "
    "CAST(price AS DOUBLE) AS d, CASE WHEN note RLIKE '^ *-?[0-9]+ *$' THEN CAST(note AS BIGINT) END AS n, "
    "CAST(price AS DECIMAL(10,1)) AS p FROM orders",
    "timestamps": "SELECT device, date_trunc('HOUR', at) AS hour, at + INTERVAL 90 MINUTES AS later, hour(at) AS h, "
    "unix_timestamp(at) AS seconds FROM events WHERE at >= TIMESTAMP '2024-03-01 12:30:00' AND CAST(at AS DATE) "
    "< DATE '2025-01-01'",
    "nested": "SELECT at, tags, place, place.x AS x, IF(size(tags) > 0, tags[0], NULL) AS first, size(tags) AS n, "
    "array_contains(tags, 'a') AS a FROM events",
    "same_column_twice": "SELECT id, id AS again, upper(status) AS u, upper(status) AS v FROM orders",
    "void_refused": "SELECT id, NULL AS nothing FROM orders",
    "group_by_null": "SELECT count(*) AS n, max(id) AS id FROM orders GROUP BY NULL",
    "values": "SELECT * FROM VALUES (1, 'one', DATE '2024-01-01'), (2, NULL, NULL) AS v(id, name, day)",
    "join_values": "SELECT o.id, v.label FROM orders o JOIN VALUES ('open', 1), ('closed', 2) AS v(status, label) "
    "ON o.status = v.status",
    "one_row": "SELECT 1 AS a, 'x' AS b",
    "distinct": "SELECT DISTINCT status, customer FROM orders",
    "explode": "SELECT device, tag FROM events LATERAL VIEW explode(tags) AS tag",
    "explode_outer": "SELECT device, place, position, tag FROM events LATERAL VIEW OUTER posexplode(tags) AS "
    "position, tag",
    "stack": "SELECT id, kind, value FROM orders LATERAL VIEW stack(2, 'status', status, 'note', note) AS kind, value",
    "explode_map": "SELECT shop, name, count FROM stock LATERAL VIEW explode(goods) AS name, count",
    "explode_map_outer": "SELECT shop, position, name, count FROM stock LATERAL VIEW OUTER posexplode(goods) AS "
    "position, name, count",
    "explode_map_grouped": "SELECT name, sum(count) AS total FROM stock LATERAL VIEW explode(goods) AS name, count "
    "WHERE shop > 1 GROUP BY name",
    "inline_column": "SELECT shop, n, at FROM stock LATERAL VIEW OUTER inline(moves) AS n, at",
    "inline": "SELECT at, x, y FROM events LATERAL VIEW inline(array(place, named_struct('x', 0.5D, 'y', reading))) "
    "AS x, y",
    "explode_filtered": "SELECT tag, count(*) AS n FROM events LATERAL VIEW explode(tags) AS tag WHERE reading > 0 AND "
    "tag <> 'b' GROUP BY tag",
    # Joins.
    "join": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "join_condition": "SELECT o.id, i.line FROM orders o JOIN items i ON o.id = i.order_id AND i.price > o.price",
    "join_computed": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer + 1 = c.id * 2",
    "join_left": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "join_left_condition": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id AND c.credit > o.price AND o.status = 'open'",
    "join_right": "SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.customer = c.id",
    "join_full": "SELECT o.id, c.id AS customer, c.name FROM orders o FULL JOIN customers c ON o.customer = c.id",
    "join_full_condition": "SELECT o.id, c.name FROM orders o FULL JOIN customers c "
    "ON o.customer = c.id AND o.price > c.credit",
    "join_cross": "SELECT c.name, n.name AS nation FROM customers c CROSS JOIN nations n",
    "join_inequality": "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.price < b.price",
    "join_left_inequality": "SELECT c.id, o.id AS dearer FROM customers c LEFT JOIN orders o ON o.price > c.credit",
    "join_semi": "SELECT * FROM customers c LEFT SEMI JOIN orders o ON o.customer = c.id",
    "join_semi_condition": "SELECT * FROM customers c LEFT SEMI JOIN orders o ON o.customer = c.id AND "
    "o.price > c.credit",
    "join_anti": "SELECT * FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id",
    "join_anti_condition": "SELECT * FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id AND "
    "o.price > c.credit",
    "join_null_safe": "SELECT o.id, i.line FROM orders o JOIN items i ON o.customer <=> i.part",
    "join_using": "SELECT id, c.name, n.name AS nation FROM customers c JOIN nations n USING (id)",
    "join_full_using": "SELECT id, c.name, n.region FROM customers c FULL JOIN nations n USING (id)",
    "join_natural": "SELECT * FROM customers NATURAL JOIN nations",
    "join_self": "SELECT a.src, b.dst FROM edges a JOIN edges b ON a.dst = b.src",
    "join_doubles": "SELECT a.device, b.device AS other FROM events a JOIN events b ON a.reading = b.reading",
    "join_many": "SELECT n.name, sum(i.price * i.quantity) AS total FROM items i JOIN orders o ON i.order_id = o.id "
    "JOIN customers c ON o.customer = c.id JOIN nations n ON c.nation = n.id WHERE o.day >= DATE '2024-01-01' "
    "GROUP BY n.name",
    "join_either": "SELECT o.id, c.id AS customer FROM orders o JOIN customers c ON o.customer = c.id OR "
    "o.price < c.credit",
    "join_two_ways": "SELECT o.id, n.name FROM orders o JOIN customers c ON o.customer = c.id JOIN nations n "
    "ON n.id = c.nation AND n.id = o.customer",
    "join_one": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.id = 4",
    "join_count": "SELECT c.id, count(o.id) AS n FROM customers c LEFT JOIN orders o ON o.customer = c.id AND "
    "o.note NOT LIKE '%b%' GROUP BY c.id",
    "join_left_chain": "SELECT o.id, c.name, n.name AS nation FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "LEFT JOIN nations n ON c.nation = n.id WHERE n.region IS NULL",
    "join_lateral": "SELECT c.id, t.total FROM customers c, LATERAL (SELECT sum(o.price) AS total FROM orders o "
    "WHERE o.customer = c.id) t",
    "join_lateral_top": "SELECT c.id, t.id AS dearest FROM customers c, LATERAL (SELECT o.id FROM orders o "
    "WHERE o.customer = c.id ORDER BY o.price DESC, o.id LIMIT 2) t",
    "join_lateral_window": "SELECT c.id, t.id AS order, t.n FROM customers c JOIN LATERAL (SELECT o.id, row_number() "
    "OVER (ORDER BY o.price, o.id) AS n FROM orders o WHERE o.customer = c.id) t ON t.n <> 2",
    "triangles": "SELECT a.src, b.src AS via, c.dst AS last FROM edges a, edges b, edges c "
    "WHERE a.dst = b.src AND b.dst = c.dst AND c.src = a.src",
    # Subqueries.
    "exists": "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "not_exists": "SELECT name FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id AND o.price > c.credit)",
    "exists_unlike": "SELECT id FROM orders o WHERE EXISTS "
    "(SELECT 1 FROM orders p WHERE p.customer = o.customer AND p.price <> o.price)",
    "not_exists_unlike": "SELECT order_id, line FROM items i WHERE NOT EXISTS "
    "(SELECT 1 FROM items j WHERE j.part = i.part AND j.quantity <> i.quantity AND j.price > 0)",
    "exists_less": "SELECT order_id, line FROM items i WHERE EXISTS "
    "(SELECT 1 FROM items j WHERE j.order_id = i.order_id AND j.tax < i.tax)",
    "exists_at_least": "SELECT id FROM orders o WHERE EXISTS "
    "(SELECT 1 FROM items i WHERE i.part = o.customer AND o.price + 1 >= i.price)",
    "exists_none_greater": "SELECT id FROM orders o WHERE NOT EXISTS "
    "(SELECT 1 FROM orders p WHERE p.status = o.status AND p.note <=> o.note AND p.day > o.day)",
    "exists_or": "SELECT name FROM customers c WHERE nation = 1 OR EXISTS (SELECT 1 FROM orders o WHERE "
    "o.customer = c.id)",
    "exists_selected": "SELECT name, EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id) AS has_ordered "
    "FROM customers c",
    "exists_uncorrelated": "SELECT name FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE price > 100)",
    "in_subquery": "SELECT name FROM customers WHERE id IN (SELECT customer FROM orders WHERE status = 'open')",
    "not_in_nullable": "SELECT name FROM customers WHERE id NOT IN (SELECT customer FROM orders)",
    "not_in_some": "SELECT name FROM customers WHERE id NOT IN (SELECT customer FROM orders WHERE status = 'shipped')",
    "not_in_correlated": "SELECT o.id FROM orders o WHERE o.price NOT IN "
    "(SELECT i.price FROM items i WHERE i.order_id = o.id)",
    "in_subquery_or": "SELECT name FROM customers WHERE nation = 1 OR id IN (SELECT customer FROM orders "
    "WHERE status = 'shipped')",
    "not_exists_twice": "SELECT name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id "
    "AND o.status = 'open') OR NOT EXISTS (SELECT 1 FROM nations n WHERE n.id = c.nation)",
    "not_in_not_null": "SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM items)",
    "in_correlated": "SELECT o.id FROM orders o WHERE o.price IN (SELECT i.price FROM items i WHERE i.order_id = o.id)",
    "scalar_uncorrelated": "SELECT id FROM orders WHERE price > (SELECT avg(price) FROM orders)",
    "scalar_selected": "SELECT id, (SELECT max(price) FROM items) AS highest FROM orders",
    "scalar_correlated": "SELECT o.id, (SELECT sum(i.price) FROM items i WHERE i.order_id = o.id) AS total "
    "FROM orders o",
    "scalar_count": "SELECT c.name FROM customers c WHERE (SELECT count(*) FROM orders o WHERE o.customer = c.id) = 0",
    "scalar_correlated_filter": "SELECT i.order_id, i.line FROM items i "
    "WHERE i.quantity < (SELECT 0.2 * avg(j.quantity) FROM items j WHERE j.part = i.part)",
    "scalar_having": "SELECT customer, sum(price) AS total FROM orders GROUP BY customer "
    "HAVING sum(price) > (SELECT 3 * avg(price) FROM orders)",
    "scalar_beside_aggregate": "SELECT status, sum(price) / (SELECT sum(price) FROM orders) AS part FROM orders "
    "GROUP BY status",
    "scalar_top": "SELECT c.id, (SELECT o.id FROM orders o WHERE o.customer = c.id ORDER BY o.price DESC LIMIT 1) "
    "AS dearest FROM customers c",
    "scalar_window": "SELECT c.id, (SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY o.id) AS n FROM orders o "
    "WHERE o.customer = c.id)) AS n FROM customers c",
    "scalar_single": "SELECT id, (SELECT name FROM customers c WHERE c.id = o.customer) AS name FROM orders o",
    "scalar_several_refused": "SELECT id, (SELECT day FROM orders o WHERE o.customer = c.id) AS day FROM customers c",
    "scalar_none": "SELECT id, (SELECT name FROM nations WHERE id = 99) AS nothing FROM orders",
    "scalar_joined": "SELECT o.id FROM orders o, (SELECT max(price) AS most FROM items) t WHERE 2 * o.price > t.most",
    # Aggregates.
    "aggregate": "SELECT status, count(*) AS n, count(note) AS noted, sum(price) AS total, avg(price) AS mean, "
    "min(day) AS first, max(day) AS last FROM orders GROUP BY status",
    "aggregate_global": "SELECT count(*) AS n, sum(quantity) AS total, avg(quantity) AS mean, sum(tax) AS tax, "
    "min(price) AS low FROM items",
    "aggregate_expressions": "SELECT year(day) AS y, 100 * sum(price) / count(*) AS mean, max(price) - "
    "min(price) AS spread "
    "FROM orders GROUP BY year(day)",
    "aggregate_filter": "SELECT customer, count(*) FILTER (WHERE status = 'open') AS open, "
    "sum(price) FILTER (WHERE day > DATE '2024-06-01') AS late FROM orders GROUP BY customer",
    "filter_of_values": "SELECT customer, max_by(id, price) FILTER (WHERE status = 'open') AS dearest, "
    "min_by(id, price) FILTER (WHERE note > 'b') AS cheapest, first(status) FILTER (WHERE status = 'open') AS open, "
    "any_value(note) FILTER (WHERE note = 'a') AS noted, first(note) FILTER (WHERE note IS NULL) AS none, "
    "percentile(price, 0.3) FILTER (WHERE note > 'a') AS p, collect_list(id) FILTER (WHERE note IS NOT NULL) AS ids, "
    "count(DISTINCT status) FILTER (WHERE price > 50) AS n, stddev(price) FILTER (WHERE price > 50) AS s, "
    "bool_and(price > 70) FILTER (WHERE price > 50) AS b FROM orders GROUP BY customer",
    "filter_of_everything": "SELECT max_by(id, price) FILTER (WHERE status = 'open') AS dearest, "
    "first(status) FILTER (WHERE status = 'open') AS open, max_by(id, price) FILTER (WHERE price < 0) AS none, "
    "first(id) FILTER (WHERE price < 0) AS nothing FROM orders",
    "collect_nulls": "SELECT customer, collect_list(note) RESPECT NULLS AS notes, collect_set(note) RESPECT NULLS "
    "AS kinds, array_agg(note) FILTER (WHERE price > 50) RESPECT NULLS AS dear, "
    "collect_list(DISTINCT note) RESPECT NULLS AS each, collect_list(note) AS given FROM orders GROUP BY customer",
    "count_distinct": "SELECT status, count(DISTINCT customer) AS n, count(*) AS orders FROM orders GROUP BY status",
    "sum_distinct_global": "SELECT sum(DISTINCT quantity) AS total, count(DISTINCT quantity) AS n FROM items",
    "several_distincts": "SELECT status, count(DISTINCT customer) AS customers, count(DISTINCT day) AS days, "
    "sum(price) AS total FROM orders GROUP BY status",
    "deviation": "SELECT part, stddev(quantity) AS s, var_pop(price) AS v, variance(tax) AS w FROM items GROUP BY part",
    "any_every": "SELECT device, any(done) AS some, every(done) AS each, bool_or(reading > 1) AS high FROM events "
    "GROUP BY device",
    "collect_set": "SELECT customer, collect_set(status) AS statuses, collect_list(id) AS ids FROM orders "
    "GROUP BY customer",
    "min_max_texts": "SELECT nation, min(name) AS first, max(name) AS last, count(DISTINCT name) AS n FROM customers "
    "GROUP BY nation",
    "gathered": "SELECT status, max_by(id, price) AS dearest, min_by(note, day) AS first, "
    "percentile(price, 0.5) AS median, percentile_cont(array(0.1, 0.9)) WITHIN GROUP (ORDER BY price) AS tails "
    "FROM orders GROUP BY status",
    "collect_distinct": "SELECT status, collect_list(DISTINCT customer) AS customers, count(*) AS n FROM orders "
    "GROUP BY status",
    "percentiles": "SELECT status, percentile_cont(0.1) WITHIN GROUP (ORDER BY price) AS low, "
    "percentile_cont(0.1) WITHIN GROUP (ORDER BY price DESC) AS high, percentile_disc(0.3) WITHIN GROUP "
    "(ORDER BY price DESC) AS some FROM orders GROUP BY status",
    "percentile_distinct": "SELECT percentile(DISTINCT price, 0.5) AS p FROM orders",
    "aggregate_nothing": "SELECT count(*) AS n, max(price) AS p, sum(price) AS total, collect_list(id) AS ids "
    "FROM orders WHERE price < 0",
    "first_any": "SELECT customer, first(status) AS status FROM orders GROUP BY customer",
    "last_refused": "SELECT customer, last(status) AS status FROM orders GROUP BY customer",
    "approximate": "SELECT approx_count_distinct(customer) AS n FROM orders",
    "having": "SELECT customer, sum(price) AS total FROM orders GROUP BY customer HAVING sum(price) > 100 AND "
    "count(*) > 1",
    "group_only": "SELECT customer FROM orders GROUP BY customer, status",
    "rollup": "SELECT status, customer, sum(price) AS total, grouping_id() AS g FROM orders "
    "GROUP BY ROLLUP (status, customer)",
    "cube": "SELECT status, customer, count(*) AS n FROM orders GROUP BY CUBE (status, customer)",
    "grouping_sets": "SELECT status, customer, day, sum(price) AS total, grouping(day) AS g FROM orders "
    "GROUP BY GROUPING SETS ((status), (customer, day), ())",
    "aggregate_of_aggregate": "SELECT n, count(*) AS customers FROM (SELECT customer, count(*) AS n FROM orders "
    "GROUP BY customer) GROUP BY n",
    "exists_rollup_refused": "SELECT nation, EXISTS (SELECT 1 FROM nations n WHERE n.id = nation) AS e, count(*) AS c "
    "FROM customers GROUP BY ROLLUP (nation)",
    "pivot": "SELECT * FROM (SELECT customer, status, price FROM orders) PIVOT (sum(price) FOR status IN "
    "('open' AS open, 'closed' AS closed))",
    "pivot_several": "SELECT * FROM (SELECT customer, status, price FROM orders) PIVOT (sum(price) AS total, count(*) "
    "AS n FOR status IN ('open', NULL))",
    "moments": "SELECT status, corr(price, customer) AS c, covar_samp(price, customer) AS v, skewness(price) AS s, "
    "kurtosis(price) AS k, regr_slope(price, customer) AS m, bit_xor(id) AS x FROM orders GROUP BY status",
    "tries": "SELECT id, try_divide(price, customer - 3) AS d, try_cast(status AS INT) AS i, CASE WHEN customer > 2 "
    "THEN CASE WHEN customer > 4 THEN try_add(id, 9223372036854775807) END ELSE 0 END AS c FROM orders",
    "session_windows": "SELECT device, session_window.start AS s, count(*) AS n FROM events GROUP BY device, "
    "session_window(at, '1 hour')",
    "constants": "SELECT id, array('a', status) AS a, named_struct('x', 1, 'y', X'00ff') AS s, status LIKE 'o!_%' "
    "ESCAPE '!' AS e, status LIKE ANY ('o%', NULL) AS l, from_json(note, 'x INT') AS j, to_json(struct(id)) AS t "
    "FROM orders",
    # Sets.
    "union_all": "SELECT id FROM orders UNION ALL SELECT order_id FROM items UNION ALL SELECT id FROM nations",
    "union": "SELECT id, status FROM orders UNION SELECT id, name FROM customers",
    "intersect": "SELECT customer FROM orders INTERSECT SELECT id FROM customers",
    "intersect_all": "SELECT customer FROM orders INTERSECT ALL SELECT part FROM items",
    "except": "SELECT id FROM customers EXCEPT SELECT customer FROM orders",
    "except_all": "SELECT customer FROM orders EXCEPT ALL SELECT part FROM items",
    "union_same": "SELECT id FROM orders UNION ALL SELECT id FROM orders WHERE status = 'open'",
    "union_aggregates": "SELECT * FROM (SELECT status AS what, count(*) AS n FROM orders GROUP BY status UNION ALL "
    "SELECT device, count(*) FROM events GROUP BY device) WHERE n > 10",
    # Order.
    "order_by": "SELECT id, price FROM orders ORDER BY price DESC, id",
    "top": "SELECT id, price FROM orders ORDER BY price DESC NULLS LAST, id LIMIT 10",
    "top_hidden": "SELECT id FROM orders ORDER BY price DESC, id LIMIT 3",
    "top_offset": "SELECT id, price FROM orders ORDER BY price, id LIMIT 10 OFFSET 5",
    "offset": "SELECT id FROM orders ORDER BY id OFFSET 7",
    "offset_of_limit": "SELECT id FROM (SELECT id FROM orders ORDER BY price DESC, id LIMIT 10) OFFSET 4",
    "limit": "SELECT id FROM orders LIMIT 5",
    "top_of_groups": "SELECT customer, sum(price) AS total FROM orders GROUP BY customer ORDER BY total DESC LIMIT 3",
    "top_inside": "SELECT c.name, t.price FROM (SELECT * FROM orders ORDER BY price DESC LIMIT 10) t "
    "JOIN customers c ON t.customer = c.id",
    # Windows.
    "row_number": "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day, id) AS n FROM orders",
    "ranks": "SELECT id, rank() OVER (PARTITION BY status ORDER BY price DESC) AS r, "
    "dense_rank() OVER (PARTITION BY status ORDER BY price DESC) AS d FROM orders",
    "top_of_partition": "SELECT * FROM (SELECT id, customer, row_number() OVER (PARTITION BY customer "
    "ORDER BY price DESC, id) AS n FROM orders) WHERE n <= 3",
    "top_of_partition_joined": "SELECT c.name, t.id FROM (SELECT id, customer, row_number() OVER "
    "(PARTITION BY customer ORDER BY price) AS n FROM orders) t JOIN customers c ON t.customer = c.id "
    "WHERE t.n = 1 AND t.id > 20",
    "top_of_partition_filtered": "SELECT * FROM (SELECT id, price, row_number() OVER (PARTITION BY status "
    "ORDER BY price DESC, id) AS n FROM orders) WHERE n <= 6 AND price < (SELECT 1.8 * avg(price) FROM orders)",
    "row_number_either": "SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY status ORDER BY id) AS n "
    "FROM orders) WHERE n <= 2 OR n = 5",
    "rank_at_most": "SELECT * FROM (SELECT id, rank() OVER (PARTITION BY customer ORDER BY status) AS r FROM orders) "
    "WHERE r <= 2",
    "window_of_groups": "SELECT customer, sum(price) AS total, rank() OVER (ORDER BY sum(price) DESC) AS r FROM orders "
    "GROUP BY customer",
    "lag_lead": "SELECT device, at, lag(reading) OVER w AS before, lead(reading, 2, 0.0) OVER w AS after FROM events "
    "WINDOW w AS (PARTITION BY device ORDER BY at)",
    "window_total": "SELECT id, price, sum(price) OVER (PARTITION BY customer) AS total, "
    "price / sum(price) OVER () AS part FROM orders",
    "window_running": "SELECT id, sum(price) OVER (PARTITION BY customer ORDER BY day, id) AS running, "
    "count(*) OVER (PARTITION BY customer ORDER BY day, id) AS n FROM orders",
    "window_rows": "SELECT at, avg(reading) OVER (PARTITION BY device ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT "
    "ROW) AS smooth FROM events",
    "window_range": "SELECT id, count(*) OVER (PARTITION BY customer ORDER BY day RANGE BETWEEN INTERVAL 7 DAYS "
    "PRECEDING AND CURRENT ROW) AS week FROM orders",
    "window_range_months": "SELECT id, count(*) OVER (PARTITION BY status ORDER BY day RANGE BETWEEN INTERVAL 1 MONTH "
    "PRECEDING AND INTERVAL 1 MONTH FOLLOWING) AS near, count(*) OVER (PARTITION BY status ORDER BY day DESC RANGE "
    "BETWEEN INTERVAL '1-1' YEAR TO MONTH PRECEDING AND CURRENT ROW) AS year FROM orders",
    "window_range_times": "SELECT at, count(*) OVER (ORDER BY at RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND INTERVAL "
    "1 MONTH FOLLOWING) AS n, count(*) OVER (ORDER BY CAST(at AS TIMESTAMP_NTZ) DESC RANGE BETWEEN INTERVAL '1 12' "
    "DAY TO HOUR PRECEDING AND INTERVAL '0 12' DAY TO HOUR FOLLOWING) AS m FROM events",
    "window_range_floats": "SELECT order_id, line, count(*) OVER (ORDER BY CAST(tax AS FLOAT) RANGE BETWEEN 0.01 "
    "PRECEDING AND 0.02 FOLLOWING) AS f, count(*) OVER (ORDER BY tax DESC RANGE BETWEEN 0.01 PRECEDING AND 0.02 "
    "FOLLOWING) AS d, count(*) OVER (ORDER BY price NULLS LAST RANGE BETWEEN 10.5 PRECEDING AND UNBOUNDED FOLLOWING) "
    "AS p FROM items",
    "window_min_max": "SELECT id, min(price) OVER (PARTITION BY status ORDER BY day ROWS BETWEEN UNBOUNDED "
    "PRECEDING AND "
    "1 FOLLOWING) AS low, max(price) OVER (PARTITION BY status) AS high FROM orders",
    "window_filter": "SELECT id, first_value(note) FILTER (WHERE price > 50) OVER w AS first, "
    "last_value(note) FILTER (WHERE price > 50) OVER w AS last, any_value(note) FILTER (WHERE note > 'a') OVER w AS a, "
    "last_value(note) FILTER (WHERE price > 50) IGNORE NULLS OVER w AS there, "
    "count(*) FILTER (WHERE note > 'a') OVER w AS n FROM orders "
    "WINDOW w AS (PARTITION BY customer ORDER BY id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING)",
    # Common table expressions.
    "with": "WITH big AS (SELECT * FROM orders WHERE price > 100) SELECT a.id, b.id AS other FROM big a JOIN big b "
    "ON a.customer = b.customer AND a.id < b.id",
    "with_aggregate": "WITH totals AS (SELECT customer, sum(price) AS total FROM orders GROUP BY customer) "
    "SELECT customer FROM totals WHERE total = (SELECT max(total) FROM totals)",
    "recursive": "WITH RECURSIVE reach(src, dst) AS (SELECT src, dst FROM edges UNION ALL "
    "SELECT r.src, e.dst FROM reach r JOIN edges e ON r.dst = e.src) SELECT DISTINCT src, dst FROM reach",
    "recursive_depth": "WITH RECURSIVE walk(node, depth) AS (SELECT 1L, 0 UNION ALL SELECT e.dst, w.depth + 1 "
    "FROM walk w "
    "JOIN edges e ON w.node = e.src WHERE w.depth < 5) SELECT node, min(depth) AS depth FROM walk GROUP BY node",
    "recursive_numbers": "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10) "
    "SELECT n FROM numbers",
    "recursive_twice": "WITH RECURSIVE walk(start, node) AS (SELECT src, src FROM edges UNION ALL SELECT w.start, "
    "e.dst FROM walk w JOIN edges e ON w.node = e.src) SELECT start, count(*) AS n FROM walk GROUP BY start",
    "recursive_limit": "WITH RECURSIVE walk(node, depth) AS (SELECT src, 0 FROM edges UNION ALL SELECT e.dst, "
    "w.depth + 1 FROM walk w JOIN edges e ON w.node = e.src) SELECT depth, count(*) AS n FROM (SELECT depth FROM walk "
    "LIMIT 60) GROUP BY depth",
    "recursive_endless": "WITH RECURSIVE numbers(n) AS (SELECT count(*) FROM orders UNION ALL SELECT n + 1 FROM "
    "numbers) SELECT n FROM numbers LIMIT 12",
    # Functions of users, time, chance.
    "python": "SELECT id, doubled(customer) AS twice, shouted(status) AS loud FROM orders WHERE doubled(id) > 10",
    "python_nested": "SELECT id, doubled(doubled(id) + 1) AS much FROM orders",
    "recent": "SELECT * FROM events WHERE at >= now() - INTERVAL 5 MINUTES",
    "recent_counts": "SELECT device, count(*) AS n FROM events WHERE at > current_timestamp() - INTERVAL 1 HOUR "
    "AND at <= now() GROUP BY device",
    "recent_days": "SELECT id FROM orders WHERE day > current_date() - INTERVAL 7 DAYS",
    "random_refused": "SELECT id, rand(7) AS r FROM orders",
}
"""Statements by name. Those that end with `_refused` have a plan, but cannot be maintained."""

PREPARED: dict[str, tuple[str, dict[str, str]]] = {
    "by_key": ("SELECT * FROM orders WHERE id = :id", {"id": "BIGINT"}),
    "by_range": (
        "SELECT id, price * :rate AS price FROM orders WHERE day BETWEEN :start AND :start + INTERVAL 1 MONTH",
        {"start": "DATE", "rate": "DECIMAL(5,2)"},
    ),
    "by_list": (
        "SELECT id FROM orders WHERE status IN (:a, :b) OR customer = :c",
        {"a": "STRING", "b": "STRING", "c": "INT"},
    ),
    "by_join": (
        "SELECT c.name, sum(o.price) AS total FROM orders o JOIN customers c ON o.customer = c.id AND o.price > :least "
        "WHERE c.nation = :nation GROUP BY c.name HAVING sum(o.price) > :total",
        {"least": "DECIMAL(15,2)", "nation": "INT", "total": "DECIMAL(15,2)"},
    ),
    "by_reach": (
        "WITH RECURSIVE reach(node) AS (SELECT :start UNION ALL SELECT e.dst FROM reach r JOIN edges e ON "
        "r.node = e.src) "
        "SELECT DISTINCT node FROM reach",
        {"start": "BIGINT"},
    ),
    "by_depth": (
        "WITH RECURSIVE walk(node, depth) AS (SELECT 2L, 0 UNION ALL SELECT e.dst, w.depth + 1 FROM walk w "
        "JOIN edges e ON w.node = e.src WHERE w.depth < :most) SELECT node, max(depth) AS depth FROM walk "
        "GROUP BY node",
        {"most": "INT"},
    ),
    "by_total": (
        "SELECT count(*) AS n, sum(price) AS total, max(day) AS last FROM orders WHERE customer = :customer",
        {"customer": "BIGINT"},
    ),
    "by_left_join": (
        "SELECT c.id, o.id AS dear FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.price > :least",
        {"least": "DECIMAL(15,2)"},
    ),
    "by_not_exists": (
        "SELECT c.name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND "
        "o.status = :status)",
        {"status": "STRING"},
    ),
    "by_exists_unlike": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE p.customer = o.customer AND "
        "p.status = :status AND p.day <> o.day)",
        {"status": "STRING"},
    ),
    "by_union": (
        "SELECT id, 'order' AS what FROM orders WHERE customer = :id UNION ALL SELECT id, name FROM nations",
        {"id": "BIGINT"},
    ),
    "by_top": (
        "SELECT id, price FROM orders WHERE status = :status ORDER BY price DESC, id LIMIT 3",
        {"status": "STRING"},
    ),
    "by_rank": (
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY price, id) AS n FROM orders WHERE day >= :since",
        {"since": "DATE"},
    ),
    "by_mean": (
        "SELECT id FROM orders WHERE price > (SELECT :factor * avg(price) FROM orders WHERE status = :status)",
        {"factor": "DECIMAL(5,2)", "status": "STRING"},
    ),
    "by_semijoin": (
        "SELECT id, status FROM orders WHERE customer IN (SELECT id FROM customers WHERE nation = :nation)",
        {"nation": "INT"},
    ),
    "by_not_in": (
        "SELECT name FROM customers WHERE id NOT IN (SELECT customer FROM orders WHERE status = :status)",
        {"status": "STRING"},
    ),
    "by_full_join": (
        "SELECT o.id, c.name FROM (SELECT * FROM orders WHERE status = :status) o FULL JOIN customers c "
        "ON o.customer = c.id",
        {"status": "STRING"},
    ),
    "by_except": (
        "SELECT id FROM customers EXCEPT SELECT customer FROM orders WHERE price > :least",
        {"least": "DECIMAL(15,2)"},
    ),
    "by_rollup": (
        "SELECT status, customer, count(*) AS n FROM orders WHERE customer < :below GROUP BY ROLLUP (status, customer)",
        {"below": "BIGINT"},
    ),
    "by_tag": (
        "SELECT device, position FROM events LATERAL VIEW posexplode(tags) AS position, tag WHERE tag = :tag",
        {"tag": "STRING"},
    ),
    "by_page": (
        "SELECT id, day FROM orders WHERE status = :status ORDER BY day, id LIMIT 4 OFFSET 2",
        {"status": "STRING"},
    ),
    "by_left_condition": (
        "SELECT c.id, o.id AS dear FROM customers c LEFT JOIN orders o ON o.customer = c.id AND "
        "o.price > c.credit * :factor",
        {"factor": "DECIMAL(5,2)"},
    ),
    "by_anti_condition": (
        "SELECT c.name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND "
        "o.price > c.credit * :factor)",
        {"factor": "DECIMAL(5,2)"},
    ),
    "by_existence": (
        "SELECT c.id, EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.status = :status) AS has "
        "FROM customers c",
        {"status": "STRING"},
    ),
    "by_nearest": (
        "SELECT id, price FROM orders ORDER BY abs(price - :price), id LIMIT 3",
        {"price": "DECIMAL(15,2)"},
    ),
    "by_first": (
        "SELECT * FROM (SELECT id, price, row_number() OVER (PARTITION BY customer ORDER BY price, id) AS n "
        "FROM orders) WHERE n <= 2 AND price > :least",
        {"least": "DECIMAL(15,2)"},
    ),
    "by_array": (
        "SELECT id, x FROM orders LATERAL VIEW explode(array(:a, :b)) AS x WHERE id < 5",
        {"a": "INT", "b": "INT"},
    ),
    "by_group": (
        "SELECT price > :limit AS dear, count(*) AS n FROM orders GROUP BY price > :limit",
        {"limit": "DECIMAL(15,2)"},
    ),
    "by_rate": (
        "SELECT status, sum(price * :rate) AS total, :rate AS rate FROM orders GROUP BY status",
        {"rate": "DECIMAL(5,2)"},
    ),
    "by_itself": ("SELECT :number + 1 AS next, upper(:text) AS loud", {"number": "INT", "text": "STRING"}),
}
"""Statements with parameters, and the types of these."""

VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "by_key": ({"id": 7}, {"id": 12}),
    "by_range": (
        {"start": date(2024, 1, 1), "rate": Decimal("1.10")},
        {"start": date(2023, 12, 20), "rate": Decimal("0.50")},
    ),
    "by_list": ({"a": "open", "b": "lost", "c": 7}, {"a": "closed", "b": "shipped", "c": 4}),
    "by_join": (
        {"least": Decimal("50.00"), "nation": 1, "total": Decimal("100.00")},
        {"least": Decimal("0.00"), "nation": 2, "total": Decimal("0.00")},
    ),
    "by_reach": ({"start": 3}, {"start": 8}),
    "by_depth": ({"most": 2}, {"most": 3}),
    "by_total": ({"customer": 7}, {"customer": 99}),
    "by_left_join": ({"least": Decimal("200.00")}, {"least": Decimal("10.00")}),
    "by_not_exists": ({"status": "open"}, {"status": "shipped"}),
    "by_exists_unlike": ({"status": "open"}, {"status": "shipped"}),
    "by_union": ({"id": 4}, {"id": 10}),
    "by_top": ({"status": "open"}, {"status": "closed"}),
    "by_rank": ({"since": date(2024, 1, 1)}, {"since": date(2024, 6, 1)}),
    "by_mean": ({"factor": Decimal("1.25"), "status": "open"}, {"factor": Decimal("0.50"), "status": "closed"}),
    "by_semijoin": ({"nation": 1}, {"nation": 2}),
    "by_not_in": ({"status": "shipped"}, {"status": "closed"}),
    "by_full_join": ({"status": "open"}, {"status": "shipped"}),
    "by_except": ({"least": Decimal("250.00")}, {"least": Decimal("100.00")}),
    "by_rollup": ({"below": 4}, {"below": 7}),
    "by_tag": ({"tag": "a"}, {"tag": "c"}),
    "by_page": ({"status": "open"}, {"status": "closed"}),
    "by_left_condition": ({"factor": Decimal("1.50")}, {"factor": Decimal("0.10")}),
    "by_anti_condition": ({"factor": Decimal("1.50")}, {"factor": Decimal("0.10")}),
    "by_existence": ({"status": "open"}, {"status": "shipped"}),
    "by_nearest": ({"price": Decimal("100.00")}, {"price": Decimal("200.00")}),
    "by_first": ({"least": Decimal("100.00")}, {"least": Decimal("20.00")}),
    "by_array": ({"a": 1, "b": 2}, {"a": 3, "b": 3}),
    "by_group": ({"limit": Decimal("100.00")}, {"limit": Decimal("250.00")}),
    "by_rate": ({"rate": Decimal("1.10")}, {"rate": Decimal("0.50")}),
    "by_itself": ({"number": 1, "text": "a"}, {"number": 2, "text": "b"}),
}
"""Two sets of values for each of them."""


def is_answered(name: str) -> bool:
    """Whether a statement has an answer: it can be maintained, and does not depend on when it is asked."""
    return not name.endswith("_refused") and not name.startswith("recent")


PLANS = Path(__file__).with_name("plans")
ANSWERS = Path(__file__).with_name("answers.json.gz")


def planned(name: str) -> Planned:
    """The plan of a statement, as it was recorded."""
    return loads(gzip.decompress((PLANS / f"{name}.json.gz").read_bytes()))


def loads(data: bytes) -> Planned:
    """A plan from what a file has."""
    document: dict[str, Any] = json.loads(data)
    return Planned(
        nodes=document["plan"],
        config=Config(document["ansi"], document["time_zone"]),
        columns=fields_from_text(document["columns"]),
        constants=tuple(map(table_from_text, document["constants"])),
        functions={
            int(number): PythonCode(name, base64.b64decode(code), eval_type, fields_from_text(kind)[0].type)
            for number, (name, code, eval_type, kind) in document["functions"].items()
        },
    )


def dumps(planned: Planned) -> bytes:
    """A plan as a file has it."""
    document = {
        "plan": planned.nodes,
        "ansi": planned.config.ansi,
        "time_zone": planned.config.time_zone,
        "columns": fields_to_text(planned.columns),
        "constants": [table_to_text(table) for table in planned.constants],
        "functions": {
            number: [code.name, _text(code.function), code.eval_type, fields_to_text([pa.field("x", code.type)])]
            for number, code in planned.functions.items()
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def edited(planned: Planned, edit: Callable[[str], str]) -> Planned:
    """A plan with its JSON replaced by a function of it."""
    return replace(planned, nodes=json.loads(edit(json.dumps(planned.nodes, separators=(",", ":")))))


def answers(over: str = "rows") -> dict[str, list[pa.Table]]:
    """What Spark answered by statement, over `tests.sql.rows` or "nothing"; one for each of its `VALUES`, if any."""
    document = json.loads(gzip.decompress(ANSWERS.read_bytes()))[over]
    return {name: list(map(table_from_text, texts)) for name, texts in document.items()}


def write_answers(all_answers: Mapping[str, Mapping[str, Iterable[pa.Table]]]) -> None:
    """Write what Spark answered."""
    texts = {
        over: {name: list(map(table_to_text, tables)) for name, tables in by_name.items()}
        for over, by_name in all_answers.items()
    }
    ANSWERS.write_bytes(gzip.compress(json.dumps(texts, separators=(",", ":")).encode(), mtime=0))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def fields_from_text(text: str) -> tuple[pa.Field, ...]:
    """The fields that `fields_to_text` has written."""
    return tuple(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))


def fields_to_text(fields: Iterable[pa.Field]) -> str:
    """Fields as text."""
    return _text(pa.schema(fields).serialize().to_pybytes())


def table_from_text(text: str) -> pa.Table:
    """The table that `table_to_text` has written."""
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


def table_to_text(table: pa.Table) -> str:
    """A table as text."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _text(sink.getvalue().to_pybytes())
