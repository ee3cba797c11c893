"""Names that say too little: functions that begin with a bare participle, and vague locals.

`promised(job)` may ask whether a job is promised or promise it; `is_promised` asks, `promise` acts.
A local called `found` says nothing about what it holds; `annotations` does.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.metrics.source import Function, SourceFile


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR = _word_set("""
    begun bound built done drawn felt found given gone grown heard held hidden kept known laid left
    lent lost made meant met paid said seen sent shown spent sworn taken thought told woken won
    written
""")
NOT_PARTICIPLES = _word_set(
    "bleed breed embed exceed feed need proceed seed shed shred speed succeed"
)
VAGUE = _word_set("asked at found given kept known look many one said seen told why wish words")


def begins_with_participle(name: str) -> bool:
    """Whether a function's first word is a participle, such as in `_carried_out` or `told`."""
    word = name.strip("_").split("_")[0]
    return word not in NOT_PARTICIPLES and (word in IRREGULAR or _is_regular_participle(word))


def _is_regular_participle(word: str) -> bool:
    return len(word) > len("red") and word.endswith("ed")


def named_functions(file: SourceFile) -> Iterator[Function]:
    """Functions whose author chose the name: all but special methods."""
    return (f for f in file.functions if not f.name.startswith("__"))


def participle_functions(file: SourceFile) -> list[str]:
    """Properties may bear a participle: they are attributes to their readers."""
    return [
        f.name
        for f in named_functions(file)
        if begins_with_participle(f.name) and not _is_property(f)
    ]


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def word_count(function: Function) -> int:
    return len(function.name.strip("_").split("_"))


def vague_locals(file: SourceFile) -> list[str]:
    """Names from `VAGUE`, once for each place that assigns them; fields of a class are no locals."""
    nodes = list(ast.walk(file.tree))
    bodies = (node.body for node in nodes if isinstance(node, ast.ClassDef))
    fields = {
        id(line.target) for body in bodies for line in body if isinstance(line, ast.AnnAssign)
    }
    return [
        node.id
        for node in nodes
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in VAGUE
        and id(node) not in fields
    ]


def repeated_class_names(files: list[SourceFile]) -> dict[str, list[Path]]:
    """Public classes of one name in several modules."""
    paths: dict[str, list[Path]] = {}
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths.setdefault(node.name, []).append(file.path)
    return {name: where for name, where in paths.items() if len(where) > 1}


def repeated_file_names(files: list[SourceFile]) -> dict[str, int]:
    counts = Counter(file.path.name for file in files if not file.path.name.startswith("__"))
    return {name: count for name, count in counts.items() if count > 1}
