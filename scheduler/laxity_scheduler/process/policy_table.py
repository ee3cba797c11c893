"""The registered policies for people who choose one: what each does, by which source, and if it promises."""

from dataclasses import asdict, dataclass
from typing import Final, Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class PolicyText:
    """`promises`: it gives and keeps promises of deadlines, keeps those that there are, or knows none."""

    name: str
    promises: Literal["gives", "keeps", "none"]
    about: str
    source: str


QOS: Final = "QoS framework (IJCNN 2019)"
PICKYMAN: Final = "PickyMan (IPCCC 2022)"
BASELINE: Final = "baseline"
# fmt: off
POLICY_TEXTS: Final = (
    PolicyText("qos", "gives", "promises or refuses; sizes and stops jobs to keep promises", QOS),
    PolicyText("qos_open_to_all", "gives", "qos that refuses nobody", QOS),
    PolicyText("elasticflow", "gives", "least share of GPUs that meets each promise, then growth", "ElasticFlow (ASPLOS 2023)"),
    PolicyText("chronus", "none", "leases of 20 minutes for the most deadlines; resizes nobody", "Chronus (SoCC 2021)"),
    PolicyText("edf_elastic", "none", "earliest deadline first, on the fewest GPUs in time; then growth", BASELINE),
    PolicyText("edf", "none", "earliest deadline first, on the fewest workers in time", BASELINE),
    PolicyText("pickyman", "none", "stops jobs only where that saves more waiting than it causes", PICKYMAN),
    PolicyText("aryl", "none", "least widths, shortest first; a knapsack deals out the rest", "Aryl / Lyra (EuroSys 2023)"),
    PolicyText("optimus", "none", "each GPU goes where it cuts remaining time most", "Optimus (EuroSys 2018)"),
    PolicyText("pollux", "none", "widths of the best speed-ups over a fair share", "Pollux (OSDI 2021)"),
    PolicyText("learned", "keeps", "a trained net deals out widths; learned:FILE has other weights", "DL2 (TPDS 2021)"),
    PolicyText("drf", "none", "the next worker to whoever has the least share", "DRF (NSDI 2011)"),
    PolicyText("las", "none", "least attained GPU-time first, preemptive; predicts nothing", "Tiresias (NSDI 2019)"),
    PolicyText("srtf", "none", "shortest remaining time first, as if stops cost nothing", BASELINE),
    PolicyText("sjf", "none", "shortest job first, on its least width, never stopped", BASELINE),
    PolicyText("fifo", "none", "first in, first out, on the widest width that fits", BASELINE),
)
VARIANTS: Final = (  # of studies and of the guard of learned policies: nobody chooses one for a cluster
    PolicyText("pickyman_blind", "none", "pickyman without costs and limits of stops (ablation)", PICKYMAN),
    PolicyText("pickyman_unguarded", "none", "pickyman without limits of stops (ablation)", PICKYMAN),
    PolicyText("pickyman_zero", "none", "pickyman that believes stops cost nothing (ablation)", PICKYMAN),
    PolicyText("optimus_with_promises", "keeps", "optimus behind promises", "Optimus (EuroSys 2018)"),
    PolicyText("drf_with_promises", "keeps", "drf behind promises", "DRF (NSDI 2011)"),
)
# fmt: on
PROMISES: Final = {"gives": "gives", "keeps": "keeps", "none": "-"}
USE: Final = (
    "gives: promises deadlines and keeps them. keeps: gives none, keeps those there are.\n"
    "Decide by one with laxity up --policy NAME. Compare them with laxity simulate, where\n"
    "--admission greedy puts promises before any of them. With\n"
    "qos:predictability=P (0 to 1) fewer jobs overtake a best-effort one, and the finish\n"
    "that it is told is more accurate; the mean time to completion is longer.\n"
    "laxity policies --json also has the variants that studies compare."
)


def policy_rows() -> list[dict[str, str]]:
    """One per policy, as JSON."""
    return [asdict(text) for text in (*POLICY_TEXTS, *VARIANTS)]


def policy_table() -> Group:
    """A line per policy, and how to use one."""
    table = Table(box=None, pad_edge=False)
    for column in ("POLICY", "PROMISES", "WHAT IT DOES", "SOURCE"):
        table.add_column(column, no_wrap=column != "WHAT IT DOES")
    for text in POLICY_TEXTS:
        table.add_row(*map(Text, (text.name, PROMISES[text.promises], text.about, text.source)))
    return Group(table, Text(USE, style="dim"))
