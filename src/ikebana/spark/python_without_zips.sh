#!/bin/sh
# The Python that IKEBANA_PYTHON names, without the zipped PySpark that Spark puts first on its path: see task_python.py.
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=${kept:+$kept:}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec "$IKEBANA_PYTHON" "$@"
