"""The tests; helpers are imported from here, as in `from tests.kernels import naive`."""
