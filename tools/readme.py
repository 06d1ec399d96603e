"""Run README's example and put what it prints into README.md and docs/index.md.

    python tools/readme.py [--check]

Both pages show the same code, and below it, between ``<!-- printed -->`` and ``<!-- end -->``, its
output. ``--check`` changes nothing: it compares what the code prints today with what the pages
show. Seconds are not compared, and everything else up to Monte Carlo error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"(<!-- printed -->\n\n```\n)(.*?)(```\n\n<!-- end -->)", re.DOTALL)

EXACT = 4.0
"""How many Monte Carlo standard errors two posterior means may be apart."""
LOOSE = 0.35
"""How far anything else may be apart, as a share: effective sample sizes, ends of intervals."""
SECONDS = "ess_per_second"


def example() -> str:
    """Return the Python code of README.md."""
    return CODE.findall(PAGES[0].read_text(encoding="utf-8"))[0]


def printed(code: str) -> str:
    """Run the example without its progress bar, and return what it prints."""
    quiet = code.replace("random_seed=1)", "random_seed=1, progressbar=False)")
    assert quiet != code, "README's example calls pm.sample in another way: change tools/readme.py"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(quiet, "README.md", "exec"), {"__name__": "__main__"})
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def filled(text: str, output: str) -> str:
    """Return a page with this output below the example."""
    return PRINTED.sub(lambda found: f"{found[1]}{output}{found[3]}", text)


def numbers(output: str) -> dict[tuple[str, str], float]:
    """Return (row, column) -> number of the tables that are printed."""
    found, columns = {}, []
    for line in output.splitlines():
        name, *cells = line.split()
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            values = []
        if values and len(values) == len(columns):
            found |= {(name, column): v for column, v in zip(columns, values, strict=True)}
        else:
            columns = line.split()
    return found


def differences(shown: str, today: str) -> list[str]:
    """Return what differs by more than Monte Carlo error, a sentence each."""
    old, new = numbers(shown), numbers(today)
    if old.keys() != new.keys():
        return ["The example prints other rows or columns than README.md shows."]
    said = []
    for (row, column), value in old.items():
        other = new[row, column]
        if column == "mean":
            error = EXACT * 2**0.5 * old[row, "mcse_mean"]
        elif column == "r_hat" or row == "r_hat":
            error = 0.01
        else:
            error = LOOSE * max(abs(value), abs(other)) + 0.1
        if row != SECONDS and abs(value - other) > error:
            said.append(f"{row}, {column}: README.md shows {value}, today it is {other}.")
    return said


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, say what differs")
    check = parser.parse_args().check
    output = printed(example())
    if check:
        (shown,) = (found[2] for found in PRINTED.finditer(PAGES[0].read_text(encoding="utf-8")))
        sys.exit("\n".join(differences(shown, output)) or None)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), output), encoding="utf-8")
    print(output)


if __name__ == "__main__":
    main()
