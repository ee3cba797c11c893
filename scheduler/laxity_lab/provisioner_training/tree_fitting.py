"""Trees are fitted by scikit-learn, which this module alone imports, and kept as plain arrays.

Boosting runs in one thread: its loops are short, and threads that wait for one another on a busy
machine take a hundred times as long.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from threadpoolctl import threadpool_limits

from laxity_lab.provisioner_training.fitted_trees import TreeNodes, join_trees
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.trees import Trees

FOREST_TREES: Final = 100
BINS: Final = 63  # of a feature; with few samples most of the time goes into looking through bins
Rows = NDArray[np.floating]


def fit_forest(rows: Rows, values: Floats, seed: int) -> Trees:
    """Mirage's random forest of 100 trees, but a third of the features at each split.

    scikit-learn's default, all of them, takes three times as long. With the square root of them a
    split seldom sees how long the predecessor ran, which decides most.
    """
    forest = RandomForestRegressor(n_estimators=FOREST_TREES, max_features=1 / 3, random_state=seed)
    forest.fit(rows, values)
    trees = [tree.tree_ for tree in forest.estimators_]
    return join_trees(
        [
            TreeNodes(
                tree.feature,
                tree.threshold,
                tree.children_left,
                tree.children_right,
                tree.value[:, 0, 0] / len(trees),
            )
            for tree in trees
        ],
        base=0.0,
    )


def fit_boosting(rows: Rows, values: Floats, seed: int) -> Trees:
    """Gradient boosting on squared errors, scikit-learn's defaults but for fewer bins."""
    return boost(HistGradientBoostingRegressor(max_bins=BINS, random_state=seed), rows, values)


def fit_quantile(rows: Rows, values: Floats, level: float, seed: int) -> Trees:
    """Gradient boosting on a quantile; leaves are large, since neighbouring samples are alike."""
    model = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=level,
        learning_rate=0.05,
        max_leaf_nodes=15,
        min_samples_leaf=40,
        max_bins=BINS,
        random_state=seed,
    )
    return boost(model, rows, values)


def boost(model: Any, rows: Rows, values: Floats) -> Trees:
    with threadpool_limits(1, user_api="openmp"):
        return read_boosted_trees(model.fit(rows, values))


def read_boosted_trees(model: Any) -> Trees:
    """The fitted trees; scikit-learn has no public way to them, so a test compares predictions."""
    tables = [predictor.nodes for (predictor,) in model._predictors]  # noqa: SLF001
    base = float(np.ravel(model._baseline_prediction)[0])  # noqa: SLF001
    return join_trees([read_boosted_nodes(table) for table in tables], base)


def read_boosted_nodes(table: Any) -> TreeNodes:
    leaf = table["is_leaf"].astype(bool)
    return TreeNodes(
        table["feature_idx"].astype(np.int64),
        table["num_threshold"],
        np.where(leaf, -1, table["left"].astype(np.int64)),
        np.where(leaf, -1, table["right"].astype(np.int64)),
        table["value"],
    )
