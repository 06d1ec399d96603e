"""The tables of the benchmarks: printed row by row and, with ``--save``, kept in results/NAME.csv.

A file has the printed cells, and for each row the title of its table, the command, the commit of
the package, the date and the machine. `tools/tables.py` puts the cells into docs/, so none of the
numbers there is typed. An interrupted run continues where it ended: see `Table.has`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib.util
import os
import shlex
import subprocess
import sys

from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("results")
ORIGIN = ("command", "code", "date", "machine")
"""Columns with the origin of a row; the title is the column before them."""
MARKS = "!>"
"""Marks that can follow a number, without an effect on its alignment."""


def arguments(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser that knows what every script does: ``--quick`` and ``--save``."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--save",
        nargs="?",
        const=Path(sys.argv[0]).stem,
        metavar="NAME",
        help="keep the table in results/NAME.csv, by default the script's name",
    )
    return parser


class Table:
    """A table of one script: each row is printed at once and kept, if the user wants it kept.

    Parameters
    ----------
    args
        Result of the parser of `arguments`.
    title
        The line above the table; what was run, where the rows do not say it.
    columns
        Name -> format of a number, or "<20" of text that stands to the left in a width of 20.
    keys
        How many columns, from the first, say which row it is. A row that is kept replaces one of
        the same title and the same keys.
    part
        Which of the script's tables, where it has several: its file is NAME_part.csv.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        title: str,
        columns: dict[str, str],
        keys: int,
        part: str = "",
    ) -> None:
        if args.save and args.quick:
            sys.exit("--quick tries a script out: its numbers are not for keeping")
        self.columns, self.keys = columns, list(columns)[:keys]
        name = f"{args.save}_{part}" if part else args.save
        self.path = FOLDER / f"{name}.csv" if args.save else None
        where = machine_once()
        if self.path:
            today = datetime.date.today().isoformat()
            origin = (command(sys.argv), code(), today, where.rpartition("; ")[0])
            self.origin = {"title": title} | dict(zip(ORIGIN, origin, strict=True))
        # A column is as wide as its name and its text; no number has more than seven characters.
        self.widths = []
        for name, spec in columns.items():
            text = spec[:1] if spec[:1] in ("<", ">") else ""
            width = max(len(name), int(spec[1:]) if text else 7)
            self.widths.append(-width if text == "<" else width)
        self.heading = f"\n{title}\n".replace("\n\n", "\n") + line(list(columns), self.widths)

    def row(self, *cells: Any) -> None:
        """Print a row and keep it: values, or pairs of a value and its mark: "!" where it is true.

        None is blank, and so is what is missing at the end.
        """
        blank = [None] * (len(self.columns) - len(cells))
        texts = self._texts(*cells, *blank)
        self._print(texts)
        if self.path:
            new = dict(zip(self.columns, texts, strict=True)) | self.origin
            names = ["title", *self.keys]
            rows = self._kept()
            at = [i for i, old in enumerate(rows) if all(old[k] == new[k] for k in names)]
            rows = [old for i, old in enumerate(rows) if i not in at]
            rows.insert(at[0] if at else len(rows), new)
            write(self.path, rows)

    def has(self, *first: Any) -> bool:
        """Whether this command and this code have made rows with this start; then print them."""
        # The code of a package with uncommitted changes is not known.
        if self.path is None or self.origin["code"].endswith("+"):
            return False
        same = {name: self.origin[name] for name in ("title", "command", "code")}
        same |= zip(self.columns, self._texts(*first), strict=False)
        found = [row for row in self._kept() if same.items() <= row.items()]
        for row in found:
            self._print([row[name] for name in self.columns])
        return bool(found)

    def _kept(self) -> list[dict[str, str]]:
        rows = read(self.path) if self.path else []
        if rows and set(rows[0]) != {*self.columns, *self.origin}:
            sys.exit(f"{self.path} has other columns: save it under another name")
        return rows

    def _print(self, texts: list[str]) -> None:
        if self.heading:
            print(self.heading)
            self.heading = ""
        print(line(texts, self.widths), flush=True)

    def _texts(self, *cells: Any) -> list[str]:
        return [_text(c, spec) for c, spec in zip(cells, self.columns.values(), strict=False)]


def _text(cell: Any, spec: str) -> str:
    if isinstance(cell, tuple):
        value, mark = cell
        return _text(value, spec) + (mark if isinstance(mark, str) else "!" * bool(mark))
    if cell is None or isinstance(cell, str):
        return cell or ""
    return format(cell, "" if spec.startswith("<") else spec)


def line(cells: list[str], widths: list[int]) -> str:
    """Return a row as text: to the left where a width is negative, else with room for a mark."""
    text = ""
    for cell, width in zip(cells, widths, strict=True):
        number = cell.rstrip(MARKS)
        mark = cell[len(number) :]
        text += f" {cell:{-width}} " if width < 0 else f" {number:>{width}}{mark:1}"
    return text[1:].rstrip()


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file, none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Write all rows; one that is cut leaves the file as it was."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".tmp")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draft.replace(path)


def command(argv: list[str]) -> str:
    """Return the command line as it is typed in the root; data files by their names alone."""
    words = list(argv[1:])
    if "--save" in words:
        at = words.index("--save")
        named = words[at + 1 : at + 2] and not words[at + 1].startswith("-")
        del words[at : at + 1 + bool(named)]
    words = [Path(word).name if word.endswith(".csv") else word for word in words]
    threads = os.environ.get("OMP_NUM_THREADS")
    first = [f"OMP_NUM_THREADS={threads}"] if threads else []
    return shlex.join([*first, "python", f"benchmarks/{Path(argv[0]).name}", *words])


@cache
def code() -> str:
    """Return the last commit of the package that is imported, "+" if it was changed since."""
    folder = Path(importlib.util.find_spec("pymc_lgm").origin).parent

    def git(*words: str) -> str:
        done = ["git", *words, "--", "."]
        return subprocess.run(done, cwd=folder, capture_output=True, text=True, check=True).stdout

    return git("log", "-1", "--format=%h").strip() + ("+" if git("status", "--porcelain") else "")


@cache
def machine_once() -> str:
    """Return where the numbers come from, and print it the first time."""
    from _design import machine  # here, since it imports PyMC: tools/tables.py needs none

    print(machine())
    return machine()
