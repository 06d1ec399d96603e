"""Priors without derivatives in theta."""

from __future__ import annotations

from typing import Any

__all__ = ["WithoutSlopes"]


class WithoutSlopes:
    """Verbs that nobody asks for where ``model.has_theta_gradient`` is false."""

    def _refuse(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")

    log_density_gradient = log_density_geometry = _refuse
    whitened_gradient = whitened_jacobian = evidence_gradient = _refuse
