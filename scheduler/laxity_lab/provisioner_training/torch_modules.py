"""Mirage's networks in PyTorch, to be trained, and how each becomes plain arrays.

Sizes are the paper's release's: 512 columns, a feed-forward of 128; two layers of two heads for the
transformer, one of one for each of ten experts. Dropout and norms are PyTorch's defaults.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from laxity_scheduler.chains.features import WINDOW, Singles
from laxity_scheduler.chains.networks import Encoder, GatingNetwork, Layer
from laxity_scheduler.chains.snapshot_loop import MIRAGE_COLUMNS

INPUTS: Final = MIRAGE_COLUMNS + 2


@dataclass(frozen=True, slots=True)
class Size:
    """Of a network. `heads` divides `width`; `gate` is the gate's hidden layer."""

    width: int = 512
    hidden: int = 128
    layers: int = 2
    heads: int = 2
    experts: int = 10
    gate: int = 32


PAPER: Final = Size()


class EncoderNetwork(nn.Module):  # type: ignore[misc]  # torch is an extra that mypy does not follow
    """Values, (n, values), of tokens (n, WINDOW, INPUTS)."""

    def __init__(self, size: Size, layers: int, heads: int, values: int = 1) -> None:
        super().__init__()
        self.embed = nn.Linear(INPUTS, size.width)
        layer = nn.TransformerEncoderLayer(size.width, heads, size.hidden, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(WINDOW * size.width, values)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.encoder(self.embed(tokens)).flatten(1))


class MixtureNetwork(nn.Module):  # type: ignore[misc]
    """Experts, and a gate that says which of them counts how much."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.experts = nn.ModuleList(EncoderNetwork(size, 1, 1) for _ in range(size.experts))
        self.gate = nn.Sequential(
            nn.Flatten(),
            nn.Linear(WINDOW * INPUTS, size.gate),
            nn.ReLU(),
            nn.Linear(size.gate, size.experts),
            nn.Softmax(dim=1),
        )

    def forward(self, tokens: Any) -> Any:
        values = torch.cat([expert(tokens) for expert in self.experts], dim=1)
        return (values * self.gate(tokens)).sum(dim=1, keepdim=True)


def encoder_of(network: Any, mean: float = 0.0, deviation: float = 1.0) -> Encoder:
    """The network as arrays; its values, which were trained as standard scores, in hours again."""
    embed = with_bias(network.embed)
    rows, layers = embed, []
    for layer in network.encoder.layers:
        layers.append(layer_of(layer, rows))
        rows = np.eye(embed.shape[1] + 1, embed.shape[1])  # from the second on rows are themselves
    head = with_bias(network.head) * deviation
    return Encoder(single(embed), tuple(layers), single(head[:-1]), single(head[-1] + mean))


def layer_of(layer: Any, rows: Singles) -> Layer:
    """One layer, whose rows with a one behind them times `rows` are what it was trained on."""
    attention = layer.self_attn
    heads, width = attention.num_heads, attention.embed_dim
    projected = rows @ double(attention.in_proj_weight).T
    projected[-1] += double(attention.in_proj_bias)
    query, key, value = (
        part.reshape(len(rows), heads, -1).swapaxes(0, 1) for part in np.split(projected, 3, axis=1)
    )
    score = query @ key.swapaxes(1, 2) / np.sqrt(width / heads)
    outer = double(attention.out_proj.weight).T.reshape(heads, -1, width)
    mix = value @ outer
    mix[0, -1] += double(attention.out_proj.bias)  # a row's shares sum to one
    return Layer(
        single(score),
        single(mix),
        single(double(layer.norm1.weight)),
        single(double(layer.norm1.bias)),
        single(double(layer.linear1.weight).T),
        single(double(layer.linear1.bias)),
        single(double(layer.linear2.weight).T),
        single(double(layer.linear2.bias)),
        single(double(layer.norm2.weight)),
        single(double(layer.norm2.bias)),
    )


def gate_of(network: Any) -> GatingNetwork:
    """The gate of a mixture as arrays."""
    inner, outer = (with_bias(network.gate[place]) for place in (1, 3))
    return GatingNetwork(
        single(inner[:-1]), single(inner[-1]), single(outer[:-1]), single(outer[-1])
    )


def with_bias(linear: Any) -> Any:
    """A linear layer as one matrix, (inputs + 1, outputs), the bias last."""
    return np.concatenate((double(linear.weight).T, double(linear.bias)[None]))


def double(parameter: Any) -> Any:
    return parameter.detach().cpu().double().numpy()


def single(array: Any) -> Singles:
    return np.ascontiguousarray(array, dtype=np.float32)
