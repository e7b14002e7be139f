"""The program of a worker process: `python -m ikebana.cluster`.

Only a driver can start it usefully: what the worker must know comes through its standard input (see `launch`), and
it ends when that is closed. It is a module of its own so that what workers pickle is not named after `__main__`.
"""

from ikebana.cluster.worker_process import main

if __name__ == "__main__":
    main()
