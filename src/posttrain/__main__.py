"""``python -m posttrain`` is ``posttrain``."""

from __future__ import annotations

from posttrain.cli import main

if __name__ == "__main__":
    main()
