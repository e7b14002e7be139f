"""What `connect` checks about settings and placement of workers on a cluster, and what it tells the user to set.

Nothing here prevents a start: each function returns a sentence for the log, or None if there is nothing to say.

*Memory.* Workers are processes of their own, beside Java, and Spark does not know how much memory they use. YARN and
Kubernetes end an executor whose processes together use more than Spark has asked for: the memory of Java, the overhead
(`spark.executor.memoryOverhead`), and the memory of Python (`spark.executor.pyspark.memory`). The last also limits the
address space of each Python process, and the workers, which are started by these, inherit the limit.

*Encryption.* Spark sends tasks to executors over connections that are not encrypted by default. Tasks carry the keys of
their jobs, and when workers start, their tokens (docs/SECURITY.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ikebana.plan.estimates import format_bytes

_UNITS = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_LEAST_OVERHEAD = 384 << 20
_OVERHEAD_FACTOR = 0.1
_DEFAULT_EXECUTOR_MEMORY = "1g"


def spark_bytes(size: str) -> int:
    """The number of bytes of a size as Spark writes it; without a unit it is in MiB.

    >>> spark_bytes("1g"), spark_bytes("512"), spark_bytes("10 KB")
    (1073741824, 536870912, 10240)
    """
    match = re.fullmatch(r"\s*(\d+)\s*(b|[kmgtp]?)(?:(?<=[kmgtp])i?b)?\s*", size.lower())
    return int(match[1]) * _UNITS[match[2]] if match else 0


def is_true(settings: Mapping[str, str], name: str) -> bool:
    """Whether a setting is set to true."""
    return str(settings.get(name, "false")).strip().lower() == "true"


# Memory.


def memory_warning(master: str, settings: Mapping[str, str], workers: int, memory: int | None) -> str | None:
    """What to set if executors do not have the memory that workers may use; `memory` is the limit of a worker."""
    if master.startswith("local"):
        return None
    cores = int(settings.get("spark.executor.cores") or (1 if _limits_memory(master) else workers))
    python = spark_bytes(settings.get("spark.executor.pyspark.memory", "0"))
    if python and (memory is None or memory > python // max(1, cores)):
        return _address_space_warning(python // max(1, cores), cores, memory)
    if not _limits_memory(master):
        return None
    sharing = max(1, min(workers, cores // max(1, int(settings.get("spark.task.cpus", "1")))))
    room = _overhead(settings) + python
    if memory is None:
        return (
            f"workers have no memory limit that Spark knows: up to {sharing} of them share the "
            f"{format_bytes(room)} that an executor has beside Java; give `memory`, and set "
            "spark.executor.memoryOverhead to that times the workers of an executor"
        )
    if sharing * memory <= room:
        return None
    return (
        f"executors have {format_bytes(room)} beside Java, but up to {sharing} workers of {format_bytes(memory)} run "
        "on one, which would be ended for using too much; "
        f"set spark.executor.memoryOverhead={-(-sharing * memory >> 20)}m"
    )


def _limits_memory(master: str) -> bool:
    """Whether a cluster manager ends executors that use more memory than Spark has asked for."""
    return master.startswith(("yarn", "k8s"))


def _overhead(settings: Mapping[str, str]) -> int:
    """The memory of an executor beside Java and Python, as Spark computes it."""
    given = settings.get("spark.executor.memoryOverhead")
    if given:
        return spark_bytes(given)
    java = spark_bytes(settings.get("spark.executor.memory", _DEFAULT_EXECUTOR_MEMORY))
    factor = float(settings.get("spark.executor.memoryOverheadFactor") or _OVERHEAD_FACTOR)
    return max(_LEAST_OVERHEAD, int(java * factor))


def _address_space_warning(limit: int, cores: int, memory: int | None) -> str:
    needs = "no limit of its own" if memory is None else f"up to {format_bytes(memory)}"
    return (
        f"spark.executor.pyspark.memory limits every Python process to {format_bytes(limit)} (it is divided by "
        f"{cores} cores), and a worker has {needs}; unset it and set spark.executor.memoryOverhead instead, or give "
        "a smaller `memory`"
    )


# Encryption.


def encryption_warning(settings: Mapping[str, str], driver: str, hosts: Sequence[str]) -> str | None:
    """What to set if keys of jobs travel between hosts over connections that are not encrypted."""
    if not {*hosts} - {driver} or _is_encrypted(settings):
        return None
    return (
        "workers run on several hosts, and Spark's connections between them are not encrypted: whoever can read them "
        "can use the keys of jobs to read and write what these jobs may (docs/SECURITY.md); set "
        "spark.authenticate=true and spark.network.crypto.enabled=true"
    )


def _is_encrypted(settings: Mapping[str, str]) -> bool:
    is_authenticated = is_true(settings, "spark.authenticate")
    by_authentication = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
    return is_true(settings, "spark.ssl.rpc.enabled") or (
        is_authenticated and any(is_true(settings, name) for name in by_authentication)
    )


# Placement.


def placement_warning(hosts: Sequence[str], executor_hosts: int) -> str | None:
    """A sentence if Spark has not spread workers over hosts; `hosts` is that of each worker.

    >>> placement_warning(["10.0.0.1", "10.0.0.1"], 3)
    'Spark has placed the 2 workers on 1 of 3 hosts (2 on 10.0.0.1): they share its processors and its memory'
    """
    used = Counter(hosts)
    if len(used) >= min(len(hosts), executor_hosts):
        return None
    places = ", ".join(f"{count} on {host}" for host, count in used.items())
    share = "they share its processors and its memory" if len(used) == 1 else "some share processors and memory"
    return f"Spark has placed the {len(hosts)} workers on {len(used)} of {executor_hosts} hosts ({places}): {share}"
