"""Phrases that a reader has to read twice, in docstrings, comments, messages and pages.

`make lint` runs it. It reads the package, the tutorials and the Markdown pages.
"""

import io
import re
import sys
import tokenize

from pathlib import Path

ROOT = Path(__file__).parents[1]

START = r"(?:^|[.:] +|\"\"\"|# )"
"""Where a sentence begins."""

BANNED = {
    r"\bno numbers?\b": "is not finite, cannot be computed",
    r"\bnot (?:made of numbers)\b": "is not finite",
    START + r"Of (?!course\b)": "name the subject first",
    START + r"(?:That|Those) of\b": "name the thing",
    START + r"What\b(?!.*\?)": "name the thing",
    r", of which\b": "whose; or a new sentence: some of them",
    r"\b(?:draws?|moves|operations?|factorizations?|evaluations?) an? "
    r"(?:draw|move|step|evaluation|component|proposal|iteration)\b": "per",
    r"\b(?:numbers?|columns?|rows?|values?|integrals?|effects?|blocks?|nodes?|seconds?) an? "
    r"(?:f_i|element|observation|component|point|class|iteration|area|chain|draw)\b": "per",
    r"\bby itself alone\b": "alone",
    r"\blearnt\b": "learned, fitted, tuned",
    r"\b[Ii]n place of\b": "instead of",
    r"\bnext to nothing\b": "almost 0",
    r"\bwhat is left\b": "the remainder",
    r"\b(?:goes|go|going|went) on\b": "continues",
    r"\b(?:None|NaN)(?:``)? where\b": "if",
    r"\b[Rr]aises? where\b": "if",
    r"\bseldom\b": "rarely",
    r"\bbut for\b": "except for",
    r"\bmade of\b": "computed from, consists of",
    r"\b(?:says?|said) (?:much|more|most|little|nothing) (?:of|about)\b": "is informative about",
    r"\bof which (?:it|\w+) says\b": "is informative about",
    r"\bat (?:most|least) so many\b": "this many",
    START + r"Most (?:steps|rounds|iterations|halvings)\b": "largest number of",
    r"\bfilled up\b": "padded",
    r"\bfar out\b": "in the tails, too large",
    r"\b(?:and|or|since) else\b": "otherwise",
    r"\b[Tt]he same of\b": "name what it is",
    START + r"The same (?:for|if|with|when|as)\b": "name what it is",
    r", as those of\b": "as for",
    r"\bor whatever\b": "or anything that",
    r"\b(?:tells?|told)(?: them| it)? apart\b": "distinguish",
    r"\b(?:is|are) no (?:matrix|permutation|array|vector|function|mean|power)\b": "is not a",
    r"\blaid anew\b": "computed again",
    r"\b(?:draw|factorization|iteration|evaluation)s? (?:is|are) made by\b": "name who computes it",
}
"""A phrase, and what to write instead."""


def prose(path: Path) -> list[tuple[int, str]]:
    """Lines of the strings and comments of a file, with their numbers."""
    lines = []
    text = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING:
            for i, line in enumerate(token.string.splitlines()):
                if not line.lstrip().startswith((">>>", "...")):
                    lines.append((token.start[0] + i, line.strip()))
    return lines


def page(path: Path) -> list[tuple[int, str]]:
    """Lines of a Markdown page outside of its code and headings, with their numbers."""
    lines, is_code = [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not line.startswith("#"):
            lines.append((number, line.strip()))
    return lines


def phrases(path: Path) -> list[str]:
    """Each banned phrase of a file, with its place and what to write instead."""
    lines = page(path) if path.suffix == ".md" else prose(path)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group().strip()!r} ({instead})"
        for number, line in lines
        if not line.startswith("# #")  # a heading of a tutorial
        for phrase, instead in BANNED.items()
        if (match := re.search(phrase, line))
    ]


def main() -> int:
    """Print each phrase with its place."""
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*.py"))
    paths = (*pages, *sorted((ROOT / "pymc_lgm").rglob("*.py")))
    bad = [found for path in paths for found in phrases(path)]
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
