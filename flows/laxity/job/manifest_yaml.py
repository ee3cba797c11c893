"""YAML as the API server takes it: instants stay text, and aliases cannot grow without bound.

PyYAML turns an unquoted instant into a `datetime`, which no JSON holds. A few hundred bytes of
aliases to aliases stand for more values than a machine can keep, so a document is measured before
it is built.
"""

from typing import Any, Final

import yaml

MOST_VALUES: Final = 200_000
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class ManifestLoader(yaml.SafeLoader):
    """A SafeLoader that reads instants as text and refuses documents that aliases blow up."""

    def get_node(self) -> yaml.Node | None:
        node = super().get_node()
        if node is not None:
            _count_values(node, {})
        return node


ManifestLoader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != _TIMESTAMP]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_documents(text: str) -> list[Any]:
    """All documents that hold something; yaml.YAMLError says what is wrong, and where."""
    try:
        documents = yaml.load_all(text, Loader=ManifestLoader)
        return [document for document in documents if document is not None]
    except RecursionError as error:
        raise yaml.MarkedYAMLError(problem="nested too deep") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A tag such as !!int or !!bool in front of something else.
        raise yaml.MarkedYAMLError(problem=f"a value does not fit its tag: {error}") from error


def _count_values(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values stand in a node, aliases written out; MarkedYAMLError if too many."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    node_count = counted.get(id(node))
    if node_count == 0:
        raise _yaml_error(node, "it contains itself")
    if node_count is not None:
        return node_count
    counted[id(node)] = 0
    if isinstance(node, yaml.MappingNode):
        inside = [part for pair in node.value for part in pair]
    else:
        inside = list(node.value)
    total = 1 + sum(_count_values(part, counted) for part in inside)
    if total > MOST_VALUES:
        raise _yaml_error(node, f"it stands for more than {MOST_VALUES:,} values")
    counted[id(node)] = total
    return total


def _yaml_error(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
