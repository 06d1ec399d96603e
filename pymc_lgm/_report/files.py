"""Atomic writes: a file is complete or does not exist."""

from __future__ import annotations

import os

from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file beside the path, then rename it to the path; remove it after an error.

    If the path is not a regular file, for example a terminal, it is written to directly.
    """
    path = path.resolve()  # A symbolic link is kept, and its target is replaced.
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
