"""A fitted predictor as MLflow serves it: a table of questions in, quantiles of seconds out.

MLflow keeps a copy of this page beside the fit (models from code) and runs it when the model is
loaded, which needs laxity to be installed there.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from laxity_profiler.estimate import NO_PROGRESS, Ask, Workload
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor


class ServedPredictor(PythonModel):
    """Columns in: workers; if wanted epochs (1), batch_size and samples (those most trained with).

    Columns out: p10_s, p50_s, mean_s, p90_s of all the epochs together, and what it rests on.
    """

    def load_context(self, context: PythonModelContext) -> None:
        text = Path(context.artifacts["fit"]).read_text(encoding="utf-8")
        self.predictor = HistoryPredictor.from_json(json.loads(text))
        (self.fit,) = self.predictor.models
        usual = max(self.fit.settings, key=lambda setting: setting.n, default=None)
        self.usual = usual.setting if usual else WorkloadSetting()

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        asks = [self._ask(row) for row in model_input.to_dict("records")]
        estimates = self.predictor.table(asks)
        return pd.DataFrame(
            {
                "p10_s": estimates.p10_s,
                "p50_s": estimates.p50_s,
                "mean_s": estimates.mean_s,
                "p90_s": estimates.p90_s,
                "source": list(estimates.sources),
            },
            index=model_input.index,
        )

    def _ask(self, row: dict[Any, Any]) -> Ask:
        workload = Workload(
            self.fit.model,
            int(row.get("epochs", 1)),
            int(row["samples"]) if "samples" in row else self.usual.samples,
            int(row["batch_size"]) if "batch_size" in row else self.usual.batch_size,
            self.usual.dataset_bytes,
            self.usual.parameters,
            self.usual.gpu_type,
        )
        return Ask(workload, NO_PROGRESS, int(row["workers"]))


set_model(ServedPredictor())
