"""The runtime of a worker, without I/O: dataflows, sweeps, transactions, subscriptions and memory budgets."""
