"""Which rule each kind of layer follows, put into a network for a while.

Inside `propagating` the layers compute what they always do, but what flows backward through them
is relevance. Parameters are only read: a BatchNorm right behind a convolution is folded into the
weights that the convolution's rule sees, not into the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.explain.lrp.propagation_rules import (
    EPSILON_RULE,
    FLAT,
    Z_PLUS,
    Linear,
    Rule,
    propagate,
    stabilize,
)
from vitrail.models.backbones.layers import Concat, SamePad, Sum
from vitrail.models.heads.head import LinearHead

# What keeps relevance as it is: one number in, one number out.
ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.Sigmoid,
    nn.Tanh,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Hardtanh,
    nn.Softplus,
)
# What only moves numbers: its own gradient hands relevance to where they came from. Max pooling
# is among them: the winner takes all.
MOVES = (
    nn.MaxPool2d,
    nn.AdaptiveMaxPool2d,
    nn.Identity,
    nn.Flatten,
    nn.Dropout,
    nn.Sequential,
    Concat,
)
# What a rule stands for: a subclass with a forward pass of its own is another layer.
RULED = (
    nn.Conv2d,
    nn.Linear,
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    Sum,
    SamePad,
    *ACTIVATIONS,
)


@dataclass
class Call:
    """One use of a linear layer: what it computed with, and by which rule relevance goes back."""

    rule: Rule
    layer: Linear
    weight: Tensor
    bias: Tensor | None
    folded: bool = False

    def fold(self, scale: Tensor, shift: Tensor) -> None:
        """Take a normalization behind this convolution into its weights: scale * y + shift."""
        self.folded = True
        self.weight = self.weight * scale.view(-1, *[1] * (self.weight.dim() - 1))
        self.bias = shift if self.bias is None else self.bias * scale + shift


class _Linear(torch.autograd.Function):
    """Forward as it is, backward by the call's rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Call) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(x)
        return call.layer(x, call.weight, call.bias)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        call: Call = ctx.call
        (x,) = ctx.saved_tensors
        below = propagate(call.rule, relevance, x, call.weight, call.bias, call.layer)
        return below, None


class _Pass(torch.autograd.Function):
    """Another value, the same relevance."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        del ctx, x
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        del ctx
        return relevance, None


class _Split(torch.autograd.Function):
    """A sum of two: each gets relevance in proportion to what it put in."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return left + right

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor]:
        left, right = ctx.saved_tensors
        shares = relevance / stabilize(left + right)
        return left * shares, right * shares


def apply_linear(call: Call, x: Tensor) -> Tensor:
    """Apply a linear layer whose backward pass is its rule."""
    return cast(Tensor, _Linear.apply(x, call))  # type: ignore[no-untyped-call]


def pass_relevance(x: Tensor, y: Tensor) -> Tensor:
    """`y`, whose relevance is that of `x`."""
    return cast(Tensor, _Pass.apply(x, y))  # type: ignore[no-untyped-call]


def apply_average(average: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A mean without parameters: every input gets relevance in proportion to its value."""
    call = Call(EPSILON_RULE, partial(_apply_unweighted, average), torch.empty(0), None)
    return apply_linear(call, x)


def _apply_unweighted(average: Callable[[Tensor], Tensor], x: Tensor, *_: object) -> Tensor:
    return average(x)


@dataclass
class ForwardPass:
    """One forward pass: which convolution or padding came just before, and whether one did yet."""

    first: bool = True
    convolved: tuple[Tensor, Call] | None = None
    padded: tuple[Tensor, Tensor, Callable[[Tensor], Tensor]] | None = None
    restore: list[tuple[nn.Module, str, Any]] = field(default_factory=list)

    def put(self, module: nn.Module, name: str, function: Callable[..., Any]) -> None:
        """Let a function stand for a method of one module until the end."""
        self.restore.append((module, name, module.__dict__.get(name)))
        module.__dict__[name] = function

    def conv(self, module: nn.Conv2d, x: Tensor) -> Tensor:
        """z+, or flat for the layer that sees the image; padding before it belongs to it."""
        source, layer = x, cast(Linear, module._conv_forward)
        if self.padded is not None and self.padded[0] is x:
            _, source, pad = self.padded
            layer = partial(_convolve_padded, module, pad)
        call = Call(self._rule(Z_PLUS), layer, module.weight.detach(), _detach(module.bias))
        y = apply_linear(call, source)
        self.convolved = (y, call)
        return y

    def dense(self, module: nn.Linear | LinearHead, x: Tensor) -> Tensor:
        """Epsilon, or flat for the layer that sees the image."""
        rule = self._rule(EPSILON_RULE)
        return apply_linear(Call(rule, F.linear, module.weight.detach(), _detach(module.bias)), x)

    def batch_norm(self, module: nn.BatchNorm2d, x: Tensor) -> Tensor:
        """Part of the convolution just before it, or a diagonal layer under epsilon."""
        if module.running_mean is None or module.running_var is None:
            raise _no_rule(module, "without running statistics")
        spread = (module.running_var + module.eps).sqrt()
        scale = spread.reciprocal() if module.weight is None else module.weight.detach() / spread
        shift = -module.running_mean * scale
        if module.bias is not None:
            shift = shift + module.bias.detach()
        if self.convolved is not None and self.convolved[0] is x:
            self.convolved[1].fold(scale, shift)
            return pass_relevance(x, _diagonal(x.detach(), scale, shift))
        return apply_linear(Call(EPSILON_RULE, _diagonal, scale, shift), x)

    def group_norm(self, module: nn.GroupNorm, x: Tensor) -> Tensor:
        """A diagonal layer under epsilon, its statistics held fixed (Ali et al. 2022,
        arXiv:2202.07304, do the same to layer normalization)."""
        groups = x.detach().reshape(len(x), module.num_groups, -1)
        mean = groups.mean(2).repeat_interleave(x.shape[1] // module.num_groups, 1)
        spread = (groups.var(2, correction=0) + module.eps).sqrt()
        scale = spread.reciprocal().repeat_interleave(x.shape[1] // module.num_groups, 1)
        shift = -mean * scale
        if module.affine:
            scale = scale * module.weight.detach()
            shift = shift * module.weight.detach() + module.bias.detach()
        return apply_linear(Call(EPSILON_RULE, _diagonal, scale, shift), x)

    def pad(self, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Padding moves numbers; the convolution behind it must know the border from the image."""
        y = forward(x)
        self.padded = (y, x, forward)
        return y

    def _rule(self, usual: Rule) -> Rule:
        first, self.first = self.first, False
        return FLAT if first else usual


def _convolve_padded(
    module: nn.Conv2d, pad: Callable[[Tensor], Tensor], x: Tensor, w: Tensor, b: Tensor | None
) -> Tensor:
    return cast(Linear, module._conv_forward)(pad(x), w, b)


def _diagonal(x: Tensor, scale: Tensor, shift: Tensor | None) -> Tensor:
    """x * scale + shift, channel by channel; they are [C], or [N, C] for each image its own."""
    places = [1] * (x.dim() - 2)
    y = x * scale.reshape(*scale.shape, *places)
    return y if shift is None else y + shift.reshape(*shift.shape, *places)


def _detach(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _activate(module: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An activation; one that works in place gets a copy, because rules need the layer's input."""
    inside = x.detach().clone() if getattr(module, "inplace", False) else x.detach()
    return pass_relevance(x, forward(inside))


def _no_rule(module: nn.Module, name: str) -> ConfigError:
    return ConfigError(
        f"there is no relevance rule for {type(module).__name__} ({name})",
        where="attribution",
        hint="Use gradient, smoothgrad, integrated-gradients or grad-cam with this model.",
    )


def _refuse(module: nn.Module, name: str, *_: object) -> Tensor:
    raise _no_rule(module, name)


def _install_rule(run: ForwardPass, name: str, module: nn.Module) -> None:
    """Put the rule of a module's kind in its place."""
    forward = module.forward
    kind = next((kind for kind in RULED if isinstance(module, kind)), None)
    if kind is not None and type(module).forward is not kind.forward:
        run.put(module, "forward", partial(_refuse, module, name))
    elif isinstance(module, LinearHead):
        run.put(module, "reduce", partial(apply_average, module.reduce))
        run.put(module, "forward", lambda z: {"logits": run.dense(module, z)})
    elif isinstance(module, nn.Conv2d):
        run.put(module, "forward", partial(run.conv, module))
    elif isinstance(module, nn.Linear):
        run.put(module, "forward", partial(run.dense, module))
    elif isinstance(module, nn.BatchNorm2d):
        run.put(module, "forward", partial(run.batch_norm, module))
    elif isinstance(module, nn.GroupNorm):
        run.put(module, "forward", partial(run.group_norm, module))
    elif isinstance(module, nn.AvgPool2d | nn.AdaptiveAvgPool2d):
        run.put(module, "forward", partial(apply_average, forward))
    elif isinstance(module, ACTIVATIONS):
        run.put(module, "forward", partial(_activate, module, forward))
    elif isinstance(module, Sum):
        run.put(module, "forward", _Split.apply)
    elif isinstance(module, SamePad):
        run.put(module, "forward", partial(run.pad, forward))
    elif not isinstance(module, MOVES) and next(module.children(), None) is None:
        run.put(module, "forward", partial(_refuse, module, name))


@contextmanager
def propagate_relevance(model: nn.Module) -> Iterator[None]:
    """For one forward pass: backward through the network's layers flows relevance."""
    run = ForwardPass()
    try:
        for name, module in model.named_modules():
            _install_rule(run, name, module)
        yield
    finally:
        for module, name, before in reversed(run.restore):
            if before is None:
                del module.__dict__[name]
            else:
                module.__dict__[name] = before
