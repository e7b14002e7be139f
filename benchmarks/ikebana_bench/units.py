"""The units of metrics, and how their values are formatted.

The name of a metric ends in its unit: `_ms`, `_s`, `_per_s`, `_bytes` or `_ratio`. A metric with any other name is a
plain number. JSON documents contain unformatted numbers; tables show three significant digits in a suitable unit.
"""

from __future__ import annotations

SUFFIXES = ("_per_s", "_ms", "_s", "_bytes", "_ratio")
AXES = {"_per_s": "per second", "_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes", "_ratio": "ratio"}

TIMES = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
RATES = ((1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s"))
SIZES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def split(name: str) -> tuple[str, str]:
    """Return the label of a metric, and the suffix that gives its unit.

    >>> split("step_p99_ms"), split("updates_per_s"), split("batches")
    (('step p99', '_ms'), ('updates', '_per_s'), ('batches', ''))
    """
    suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
    return name.removesuffix(suffix).replace("_", " "), suffix


def axis_label(name: str) -> tuple[str, str]:
    """Return the label of a series, and the name of its unit for an axis."""
    label, suffix = split(name)
    return label, AXES.get(suffix, "value")


def show(name: str, value: float) -> str:
    """Return the value of a metric as formatted text.

    >>> show("step_ms", 0.0312), show("load_s", 75), show("updates_per_s", 2_150_000)
    ('31.2 µs', '1.25 min', '2.15 M/s')
    >>> show("held_bytes", 555_745_280), show("floor_ratio", 1.8512), show("batches", 12_345)
    ('530 MiB', '1.85×', '12,345')
    """
    match split(name)[1]:
        case "_ms":
            return _scaled(value / 1e3, TIMES)
        case "_s":
            return _scaled(value, TIMES)
        case "_per_s":
            return _scaled(value, RATES)
        case "_bytes":
            return _scaled(value, SIZES)
        case "_ratio":
            return f"{_digits(value)}×"
        case _:
            return f"{value:,}" if isinstance(value, int) else _digits(value)


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    scale, unit = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    return f"{_digits(value / scale)} {unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
