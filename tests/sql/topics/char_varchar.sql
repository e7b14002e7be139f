-- Texts of fixed and limited length: padding, cutting, comparing.
create table labels (id int primary key, code char(4), name varchar(6), long_text text);
insert into labels values (1, 'ab', 'one', 'one two three'), (2, 'abcd', 'twelve', ''), (3, '', ' x ', '  padded  '),
  (4, null, null, null), (5, 'Ab', 'ONE', 'one'), (6, 'zz', 'zz', 'zzzz zzzz');
select id, length(code) as a, length(name) as b, char_length(long_text) as c, octet_length(long_text) as d from labels;
select id, cast(long_text as char(3)) as c3, cast(long_text as varchar(5)) as v5, cast(name as char(8)) as c8 from labels where length(long_text) <= 3;
select id, rpad(code, 6, '.') as r, lpad(name, 8, '*') as l, trim(name) as t from labels;
select id from labels where code = 'ab';
select id from labels where code < name;
select id from labels where name >= 'ONE' and name < 'zz';
select id from labels where lower(name) = 'one' or upper(code) = 'AB';
select id, code || '|' || name as joined, concat(name, long_text) as c from labels;
select id from labels where name like 'o%' or code like '__' or long_text like '% %';
select code, count(*) as n from labels group by code;
select lower(name) as word, min(id) as first_id, max(code) as code from labels group by lower(name);
select distinct length(name) as size from labels;
select a.id, b.id as other from labels a join labels b on lower(a.name) = lower(b.name) and a.id <> b.id;
select id, left(long_text, 3) as l, right(long_text, 3) as r, substr(long_text, 5, 3) as m from labels;
select id, name from labels order by name desc nulls last, id limit 3;
select max(name) as m, min(code) as c, max(length(long_text)) as longest from labels;
select id, name in ('one', 'zz') as listed, code between 'a' and 'b' as between_codes from labels;
update labels set name = 'six', code = 'abcd' where id = 6;
update labels set long_text = null where id = 3;
delete from labels where id = 5;
insert into labels values (7, 'one', 'one', 'two'), (8, '    ', '', ' ');
