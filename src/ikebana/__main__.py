"""`python -m ikebana`: the command `ikebana`."""

import sys

from ikebana.cli import main

sys.exit(main(prog="python -m ikebana"))
