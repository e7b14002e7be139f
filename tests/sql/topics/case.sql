-- CASE and its relatives: order of branches, what is not reached, nulls, types that meet.
create table marks (id int primary key, pupil text, points int, most int, given date);
insert into marks values (1, 'ida', 10, 20, '2024-02-01'), (2, 'jon', 0, 0, '2024-02-29'), (3, 'kim', null, 20, null),
  (4, 'ida', 20, 20, '2024-03-01'), (5, 'lea', 7, null, '2023-12-31'), (6, null, 15, 30, '2024-02-01');
select id, case when points >= 15 then 'good' when points >= 8 then 'fair' when points is null then '-' else 'poor' end as word from marks;
select id, case points when 10 then 'ten' when 20 then 'twenty' when null then 'never' end as word from marks;
select id, case when most <> 0 then points / most end as share from marks;
select id, case when most = 0 then 0 else points div most end as whole from marks;
select id, case when points > 5 then points else 0.5 end as mixed from marks;
select id, case pupil when 'ida' then case when points > 10 then 1 else 2 end when 'jon' then 3 else null end as nested from marks;
select id, case when case when points is null then false else points > 9 end then case when most > 20 then 'x' else 'y' end else 'z' end as inner_case from marks;
select id from marks where case when most = 0 then false else points / most > 0.4 end;
select id, coalesce(points, most, -1) as c, nullif(points, most) as d, nvl(pupil, '?') as e, nvl2(points, id, most) as f from marks;
select id, if(points > most / 2, 'over', 'under') as half, ifnull(most, 0) as most0, zeroifnull(points) as z, nullifzero(most) as nz from marks;
select case when points >= 10 then 'high' else 'low' end as band, count(*) as n, sum(points) as total from marks group by 1;
select sum(case when pupil = 'ida' then points else 0 end) as ida, sum(case when pupil = 'jon' then points end) as jon from marks;
select pupil, max(case when given < date '2024-02-15' then points end) as early, max(case when given >= date '2024-02-15' then points end) as late from marks group by pupil;
select id, decode(points, 10, 'a', 20, 'b', 'other') as d, greatest(points, most, 5) as g, least(points, most) as l from marks;
select id, points from marks order by case when points is null then 1 else 0 end, points desc, id limit 4;
select a.id, b.id as other from marks a join marks b on case when a.points > b.points then a.most = b.most else false end;
select id, case when exists (select 1 from marks m where m.pupil = marks.pupil and m.id <> marks.id) then 'again' else 'once' end as times from marks;
select id, case when points > (select avg(points) from marks) then 'above' else 'below' end as side from marks;
select id, case when id % 2 = 0 then given else date '2000-01-01' end as day, case when id > 3 then array(id) else array(0, points) end as list from marks;
select id, points between 5 and 15 as inside, points not between 5 and 15 as outside, case when points between most and 30 then 1 end as above from marks;
update marks set points = 12, most = 24 where id = 3;
update marks set most = 0 where id = 1;
delete from marks where id = 4;
insert into marks values (7, 'jon', 20, 20, '2024-02-20'), (8, 'moe', null, null, null);
