"""The commands of this floor: serve, up, down, replay. Nothing heavy is imported before one runs."""

import os
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import FAILED, NOT_FOUND, USAGE, CommandError
from laxity.cli.job_names import completing
from laxity.safe_text import without_secrets
from laxity_scheduler.process.logs import Format, Level


def _policy_names() -> list[str]:
    from laxity_scheduler.policies.registry import REGISTRY

    return list(REGISTRY)


HomeDir = Annotated[
    Path | None,
    typer.Option("--home", envvar="LAXITY_HOME", help="Folder of the service. [~/.laxity]"),
]
World = Annotated[
    str,
    typer.Option(
        help="Where jobs run: local or kubernetes.",
        autocompletion=completing(lambda: ("local", "kubernetes")),
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="Workers at a time on this machine; with fewer GPUs they share them. [its GPUs, else its cores]",
    ),
]
InferenceSlots = Annotated[
    int,
    typer.Option(
        min=0,
        max=4096,
        help="More slots on this machine, of an inference process that lends them: POST /v1/loans.",
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Address to listen on. Beyond loopback a token is needed.")]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="LAXITY_STORE",
        help="sqlite:///PATH or postgresql://... [HOME/laxity.db]",
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        envvar="LAXITY_POLICY",
        help="Who decides: qos, qos:predictability=0.5, elasticflow, edf ...; laxity policies lists them.",
        autocompletion=completing(_policy_names),
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        envvar="LAXITY_TOKENS_FILE",
        help="File of tokens: TOKEN NAMESPACE... a line.",
    ),
]
Tracking = Annotated[
    str,
    typer.Option(
        envvar="MLFLOW_TRACKING_URI", help="MLflow store; none: log to none. [HOME/mlflow.db]"
    ),
]
Webhook = Annotated[
    str, typer.Option(envvar="LAXITY_WEBHOOK", help="Address that events are posted to.")
]
PrefectUrl = Annotated[
    str,
    typer.Option(
        "--prefect-api",
        envvar="PREFECT_API_URL",
        help="Prefect API that is told of flow runs which are Jobs (work pools on Kubernetes).",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        envvar="LAXITY_BUDGETS",
        metavar="NAMESPACE=GPU_HOURS",
        help="GPU-hours that may be promised; repeatable. The variable takes several, by spaces.",
    ),
]
PublicUrl = Annotated[
    str, typer.Option(envvar="LAXITY_PUBLIC_URL", help="Address that workers are given.")
]
EmbedOrigins = Annotated[
    str,
    typer.Option(
        envvar="LAXITY_EMBED_ORIGINS",
        metavar="ORIGIN...",
        help="Origins that may show the page in a frame, by spaces: https://grafana.example.com",
    ),
]
KeptCycles = Annotated[int, typer.Option(min=100, help="Cycles that the journal keeps.")]
KeptMb = Annotated[int, typer.Option(min=10, help="MB that these cycles may take; the oldest go.")]
LeaseS = Annotated[
    float,
    typer.Option(
        min=1.0, envvar="LAXITY_LEASE_S", help="Silence after which another service takes over."
    ),
]
PodsWithinS = Annotated[
    float,
    typer.Option(
        min=1.0,
        envvar="LAXITY_PODS_WITHIN_S",
        help="Time for all pods of a job to run, images pulled, before it is made narrower or stopped.",
    ),
]
Pools = Annotated[
    str,
    typer.Option(
        envvar="LAXITY_POOLS",
        metavar="YAML",
        help="Pools of nodes that an autoscaler adds, as YAML: see docs/kubernetes/autoscaler.md.",
    ),
]

LogFormat = Annotated[
    Format, typer.Option(envvar="LAXITY_LOG_FORMAT", help="Form of the log on stderr.")
]
LogLevel = Annotated[
    Level, typer.Option(envvar="LAXITY_LOG_LEVEL", help="Least level that is logged.")
]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command()(serve)
    app.command()(up)
    app.command()(down)
    app.command()(replay)
    app.command()(policies)


def serve(
    *,
    home: HomeDir = None,
    world: World = "local",
    slots: Slots = None,
    inference_slots: InferenceSlots = 0,
    host: Host = "127.0.0.1",
    port: Port = 8642,
    store: StoreUrl = "",
    policy: PolicyName = "qos",
    tokens: TokensFile = None,
    tracking_uri: Tracking = "",
    webhook: Webhook = "",
    prefect_api: PrefectUrl = "",
    budget: Budgets = None,
    public_url: PublicUrl = "",
    embed_origins: EmbedOrigins = "",
    kept_cycles: KeptCycles = 20_000,
    kept_mb: KeptMb = 500,
    lease_s: LeaseS = 15.0,
    pods_within_s: PodsWithinS = 60.0,
    pools: Pools = "",
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Run the service in the foreground."""
    from laxity_scheduler.http.tokens import TokensError
    from laxity_scheduler.process.serve import serve_forever
    from laxity_scheduler.service.settings import Settings, SettingsError, parse_budgets

    try:
        settings = Settings(
            **_home_setting(home), world=world, slots=slots, inference_slots=inference_slots, host=host,
            port=port, store=store, policy=policy, tracking_uri=tracking_uri,
            webhook=webhook, prefect_api=prefect_api, budgets=parse_budgets(budget or []),
            public_url=public_url, embed_origins=embed_origins, kept_cycles=kept_cycles, kept_mb=kept_mb,
            lease_s=lease_s, pods_within_s=pods_within_s, pools=pools, log_format=log_format, log_level=log_level,
        )  # fmt: skip
        serve_forever(settings, tokens)
    except (SettingsError, TokensError) as error:
        raise CommandError(str(error), code=USAGE) from error
    except sqlite3.Error as error:  # the disk is full, or read-only
        raise CommandError(f"{settings.home}: {error}", code=FAILED) from error
    except RuntimeError as error:
        raise CommandError(str(error), code=FAILED) from error


def up(
    context: typer.Context,
    *,
    home: HomeDir = None,
    world: World = "local",
    slots: Slots = None,
    inference_slots: InferenceSlots = 0,
    host: Host = "127.0.0.1",
    port: Port = 8642,
    store: StoreUrl = "",
    policy: PolicyName = "qos",
    tokens: TokensFile = None,
    tracking_uri: Tracking = "",
    webhook: Webhook = "",
    budget: Budgets = None,
    public_url: PublicUrl = "",
    kept_cycles: KeptCycles = 20_000,
    kept_mb: KeptMb = 500,
) -> None:
    """Start the service in the background, and wait until it is ready."""
    from laxity_scheduler.process import daemon
    from laxity_scheduler.process.instance_dir import InstanceDirError
    from laxity_scheduler.process.tracking_links import tracking_lines
    from laxity_scheduler.service.settings import Settings

    if not sys.platform.startswith("linux"):
        message = f"laxity up needs Linux, this is {sys.platform}: use a service elsewhere (--url)"
        raise CommandError(message, code=FAILED)
    place = _instance_dir(home)
    try:
        running = daemon.await_settled(place)
    except daemon.DaemonError as error:
        raise CommandError(str(error), code=FAILED) from error
    if running is not None:
        typer.echo(f"already up: {without_secrets(running.url)} (process {running.pid})")
        if _options_on_command_line(context) - {"home"}:
            typer.echo("its options stay as they are; others count after: laxity down", err=True)
        return
    options = {
        "--world": world, "--slots": slots, "--inference-slots": inference_slots, "--host": host, "--port": port, "--policy": policy,
        "--tokens": tokens and tokens.absolute(), "--kept-cycles": kept_cycles, "--kept-mb": kept_mb,
    }  # fmt: skip
    # Addresses may hold passwords, and everybody on this machine can read a command line.
    addresses = {
        "LAXITY_STORE": store, "MLFLOW_TRACKING_URI": tracking_uri, "LAXITY_WEBHOOK": webhook, "LAXITY_PUBLIC_URL": public_url,
    }  # fmt: skip
    arguments = [text for name, value in options.items() if value for text in (name, str(value))]
    arguments += ["--port", "0"] if port == 0 else []
    arguments += [text for value in budget or [] for text in ("--budget", value)]
    try:
        running = daemon.start_service(place, arguments, addresses)
    except (daemon.DaemonError, InstanceDirError) as error:
        code = USAGE if getattr(error, "code", FAILED) == USAGE else FAILED
        raise CommandError(str(error), code=code) from error
    url = without_secrets(running.url)
    typer.echo(f"up: {url} (process {running.pid}, log {place.log_file})")
    typer.echo(f"page: {url}/ (laxity ui opens it signed in)")
    for line in tracking_lines(Settings(home=place.path, tracking_uri=tracking_uri).tracking_url):
        typer.echo(line, err=line.startswith("warning"))


def down(
    *,
    home: HomeDir = None,
    workers: Annotated[
        bool,
        typer.Option(
            "--workers/--keep-workers",
            help="Also stop the workers, after they saved; their jobs go on at the next up.",
        ),
    ] = True,
    world: World = "local",
) -> None:
    """Stop the service on this machine, and the workers of its jobs."""
    from laxity.human_time import count_noun
    from laxity_scheduler.process import daemon
    from laxity_scheduler.process.start import world_module
    from laxity_scheduler.service.settings import Settings, SettingsError

    try:
        world_module(world)
    except SettingsError as error:
        raise CommandError(str(error), code=USAGE) from error
    if not Settings(**_home_setting(home)).home.exists():
        typer.echo("no service was up")
        return
    place = _instance_dir(home)
    try:
        running = daemon.stop_service(place)
    except daemon.DaemonError as error:
        raise CommandError(str(error), code=FAILED) from error
    typer.echo("down" if running else "no service was up")
    stopped = _stop_workers(world, place.path) if workers else 0
    if stopped:
        typer.echo(
            f"{count_noun(stopped, 'worker')} stopped; their jobs go on at the next: laxity up"
        )


def replay(
    *,
    home: HomeDir = None,
    store: StoreUrl = "",
    first: Annotated[int, typer.Option("--from", min=0, help="First cycle.")] = 0,
    last: Annotated[int | None, typer.Option("--until", min=0, help="Last cycle.")] = None,
    policy: Annotated[str, typer.Option(help="What would this policy have decided?")] = "",
    gain: Annotated[
        bool, typer.Option("--gain", help="How much more would its widths have trained?")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """Decide every journalled cycle again, and compare byte for byte."""
    from laxity_scheduler.process.open_policies import models_of
    from laxity_scheduler.process.replay_report import ReplayRange, report_gain, report_replay
    from laxity_scheduler.service.settings import Settings, SettingsError

    if gain and not policy:
        raise CommandError("--gain is of a policy: name it with --policy", code=USAGE)
    if last is not None and last < first:
        raise CommandError(f"--until {last} comes before --from {first}", code=USAGE)
    settings = Settings(
        **_home_setting(home), store=store, tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", "")
    )
    url = settings.store_url
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.exists():
        raise CommandError(f"there is no journal at {path}", code=NOT_FOUND)
    try:
        report = report_gain if gain else report_replay
        cycles = ReplayRange(url, models_of(settings), first, last)
        code = report(cycles, policy=policy, as_json=as_json)
    except SettingsError as error:
        raise CommandError(str(error), code=USAGE) from error
    except RuntimeError as error:
        raise CommandError(str(error), code=FAILED) from error
    raise typer.Exit(code)


def policies(
    *, as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False
) -> None:
    """List the policies: what each does, by which paper, and whether it promises deadlines."""
    import json

    from laxity_scheduler.process.policy_table import policy_rows, policy_table

    if as_json:
        typer.echo(json.dumps({"policies": policy_rows()}))
        return
    from laxity.cli.render.job_table import console

    console().print(policy_table())


def _options_on_command_line(context: typer.Context) -> set[str]:
    """The options that were typed, and not left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _home_setting(home: Path | None) -> dict[str, Any]:
    return {} if home is None else {"home": home.absolute()}


def _instance_dir(home: Path | None) -> Any:
    from laxity_scheduler.process.instance_dir import InstanceDir
    from laxity_scheduler.service.settings import Settings

    return InstanceDir(Settings(**_home_setting(home)).home)


def _stop_workers(world: str, home: Path) -> int:
    from laxity_scheduler.process.start import world_module

    os.environ.setdefault("LAXITY_HOME", str(home))
    return world_module(world).stop_workers(home)
