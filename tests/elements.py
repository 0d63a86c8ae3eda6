"""What tests of pools, sets, encoders and reasoners share: padded elements, and weights as if trained."""

import torch


def trained(module, seed=0):
    """The module for evaluation, in float64, with weights as training might leave them: none is 0."""
    dice = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.data.copy_(torch.randn(weight.shape, generator=dice) / 2)
    for name, buffer in module.named_buffers():
        if name.endswith(("_mean", "_var")):
            buffer.copy_(torch.rand(buffer.shape, generator=dice) + 0.5)
    return module.double().eval()


def batch(seed=0, rows=4, elements=7, dim=6, dtype=torch.float64):
    """Elements and a mask whose rows have 1 to all elements, in any place; the last row has a single one."""
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, elements, dim, generator=dice, dtype=dtype)
    mask = torch.rand(rows, elements, generator=dice) < 0.6
    mask[torch.arange(rows), torch.randint(elements, (rows,), generator=dice)] = True
    mask[-1] = torch.arange(elements) == min(2, elements - 1)
    return x, mask


def prefix_mask(lengths, longest):
    """A mask of rows whose first elements are real, so many in each."""
    return torch.arange(longest) < torch.tensor(lengths)[:, None]
