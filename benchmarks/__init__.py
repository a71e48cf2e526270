"""Each module prints a ratio against a peer or a limit, both measured in one run: ``python -m benchmarks.NAME [--json]``."""
