"""The commands `ikebana storage list` and `ikebana storage check`.

Results go to stdout, progress to stderr. `check` ends with status 1 if a file is damaged. Neither changes anything, and
both may run while a session uses the storage directory.
"""

from __future__ import annotations

import argparse
from datetime import timedelta

from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from ikebana.errors import CorruptionError
from ikebana.storage.directory import FileEntry
from ikebana.storage.filesystems import open_directory
from ikebana.storage.inspection import StorageDescription, check, describe, shown_time

_SHOWN_NAMES = 20
"""How many names of entries of the catalogue are listed."""


def run(options: argparse.Namespace, out: Console, err: Console) -> None:
    """Run a command."""
    {"list": _list, "check": _check}[options.action](options.uri, out, err)


def _check(uri: str, out: Console, err: Console) -> None:
    directory = open_directory(uri)
    files = directory.files()
    total = sum(entry.size for entry in files)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("reading", total=total)

        def on_file(entry: FileEntry) -> None:
            bar.update(task, description=entry.path, advance=entry.size)

        damages = check(directory, on_file)
    if not damages:
        out.print(f"{directory.uri}: {len(files):,} files, {_size(total)}, no damage", soft_wrap=True)
        return
    table = Table(*(Column(name, overflow="fold") for name in ("file", "problem", "lost")))
    for damage in damages:
        table.add_row(damage.path, damage.problem, damage.lost)
    out.print(table)
    count = len({damage.path for damage in damages})
    raise CorruptionError(
        f"{count} {'file is' if count == 1 else 'files are'} damaged in {directory.uri}",
        hint="restore them from a copy",
    )


def _list(uri: str, out: Console, err: Console) -> None:
    description = describe(uri)
    out.print(_summary(description))
    out.print(_incarnations(description))
    if description.tables:
        out.print(_tables(description))
    if description.catalog:
        out.print(_catalog(description))
    if description.subscriptions:
        out.print(_subscriptions(description))


def _summary(description: StorageDescription) -> Table:
    table = Table(show_header=False)
    table.add_row("storage", description.uri)
    table.add_row("format", str(description.format))
    table.add_row("created", shown_time(description.created_us))
    table.add_row("size", _size(description.bytes))
    in_use = {True: "yes", False: "no", None: "unknown"}[description.is_in_use]
    table.add_row("in use", in_use)
    if description.claim is not None:
        table.add_row("used by" if description.is_in_use else "last used by", str(description.claim))
    return table


def _incarnations(description: StorageDescription) -> Table:
    table = _numbers("incarnation", "started", "workers", "epoch", "snapshot", "files", "log", "batches", "other")
    for incarnation in description.incarnations:
        table.add_row(
            str(incarnation.number),
            shown_time(incarnation.started_us),
            str(incarnation.shards),
            str(incarnation.epoch),
            "yes" if incarnation.is_complete else "no",
            f"{incarnation.files:,}",
            _size(incarnation.log_bytes),
            _size(incarnation.batch_bytes),
            _size(incarnation.other_bytes),
        )
    return table


def _tables(description: StorageDescription) -> Table:
    table = _numbers("table", "epoch", "files", "stored rows", "size")
    for stored in description.tables:
        table.add_row(stored.table, str(stored.epoch), f"{stored.files:,}", f"{stored.rows:,}", _size(stored.bytes))
    return table


def _catalog(description: StorageDescription) -> Table:
    table = Table("catalogue", "entries", Column("names", overflow="fold"))
    for kind, names in description.catalog.items():
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        table.add_row(kind, f"{len(names):,}", shown)
    return table


def _subscriptions(description: StorageDescription) -> Table:
    table = Table("subscription", "view", "acknowledged", "kept for", "kept up to", Column("failed", overflow="fold"))
    for stored in description.subscriptions:
        epoch = "nothing" if stored.epoch is None else f"epoch {stored.epoch}"
        kept = str(timedelta(seconds=stored.seconds))
        table.add_row(stored.name, stored.view, epoch, kept, _size(stored.bytes), stored.failure or "")
    return table


def _numbers(first: str, *others: str) -> Table:
    table = Table(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _size(count: int) -> str:
    """A number of bytes for people.

    >>> _size(512), _size(1536), _size(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            break
    return f"{size:,.1f} {unit}"
