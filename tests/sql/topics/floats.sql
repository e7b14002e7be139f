-- Floating-point numbers: infinities, NaN, both zeros, casts, rounding.
create table readings (id int primary key, x float8, y float8, f float4);
insert into readings values (1, 0.5, 2, 1.5), (2, -0.0, 0.0, 0), (3, 1e300, 1e10, 1e30), (4, 1e-300, -1e-10, 1e-30),
  (5, null, 1, null), (6, -7.25, 3.5, -2.5), (7, 1004.3, -34.84, 1004.3), (8, 12345678901.5, 0.1, 0.1);
insert into readings select 9, double('Infinity'), double('-Infinity'), float('Infinity') union all
  select 10, double('NaN'), 1, float('NaN') union all select 11, double('-Infinity'), double('NaN'), 3;
select id, x + y as plus, x - y as minus, -x as negative, abs(y) as size from readings;
select id, x * y as times from readings where id not in (3, 4);
select id, x / y as quotient from readings where y <> 0;
select id, x = y as eq, x < y as lt, x >= y as ge, x <=> y as same from readings;
select id from readings where x > 1;
select id from readings where x = 'NaN' or y = double('-Infinity');
select id, isnan(x) as n, nanvl(y, 0) as z, coalesce(x, y) as c from readings;
select id, cast(x as string) as s from readings where abs(x) between 0.001 and 1000000;
select id, cast(x as int) as i, cast(y as bigint) as b, cast(x as decimal(10, 3)) as d from readings where id in (1, 2, 6, 7);
select id, floor(x) as fl, ceil(x) as ce, round(x, 1) as r, rint(y) as ri, sign(y) as sg from readings where id in (1, 2, 6, 7, 8);
select id, sqrt(abs(y)) as s, power(y, 2) as p, cbrt(y) as c from readings where id not in (3, 9, 10, 11);
select id, f * 2 as twice, f + x as mixed, cast(f as double) as wide, cast(x as float) as narrow from readings where id not in (3, 4);
select sum(f), avg(f), max(f), min(f) from readings where id < 3;
select min(x), max(x), min(y), max(y), count(x) from readings;
select x, count(*) as n from readings group by x;
select distinct y + 0.0 as y from readings;
select id, x from readings order by x desc, id limit 4;
select id, x from readings order by x nulls last, id limit 4;
select a.id, b.id as other from readings a join readings b on a.x = b.y;
select id, rank() over (order by x) as r, dense_rank() over (order by y desc) as d from readings;
select id, greatest(x, y) as g, least(x, y) as l from readings;
select sum(x), avg(y) from readings where id in (1, 6, 7);
select stddev(y), var_pop(x) from readings where id in (1, 2, 6, 7);
select id, x % 3 as rest, pmod(x, 3) as pm from readings where id in (1, 2, 6, 7);
select id, exp(f) as e, ln(abs(f)) as l, log10(abs(f)) as t from readings where id in (1, 6);
select id, x in (0.5, -7.25, 0) as listed, y between -1 and 1 as near from readings;
update readings set x = y, y = 0.25 where id in (5, 6);
delete from readings where id in (9, 1);
insert into readings values (12, -0.0, 0, -1), (13, 0.5, 0.5, 0.5);
