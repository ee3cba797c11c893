"""`laxity train provisioner`: learn from a cluster's own queue log when to submit a successor."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from laxity.cli.exit_codes import AWAY, FAILED, USAGE, CommandError
from laxity.cli.job_names import completing
from laxity.cli.lazy_commands import WholeHelpGroup
from laxity_lab.batch_queue.commands import (
    FormatOption,
    JsonOption,
    LimitOption,
    NodesOption,
    PairNodesOption,
    StartOption,
    StartsOption,
    TraceOption,
    TrackingOption,
    WarmUpOption,
    pair_settings,
    read_log,
    say_log,
)
from laxity_lab.policy_training.registry_commands import (
    promote,
    tracking_store,
    versions,
)
from laxity_lab.policy_training.train_policy_command import policy
from laxity_scheduler.chains.choices import (
    BASES,
    CALIBRATED,
    MODELS,
    NETWORKS,
    POLICIES,
    check_choice,
)

if TYPE_CHECKING:
    from laxity_lab.batch_queue.queue_log import QueueLog
    from laxity_lab.batch_queue.successor import PairSettings
    from laxity_lab.provisioner_training.samples import Samples
    from laxity_lab.provisioner_training.train_model import Fitted
    from laxity_scheduler.chains.model_file import Provisioner
    from laxity_scheduler.chains.network_models import NetworkModel
    from laxity_scheduler.chains.prices import Prices

ModelOption = Annotated[
    str,
    typer.Option("--model", help=", ".join(MODELS), autocompletion=completing(lambda: MODELS)),
]
OutOption = Annotated[Path, typer.Option(help="The file to write.")]
UntilOption = Annotated[
    str, typer.Option(help="Learn from jobs submitted before this date. [the log's last quarter]")
]
FromOption = Annotated[str, typer.Option("--from", help="First start. [the log's first job]")]
SamplesOption = Annotated[
    Path | None,
    typer.Option(help="A file for the simulated samples: read if it is there, else written."),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the weeks held out, and of the model.")]
BaseOption = Annotated[
    Path | None,
    typer.Option(help="For transformer_pg and mixture_pg: the trained transformer or mixture."),
]
RegisterOption = Annotated[
    str,
    typer.Option("--register", help="Also register it in MLflow under this name, as its champion."),
]
PricesOption = Annotated[
    str,
    typer.Option(help="For policies: prices of an hour of interruption and of overlap, as 4:1."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        cls=WholeHelpGroup,
        help="Learn a policy, or when to submit the next job of a chain.",
        rich_markup_mode=None,
    )
    group.callback()(lambda: None)
    group.command("provisioner")(provisioner)
    group.command("policy")(policy)
    group.command("promote")(promote)
    group.command("versions")(versions)
    app.add_typer(group, name="train")


def provisioner(
    *,
    trace: TraceOption,
    out: OutOption,
    model: ModelOption = CALIBRATED,
    until: UntilOption = "",
    format_: FormatOption = "",
    from_at: FromOption = "",
    nodes: NodesOption = None,
    pair_nodes: PairNodesOption = 1,
    limit: LimitOption = "48h",
    starts: StartsOption = 4.0,
    warm_up: WarmUpOption = "2d",
    start: StartOption = "running",
    samples: SamplesOption = None,
    base: BaseOption = None,
    prices: PricesOption = "1:1",
    register_as: RegisterOption = "",
    tracking_uri: TrackingOption = "",
    seed: SeedOption = 42,
    json_: JsonOption = False,
) -> None:
    """Learn when to submit the successor of a chain; `laxity bench chains --model` measures it."""
    from laxity_lab.batch_queue import pair_bench
    from laxity_lab.traces.limits import window
    from laxity_scheduler.model.job import HOUR_S

    try:
        check_choice(model, MODELS, "unknown model")
        check_place(out)
        pricing = Pricing.of(model, base, prices)
        log = read_log(trace, format_)
        first_at, last_at = window(from_at, until)
        last_at = last_at if until else pair_bench.last_quarter_at(log, last_at)
        log = log.before(last_at)
        settings = pair_settings(log, nodes, pair_nodes, limit=limit, warm_up=warm_up, start=start)
        instants = pair_bench.start_instants(log, settings, HOUR_S * starts, first_at, last_at)
        say_log(log, settings)
        about = describe_training(log, settings, instants) | hourly(model)
        pricing.check_pair(settings)
        fitted = fit(model, make_samples(log, settings, instants, about, samples), seed, pricing)
        about |= {"seed": seed, **pricing.describe(), **describe_device(model)}
        write(model, fitted, settings, about, out)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}", code=FAILED) from error
    errors = fitted[1]
    if register_as:
        register_model(register_as, {"kind": model, **about}, errors, out, tracking_uri)
    lines = [f"{name:<24} {value:>10,.2f}" for name, value in errors.items()]
    typer.echo(json.dumps(errors) if json_ else "\n".join(["on weeks held out", *lines]))


def check_place(out: Path) -> None:
    """Before hours of work whose result could not be written."""
    if not out.absolute().parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a policy is trained for, and on which model; nothing for other kinds."""

    prices: "Prices | None" = None
    base: "Provisioner | None" = None

    @classmethod
    def of(cls, kind: str, base: Path | None, prices: str) -> "Pricing":
        """ValueError if the model it rests on is missing, or is another."""
        from laxity_scheduler.chains.model_file import load_provisioner
        from laxity_scheduler.chains.prices import Prices

        if kind not in POLICIES:
            return cls()
        if kind not in BASES:
            return cls(Prices.parse(prices))
        if base is None:
            raise ValueError(f"--model {kind} needs --base, a trained {BASES[kind]}")
        provisioner = load_provisioner(base)
        if provisioner.kind != BASES[kind]:
            raise ValueError(f"--base {base} is a {provisioner.kind}, not a {BASES[kind]}")
        return cls(Prices.parse(prices), provisioner)

    def check_pair(self, settings: "PairSettings") -> None:
        if self.base is not None:
            self.base.check_pair(settings.nodes, settings.limit_s, "--base")

    def describe(self) -> dict[str, Any]:
        if self.prices is None:
            return {}
        return {"prices": f"{self.prices.interruption:g}:{self.prices.overlap:g}"}


def hourly(kind: str) -> dict[str, Any]:
    """Policies learn from a probe each hour."""
    return {"probes": "hourly"} if kind in POLICIES else {}


def describe_device(kind: str) -> dict[str, Any]:
    """Where a network was trained."""
    if kind not in NETWORKS + POLICIES:
        return {}
    from laxity_lab.provisioner_training.torch_loop import device_name

    return {"device": device_name()}


def describe_training(
    log: "QueueLog", settings: "PairSettings", instants: list[float]
) -> dict[str, Any]:
    """What decides the samples."""
    return {
        "log": log.name,
        "jobs": len(log.jobs),
        "cluster_nodes": settings.cluster_nodes,
        "pair_nodes": settings.nodes,
        "limit_s": settings.limit_s,
        "warm_up_s": settings.warm_up_s,
        "start": settings.start,
        "starts": len(instants),
        "first_at": instants[0],
        "last_at": instants[-1],
    }


def make_samples(
    log: "QueueLog",
    settings: "PairSettings",
    instants: list[float],
    about: dict[str, Any],
    path: Path | None,
) -> "Samples":
    """From the user's file where there is one, else simulated."""
    from laxity_lab.provisioner_training.samples import (
        collect_samples,
        even_probes,
        hourly_probes,
        load_samples,
        save_samples,
    )

    if path is not None and path.exists():
        return load_samples(path, about)
    label = f"{len(instants)} starts"
    with typer.progressbar(instants, label=label, file=sys.stderr) as counted:
        probes = hourly_probes if "probes" in about else even_probes
        samples = collect_samples(log, settings, counted, probes)
    if path is not None:
        save_samples(samples, about, path)
    return samples


def fit(kind: str, samples: "Samples", seed: int, pricing: Pricing) -> "Fitted":
    """The model and its errors, with progress on stderr."""
    from laxity_lab.provisioner_training.train_model import steps_of, train_model, train_policy

    label = f"{kind} on {len(samples):,} samples"
    with typer.progressbar(length=steps_of(kind), label=label, file=sys.stderr) as bar:
        if pricing.prices is None:
            return train_model(kind, samples, seed, bar.update)
        base = cast("NetworkModel | None", pricing.base and pricing.base.model)
        return train_policy(samples, base, seed, bar.update, pricing.prices)


def register_model(
    name: str, about: dict[str, Any], errors: dict[str, float], out: Path, uri: str
) -> None:
    """A version in MLflow with what it was trained on and its errors; which one, on stderr."""
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.registered_files import ModelFile, register_file

    text = "When to submit the successor of a chained job: laxity bench chains --model."
    metrics = {f"held_out/{figure}": value for figure, value in errors.items()}
    file = ModelFile(name, out, text, about, metrics)
    try:
        published = register_file(tracking_store(uri), file)
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    typer.echo(f"registered as {name} version {published.version}, the champion", err=True)


def write(
    kind: str, fitted: "Fitted", settings: "PairSettings", about: dict[str, Any], out: Path
) -> None:
    from laxity_scheduler.chains.model_file import Provisioner, save_provisioner

    model, errors = fitted
    provisioner = Provisioner(kind, model, settings.nodes, settings.limit_s, about, errors)
    save_provisioner(provisioner, out)
