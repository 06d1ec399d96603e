"""Draw ranks of prior draws among the default sampler's draws: figure of docs/benchmarks/right.md.

What benchmarks/calibrate.py draws, thirteen minutes a likelihood, in few colors.

    python docs/figures/calibration.py
"""

import runpy
import sys

from pathlib import Path

from PIL import Image

PICTURE = Path(__file__).with_suffix(".png")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "calibrate.py"


def smaller(path):
    """Keep 32 colors: a third of the size."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(32).save(path, optimize=True)


def main():
    sys.path.insert(0, str(SCRIPT.parent))  # the script imports what stands beside it
    sys.argv = [str(SCRIPT), "--minutes", "13", "--figure", str(PICTURE)]
    runpy.run_path(str(SCRIPT), run_name="__main__")
    smaller(PICTURE)


if __name__ == "__main__":
    main()
