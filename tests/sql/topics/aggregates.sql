-- Aggregates: of everything, of groups, of nothing; with nulls, DISTINCT and FILTER.
create table rides (id int primary key, bike int, rider text, minutes int, km numeric(6, 2), rain bool, started timestamp);
insert into rides values
  (1, 1, 'ann', 12, 3.50, true, '2024-05-01 08:10:00'), (2, 1, 'ben', null, 2.25, false, '2024-05-01 09:00:00'),
  (3, 2, 'ann', 45, null, null, '2024-05-02 17:45:00'), (4, 2, null, 7, 1.00, true, '2024-05-03 00:00:00'),
  (5, 3, 'cat', 30, 9.75, false, null), (6, null, 'cat', 30, 9.75, false, '2024-05-04 12:00:00'),
  (7, 3, 'dan', -5, 0.00, true, '2024-06-01 06:30:00'), (8, 4, 'ann', null, null, null, '2024-06-30 23:59:59');
create table empty_rides as select * from rides where id < 0;
select count(*), count(minutes), count(distinct minutes), count(distinct bike, rider) from rides;
select sum(minutes), avg(minutes), min(minutes), max(minutes) from rides;
select sum(km), avg(km), min(km), max(km), sum(distinct km), avg(distinct km) from rides;
select bike, count(*) as n, sum(km) as far, avg(minutes) as mean from rides group by bike;
select rider, min(started), max(started), min(rider), max(rain) from rides group by rider;
select rain, bool_and(minutes > 10), bool_or(km > 5), every(minutes is not null), some(rider is null) from rides group by rain;
select stddev(minutes), stddev_pop(minutes), variance(minutes), var_pop(minutes) from rides;
select bike, stddev_samp(km), var_samp(km) from rides group by bike;
select count(*) filter (where rain), count(minutes) filter (where not rain), sum(km) filter (where minutes > 10) from rides;
select bike, max_by(rider, id) filter (where minutes > 0), min_by(rider, minutes), max_by(id, started) from rides group by bike;
select bike, count(distinct rider) filter (where km is not null), sum(distinct minutes) filter (where rain is not true) from rides group by bike;
select rider, sort_array(collect_list(minutes)), sort_array(collect_set(bike)), size(collect_list(km)) from rides group by rider;
select median(minutes), percentile(minutes, 0.25), percentile(km, array(0.1, 0.5, 0.9)) from rides;
select rider, percentile_cont(0.5) within group (order by minutes desc), percentile_disc(0.5) within group (order by km) from rides group by rider;
select mode(minutes, true), count_if(rain), regr_count(minutes, km), regr_avgx(minutes, km), regr_avgy(minutes, km) from rides;
select count(*), sum(minutes), max(km), bool_and(rain), collect_list(id) from empty_rides;
select bike, count(*) from empty_rides group by bike;
select sum(minutes) + count(*) * 10, max(km) - min(km), cast(avg(km) as decimal(8, 3)) from rides;
select bike % 2 as odd, sum(minutes * 2 + coalesce(bike, 0)) from rides group by bike % 2;
select date(started) as day, count(*) from rides group by date(started);
select year(started), month(started), sum(km) from rides group by all;
select rider || '!' as name, count(*) from rides group by 1;
select sum(n), max(far) from (select bike, count(*) as n, sum(km) as far from rides group by bike) per_bike;
select count(*) from rides group by bike having count(*) > 1;
select max(minutes) from rides having max(minutes) > 100;
select sum(case when rain then km else -km end), count(nullif(rider, 'ann')) from rides;
select first(rider) filter (where id = 4), any_value(km) filter (where id = 5), first(minutes) filter (where id = 99) from rides;
select avg(cast(minutes as double)), sum(cast(km as double)), sum(cast(minutes as bigint)) from rides;
insert into rides values (9, 2, 'eve', 60, 20.00, false, '2024-07-01 10:00:00'), (10, null, null, null, null, null, null);
delete from rides where id in (1, 7);
update rides set minutes = minutes + 3, rain = true where rider = 'cat';
insert into empty_rides values (1, 1, 'zoe', 1, 1.00, true, '2024-01-01 00:00:00');
