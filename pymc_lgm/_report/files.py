"""Files that are whole or not there."""

from __future__ import annotations

import os

from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file beside the path and put it there at once; an error leaves no trace.

    A path that is no ordinary file, a terminal for example, is written to as it is.
    """
    path = path.resolve()  # A link stays one: what it points to is replaced.
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
