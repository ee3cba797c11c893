"""One API server for all exams of this folder."""

from tests.contract.real_stage import control_plane, real_stage

__all__ = ["control_plane", "real_stage"]  # fixtures
