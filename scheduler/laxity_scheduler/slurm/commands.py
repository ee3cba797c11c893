"""`laxity chain`: a training longer than a cluster's time limit, as a chain of its jobs."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from laxity.cli.exit_codes import (
    FAILED,
    OK,
    UNFINISHED,
    USAGE,
    CommandError,
    interrupt_on_sigterm,
)
from laxity.cli.job_names import completing
from laxity_scheduler.chains.choices import METHODS_WITHOUT_MODEL, check_choice
from laxity_scheduler.chains.options import PricesOption, duration_s

if TYPE_CHECKING:
    from laxity_scheduler.following.chain_loop import ChainOptions
    from laxity_scheduler.following.chain_state import ChainState, LinkRecord
    from laxity_scheduler.following.link_queue import LinkQueue
    from laxity_scheduler.following.successor_timing import LearnedTiming

    OpenQueue = Callable[[Path, Path, float], AbstractContextManager[tuple[ChainState, LinkQueue]]]

EQUAL: Final = "1:1"  # prices
METHOD_NAMES: Final = tuple(name for name in METHODS_WITHOUT_MODEL if name != "average")
SHOWN_EVENTS: Final = 10
MANIFEST_ENDINGS: Final = (".yaml", ".yml", ".json")

ScriptArgument = Annotated[
    Path,
    typer.Argument(metavar="SCRIPT", help="What each link runs: a batch script, or a Job's .yaml."),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(help="The chain's folder, on the shared file system. [SCRIPT with .chain]"),
]
MethodOption = Annotated[
    str,
    typer.Option(
        help=f"When to submit the successor: {', '.join(METHOD_NAMES)}.",
        autocompletion=completing(lambda: METHOD_NAMES),
    ),
]
LinksOption = Annotated[int, typer.Option(min=0, help="At most so many links; 0: no cap.")]
LimitOption = Annotated[str, typer.Option(help="Time limit of each link. [the script's own]")]
IntervalOption = Annotated[str, typer.Option(help="From one decision to the next.")]
ModelOption = Annotated[
    Path | None, typer.Option(help="A file of `laxity train provisioner`: it decides.")
]
StatusOption = Annotated[bool, typer.Option("--status", help="Show how far the chain is.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("chain")(chain)


def chain(
    script: ScriptArgument,
    *,
    folder: FolderOption = None,
    method: MethodOption = "average_now",
    links: LinksOption = 0,
    wall_limit: LimitOption = "",
    interval: IntervalOption = "10m",
    model: ModelOption = None,
    prices: PricesOption = EQUAL,
    status: StatusOption = False,
) -> None:
    """Run a batch script on Slurm, or a Job, again and again, as the links of a chain.

    Each link goes on from the checkpoint of the one before; --method says when it is submitted. A
    script writes $LAXITY_CHAIN_FOLDER/done when it is done; a Job ends with exit code 0 when it is
    done, and with 7 when it is to go on.
    Run the same command again to follow a chain that was left.
    """
    from laxity_scheduler.following.chain_loop import ChainOptions

    place = (folder or script.with_suffix(".chain")).absolute()
    try:
        if status:
            show(chain_in(place))
            return
        check_choice(method, METHOD_NAMES, "unknown method")
        interval_s = duration_s(interval, "--interval")
        limit_s = duration_s(wall_limit, "--wall-limit") if wall_limit else 0.0
        options = ChainOptions(method, interval_s, links, load_timing(model, prices, interval_s))
        check_pair(script, limit_s, options)
        state = follow_chain(script, place, limit_s, options)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    raise typer.Exit(end_words(state))


def chain_in(folder: Path) -> "ChainState":
    """ValueError if no chain was begun in this folder."""
    from laxity_scheduler.following.chain_state import load_chain

    state = load_chain(folder)
    if state is None:
        raise ValueError(f"no chain in {folder}")
    return state


def load_timing(model: Path | None, prices: str, interval_s: float) -> "LearnedTiming | None":
    """ValueError if the file is no model, or snapshots are not taken as it was trained on them."""
    from laxity_scheduler.chains.features import DECIDE_EVERY_S
    from laxity_scheduler.chains.model_file import load_provisioner
    from laxity_scheduler.chains.prices import Prices
    from laxity_scheduler.following.successor_timing import LearnedTiming

    chosen = Prices.parse(prices)
    if model is None:
        if prices != EQUAL:
            raise ValueError("--prices is for a learned model: give one with --model")
        return None
    if interval_s != DECIDE_EVERY_S:
        raise ValueError(f"--model decides every {DECIDE_EVERY_S / 60:g}m: leave --interval away")
    return LearnedTiming(load_provisioner(model), chosen)


def check_pair(script: Path, limit_s: float, options: "ChainOptions") -> None:
    """ValueError if the method or the model is for other jobs than the script says that it submits.

    What the script leaves open is known once its first link is in the queue, and checked there.
    """
    from laxity_scheduler.following.chain_folder import read_script
    from laxity_scheduler.slurm.link_script import read_directives
    from laxity_scheduler.slurm.script_shape import read_shape
    from laxity_scheduler.slurm.slurm_queue import whole_minutes

    if is_manifest(script):
        if options.method == "slurm_estimate":
            raise ValueError("--method slurm_estimate: Kubernetes plans no start: use average_now")
        return
    if options.learned is None:
        return
    _, directives = read_script(script, read_directives)
    shape = read_shape(directives, os.environ)
    model = options.learned.provisioner
    limit_s = 60.0 * whole_minutes(limit_s) or shape.limit_s or model.limit_s
    model.check_pair(shape.nodes or model.pair_nodes, limit_s, "--model")


@interrupt_on_sigterm()
def follow_chain(
    script: Path, folder: Path, limit_s: float, options: "ChainOptions"
) -> "ChainState":
    """Follow the chain to its end. ValueError for what the user can mend."""
    from laxity_scheduler.following.chain_loop import ChainLoop
    from laxity_scheduler.following.link_queue import NoQueueError, QueueError
    from laxity_scheduler.slurm.slurm_queue import open_slurm_queue

    open_queue = job_queue_opener() if is_manifest(script) else open_slurm_queue
    try:
        with open_queue(script, folder, limit_s) as (state, queue), tell_what_goes_on(state):
            ChainLoop(state, folder, queue, options, typer.echo).run()
            return state
    except NoQueueError as error:
        raise ValueError(str(error)) from error
    except QueueError as error:
        raise CommandError(str(error), code=FAILED) from error


@contextmanager
def tell_what_goes_on(state: "ChainState") -> Iterator[None]:
    """On SIGINT and SIGTERM."""
    try:
        yield
    except KeyboardInterrupt:
        links = [describe_link(link) for link in state.active] or ["no link waits or runs"]
        message = (
            f"stopped following chain {state.chain_id}: {', '.join(links)}; no further link is "
            "submitted until you run the same command again"
        )
        typer.echo(message, err=True)
        raise


def is_manifest(script: Path) -> bool:
    """Whether links are Jobs of a Kubernetes cluster."""
    return script.suffix in MANIFEST_ENDINGS


def job_queue_opener() -> "OpenQueue":
    """The Kubernetes floor's own. ValueError where it is not installed."""
    from importlib.metadata import entry_points

    try:
        (entry,) = entry_points(group="laxity.link_queues", name="kubernetes")
        opener: OpenQueue = entry.load()
    except (ValueError, ModuleNotFoundError) as error:
        raise ValueError(
            "chains of Jobs are not installed here: pip install '.[kubernetes]' in laxity's clone"
        ) from error
    return opener


def show(state: "ChainState") -> None:
    """What happened last, then where the chain stands."""
    from laxity.instants import format_rfc3339

    for event in state.events[-SHOWN_EVENTS:]:
        typer.echo(f"{format_rfc3339(event.at, 'seconds')}  link {event.link}: {event.reason}")
    if state.ended:
        end_words(state)
        return
    if not state.events and not state.active:
        typer.echo("no link was submitted yet")
    for link in state.active:
        typer.echo(describe_link(link))


def describe_link(link: "LinkRecord") -> str:
    doing = "waits" if link.started_at is None else "runs"
    doing += f": {link.waits_for}" if link.waits_for else ""
    return f"link {link.seq}: job {link.job_id} {doing}"


def end_words(state: "ChainState") -> int:
    """Say how the chain ended, and the exit code for that."""
    from laxity_scheduler.following.chain_state import CAPPED, DONE

    code = {DONE: OK, CAPPED: UNFINISHED}.get(state.ended, FAILED)
    typer.echo(f"chain {state.chain_id} {state.ended}: {state.reason}", err=code == FAILED)
    return code
