"""Transports: how letters travel between workers. In one process here; between processes over sockets."""
