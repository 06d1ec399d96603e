"""For compiled loops over arrays: elementary functions, BLAS, and functions called by address."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

__all__ = ["CODE", "digest_of"]


def digest_of(folder: Path) -> str:
    """A digest of the code in a folder."""
    digest = sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


CODE = digest_of(Path(__file__).parents[1])
"""Part of the key of functions that PyTensor keeps on disk. Their machine code contains loops and
calls of BLAS of this version of the package. Code of another version could end the process."""
