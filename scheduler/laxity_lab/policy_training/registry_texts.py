"""What MLflow's pages of a learned policy and of its versions say, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from laxity.human_time import count_noun


def describe_model(name: str) -> str:
    """What the registered model is, and what to do with its versions."""
    return (
        "A scheduling policy of laxity: how many workers each job gets.\n\n"
        f"- decide by the champion: `laxity up --policy models:/{name}@champion`\n"
        f"- what the newest would have gained: `laxity replay --gain --policy models:/{name}@challenger`\n"
        f"- compare versions: `laxity train versions {name}`\n"
        f"- promote a version, or roll back to one: `laxity train promote {name} VERSION`\n\n"
        "While a version decides, the service compares it with its teacher. Where it earns less, the "
        "teacher decides (docs/concepts/learned.md)."
    )


def describe_version(
    name: str, version: str, about: Mapping[str, Any], figures: Mapping[str, float]
) -> str:
    """What a version was trained on, how it does on what was held out, and how to promote it."""
    paragraphs = (
        " ".join(_origin_sentences(about, figures)),
        " ".join(_figure_sentences(figures)),
        f"To promote it: `laxity train promote {name} {version}`",
    )
    return "\n\n".join(filter(None, paragraphs))


def _origin_sentences(about: Mapping[str, Any], figures: Mapping[str, float]) -> Iterator[str]:
    """From which weights, whom it imitated on which data, how it got better; seed and teacher."""
    start = about.get("start")
    yield f"Trained on from {start}." if start else "Trained from random weights."
    if "tables" in about and "choices" in figures:
        yield f"It imitated {about['teacher']} in clusters simulated from the tables {about['tables']}."
    if "journal" in about:
        yield f"It imitated what decided in a service's journal, {about['journal']}."
    if about.get("improved_by", "none") != "none":
        data = f"the tables {about['tables']}" if "tables" in about else "the journal's own jobs"
        goal = {"jct": "completion times", "deadlines": "deadlines"}[about["reward"]]
        rounds = count_noun(int(figures["rounds"]), "round")
        yield f"Then {about['improved_by']} improved it for {goal}, {rounds} on {data}."
    yield f"Seed {about['seed']}."
    yield f"Its teacher, who decides where it is caught: {_name_teacher(about)}."


def _name_teacher(about: Mapping[str, Any]) -> str:
    """As the service chooses it: a net without a teacher is compared with Optimus."""
    from laxity_scheduler.service.learned_models import TEACHER

    teacher = about.get("teacher", TEACHER)
    return TEACHER if teacher == "none" else str(teacher)


def _figure_sentences(figures: Mapping[str, float]) -> Iterator[str]:
    """What was measured on worlds or cycles that it did not learn from."""
    if "right_on_worlds_held_out" in figures:
        right = figures["right_on_worlds_held_out"]
        yield f"On simulated worlds held out it chose as its teacher in {right:.1%} of the choices."
    for cost, words in (
        ("slowdown", "Completion times, to the run time at the width asked for"),
        ("missed", "Cost (deadlines missed, and 0.05 of completion times)"),
    ):
        if cost in figures:
            first = figures[f"{cost}_at_first"]
            yield f"{words}: {figures[cost]:.4g} on validation worlds, {first:.4g} before improvement."
    if "held_out_cycles" in figures:
        yield _journal_sentence(figures)


def _journal_sentence(figures: Mapping[str, float]) -> str:
    """On the last cycles of the journal, which it did not learn from."""
    cycles, differing = (int(figures[f"held_out_{name}"]) for name in ("cycles", "differing"))
    text = f"On the journal's last {count_noun(cycles, 'cycle')}, held out, it wants other widths in {differing}"
    if "held_out_right" in figures:
        choices = count_noun(int(figures["held_out_choices"]), "choice")
        text += f", and chooses as was decided in {figures['held_out_right']:.1%} of {choices}"
    if "held_out_gain" in figures:
        text += f"; its widths would have trained {1 + figures['held_out_gain']:.4g} times as much (predicted)"
    return f"{text}."
