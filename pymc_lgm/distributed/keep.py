"""Finished chains in a folder: the settings, each chain's groups as netCDF, and its last state.

    study/settings.json
    study/chain-0/posterior.nc, sample_stats.nc, ..., state.pickle

A chain is written under another name and then renamed, so that every chain in the folder is
complete. SciPy writes netCDF 3, which has neither groups nor integers of 64 bits.
"""

from __future__ import annotations

import json
import os
import tempfile

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pymc.util import RandomGeneratorState

from pymc_lgm.distributed.plan import Chain

__all__ = ["StoredChains", "as_json", "compare", "rng_state", "settings_of"]

DTYPE = "dtype_in_memory"
"""Attribute of a stored variable: its type in memory, which netCDF may change."""

ATTRIBUTES = "attributes_as_json"
"""Attribute of a stored group: all of its attributes as text, since netCDF has few types."""


class StoredChains:
    """A folder of finished chains."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._settings = self.path / "settings.json"

    @property
    def settings(self) -> dict[str, Any] | None:
        """Model and settings of its chains, or None if the folder has none yet."""
        if not self._settings.exists():
            return None
        found: dict[str, Any] = json.loads(self._settings.read_text(encoding="utf-8"))
        return found

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Make the folder for a study."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f".settings-{os.getpid()}"
        new.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        new.replace(self._settings)

    @staticmethod
    def refuse_labels(coords: Mapping[str, Any]) -> None:
        """Raise an error for labels that cannot be written, before any chain has run."""
        for name, labels in coords.items():
            try:
                plain = _plain(xr.Dataset(coords={name: np.asarray(labels)}))
                plain.to_netcdf(engine="scipy", format="NETCDF3_64BIT")
            except Exception as error:
                raise ValueError(
                    f"keep= cannot store the labels of {name!r} as netCDF 3 ({error}). Write them "
                    "as text, or as numbers."
                ) from error

    def numbers(self) -> list[int]:
        """Numbers of the stored chains."""
        return sorted(int(path.name.split("-")[1]) for path in self.path.glob("chain-*"))

    def save(self, number: int, chain: Chain) -> None:
        """Write a chain. One that is stored already has the same draws, and is not replaced."""
        with tempfile.TemporaryDirectory(prefix=".", dir=self.path) as folder:
            new = Path(folder) / "chain"
            new.mkdir()
            for name, group in chain.groups.items():
                _plain(group).to_netcdf(new / f"{name}.nc", engine="scipy", format="NETCDF3_64BIT")
            (new / "state.pickle").write_bytes(chain.state)
            there = self._of(number)
            if not there.exists():
                new.rename(there)

    def load(self, number: int) -> Chain:
        """Read a chain. Its state stays bytes, and is unpickled only where the chain continues."""
        there = self._of(number)
        groups = {path.stem: _as_it_was(path) for path in sorted(there.glob("*.nc"))}
        return Chain(groups, (there / "state.pickle").read_bytes())

    def refuse_unfinished(self, chains: int) -> None:
        """Raise an error if a chain has no state from which to continue."""
        there = self.numbers()
        if len(there) < chains:
            raise ValueError(
                f"resume={str(self.path)!r} holds {len(there)} of {chains} chains. Finish them "
                "first by the same call with keep= as before."
            )
        if not all(self.load(i).state for i in range(chains)):
            raise ValueError(
                f"resume={str(self.path)!r} has no state from which its chains can continue: that "
                "of a step method could not be pickled. Draw longer chains from the start."
            )

    def _of(self, number: int) -> Path:
        return self.path / f"chain-{number}"


def settings_of(kept: StoredChains | None, before: StoredChains | None) -> dict[str, Any]:
    """Return the settings of the folder ``resume``, or of the folder ``keep``."""
    if before is None:
        return (kept.settings if kept is not None else None) or {}
    settings = before.settings
    if settings is None:
        raise ValueError(
            f"resume={str(before.path)!r} holds no chains: name a folder that keep= has filled."
        )
    return settings


def compare(asked: Mapping[str, Any], found: Mapping[str, Any], folder: str) -> None:
    """Raise an error if the chains of two studies would be mixed."""
    asked = json.loads(json.dumps(asked))
    for name in asked:
        if asked[name] == found.get(name):
            continue
        short = name in ("draws", "tune", "chains")
        change = f"{name} was {found.get(name)} and is {asked[name]}" if short else name
        raise ValueError(
            f"{folder} holds chains of other settings ({change}). Write the same again, or name "
            "another folder."
        )


def _plain(group: xr.Dataset) -> xr.Dataset:
    """Convert a dataset to types that netCDF 3 has, and store the original types."""
    variables = {}
    for name, variable in group.variables.items():
        values, dtype = np.asarray(variable.values), variable.dtype
        if dtype.kind in "bui":
            narrow = values.astype(np.int32)
            values = narrow if np.array_equal(narrow, values) else values.astype(np.float64)
        # Labels that are strings are read as objects.
        kept = {DTYPE: dtype.str} if dtype.kind in "buiU" else {}
        variables[name] = xr.Variable(variable.dims, values, variable.attrs | kept)
    plain = xr.Dataset(variables, attrs={ATTRIBUTES: json.dumps(as_json(group.attrs))})
    return plain.set_coords(list(group.coords))


def _as_it_was(path: Path) -> xr.Dataset:
    found = xr.load_dataset(path, engine="scipy")
    variables = {}
    for name, variable in found.variables.items():
        attrs = dict(variable.attrs)
        dtype = attrs.pop(DTYPE, None)
        values = variable.values if dtype is None else variable.values.astype(np.dtype(dtype))
        variables[name] = xr.Variable(variable.dims, values, attrs)
    attributes = json.loads(found.attrs[ATTRIBUTES])
    return xr.Dataset(variables, attrs=attributes).set_coords(list(found.coords))


def as_json(value: Any) -> Any:
    """Convert NumPy numbers, arrays and tuples to JSON."""
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_json(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def rng_state(stored: list[Any]) -> RandomGeneratorState:
    """Read the state of a generator that `as_json` has written."""
    bits, seeds = stored
    return RandomGeneratorState(bits, seeds | {"spawn_key": tuple(seeds["spawn_key"])})
