"""What the comparisons with NUTS say of the goals that the project has set itself.

`tables.py` puts it into docs/tried.md. Of each cell it has the best NUTS, which is the one of
the smallest ratio, and from its smallest ratio to its largest.
"""

from __future__ import annotations

Row = dict[str, str]

MODELS = {"LRG": "logistic", "LCX": "Cox", "VLT": "volatility", "ORD": "ordinal"}
GOALS = {
    (2, 100): dict(zip(MODELS, (40, 60, 60, 40), strict=True)),
    (2, 400): dict.fromkeys(MODELS, 100),
    (10, 100): dict.fromkeys(MODELS, 10),
    (10, 400): dict.fromkeys(MODELS, 50),
}
"""(d, n) -> model -> how many times the best NUTS."""


def table(rows: list[Row]) -> str:
    """Return the goals as a Markdown table; what is met is bold."""
    lines = [["", *MODELS.values()], ["---"] * (1 + len(MODELS))]
    for (d, n), goals in GOALS.items():
        cells = [row for row in rows if (row["d"], row["n"]) == (f"{d}", f"{n}")]
        texts = [
            _cell([row for row in cells if row["model"] == model], goal)
            for model, goal in goals.items()
        ]
        wanted = " or ".join(str(goal) for goal in sorted(set(goals.values())))
        lines.append([f"d = {d}, n = {n}: {wanted}", *texts])
    return "\n".join(f"| {' | '.join(texts)} |" for texts in lines)


def _cell(rows: list[Row], goal: float) -> str:
    compared = sorted((row for row in rows if row["default is"]), key=_times)
    if not compared:
        return ""
    best = [row for row in compared if row["sampler"] == compared[0]["sampler"]]
    least = "more than " if any(row["compile"].endswith(">") for row in best) else ""
    shown = " to ".join(dict.fromkeys(_ratio(row) for row in (best[0], best[-1])))
    alone = sorted(float(row["by ops"]) for row in best if row["by ops"])
    met = "**" if _times(best[0]) >= goal else ""
    text = f"{met}{least}{shown}{met}"
    if alone:
        text += f" ({least}{' to '.join(dict.fromkeys(f'{a:.0f}' for a in (alone[0], alone[-1])))})"
    return text


def _times(row: Row) -> float:
    return float(row["default is"])


def _ratio(row: Row) -> str:
    times = _times(row)
    return f"{times:.{1 if times < 10 else 0}f}" + "!" * row["R-hat"].endswith("!")
