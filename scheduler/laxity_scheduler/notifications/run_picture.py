"""One picture per MLflow run, kept current: epochs predicted and measured, finish and deadline.

It is drawn from what MLflow has, in the outbox's thread. So it has the points of workers and of
earlier services, and no training waits for it.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from laxity import names
from laxity.human_time import format_seconds

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG = logging.getLogger(__name__)
FILE: Final = "laxity.svg"
LEAST_PAUSE_S: Final = 10.0
PAUSE_RATIO: Final = 20.0  # of a pause to the time that the picture before it took
FAILED_PAUSE_S: Final = 600.0
MOST_POINTS: Final = 300  # of a series; more are thinned out
WIDTH, PLOT_HEIGHT, LEFT, RIGHT = 720, 150, 80, 20
SERIES: Final = (
    names.EPOCH_ACTUAL, names.EPOCH_P50, names.EPOCH_P90,
    names.FINISH_P50, names.FINISH_P90, names.FINISH_DEADLINE, names.FINAL_ACTUAL,
)  # fmt: skip
STYLE: Final = (
    "svg{background:#fff;font:12px sans-serif}text{fill:#333}.t{font-size:14px;font-weight:700}"
    ".band{fill:#9ecae1;opacity:.6}.p50{fill:none;stroke:#17609f;stroke-width:2}"
    ".dl{fill:none;stroke:#b3261e;stroke-width:2;stroke-dasharray:6 3}.axis{stroke:#999}"
    ".dot{fill:#1a1c20}@media(prefers-color-scheme:dark){svg{background:#14161a}text{fill:#ddd}"
    ".dot{fill:#e6e8eb}}"
)
Points = Sequence[tuple[int, float]]  # (epoch, seconds), one per epoch, in order


class RunPictures:
    """Draws a run's picture at most every ten seconds, and always at its end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: dict[str, float] = {}

    def update(
        self, client: "MlflowClient", run_id: str, title: str, epochs: int, *, is_last: bool
    ) -> None:
        """Draw it anew if it is due. A store that takes no artifacts is tried again later."""
        began = self._clock()
        if began < self._due_at.get(run_id, began) and not is_last:
            return
        try:
            check_artifact_folder(client, run_id)
            series = {name: read_series(client, run_id, name) for name in SERIES}
            client.log_text(run_id, draw_run(series, title, epochs), FILE)
        except Exception as error:  # noqa: BLE001 - whatever the store raises, the run is told the rest
            LOG.warning("MLflow takes no picture of run %s: %s", run_id, error)
            self._due_at[run_id] = began + FAILED_PAUSE_S
        else:
            ended = self._clock()
            self._due_at[run_id] = ended + max(LEAST_PAUSE_S, PAUSE_RATIO * (ended - began))
        if is_last:
            del self._due_at[run_id]


def check_artifact_folder(client: "MlflowClient", run_id: str) -> None:
    """ValueError if the server keeps artifacts in a folder of its own machine, not through itself."""
    folder = client.get_run(run_id).info.artifact_uri or ""
    if client.tracking_uri.startswith("http") and folder.startswith(("/", ".", "file:")):
        raise ValueError(
            f"the server does not take artifacts for {folder}: start it with --serve-artifacts"
        )


def read_series(client: "MlflowClient", run_id: str, name: str) -> Points:
    """The finite values of a metric; of several at one step the last one counts."""
    history = client.get_metric_history(run_id, name)
    return sorted({p.step: p.value for p in history if math.isfinite(p.value)}.items())


PLOTS: Final = {
    "Seconds per epoch: P50, P90 band, measured (dots)": (
        names.EPOCH_P50, names.EPOCH_P90, "", names.EPOCH_ACTUAL,
    ),
    "Finish after submission: P50, P90 band, deadline (dashed), actual (dot)": (
        names.FINISH_P50, names.FINISH_P90, names.FINISH_DEADLINE, names.FINAL_ACTUAL,
    ),
}  # fmt: skip


def draw_run(series: Mapping[str, Points], title: str, epochs: int) -> str:
    """An SVG with the plots that have points. `series` are seconds by names of MLflow metrics."""
    last = max([1, epochs, *(points[-1][0] for points in series.values() if points)])
    plots = {text: shown for text, shown in PLOTS.items() if any(map(series.get, shown))}
    height = 40 + 205 * len(plots)
    drawn = [
        element
        for number, (text, shown) in enumerate(plots.items())
        for element in _plot(text, 60 + 205 * number, last, series, shown)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<text class="t" x="10" y="22">{escape(title[:100])}</text>',
            *drawn,
            f'<text x="{LEFT}" y="{height - 10}">epoch 1 to {last}</text></svg>\n',
        ]
    )


def _plot(
    title: str, top: int, last: int, series: Mapping[str, Points], shown: tuple[str, ...]
) -> Iterator[str]:
    p50, p90, deadline, actual = (thin(series.get(name, ())) for name in shown)
    values = [value for points in (p50, p90, deadline, actual) for _, value in points]
    most = 1.05 * max(values, default=0.0) or 1.0
    bottom = top + PLOT_HEIGHT

    def place(point: tuple[int, float]) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (point[0] - 1) / max(1, last - 1)
        return f"{x:.1f},{bottom - PLOT_HEIGHT * max(0.0, point[1]) / most:.1f}"

    def line(kind: str, points: Points) -> str:
        return f'<polyline class="{kind}" points="{" ".join(map(place, points))}"/>'

    yield f'<text x="10" y="{top - 10}">{title}</text>'
    yield f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>'
    yield f'<text x="10" y="{top + 10}">{format_seconds(most)}</text><text x="10" y="{bottom}">0</text>'
    if p50 and p90:
        yield f'<polygon class="band" points="{" ".join(map(place, [*p90, *reversed(p50)]))}"/>'
        yield line("p50", p50)
    if deadline:
        yield line("dl", [*deadline, (last, deadline[-1][1])])
    for point in actual:
        x, y = place(point).split(",")
        yield f'<circle cx="{x}" cy="{y}" r="3" class="dot"/>'


def thin(points: Points) -> Points:
    """At most about MOST_POINTS of them, the last one always."""
    step = math.ceil(len(points) / MOST_POINTS)
    return [*points[: -1 : max(1, step)], *points[-1:]]
