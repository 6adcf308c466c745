"""`python -m bench [name ...]`: every ratio, or those of the named programs. Exits with 1 when one is over.

`--long` lets programs that watch memory do so for longer.
"""

from __future__ import annotations

import importlib
import sys

PROGRAMS = (
    *("turns", "growth", "watchers", "assembly", "startup", "recruit", "ledger", "mcp", "knowledge", "gateway"),
    *("discord", "page", "local_speed"),
)


def main() -> int:
    over = 0
    for name in [word for word in sys.argv[1:] if not word.startswith("--")] or PROGRAMS:
        print(f"--- {name}", flush=True)
        for ratio in importlib.import_module(f"bench.{name}").run():
            print(ratio, flush=True)
            over += not ratio.holds
    print(f"{over} over their limit" if over else "every ratio is within its limit")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
