-- SELECT, WHERE, DISTINCT, GROUP BY and HAVING.
create table plants (id int primary key, kind text, height numeric(6, 1), bought date, shady bool, tags text);
insert into plants values (1, 'fern', 40.5, '2023-04-01', true, 'green,old'), (2, 'rose', 80.0, '2023-05-01', false, 'red'),
  (3, 'fern', null, '2024-01-15', true, null), (4, 'moss', 1.2, null, true, ''), (5, 'rose', 80.0, '2024-02-29', null, 'red,tall'),
  (6, null, 12.0, '2024-03-10', false, 'green'), (7, 'oak', 9999.9, '1999-12-31', false, 'tall,old,green');
select * from plants;
select p.* from plants p where height > 50;
select id, kind as what, height * 2 as twice, year(bought) as y, upper(kind) as k from plants where shady;
select id from plants where kind = 'fern' and height is null or kind <> 'fern' and bought > date '2024-01-01';
select id from plants where not (kind = 'rose' or shady);
select id from plants where kind in ('fern', 'oak') and tags like '%old%';
select id from plants where kind not in ('fern', 'moss');
select id from plants where bought between date '2023-05-01' and date '2024-02-01';
select id from plants where height between 1.2 and 40.5 and tags is not null and tags <> '';
select id from plants where (kind, shady) in (select kind, shady from plants where height > 20);
select distinct kind from plants;
select distinct kind, shady from plants;
select distinct height > 50 as tall from plants;
select count(distinct kind) as kinds, count(distinct kind, shady) as pairs from plants;
select kind, count(*) as n from plants group by kind having count(*) > 1;
select kind, max(height) as h from plants group by kind having max(height) is not null and min(id) < 6;
select kind from plants group by kind having sum(height) > 100 or kind is null;
select shady, avg(height) as mean from plants where height < 1000 group by shady having avg(height) > (select min(height) from plants);
select length(kind) as n, count(*) as c from plants group by length(kind) order by n;
select year(bought) as y, count(*) as c, min(bought) as first_day from plants group by year(bought) having count(*) >= 1;
select 1 as one, 'x' as letter, null is null as truth from plants where id = 1;
select id, tag from plants lateral view explode(split(tags, ',')) as tag where tag <> '';
select tag, count(*) as n from plants lateral view explode(split(tags, ',')) as tag group by tag;
select id, date_add(bought, 30) as later, datediff(date '2024-03-10', bought) as age, add_months(bought, 1) as month_later, last_day(bought) as month_end from plants;
select id, bought + interval 1 year as next_year, date_trunc('MONTH', bought) as month, dayofweek(bought) as dow, weekofyear(bought) as week from plants;
select id, cast(height as int) as whole, cast(height as string) as text, round(height) as r, height / 3 as third from plants;
select id, struct(kind, height).kind as k, named_struct('a', id, 'b', tags).b as b, array(id, id * 2)[1] as two from plants;
select a.kind from (select kind, count(*) as n from plants group by kind) a where a.n = (select max(n) from (select count(*) as n from plants group by kind));
update plants set height = height + 10 where kind = 'fern';
update plants set kind = 'rose', tags = 'blue' where id = 6;
delete from plants where id in (2, 7);
insert into plants values (8, 'moss', 2.0, '2024-06-01', true, 'green'), (9, 'yew', 100.0, null, null, null);
