"""The reference pages, made from the code: each returns Markdown."""

import ast
import inspect
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from fastapi import FastAPI
from typer.main import get_command

import laxity
import laxity_scheduler.http
from laxity import names
from laxity.cli.exit_codes import INTERRUPTED, MEANINGS, TERMINATED
from laxity.cli.lazy_commands import BY_NAME, load_command
from laxity.cli.main import app
from laxity_scheduler.http.api_reference import answer_text, schema_text
from laxity_scheduler.model.reasons import TEMPLATES
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.exported.namespace_metrics import NamespaceMetrics
from laxity_scheduler.service.settings import Settings
from tests.metrics.__main__ import ROOT

FLOORS: Final = ("flows/laxity", "profiler", "scheduler", "k8s")
VARIABLE: Final = re.compile(r"""["'](LAXITY_[A-Z_]+)["']|export (LAXITY_[A-Z_]+)=""")
MODULES: Final = ("laxity.pytorch",)  # public, and not among the names of `laxity`


def pages() -> dict[str, str]:
    """Markdown by the page's name."""
    return {
        "python": python(),
        "commands": commands(),
        "http": http(),
        "annotations": annotations(),
        "environment": environment(),
        "settings": settings(),
        "metrics": metrics(),
        "reasons": reasons(),
        "exit-codes": exit_codes(),
    }


def python() -> str:
    """The names of `laxity`, of which mkdocstrings makes signatures and docstrings."""
    wanted = [f"laxity.{name}" for name in laxity.__all__] + list(MODULES)
    return _page(
        "Python",
        "`from laxity import ...` gives these names.",
        "\n".join(f"::: {name}\n" for name in wanted),
    )


def commands() -> str:
    parts = [part for path, command in iterate_commands() for part in _command(path, command)]
    return _page("Commands", "What you type in a terminal.", "\n\n".join(parts))


def iterate_commands() -> Iterator[tuple[str, Any]]:
    """Every visible command with its path: "laxity train policy"."""
    yield from _subcommands("laxity", get_command(app))


def _subcommands(path: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if path == "laxity" and name in BY_NAME:
            command = load_command(BY_NAME[name])  # noqa: PLW2901 - its name stands for it
        if not command.hidden:
            yield f"{path} {name}", command
            yield from (
                _subcommands(f"{path} {name}", command) if hasattr(command, "commands") else ()
            )


def _command(path: str, command: Any) -> Iterator[str]:
    yield f"## {path}"
    yield (command.help or "").replace("\b", "").strip()
    rows = [
        (_parameter_name(parameter), parameter.help or "", parameter.envvar or "")
        for parameter in command.params
        if not parameter.hidden and "--help" not in parameter.opts
    ]
    if rows:
        yield _table(("argument or option", "meaning", "variable"), rows)


def _parameter_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def http() -> str:
    document = openapi()
    calls = [
        part
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        for part in _call(f"{method.upper()} {path}", call)
    ]
    intro = (
        "A call sends `Authorization: Bearer TOKEN`. The service shows the same list at `/docs`."
    )
    schemas = [
        part
        for name, schema in document["components"]["schemas"].items()
        if not name.startswith("Body_")
        for part in _schema(name, schema)
    ]
    return _page("HTTP", intro, "\n\n".join([*calls, *schemas]))


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """What an answer holds: each field with its type."""
    yield f"## {name}"
    yield str(schema.get("description", ""))
    fields = schema["properties"].items()
    yield _table(("field", "type"), [(name, schema_text(field)) for name, field in fields])


def openapi() -> Mapping[str, Any]:
    """The OpenAPI document of the service."""
    api = FastAPI(title="laxity")
    for module in sorted(module.name for module in iter_modules(laxity_scheduler.http.__path__)):
        if module.endswith("_routes"):
            api.include_router(import_module(f"laxity_scheduler.http.{module}").router)
    return api.openapi()


def _call(name: str, call: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{name}`"
    yield str(call.get("description", ""))
    rows = [
        (f"{parameter['name']} ({parameter['in']})", schema_text(parameter.get("schema", {})))
        for parameter in call.get("parameters", ())
    ]
    bodies = call.get("requestBody", {}).get("content", {}).values()
    rows += [("body", schema_text(content.get("schema", {}))) for content in bodies]
    rows += [(code, answer_text(answer)) for code, answer in call["responses"].items()]
    yield _table(("takes and answers", "meaning"), rows)


def annotations() -> str:
    """The constants of `laxity.names` that are annotations or labels, by its sections."""
    path = Path(names.__file__)
    comments, lines = comments_of_fields(path), path.read_text().splitlines()
    sections: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith("# --- "):
            title = line.strip("#- ").capitalize()
        value = vars(names).get(line.partition(":")[0])
        if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/"):
            sections.setdefault(title, {})[value] = comments[line.partition(":")[0]]
    parts = [
        f"## {title}\n\n{_table(('name', 'meaning'), list(rows.items()))}"
        for title, rows in sections.items()
    ]
    return _page("Annotations and labels", "Names on Jobs and pods.", "\n\n".join(parts))


def environment() -> str:
    rows = sorted(environment_variables().items())
    return _page(
        "Environment variables",
        "What you or the service may set. An empty value counts as unset.",
        _table(("variable", "meaning"), rows),
    )


def environment_variables() -> dict[str, str]:
    """Each `LAXITY_*` that the code names, with its meaning where the code says it."""
    meanings: dict[str, str] = {}
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            for line in path.read_text().splitlines():
                for name in filter(None, chain.from_iterable(VARIABLE.findall(line))):
                    comment = _without_noqa(line.partition("  # ")[2])
                    meanings[name] = meanings.get(name) or comment
    for _, command in iterate_commands():
        for parameter in command.params:
            if isinstance(parameter.envvar, str) and parameter.envvar in meanings:
                meanings[parameter.envvar] = meanings[parameter.envvar] or parameter.help or ""
    return meanings


def settings() -> str:
    """The service's settings: each is a field of Settings, most are options of `laxity serve`."""
    comments = comments_of_fields(Path(inspect.getfile(Settings)))
    options = {parameter.name: parameter for parameter in load_command(BY_NAME["serve"]).params}
    options["budgets"] = options["budget"]
    rows = []
    for field in fields(Settings):
        option: Any = options.get(field.name)
        default = "" if field.default in {MISSING, None, ""} else str(field.default)
        meaning = getattr(option, "help", None) or comments[field.name]
        words = ", ".join(option.opts) if option else ""
        rows.append((field.name, words, str(getattr(option, "envvar", "") or ""), default, meaning))
    columns = ("setting", "option", "variable", "default", "meaning")
    intro = "Settings of the service. One without an option always has its default."
    return _page("Settings", intro, _table(columns, rows))


def metrics() -> str:
    rows = [(name, kind, ", ".join(labels), text) for name, kind, labels, text in metric_rows()]
    return _page(
        "Metrics",
        "Prometheus reads them at `/metrics`.",
        _table(("metric", "kind", "labels", "meaning"), rows),
    )


def metric_rows() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and meaning of each metric."""
    for registry in (Metrics().registry, NamespaceMetrics()._registry):
        metrics: dict[Any, None] = dict.fromkeys(registry._collector_to_names)
        for metric in metrics:
            suffix = "_total" if metric._type == "counter" else ""
            yield f"{metric._name}{suffix}", metric._type, metric._labelnames, metric._documentation


def reasons() -> str:
    return _page(
        "Reason codes",
        "Why a verdict or a decision came about: `reason_code` in JSON, and its sentence.",
        _table(("code", "sentence"), list(TEMPLATES.items())),
    )


def exit_codes() -> str:
    rows = [(str(code), meaning) for code, meaning in MEANINGS.items()]
    rows += [(str(INTERRUPTED), "interrupted (SIGINT)"), (str(TERMINATED), "terminated (SIGTERM)")]
    return _page("Exit codes", "How a command ends.", _table(("code", "meaning"), rows))


def comments_of_fields(path: Path) -> dict[str, str]:
    """The comment on the line of each annotated name of a file, by the name."""
    with tokenize.open(path) as file:
        comments = {
            token.start[0]: _without_noqa(token.string)
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
        }
    return {
        node.target.id: comments.get(node.lineno, "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _without_noqa(comment: str) -> str:
    return re.sub(r"^noqa: \S+( - )?", "", comment.lstrip("# "))


def _page(title: str, intro: str, body: str) -> str:
    return f"# {title}\n\n{intro}\n\n{body}\n"


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table whose first column is code; empty columns are left out."""
    table = [tuple(columns), *rows]
    kept = [i for i in range(len(table[0])) if any(row[i] for row in table[1:])]
    lines = ["| " + " | ".join(table[0][i] for i in kept) + " |", "|---" * len(kept) + "|"]
    for first, *rest in table[1:]:
        cells = [f"`{first}`", *map(_cell, rest)]
        lines.append("| " + " | ".join(cells[i] for i in kept) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
