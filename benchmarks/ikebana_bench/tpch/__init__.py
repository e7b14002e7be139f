"""TPC-H: its tables, its 22 queries, data at any scale, a stream of changes, and Spark's answers to compare with.

    schemas      the eight tables: columns, keys; the texts of the queries
    data         Parquet files of the tables, made by tpchgen-cli
    stream       `RefreshStream`: rounds of inserts, updates and deletes on all eight tables
    answers      Spark's own batch answers, and how to compare with them
    verify       `tpch-verify`: every answer after every round, at any scale
    serving      tables on Spark, rounds of changes, and comparing with Spark: what benchmarks there have in common
    installing   `tpch-install`: how soon each query has its first answer
    interactive  `tpch-interactive`: queries that come and go, figure 1
    feeding      one query by itself, over tables that are fed to it, without Spark
    peers        other systems, to measure on the same stream
    rates        `tpch-rates`: tuples a second, appendix B
    batch        `tpch-batch`: from files to answers, beside Spark SQL

The query texts are those of the specification with its validation parameters, as Spark accepts them: Q15's view is a
common table expression, and the number of rows to show is a LIMIT.
"""
