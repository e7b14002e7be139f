#!/bin/sh
# The Python that IKEBANA_PYTHON names, for Spark's tasks on this machine: see task_python.py.
# It runs without the zipped PySpark that Spark puts first on the path, and its daemon is the one of task_daemon.py.
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept=${kept:+$kept:}$entry ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -P "$(dirname "$0")/task_daemon.py" "$@"
fi
exec "$IKEBANA_PYTHON" "$@"
