"""Mirage's networks as plain arrays: the forward pass in NumPy, all that a decision needs.

An encoder embeds a day of snapshots, lets each look at the others (attention), and reads its values
off all of them laid flat. Attention is kept in products: with x a row and a one behind it, a head
scores two rows by x S x', and adds the scored mean of rows times M. S holds query and key, M holds
value and output. Where rows have 31 columns, as in a first layer, that is a tenth of the work.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from laxity_scheduler.array_file import collect_arrays
from laxity_scheduler.chains.features import Singles, Windows

NEARLY_ZERO: Final = 1e-5  # PyTorch's, in a layer norm
TOGETHER: Final = 8  # windows: what is worked on stays in the processor's cache
MOST_DEVIATIONS: Final = 5.0


class Scaling(NamedTuple):
    """Mean and deviation of each column, (columns,), where a network was trained."""

    mean: Singles
    deviation: Singles

    def tokens(self, windows: Windows) -> Singles:
        """What a network sees, (n, WINDOW, 31): standardised, cut at five deviations."""
        scaled = (windows.tokens() - self.mean) / self.deviation
        tokens: Singles = np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS)
        return tokens


def scale_of(windows: Windows) -> Scaling:
    """Standardisation by these windows; a column that never varies becomes zero."""
    tokens = windows.tokens().reshape(-1, windows.tokens().shape[2]).astype(np.float64)
    deviation = tokens.std(axis=0)
    deviation[deviation < NEARLY_ZERO] = 1.0
    return Scaling(tokens.mean(axis=0).astype(np.float32), deviation.astype(np.float32))


class Layer(NamedTuple):
    """One layer of an encoder of `width`, whose rows come in with `inputs` columns.

    `score` is (heads, inputs + 1, inputs + 1), `mix` (heads, inputs + 1, width), `inner` (width,
    hidden), `outer` (hidden, width); the others are (width,), `inner_bias` (hidden,).
    """

    score: Singles
    mix: Singles
    mix_scale: Singles
    mix_shift: Singles
    inner: Singles
    inner_bias: Singles
    outer: Singles
    outer_bias: Singles
    scale: Singles
    shift: Singles

    def forward(self, rows: Singles, carried: Singles) -> Singles:
        """(n, WINDOW, width) of rows (n, WINDOW, inputs); what is carried past is added."""
        ones = with_ones(rows)
        mixed = carried
        for score, mix in zip(self.score, self.mix, strict=True):
            attention = softmax(ones @ score @ ones.swapaxes(1, 2))
            mixed = mixed + attention @ ones @ mix
        middle = layer_norm(mixed, self.mix_scale, self.mix_shift)
        hidden = np.maximum(middle @ self.inner + self.inner_bias, 0)
        outer = hidden @ self.outer + self.outer_bias
        return layer_norm(middle + outer, self.scale, self.shift)


class Encoder(NamedTuple):
    """`embed` is (31 + 1, width), `head` (WINDOW * width, values), `head_bias` (values,)."""

    embed: Singles
    layers: tuple[Layer, ...]
    head: Singles
    head_bias: Singles

    def values(self, tokens: Singles) -> Singles:
        """(n, values) of tokens (n, WINDOW, 31)."""
        parts = [
            self._values(tokens[first : first + TOGETHER])
            for first in range(0, len(tokens), TOGETHER)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.head_bias)), np.float32)

    def _values(self, tokens: Singles) -> Singles:
        carried = with_ones(tokens) @ self.embed
        rows = tokens
        for layer in self.layers:
            rows = carried = layer.forward(rows, carried)
        values: Singles = rows.reshape(len(rows), -1) @ self.head + self.head_bias
        return values


class GatingNetwork(NamedTuple):
    """Which expert counts how much: (inputs, hidden), (hidden,), (hidden, experts), (experts,)."""

    inner: Singles
    inner_bias: Singles
    outer: Singles
    outer_bias: Singles

    def shares(self, tokens: Singles) -> Singles:
        """(n, experts), each row sums to one."""
        flat = tokens.reshape(len(tokens), -1)
        hidden = np.maximum(flat @ self.inner + self.inner_bias, 0)
        return softmax(hidden @ self.outer + self.outer_bias)


def with_ones(rows: Singles) -> Singles:
    """A column of ones behind the others."""
    ones = np.ones((*rows.shape[:-1], 1), np.float32)
    return np.concatenate((rows, ones), axis=-1)


def softmax(values: Singles) -> Singles:
    powers: Singles = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Singles = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def layer_norm(rows: Singles, scale: Singles, shift: Singles) -> Singles:
    centred = rows - rows.mean(axis=-1, keepdims=True)
    square = np.einsum("...i,...i->...", centred, centred)[..., None] / rows.shape[-1]
    normal: Singles = centred / np.sqrt(square + NEARLY_ZERO) * scale + shift
    return normal


def encoder_arrays(prefix: str, encoder: Encoder) -> dict[str, Any]:
    """For a file of arrays."""
    ends = {f"{prefix}.{name}": getattr(encoder, name) for name in ("embed", "head", "head_bias")}
    for number, layer in enumerate(encoder.layers):
        ends |= collect_arrays(f"{prefix}.layer{number}", layer)
    return ends


def read_part(part: Any, prefix: str, arrays: Mapping[str, Any]) -> Any:
    """What `collect_arrays` wrote. KeyError if one is missing."""
    return part(*(arrays[f"{prefix}.{name}"].astype(np.float32) for name in part._fields))


def read_encoder(prefix: str, arrays: Mapping[str, Any]) -> Encoder:
    """What `encoder_arrays` wrote. KeyError if an array is missing."""
    count = sum(name.startswith(prefix + ".layer") and name.endswith(".score") for name in arrays)
    layers = [read_part(Layer, f"{prefix}.layer{number}", arrays) for number in range(count)]
    embed, head, bias = (arrays[f"{prefix}.{name}"] for name in ("embed", "head", "head_bias"))
    return Encoder(embed, tuple(layers), head, bias)
