-- ROLLUP, CUBE and GROUPING SETS, and what tells their rows apart.
create table sales (id int primary key, region text, kind text, year int, amount int);
insert into sales values (1, 'north', 'tea', 2022, 10), (2, 'north', 'tea', 2023, 20), (3, 'north', 'jam', 2022, 5),
  (4, 'south', 'tea', 2022, 7), (5, 'south', null, 2023, 9), (6, null, 'jam', 2023, null), (7, null, null, 2022, 3);
select region, kind, sum(amount) as total from sales group by rollup (region, kind);
select region, kind, count(*) as n, grouping(region) as r, grouping(kind) as k from sales group by cube (region, kind);
select region, year, sum(amount) as total, grouping_id(region, year) as g from sales group by grouping sets ((region, year), (region), ());
select region, kind, year, max(amount) as most from sales group by grouping sets ((region), (kind, year), (year));
select region, sum(amount) as total from sales group by rollup (region) having sum(amount) > 15;
select region, sum(amount) as total from sales group by rollup (region) having grouping(region) = 1 or region is null;
select coalesce(region, case when grouping(region) = 1 then 'all' else 'none' end) as name, count(*) as n from sales group by rollup (region);
select year, region, avg(amount) as mean from sales group by year, rollup (region);
select year, region, kind, sum(amount) as total from sales group by year, cube (region, kind);
select region, kind, count(distinct year) as years, sum(distinct amount) as total from sales group by cube (region, kind);
select region, count(*) filter (where kind = 'tea') as teas, sum(amount) filter (where year = 2022) as early from sales group by rollup (region);
select amount > 6 as large, kind, count(*) as n from sales group by rollup (amount > 6, kind);
select region, kind, sum(amount) as total from sales group by grouping sets ((region, kind), (region, kind), ());
select count(*) as n, sum(amount) as total from sales group by grouping sets ((), ());
select region, total from (select region, kind, sum(amount) as total, grouping_id() as g from sales group by cube (region, kind)) where g = 1;
select a.region, a.total, b.total as everything from (select region, sum(amount) as total from sales group by region) a cross join (select sum(amount) as total from sales) b;
select region, kind, sum(amount) as total, rank() over (order by sum(amount) desc nulls last, region, kind) as place from sales group by rollup (region, kind);
select region, sum(amount) as total from sales where amount > 100 group by rollup (region);
select region, sum(amount) as total from sales where amount > 100 group by grouping sets ((region));
select region, max_by(kind, amount) as best, min_by(id, amount) as least_id from sales where amount <> 3 group by rollup (region);
update sales set amount = amount * 2 where kind = 'tea';
update sales set region = 'east' where id = 7;
delete from sales where id = 3;
insert into sales values (8, 'north', 'jam', 2024, 50), (9, 'west', 'tea', 2024, 200), (10, null, null, 2024, 1);
