"""Put the tables that the benchmarks have saved into README.md and docs/: no number is typed.

    python tools/tables.py [--check]

A page has its tables between ``<!-- results: NAME ... -->`` and ``<!-- end -->``, each NAME a file
benchmarks/results/NAME.csv: the rows with the titles above them, then, folded, the commands and in
small print of which code, day and machine they are. ``results: published``, ``results: goals``,
``results: headline``, ``results: overview`` and ``results: peers`` are what `published.py`,
`goals.py` and `headline.py` make of such files.
``--check`` changes nothing and says what differs from the files: `make docs` and the tests run it.
"""

from __future__ import annotations

import argparse
import re
import sys

from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import goals  # noqa: E402
import headline  # noqa: E402
import published  # noqa: E402

from _results import FOLDER, MARKS, ORIGIN, line, read  # noqa: E402
from readme import PRINTED  # noqa: E402

BLOCK = re.compile(r"(<!-- results: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CODE = re.compile(r"^ *```\S.*?^ *```$", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^```\n.*?^```$|^\|.*?\|\n\n", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d[^A-Za-z]*|nan|inf|")
FOLD = "<details><summary>How it was made</summary>"
"""Below a table: a reader opens it for the commands and the small print."""
WIDTH = 110
"""Of a command; a longer one is broken before its options."""


def filled(text: str) -> str:
    """Return a page with the tables of today."""

    def again(found: re.Match[str]) -> str:
        make = MADE[found[2]][0] if found[2] in MADE else block
        return f"{found[1]}{make(files(found[2]))}{found[3]}"

    return BLOCK.sub(again, text)


def files(asked: str) -> list[str]:
    """Return the names of the files that a marker asks for."""
    return MADE[asked][1] if asked in MADE else asked.split()


def beside(names: list[str]) -> str:
    """Return the table of published numbers beside ours."""
    rows = published.rows({name: read(FOLDER / f"{name}.csv") for name in names})
    return f"\n```none\n{table([row | {'title': ''} for row in rows])}\n```\n\n"


def reached(names: list[str]) -> str:
    """Return the table of goals."""
    rows = [row for name in names for row in read(FOLDER / f"{name}.csv")]
    return f"\n{goals.table(rows)}\n\n"


def numbers(names: list[str]) -> str:
    """Return the three numbers of the first page."""
    return f"\n{headline.table(read(FOLDER / f'{names[-1]}.csv'))}\n\n"


def overview(names: list[str]) -> str:
    """Return the table that docs/benchmarks.md begins with."""
    tables = {name: read(FOLDER / f"{name}.csv") for name in names}
    return f"\n{headline.overview(tables)}\n\n"


def peers(names: list[str]) -> str:
    """Return the table that docs/benchmarks/against_stan.md begins with."""
    return f"\n{headline.peers()}\n\n"


MADE = {
    "peers": (peers, ["beats_stan"]),
    "overview": (overview, headline.OVERVIEW),
    "headline": (numbers, headline.FILES),
    "published": (beside, list(published.FILES)),
    "goals": (reached, ["beats_nuts", "beats_nuts_numpyro"]),
}
"""Tables that are computed: how, and from which files."""


def block(names: list[str]) -> str:
    """Return the commands, the tables and the small print of some files."""
    rows = [row | {"file": name} for name in names for row in read(FOLDER / f"{name}.csv")]
    titled: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        titled.setdefault((row["file"], row["title"]), []).append(row)
    rows = [row for part in titled.values() for row in part]
    commands = list(dict.fromkeys(row["command"] for row in rows if row["command"]))
    tables = "\n\n".join(map(table, titled.values()))
    # Without a language: in the default one, Sphinx would color numbers and words.
    shown = f"```none\n{tables}\n```"
    made = "".join(f"{broken(command)}\n" for command in commands)
    small = f"<small>{origins(rows, commands)}</small>"
    parts = [shown, FOLD, *filter(None, [made.rstrip("\n")]), small, "</details>"]
    return "\n" + "\n\n".join(parts) + "\n\n"


def table(rows: list[dict[str, str]]) -> str:
    """Return rows of one title below it, numbers to the right; without columns that are empty."""
    columns = [
        n for n in rows[0] if n not in ("title", "file", *ORIGIN) and any(r[n] for r in rows)
    ]
    cells = [columns, *([_shown(row[name]) for name in columns] for row in rows)]
    widths = []
    for name, *column in zip(*cells, strict=True):
        width = max(len(name), *(len(cell.rstrip(MARKS)) for cell in column))
        numbers = all(NUMBER.fullmatch(cell) for cell in column)
        widths.append(width if numbers else -max(width, *map(len, column)))
    title = [rows[0]["title"]] if rows[0]["title"] else []
    return "\n".join([*title, *(line(row, widths) for row in cells)])


def _shown(cell: str) -> str:
    """Return a cell of a page; what was not measured is blank."""
    return "" if cell == "nan" else cell


def broken(command: str) -> str:
    """Return a command as an indented block."""
    lines = ["    "]
    for words in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(words) > WIDTH and lines[-1].strip():
            lines[-1] += "\\"
            lines.append("        ")
        lines[-1] += f"{words} "
    return "\n".join(text.rstrip() for text in lines)


def origins(rows: list[dict[str, str]], commands: list[str]) -> str:
    """Return the small print; it says which rows, where they are not of one run."""
    places: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(rows, 1):
        places.setdefault(tuple(row[name] for name in ORIGIN), []).append(number)
    machines = dict.fromkeys(machine for *_, machine in places)
    said = []
    for (command, code, date, machine), numbers in places.items():
        words = [f"code {code} of {date}"]
        if len(commands) > 1 or not command:
            number = f"command {commands.index(command) + 1}" if command else "command not kept"
            words.insert(0, number)
        if len(machines) > 1:
            words.append(machine)
        where = f"row{'s' * (len(numbers) > 1)} {ranges(numbers)}: " if len(places) > 1 else ""
        text = f"{where}{', '.join(words)}."
        said.append(text[0].upper() + text[1:])
    return " ".join([*said, *(f"Machine: {name}." for name in machines if len(machines) == 1)])


def ranges(numbers: list[int]) -> str:
    """Return 1, 2, 3, 5 as "1–3, 5"."""
    runs = [
        [n for _, n in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def faults(page: Path) -> list[str]:
    """Return what is wrong with the tables of a page, a sentence each."""
    text, name = page.read_text(encoding="utf-8"), page.name
    asked = [csv for found in BLOCK.finditer(text) for csv in files(found[2])]
    said = [
        f"{name} shows benchmarks/results/{csv}.csv, which does not exist."
        for csv in asked
        if not (FOLDER / f"{csv}.csv").exists()
    ]
    if asked and not said:
        for found in BLOCK.finditer(text):
            if found[0] != filled(found[0]):
                said.append(f"{name}: {found[2]} is not as its csv: run python tools/tables.py.")
        for pattern in (BLOCK, PRINTED, CODE):
            text = pattern.sub("", text)
        for typed in TABLE.findall(text):
            if re.search(r"\d", typed):
                said.append(f"{name} has a table that no csv made: {typed.splitlines()[1]!r}.")
    is_said = "times as fast](" in text
    if is_said and (fast := headline.groups(read(FOLDER / "sums.csv"))) not in text:
        said.append(f"{name} does not say {fast} of models of groups, as sums.csv does.")
    return said


def pages() -> list[Path]:
    """Return README.md and the pages of docs/, but for those that Sphinx writes."""
    docs = ROOT / "docs"
    made = (docs / "generated", docs / "tutorials")
    found = (page for page in docs.rglob("*.md") if not any(page.is_relative_to(m) for m in made))
    return [ROOT / "README.md", *sorted(found)]


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, say what is wrong")
    check = parser.parse_args().check
    said = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        found = faults(page)
        if not check and not any("not exist" in fault for fault in found):
            page.write_text(filled(text), encoding="utf-8")
            found = faults(page)
        said += found
    if said:
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main()
