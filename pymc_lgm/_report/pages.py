"""The layout of a report: plain text, HTML."""

from __future__ import annotations

import html
import textwrap

from collections.abc import Iterator
from dataclasses import dataclass

from pymc_lgm._report.pictures import Pictures
from pymc_lgm._report.tables import NAME, Table
from pymc_lgm._report.verdicts import NOTHING, Verdict

__all__ = ["Page", "as_document", "as_html", "as_text"]

WIDTH = 96
"""Columns of the plain text, in characters."""

CSS = """
.lgm-report { color: #1d2433; background: #fff; max-width: 60rem; margin: 0 auto; padding: 1rem;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.lgm-report h1 { font-size: 1.35rem; margin: 0; padding: .6rem .9rem; border-radius: 6px; }
.lgm-report h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
.lgm-report p { margin: .3rem 0 .6rem; color: #4a5468; }
.lgm-report ul { list-style: none; margin: 1rem 0; padding: 0; }
.lgm-report li { border-left: 5px solid; padding: .25rem .8rem; margin: .4rem 0; }
.lgm-report li b { margin-right: .4rem; }
.lgm-report li em { display: block; font-style: normal; font-weight: 600; }
.lgm-report .good { border-color: #2e8b57; }
.lgm-report .warning { border-color: #d08700; background: #fff8e6; }
.lgm-report .problem { border-color: #c0262d; background: #fdeeee; }
.lgm-report h1.good { background: #e8f5ed; }
.lgm-report .level { font-size: .75rem; text-transform: uppercase; letter-spacing: .05em; }
.lgm-report .scroll { overflow-x: auto; }
.lgm-report table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.lgm-report th, .lgm-report td { padding: .2rem .7rem; text-align: right; color: #1d2433;
  background: #fff; border-bottom: 1px solid #e3e7ee; white-space: nowrap; }
.lgm-report th { border-bottom: 2px solid #b9c2d0; font-weight: 600; }
.lgm-report th:first-child, .lgm-report td:first-child { text-align: left; }
.lgm-report figure { margin: 1.4rem 0; }
.lgm-report figure img { max-width: 100%; height: auto; }
.lgm-report figcaption { color: #4a5468; font-size: .9rem; }
"""


@dataclass(frozen=True)
class Page:
    """The content of a report, without layout."""

    headline: str
    cost: str
    verdicts: list[Verdict]
    tables: list[Table]
    plan: str = ""

    @property
    def level(self) -> str:
        """The level of the first verdict, which is the worst."""
        return self.verdicts[0].level if self.verdicts else "good"


def as_text(page: Page) -> str:
    """Return plain text of fewer than 100 columns."""
    blocks = [page.headline, _wrapped(page.cost, ""), "\n".join(_lines(page.verdicts))]
    blocks += [_text_table(table) for table in page.tables]
    blocks += [page.plan] if page.plan else []
    return "\n\n".join(blocks)


def as_html(page: Page, pictures: Pictures) -> str:
    """Return an HTML fragment with its own style, for a notebook or a page."""
    parts = [
        f"<style>{CSS}</style>{pictures.once}",
        f'<div class="lgm-report"><h1 class="{page.level}">{html.escape(page.headline)}</h1>',
        f"<p>{html.escape(page.cost)}</p><ul>",
        *(_html_verdict(verdict) for verdict in page.verdicts),
        "</ul>",
        *(_html_table(table) for table in page.tables),
        f"<h2>Plan</h2><pre>{html.escape(page.plan)}</pre>" if page.plan else "",
        *pictures.figures,
        f"<p>{html.escape(pictures.missing)}</p>" if pictures.missing else "",
        "</div>",
    ]
    return "\n".join(parts)


def as_document(body: str) -> str:
    """Return a whole page that loads no other files."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><title>Sampling report</title></head>'
        f'<body style="margin: 0; background: #fff">\n{body}\n</body></html>\n'
    )


def _lines(found: list[Verdict]) -> Iterator[str]:
    for verdict in found:
        lead = f"{verdict.level:8}"
        yield _wrapped(f"{lead} {verdict.subject}: {verdict.sentence}", " " * 9)
        if verdict.advice != NOTHING:
            yield _wrapped(f"{' ' * 9}-> {verdict.advice}", " " * 12)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _text_table(table: Table) -> str:
    rows = [table.columns, *table.rows]
    rows = [[_cut(row[0]), *row[1:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    return "\n".join([_wrapped(f"{table.title}. {table.note}", ""), *lines])


def _cut(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 4]}...{name[-1]}"


def _html_verdict(verdict: Verdict) -> str:
    subject, sentence, advice = map(
        html.escape, (verdict.subject, verdict.sentence, verdict.advice)
    )
    advised = f"<em>{advice}</em>" if verdict.advice != NOTHING else ""
    return (
        f'<li class="{verdict.level}"><span class="level">{verdict.level}</span> '
        f"<b>{subject}</b>{sentence}{advised}</li>"
    )


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = ""
    for row in table.rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        body += f"<tr>{cells}</tr>"
    return (
        f"<h2>{html.escape(table.title)}</h2><p>{html.escape(table.note)}</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
