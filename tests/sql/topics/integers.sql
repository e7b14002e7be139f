-- Whole numbers of all sizes: limits, division, remainders, bits, casts.
create table numbers (id int primary key, s int2, i int4, b int8);
insert into numbers values (1, 0, 0, 0), (2, 1234, 123456, 123456789012), (3, -1234, -123456, -123456789012),
  (4, 32767, 2147483647, 9223372036854775807), (5, -32768, -2147483648, -9223372036854775808), (6, null, 7, null),
  (7, 5, null, -5), (8, 2, -3, 10);
select id, s + 1L as s1, i + 1L as i1, s * i as product, -b as minus from numbers where id not in (4, 5);
select id, i - s as difference, abs(i) as a, s * 2 as twice from numbers where id in (1, 2, 3, 6, 7, 8);
select id, i / 4 as quotient, i div 4 as whole, i % 4 as rest, pmod(i, 4) as modulus from numbers;
select id, b / nullif(i, 0) as ratio, b div nullif(s, 0) as d, b % nullif(i, 0) as m from numbers where id <> 5;
select id, i & 255 as low, s | 1 as odd, i ^ s as x, ~i as inverse, shiftleft(1L, 3) as eight from numbers;
select id from numbers where s = i or i = b;
select id from numbers where i between -5 and 5 and b is not null;
select id from numbers where s < i and i < b;
select id, s < b as lt, i >= s as ge, s <> i as ne, b <=> s as same from numbers;
select id, cast(i as smallint) as narrow from numbers where i between -32768 and 32767;
select id, cast(s as bigint) as wide, cast(b as double) as d, cast(i as decimal(12, 1)) as dec, cast(b as string) as t from numbers;
select id, cast(cast(i as string) as int) + 0 as back, bin(s) as bits, hex(i) as h, conv(cast(s as string), 10, 2) as c from numbers;
select sum(s) as s, sum(cast(i as bigint)) as i, avg(b) as b, max(i) - 1 as m from numbers where id not in (4, 5);
select min(s), max(s), min(i), max(i), min(b), max(b), count(b) from numbers;
select i % 2 as parity, count(*) as n, sum(s) as total from numbers group by i % 2;
select distinct sign(b) as sign from numbers;
select id, greatest(s, i, b) as g, least(s, i, b) as l, coalesce(s, b, i) as c from numbers;
select a.id, c.id as other from numbers a join numbers c on a.i = c.s + 1 or a.b = c.i;
select a.id, c.id as other from numbers a left join numbers c on a.s = c.b;
select id, i in (0, 7, null) as listed, i not in (0, 7) as others from numbers;
select id, b from numbers order by b desc nulls last limit 3;
select id, row_number() over (order by i, id) as n, sum(s) over (order by id) as running from numbers;
select id, factorial(s) as f from numbers where s between 0 and 20;
select bit_count(i) as bits, id from numbers;
update numbers set i = i + 1 where i < 1000000;
update numbers set s = null where id = 2;
delete from numbers where id = 5;
insert into numbers values (9, 3, 3, 3), (10, -1, -1, -1), (11, 100, 5, 2);
