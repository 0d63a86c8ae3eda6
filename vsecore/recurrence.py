"""Recurrent networks that read sets of elements, from the first on and from the last: words, or regions.

The real elements of each set come first. On a CPU torch runs a GRU as many small operations, and autograd
records each of them, for the padding too. There a whole reading is one operation here, with its backward pass
written out and the padding left out; results agree up to rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vsecore.masking import count_real, real_first


def read(x: Tensor, mask: Tensor | None, *networks: nn.GRU) -> Tensor:
    """Return the states after each element, the mean over the networks: (B, N, D); at padding, anything.

    Of each set (N, W) the real elements come first, so that the padding changes none of them. The first
    network reads them in their order, a second one, if there is one, from the last to the first. Each has one
    layer, one direction, and biases.

    Raises:
        RuntimeError: a second derivative is asked for on a CPU, with a mask or two networks.
    """
    with torch.autocast(x.device.type, enabled=False):  # small updates vanish in half precision
        x = x.to(networks[0].all_weights[0][0].dtype)
        if _packs(x, mask, networks):
            readings, places, _ = _read_packed(x, mask, networks)
            states = readings.new_zeros(x.shape[0] * x.shape[1], readings.shape[2])  # (B N, D)
            states = states.index_add(0, places, readings.flatten(0, 1), alpha=1 / len(networks))
            return states.view(*x.shape[:2], -1)
        # Nothing is packed: for the lengths the CPU would wait for the GPU, and the backward pass of packing
        # costs more time than the padding.
        states, _ = networks[0](x)  # (B, N, D)
        if networks[1:]:
            back, _ = networks[1](_turned(x, mask))  # (B, N, D)
            states = (states + _turned(back, mask)) / 2
        return states


def read_to_end(x: Tensor, mask: Tensor | None, *networks: nn.GRU) -> Tensor:
    """Return the mean of the states in which the networks have read all real elements: (B, D).

    Arguments and errors are those of `read`.
    """
    with torch.autocast(x.device.type, enabled=False):  # small updates vanish in half precision
        x = x.to(networks[0].all_weights[0][0].dtype)
        if _packs(x, mask, networks):
            readings, _, ends = _read_packed(x, mask, networks)
            return readings.index_select(1, ends).mean(0)  # (B, D)
        last = (count_real(x, mask) - 1).view(-1, 1, 1)  # (B, 1, 1)
        states = [networks[0](x)[0]] + [one(_turned(x, mask))[0] for one in networks[1:]]  # (B, N, D) each
        return torch.cat([each.gather(1, last.expand(-1, 1, each.shape[2])) for each in states], 1).mean(1)


def _turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Turn the order of the elements (B, N, W) round, with the padding still behind them."""
    return real_first(x.flip(1), None if mask is None else mask.flip(1))


def _packs(x: Tensor, mask: Tensor | None, networks: tuple[nn.GRU, ...]) -> bool:
    """Whether to read as on a CPU: torch is as quick for one network without a mask."""
    gains = x.device.type == "cpu" and len(x) > 0 and (mask is not None or len(networks) > 1)
    return gains and not torch.compiler.is_compiling() and not torch.jit.is_tracing()


def _read_packed(
    x: Tensor, mask: Tensor | None, networks: tuple[nn.GRU, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states of R networks after all P real elements of the batch, step by step, (R, P, D).

    Returned are also the place of each in the flat batch, (R P,), and where in P a set's last state is, (B,).
    """
    sets, longest = x.shape[:2]
    lengths, order = count_real(x, mask).sort(descending=True, stable=True)  # (B,) each
    # Step s reads element s of all sets that are large enough: the first few, since the largest come first.
    # The elements of all steps follow one another.
    is_read = torch.arange(longest).unsqueeze(1) < lengths  # (N, B)
    counts = is_read.sum(1)  # (N,)
    step, row = is_read.nonzero().unbind(1)  # (P,) each
    first = order[row] * longest
    places = torch.cat([first + step, first + lengths[row] - 1 - step][: len(networks)])  # (R P,)
    ordered = x.flatten(0, 1).index_select(0, places).unflatten(0, (len(networks), -1))  # (R, P, W)
    weights = map(torch.stack, zip(*(network.all_weights[0] for network in networks), strict=True))
    readings = _Reading.apply(ordered, [count for count in counts.tolist() if count], *weights)  # (R, P, D)
    ends = (counts.cumsum(0) - counts)[lengths - 1] + torch.arange(sets)  # (B,)   in the order of their size
    return readings, places, ends[order.argsort()]


class _Reading(torch.autograd.Function):
    """R GRUs, side by side, each over elements that are packed step by step.

    Source: Cho et al. 2014, as nn.GRU has it: the reset gate comes after the state's product.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        counts: list[int],
        weight_in: Tensor,
        weight_state: Tensor,
        bias_in: Tensor,
        bias_state: Tensor,
    ) -> Tensor:
        dim = weight_state.shape[2]
        gates = torch.baddbmm(bias_in.unsqueeze(1), x, weight_in.mT)  # (R, P, 3D)   reset, update, new
        recalled, states = (x.new_empty(*x.shape[:2], dim) for _ in range(2))  # (R, P, D) each
        state = x.new_zeros(len(x), counts[0], dim)
        of_steps = [each.split(counts, 1) for each in (gates, recalled, states)]
        for gate, recall, after in zip(*of_steps, strict=True):
            state = state[:, : after.shape[1]]  # (R, c, D)   the smaller sets have ended
            of_state = torch.baddbmm(bias_state.unsqueeze(1), state, weight_state.mT)  # (R, c, 3D)
            gate[..., : 2 * dim].add_(of_state[..., : 2 * dim]).sigmoid_()
            reset, update, new = gate.split(dim, 2)
            recall.copy_(of_state[..., 2 * dim :])
            new.addcmul_(reset, recall).tanh_()
            state = torch.lerp(new, state, update, out=after)
        ctx.counts = counts
        ctx.save_for_backward(x, weight_in, weight_state, gates, recalled, states)
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("a GRU on a CPU has no second derivatives here: create_graph must be False")
        x, weight_in, weight_state, gates, recalled, states = ctx.saved_tensors
        counts, dim = ctx.counts, states.shape[2]
        reset, update, new = gates.split(dim, 2)
        before = torch.cat(  # (R, P, D)   the state that each step began with
            [torch.zeros_like(states[:, : counts[0]])]
            + [each[:, :count] for each, count in zip(states.split(counts, 1), counts[1:], strict=False)],
            1,
        )
        # Factors that turn the gradient of the new state into those of what was recalled, of the three gates
        # before their sigmoid or tanh, and of the old state. Step by step the gradients take their place.
        gradients = x.new_empty(*states.shape[:2], 5, dim)  # (R, P, 5, D)
        of_recalled, of_reset, of_update, of_new, of_old = gradients.unbind(2)
        torch.mul(1 - update, 1 - new * new, out=of_new)
        torch.mul(of_new, reset, out=of_recalled)
        torch.mul(of_recalled, recalled * (1 - reset), out=of_reset)
        torch.mul(before - new, update * (1 - update), out=of_update)
        of_old.copy_(update)
        turned = weight_state.roll(dim, 1)  # (R, 3D, D)   its rows in the order recalled, reset, update
        later: Tensor | None = None
        of_steps = [each.split(counts, 1) for each in (gradient, gradients)]
        for of_state, product in reversed(list(zip(*of_steps, strict=True))):
            if later is not None:
                of_state = of_state.clone()
                of_state[:, : later.shape[1]] += later
            product *= of_state.unsqueeze(2)  # (R, c, 5, D)
            later = torch.baddbmm(product[:, :, 4], product[:, :, :3].flatten(2), turned)  # (R, c, D)
        of_products = gradients.flatten(2)[..., : 3 * dim]  # (R, P, 3D)   recalled, reset, update
        of_gates = gradients.flatten(2)[..., dim : 4 * dim]  # (R, P, 3D)   reset, update, new
        sums = gradients.flatten(2).sum(1)  # (R, 5D)
        return (
            of_gates @ weight_in if ctx.needs_input_grad[0] else None,
            None,
            of_gates.mT @ x,
            (of_products.mT @ before).roll(-dim, 1),
            sums[:, dim : 4 * dim],
            sums[:, : 3 * dim].roll(-dim, 1),
        )
