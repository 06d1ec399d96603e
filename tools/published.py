"""What papers have published beside what is measured here, from the same files as the other tables.

`tables.py` puts it into docs/published.md. A number is alike if it is within a factor of two. Of
one that is not, `REASONS` has a word for the reason that docs/published.md explains, or it is open.
"""

from __future__ import annotations

import re

from collections.abc import Iterator
from typing import NamedTuple

Row = dict[str, str]


class Source(NamedTuple):
    """A column of a file that was published, and the columns that are its counterpart.

    Of several of ours the smallest counts: a paper's ESS can be that of theta and f together.
    """

    file: str
    paper: str
    of: str
    keys: tuple[str, ...]
    theirs: str
    ours: tuple[str, ...]


LATENT = ("model", "latent move")
SCHEME = ("cov", "d", "scheme")
CLASSES = ("sampler", "seed")
SOURCES = (
    Source("latent_moves", "FZG, table 2", "ESS f", LATENT, "table 2", ("min ESS",)),
    Source(
        "joint_samplers",
        "FZG, table 5",
        "ESS theta, f",
        ("model", "sampler"),
        "table 5",
        ("ESS theta", "ESS f"),
    ),
    Source("importance_schemes", "FG, table 1", "ESS theta", SCHEME, "paper", ("ESS",)),
    Source("importance_schemes", "FG, table 1", "accept %", SCHEME, "paper's %", ("accept %",)),
    Source("acceptance", "F, table I", "accept %", ("data", "cov"), "published", ("accept %",)),
    Source("class_kernels", "thesis", "% of f", CLASSES, "thesis", ("percent of f",)),
    Source(
        "class_kernels",
        "thesis",
        "% of theta",
        CLASSES,
        "thesis, theta",
        ("percent of theta",),
    ),
)
GRADIENTS = ("pcg", "C, figure 1", "iterations")
"""Published numbers are rows of this file."""
FILES = (*dict.fromkeys(source.file for source in SOURCES), GRADIENTS[0])
ALIKE = 2.0
REASONS = (
    ("FG, table 1 ESS theta ard 10 ", "short"),
    ("FG, table 1 ", "walk"),
    ("thesis % of theta G_f", "short"),
)
"""How a row begins, paper first, that is not alike -> the word; the first that fits counts."""


def rows(files: dict[str, list[Row]]) -> list[Row]:
    """Return a row for each published number that has a counterpart."""
    return [_row(*found) for found in (*_columns(files), *_gradients(files[GRADIENTS[0]]))]


def _columns(files: dict[str, list[Row]]) -> Iterator[tuple[str, str, str, str, str]]:
    for source in SOURCES:
        for row in files[source.file]:
            if row[source.theirs]:
                what = " ".join(row[key] for key in source.keys)
                ours = min((row[name] for name in source.ours), key=_number)
                yield source.paper, source.of, what, row[source.theirs], ours


def _gradients(table: list[Row]) -> Iterator[tuple[str, str, str, str, str]]:
    _, paper, of = GRADIENTS
    first = next(iter(table[0]))
    ours = {row[first]: row for row in table}
    for label, row in ours.items():
        if (scheme := label.removeprefix("published: ")) != label:
            for column in filter(re.compile(r"-?\d+").fullmatch, row):
                if row[column]:
                    what = f"{scheme}, length-scale 1e{column}"
                    yield paper, of, what, row[column], ours[scheme][column]


def _row(paper: str, of: str, what: str, theirs: str, ours: str) -> Row:
    times = _number(ours) / _number(theirs)
    word = "alike" if 1 / ALIKE <= times <= ALIKE else "more" if times > ALIKE else "open"
    if word != "alike":
        said = f"{paper} {of} {what}"
        word = next((reason for start, reason in REASONS if said.startswith(start)), word)
    cells = {"paper": paper, "of": of, "what": what, "published": theirs, "ours": ours}
    return cells | {"times": f"{times:.2f}", "agreement": word}


def _number(cell: str) -> float:
    """Of "0.51 (0.16, 0.88)" the mean, 0.51."""
    return float(cell.split()[0])
