"""What stops and starts cost, as MLflow serves it: models and widths in, quantiles of seconds out.

MLflow keeps a copy of this page beside the fit (models from code) and runs it when the model is
loaded, which needs laxity to be installed there.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from laxity_profiler.estimate import Workload
from laxity_profiler.overhead.costs import StopCosts
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_profiler.registry.entry import QUANTILES


class ServedCosts(PythonModel):
    """Columns in: model, the key of a history, and if wanted workers (1).

    Columns out, of suspend and of resume: p10_s, p50_s, mean_s, p90_s, and what they rest on.
    """

    def load_context(self, context: PythonModelContext) -> None:
        text = Path(context.artifacts["fit"]).read_text(encoding="utf-8")
        self.predictor = HistoryPredictor(costs=StopCosts.from_json(json.loads(text)["costs"]))

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        rows = [self._row(row) for row in model_input.to_dict("records")]
        return pd.DataFrame(rows, index=model_input.index)

    def _row(self, row: dict[Any, Any]) -> dict[str, Any]:
        workload, workers = Workload(str(row["model"]), 1), int(row.get("workers", 1))
        columns: dict[str, Any] = {}
        for side, estimate in (
            ("suspend", self.predictor.suspend_cost(workload, workers)),
            ("resume", self.predictor.resume_cost(workload, workers)),
        ):
            columns |= {f"{side}_{name}": getattr(estimate, name) for name in QUANTILES}
            columns[f"{side}_source"] = estimate.source
        return columns


set_model(ServedCosts())
