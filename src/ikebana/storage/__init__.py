"""Storage directories: logs of transactions, batches of tables as files, and the driver's catalogue.

The driver opens a `Store`, and every worker a `Shard` of it. What a new session finds is a `Recovery`. The files, their
formats, and what is guaranteed when, are in docs/STORAGE.md.
"""

from ikebana.storage.batch_files import BatchFile, decode_schema, encode_schema, read_batch, schema_digest
from ikebana.storage.catalog import DeleteEntry, PutEntry, StorageCatalog
from ikebana.storage.directory import Directory, LocalDirectory
from ikebana.storage.filesystems import ArrowDirectory, open_directory
from ikebana.storage.log import Collected
from ikebana.storage.manifests import Manifest, TableFiles
from ikebana.storage.recovery import BatchSource, ChangedRows, Committed, Part, Recovery, RecoveryReport
from ikebana.storage.shard import Shard
from ikebana.storage.signing import Secret
from ikebana.storage.store import Store
from ikebana.storage.transactions import DRIVER, TableChanges, Transaction, TransactionLog, with_added_columns

__all__ = [
    "DRIVER",
    "ArrowDirectory",
    "BatchFile",
    "BatchSource",
    "ChangedRows",
    "Collected",
    "Committed",
    "DeleteEntry",
    "Directory",
    "LocalDirectory",
    "Manifest",
    "Part",
    "PutEntry",
    "Recovery",
    "RecoveryReport",
    "Secret",
    "Shard",
    "StorageCatalog",
    "Store",
    "TableChanges",
    "TableFiles",
    "Transaction",
    "TransactionLog",
    "decode_schema",
    "encode_schema",
    "open_directory",
    "read_batch",
    "schema_digest",
    "with_added_columns",
]
