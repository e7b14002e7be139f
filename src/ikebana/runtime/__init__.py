"""Dataflows at run time: sweeps, workers without I/O, and the transports between them."""
