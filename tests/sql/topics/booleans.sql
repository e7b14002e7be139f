-- Booleans: three values in every operator, in conditions, casts, groups and orders.
create table switches (id int primary key, a bool, b bool, word text, n int);
insert into switches values (1, true, true, 'yes', 1), (2, true, false, 'f', 0), (3, true, null, 'TRUE', -7),
  (4, false, true, 'n', null), (5, false, false, '0', 3), (6, false, null, ' t ', 4), (7, null, true, null, 5),
  (8, null, false, '1', 6), (9, null, null, 'no', 0);
select id, a and b as c, a or b as d, not a as e, a = b as f, a <> b as g, a <=> b as h from switches;
select id, a < b as lt, a <= b as le, a > b as gt, a >= b as ge from switches;
select id, a is true as t, a is not true as nt, a is false as f, a is not false as nf, a is unknown as u from switches;
select id, a is null or b is null as missing, a is not distinct from b as same, a is distinct from b as other from switches;
select id from switches where a;
select id from switches where not a;
select id from switches where a and not b;
select id from switches where a or not b;
select id from switches where (a or b) is null;
select id from switches where (a and b) is not true;
select id from switches where not (a and b) and n > 0;
select id from switches where a = (n > 1);
select id from switches where a in (true, null);
select id from switches where a not in (false);
select id from switches where coalesce(a, b, false);
select id, cast(a as int) as i, cast(n as boolean) as b2, cast(a as string) as s from switches;
select id, cast(word as boolean) as w from switches where word is not null;
select id, if(a, 'on', 'off') as state, nvl2(a, b, not b) as x, nullif(a, b) as y from switches;
select a, b, count(*) as n from switches group by a, b;
select a, bool_and(b) as every_b, bool_or(b) as any_b, count_if(b) as number, min(b) as low, max(b) as high from switches group by a;
select distinct a or b as either from switches;
select id, a from switches order by a nulls last, id desc limit 5;
select x.id, y.id as other from switches x join switches y on x.a = y.b and x.id < y.id;
select x.id, y.id as other from switches x left join switches y on x.a <=> y.b and y.id > 6;
select id from switches where a between false and b;
select id, greatest(a, b) as g, least(a, b) as l from switches;
select id, xor_of from (select id, a <> b as xor_of from switches) where xor_of or xor_of is null;
update switches set a = not a where id > 3;
update switches set b = null where id = 1;
delete from switches where id = 5;
insert into switches values (10, true, true, 'y', 10), (11, null, true, 'false', 1);
