"""Write scripts of examples/ as notebooks, with the output that each of them has when it runs.

    python tools/notebooks.py FOLDER [examples/coal_mining.py ...]

Sphinx uses `notebook` for what a tutorial's page offers for download, which has no output: the page
shows it. `make notebooks` runs the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import time

from pathlib import Path

import jupytext
import nbformat

from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
LINK = re.compile(r"\[([^]]+)\]\(([\w./]+)\)")


def notebook(script: Path) -> NotebookNode:
    """Return an example as a notebook to work in, without output.

    Cells that a page hides serve the script alone. Links lead to the other notebooks; where they
    lead to a page of docs/, they name it, since a notebook lies anywhere.
    """
    made = jupytext.read(script, fmt="py:percent")
    made.cells = [cell for cell in made.cells if "remove-cell" not in tags(cell)]
    for cell in made.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(_link, cell.source)
    made.metadata = NotebookNode(kernelspec=NotebookNode(KERNEL))
    return made


def tags(cell: NotebookNode) -> list[str]:
    """Return what the script says after ``# %%``, as tags=["remove-output"]."""
    return cell.metadata.get("tags", [])


def execute(made: NotebookNode, folder: Path) -> None:
    """Run all cells in a kernel of this environment, and keep what a page would show."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the examples' matrices are small
    resources = {"metadata": {"path": str(folder)}}
    # A kernel warns where others on the machine could listen to what it is sent.
    config = Config(KernelManager=Config(transport_encryption="auto"))
    NotebookClient(made, kernel_name=KERNEL["name"], resources=resources, config=config).execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # the time of day of each message
        if "remove-output" in tags(cell):
            cell.outputs = []


def _link(match: re.Match[str]) -> str:
    text, target = match.groups()
    if (EXAMPLES / f"{target}.py").is_file():
        return f"[{text}]({target}.ipynb)"
    return f"{text} (docs/{target.removeprefix('../')})" if target.startswith("../") else match[0]


def main() -> None:
    """Write the notebooks that the command line names, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the notebooks go")
    parser.add_argument("scripts", type=Path, nargs="*", help="all examples, if none is named")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for script in args.scripts or sorted(EXAMPLES.glob("*.py")):
        start, path = time.perf_counter(), args.folder / f"{script.stem}.ipynb"
        made = notebook(script)
        execute(made, args.folder)
        nbformat.write(made, path)
        print(f"{path}  {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
