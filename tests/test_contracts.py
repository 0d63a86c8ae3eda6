"""What every part promises that reads padded elements: pools, encoders and reasoners."""

import copy
import math

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import pad
from transformers import BertConfig, BertModel

from elements import batch, prefix_mask, trained
from test_pooling import CASES, NEEDED
from vsecore.encoders import (
    BERTEncoder,
    BiGRUEncoder,
    CaptionTransformer,
    CellEncoder,
    GRUEncoder,
    RegionEncoder,
    TextEncoder,
    WindowEncoder,
)
from vsecore.encoders.reasoning import RegionGraph, TransformerReasoner
from vsecore.normalisation import ElementNorm
from vsecore.pooling import build_pool

DIM, WORDS = 6, 30
PARTS = {
    "grid": lambda folder: CellEncoder(DIM, DIM),
    "region": lambda folder: RegionEncoder(DIM, DIM),
    "gru": lambda folder: BiGRUEncoder(WORDS, 8, DIM),
    "forward_gru": lambda folder: GRUEncoder(WORDS, 8, DIM),
    "window": lambda folder: WindowEncoder(WORDS, 8, DIM, hidden=9, drop=0.0),
    "transformer": lambda folder: CaptionTransformer(WORDS, 8, DIM, heads=2, drop=0.0),
    "transformer without layers": lambda folder: CaptionTransformer(WORDS, 8, DIM, heads=2, layers=0),
    "bert": lambda folder: BERTEncoder(folder, DIM),
    "reasoner": lambda folder: TransformerReasoner(DIM, 2, heads=2, drop=0.0),
    "reasoner, norm last": lambda folder: TransformerReasoner(DIM, 2, heads=2, drop=0.0, norm_last=True),
    "reasoner, printed": lambda folder: TransformerReasoner(DIM, 2, heads=2, drop=0.0, printed_residual=True),
    "reasoner, cls": lambda folder: TransformerReasoner(DIM, heads=2, drop=0.0, cls=True, positions=20),
    "region graph": lambda folder: RegionGraph(DIM, 2),
    "region graph, released": lambda folder: RegionGraph(DIM, 2, released_normalisation=True),
} | {
    f"pool {name} {options}": lambda _, name=name, options=options: build_pool(
        name, DIM, **NEEDED.get(name, {}) | options
    )
    for name, options in CASES
}
SILENT = ("key.bias", "score.bias")  # a number that is added to all of a softmax's logits moves nothing


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    """A small BERT with random weights, as the hub would deliver it."""
    folder = tmp_path_factory.mktemp("bert")
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 12}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2}
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    BertModel(BertConfig(**sizes, **layers, **drop)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=PARTS)
def name(request):
    return request.param


@pytest.fixture
def part(name, bert_folder):
    torch.manual_seed(0)
    return trained(PARTS[name](bert_folder))


def inputs(part, rows=4, elements=7):
    """What the part reads, and which of it is real: anywhere, but where places count at the beginning."""
    x, mask = batch(rows=rows, elements=elements)
    if isinstance(part, TextEncoder | TransformerReasoner):
        mask = prefix_mask(mask.sum(1).tolist(), elements)
    if isinstance(part, TextEncoder):
        x = torch.randint(1, WORDS, mask.shape, generator=torch.Generator().manual_seed(1))
    return x, mask


def returned(part, x, mask=None):
    """All that it returns of what is real: vectors, sets and what losses read besides, or elements (n, D)."""
    found = part(x, mask)
    if isinstance(found, tuple) and not isinstance(found[1], dict):
        elements, real = found
        return [elements.flatten(0, 1) if real is None else elements[real]]
    return [found] if isinstance(found, torch.Tensor) else [found[0], *found[1].values()]


def with_padding(part, x, mask):
    """Its vectors, sets or elements, whatever is in the elements' padding."""
    found = part(x, mask)
    return found[0] if isinstance(found, tuple) else found


def total(values):
    """A sum that depends on every value in its own way."""
    found = torch.cat([one.flatten() for one in values])
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype, device=found.device)
    return (found * weights).sum() + found.square().sum()


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


def test_no_mask_is_a_mask_of_all_and_the_company_changes_nothing(part):
    x, mask = inputs(part)
    close(returned(part, x), returned(part, x, mask | True))
    alone = [returned(part, one[real][None]) for one, real in zip(x, mask, strict=True)]  # one element too
    close([torch.cat(rows) for rows in zip(*alone, strict=True)], returned(part, x, mask))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("junk", [math.nan, -math.inf, 1e300])
def test_neither_what_is_in_the_padding_nor_how_much_there_is_changes_anything(part, training, junk):
    (x, mask), words = inputs(part), isinstance(part, TextEncoder)

    def run(fill, more):
        """Values, gradients and running averages, with something in the padding, and more of it behind."""
        module = copy.deepcopy(part).train(training)
        torch.manual_seed(3)
        read = list(module.parameters())
        if words:
            given = pad(torch.where(mask, x, 29 if fill else 0), (0, more), value=28)
        else:
            read.append(torch.where(mask.unsqueeze(-1), x, fill).requires_grad_())
            given = pad(read[-1], (0, 0, 0, more), value=fill)
        values = returned(module, given, pad(mask, (0, more)))
        gradients = torch.autograd.grad(total(values), read, allow_unused=True)
        gradients = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, read, strict=True)]
        assert words or not gradients[-1][~mask].any()
        return values, gradients, dict(module.named_buffers())

    clean = run(0.0, 0)
    for more in (0, 3):
        close(run(junk, more), clean)


def test_gradient_is_that_of_the_values(part):
    x, mask = inputs(part, rows=3, elements=4)
    part.train(any(isinstance(module, ElementNorm) for module in part.modules()))
    if isinstance(part, WindowEncoder):
        part.embedding.padding_idx = None  # whose vector gets no gradient, since it stays 0
    names, weights = zip(*part.named_parameters(), strict=True) if list(part.parameters()) else ((), ())
    weights = [weight.detach().clone().requires_grad_() for weight in weights]

    class Run(nn.Module):
        def forward(self, x):
            return tuple(returned(part, x, mask))

    def run(x, *weights):
        torch.manual_seed(3)
        held = {f"part.{name}": weight for name, weight in zip(names, weights, strict=True)}
        module = Run()
        module.part = part
        return torch.func.functional_call(module, held, (x,))

    x = x.requires_grad_() if x.is_floating_point() else x
    assert torch.autograd.gradcheck(run, (x, *weights), fast_mode=True)


def test_every_weight_learns(name, part):
    x, mask = inputs(part)
    x = x.requires_grad_() if x.is_floating_point() else x  # a pool may have no weights
    total(returned(part.train(), x, mask)).backward()
    silent = [key for key, weight in part.named_parameters() if weight.grad is None or not weight.grad.any()]
    fixed = "token.weight" if "'token_share': 0.0" in name else "-"  # all the weight is on the other level
    assert not [key for key in silent if not key.endswith((*SILENT, fixed))]


def test_works_under_autocast(name, part):
    x, mask = inputs(part.float())
    exact = returned(part, x.float() if x.is_floating_point() else x, mask)
    for dtype in (torch.float32, torch.bfloat16) if "pool" in name else (torch.float32,):
        given = x.to(dtype).requires_grad_() if x.is_floating_point() else x
        with torch.autocast("cpu", torch.bfloat16):
            rounded = [one.float() for one in returned(part, given, mask)]
        for one, other in zip(rounded, exact, strict=True):
            assert (one - other).norm() < (0.1 if "pool" in name else 0.05) * other.norm()
        if given.requires_grad:
            (gradient,) = torch.autograd.grad(total(rounded), given)
            assert gradient.isfinite().all() and not gradient[~mask].any()
    if isinstance(part, GRUEncoder):  # which leaves it: small updates of a state would vanish
        assert torch.equal(rounded[0], exact[0])


def test_what_does_not_fit_is_named(name, part):
    x, mask = inputs(part)
    bad = [(x[0], None), (x[:, :0], None), (x.long() if x.is_floating_point() else x.float(), None)]
    bad += [(x, wrong) for wrong in (mask[:, :2], mask.float(), mask & (torch.arange(4) != 1)[:, None])]
    with_weights = any(hasattr(part, own) for own in ("dim", "predict", "pool"))
    if ("pool" not in name and x.is_floating_point()) or with_weights:
        bad.append((x[..., :4], None))  # it has weights for one width
    for given in bad:
        wrong = "x|local|pictures|tokens" if given[1] is None else "mask"
        with pytest.raises(ValueError, match=rf"^({wrong}) (is|must)"):
            part(*given)


LEAVE_AUTOCAST = ("gru", "gpo", "seq2seq", "'residual': False", "bert", "region")


@pytest.mark.parametrize("masked", [False, True])
def test_nothing_asks_a_gpu_for_a_number_nor_leaves_it(name, masked):
    """Tensors that pretend to be on a GPU have no numbers, and meet none that are elsewhere."""
    if any(word in name for word in LEAVE_AUTOCAST):
        pytest.skip("leaves autocast, which asks for a GPU's driver, or is loaded from a folder")
    with FakeTensorMode():
        with torch.device("cuda"):
            fake = PARTS[name](None).train()
        for rows in (2, 9):  # fewer sets than elements, and more
            x = torch.rand(rows, 7, DIM, device="cuda")
            x = torch.ones(rows, 7, dtype=torch.long, device="cuda") if isinstance(fake, TextEncoder) else x
            mask = torch.ones(rows, 7, dtype=torch.bool, device="cuda") if masked else None
            elements = with_padding(fake, x, mask)
            assert elements.device.type == "cuda" and len(elements) == rows


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_waits_for_a_gpu(part, masked):
    x, mask = inputs(part.float().cuda().train())
    x, mask = (x.float() if x.is_floating_point() else x).cuda(), mask.cuda() if masked else None
    with_padding(part, x, mask).sum().backward()  # cuDNN and cuBLAS make their preparations
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with_padding(part, x, mask).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
