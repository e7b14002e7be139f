"""The program of a worker process: `python -m ikebana.cluster`.

Only a driver starts it: the worker reads its configuration from its standard input (see `launch`), and exits when that
is closed. It is a separate module so that the classes that workers pickle are not named after `__main__`.
"""

from ikebana.pandas_import import postpone_pandas

if __name__ == "__main__":
    postpone_pandas()

    from ikebana.cluster.worker_process import main

    main()
