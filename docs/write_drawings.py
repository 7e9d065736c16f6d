"""Writes the drawings of the manual, docs/*.svg.

python docs/write_drawings.py            # writes those that differ
python docs/write_drawings.py --check    # names them; exit status 1 if there is one
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = ("three_budgets", "head_to_head", "backward_generator", "step_pipeline", "rooms", "lifespans")


def main() -> int:
    """Draws each, and writes or compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, name the drawings that differ")
    options = parser.parse_args()
    differing = 0
    for name in NAMES:
        path = FOLDER / f"{name}.svg"
        text = importlib.import_module(f"drawings.{name}").drawing().text()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            differing += 1
            print(f"docs/{path.name}: {'stale: run python docs/write_drawings.py' if options.check else 'written'}")
            if not options.check:
                path.write_text(text, encoding="utf-8")
    return int(options.check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
