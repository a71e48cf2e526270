"""The command line: each command reads its arguments, calls one function of the house, and prints what it returns.

Whatever goes wrong ends in ``boundary.guarded``, the one place that turns errors into messages and exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point ``posttrain``: never returns, exits with a code of the table in ``errors``."""
    from posttrain.cli.boundary import guarded

    sys.exit(guarded(list(sys.argv[1:] if argv is None else argv)))
