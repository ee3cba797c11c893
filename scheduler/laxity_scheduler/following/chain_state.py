"""What a chain has come to, in its folder: `chain.json`, replaced whole at each change."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from laxity.durable_files import replace_file

VERSION: Final = 1
DONE: Final = "complete"  # the training is done
CAPPED: Final = "capped"  # as many links as --links allows have ended
FAILED: Final = "failed"


@dataclass(slots=True)
class LinkRecord:
    """One place in the chain. Instants are the queue's own, in POSIX seconds.

    `refusals` counts the submissions that were refused. `outcome` is empty until the link has ended.
    """

    seq: int
    job_id: str = ""
    refusals: int = 0
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ends_by: float | None = None  # its start and its time limit, while it runs
    outcome: str = ""
    waits_for: str = ""  # why it has not started, in the queue's words
    lost_ids: list[str] = field(default_factory=list)  # jobs that left the queue unstarted


@dataclass(frozen=True, slots=True)
class ChainEvent:
    """What was decided about a link, and why."""

    at: float
    link: int
    reason: str


@dataclass(slots=True)
class ChainState:
    """`ended` is one of DONE, CAPPED, FAILED, or empty while the chain goes on."""

    chain_id: str
    submit_dir: str | None = None  # where the chain was begun: each link starts there
    links: list[LinkRecord] = field(default_factory=list)
    events: list[ChainEvent] = field(default_factory=list)
    ended: str = ""
    reason: str = ""
    namespace: str = ""  # of its Jobs, on Kubernetes

    @property
    def active(self) -> list[LinkRecord]:
        """Links that have a job which has not ended."""
        return [link for link in self.links if link.job_id and not link.outcome]

    def job_name(self, link: LinkRecord) -> str:
        """By which the queue tells whether this link was submitted."""
        return f"laxity-chain:{self.chain_id}:{link.seq}"

    def next_link(self) -> LinkRecord:
        """The link to submit: one that was refused or that was cancelled, else a new one."""
        if not self.links or self.links[-1].job_id:
            self.links.append(LinkRecord(len(self.links) + 1))
        return self.links[-1]


def save_chain(state: ChainState, folder: Path) -> None:
    content = {"version": VERSION, **asdict(state)}
    replace_file(folder / "chain.json", json.dumps(content, indent=1) + "\n")


def load_chain(folder: Path) -> ChainState | None:
    """The chain of this folder, None if none was begun. ValueError if the file is not ours."""
    path = folder / "chain.json"
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        advice = "move it away, or name another --folder"
        raise ValueError(f"{path} cannot be read ({error}): {advice}") from error


def _parse(content: dict[str, Any]) -> ChainState:
    if content.pop("version") != VERSION:
        raise ValueError("another version of laxity wrote it")
    content["links"] = [_parse_link(link) for link in content["links"]]
    content["events"] = [ChainEvent(**event) for event in content["events"]]
    return ChainState(**content)


def _parse_link(content: dict[str, Any]) -> LinkRecord:
    content.pop("tries", None)  # earlier files count the jobs, too
    return LinkRecord(**content)
