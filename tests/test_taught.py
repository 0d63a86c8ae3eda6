"""The code taught in a notebook's cell and the package's code give equal numbers.

The cells themselves are taken from the notebooks' texts and run here, on inputs that the notebooks do not
use, in float64. A notebook's table sets paper, cell and package side by side; each row is held here.
"""

import importlib
import re
from copy import deepcopy
from itertools import permutations
from types import SimpleNamespace
from unittest.mock import patch

import faiss
import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn
from torch.nn import functional as F

from course.approximate import flat, quantised, top
from course.checks import EXERCISES
from course.checks.borrowed import borrowed
from course.checks.learning_to_rank import CASES
from small import recipe, small_data
from taught import TEXTS, cells, solved, taught
from vsecore import evaluation, masking, pooling, scenes, sets, similarity
from vsecore.data.batches import make_loader
from vsecore.embedding import Embedding
from vsecore.encoders import BiGRUEncoder, CaptionTransformer, CellEncoder, RegionEncoder
from vsecore.encoders.reasoning.transformer import Block
from vsecore.experiments.statistics import doubts, judge
from vsecore.losses import (
    LagrangeMultiplier,
    LatentTargetDecoder,
    NodePooling,
    adaptive_offline_quintuplet,
    info_nce,
    node_cross_attention_loss,
    node_pooling_loss,
    offline_quintuplet,
    offline_triplet,
    reconstruction_loss,
    sample_gaussians,
)
from vsecore.losses.captioning import captioning_loss
from vsecore.mining import mine_offline_negatives
from vsecore.processes import _Gather
from vsecore.recipes import get
from vsecore.sets import SlotSetPrediction
from vsecore.similarity import cosine
from vsecore.training import System

COMPARED = {}


def compares(notebook, *names):
    """Mark what compares functions of a notebook with the package's."""

    def note(compare):
        COMPARED.update({(notebook, name): compare for name in names})
        return compare

    return note


def batches():
    sizes = (1, 2, 5, 33)
    return [torch.rand(size, size, dtype=torch.float64) * 2 - 1 for size in sizes]


@compares("01", "true_of")
def true_of():
    made = scenes.generate(40, seed=5, split="taught")
    for caption in (caption for picture in made for caption in picture.captions):
        for picture in made:
            expected = scenes.holds(caption.form, picture.scene)
            assert taught("01")["true_of"](caption.form, picture.scene) == expected, caption.text


def elements(width):
    """Random elements (B, N, width) of unequal number, large ones in the padding, and their mask."""
    torch.manual_seed(7)
    mask = torch.arange(5) < torch.tensor([2, 5, 1, 3])[:, None]
    x = torch.randn(4, 5, width, dtype=torch.float64)
    return x.masked_fill(~mask[..., None], 1e3), mask


@compares("02", "Cells")
def cells_of_pictures():
    theirs = CellEncoder(7, 6).double()
    ours = taught("02")["Cells"](7, 6).double()
    ours.load_state_dict(theirs.state_dict())
    x, _ = elements(7)
    torch.testing.assert_close(ours(x), theirs(x)[0])


@compares("02", "Regions")
def regions_of_pictures():
    for training in (True, False):
        theirs = RegionEncoder(7, 6).double().train(training)
        ours = taught("02")["Regions"](7, 6).double().train(training)
        ours.load_state_dict(theirs.state_dict())
        x, mask = elements(7)
        torch.testing.assert_close(ours(x, mask)[mask], theirs(x, mask)[0][mask])


@compares("02", "read")
def one_way():
    x, mask = elements(7)
    gru = nn.GRU(7, 6, batch_first=True).double()
    ours = taught("02")["read"](x, mask, gru.all_weights[0], range(5))
    torch.testing.assert_close(ours[mask], gru(x)[0][mask])  # forwards, padding comes too late to matter


@compares("02", "bigru")
def both_ways():
    _, mask = elements(1)
    theirs = BiGRUEncoder(9, 7, 6).double()
    tokens = torch.arange(20).reshape(4, 5) % 9
    ours = taught("02")["bigru"](theirs.embedding(tokens), mask, theirs.forwards, theirs.backwards)
    torch.testing.assert_close(ours[mask], theirs(tokens, mask)[0][mask])


def some_scores(ties):
    """Similarities (7, 21), and which picture owns each caption, in any order."""
    torch.manual_seed(7)
    owner = torch.arange(21)[torch.randperm(21)] % 7
    scores = torch.randn(7, 21, dtype=torch.float64)
    return (scores.round() if ties else scores), owner


@compares("03", "table_row")
def table_row():
    for ties in (False, True):
        theirs = evaluation.evaluate(*some_scores(ties))
        ours = taught("03")["table_row"](*evaluation.ranks(*some_scores(ties)))
        assert ours == pytest.approx({name: theirs[name] for name in ours})
        assert ours.keys() == theirs.keys() - {"rsum"}


def matrices(count):
    torch.manual_seed(count)
    return [torch.randn(4, 9, dtype=torch.float64) for _ in range(count)]


@compares("12", "mean_of")
def mean_of_matrices():
    for count in (1, 2, 5):
        theirs = evaluation.ensemble(*matrices(count))
        torch.testing.assert_close(taught("12")["mean_of"](matrices(count)), theirs)


@compares("12", "as_one")
def ensemble_as_one():
    pairs = [
        [width * torch.randn(rows, width, dtype=torch.float64) for rows in (4, 9)] for width in (2, 7, 3)
    ]
    v, t = (taught("12")["as_one"](list(side)) for side in zip(*pairs, strict=True))
    torch.testing.assert_close(v @ t.T, evaluation.ensemble(*(cosine(*pair) for pair in pairs)))


def pictures_and_words():
    """Regions (4, 5, 6) and words (3, 5, 6), each with its mask."""
    v, v_mask = elements(6)
    t, t_mask = elements(6)
    return v, v_mask, 1 - t[:3].flip(2), t_mask[:3]


def real_pairs():
    """Each picture with each caption: their rows, the real regions (N, 6) and the real words (L, 6)."""
    v, v_mask, t, t_mask = pictures_and_words()
    for b in range(len(v)):
        for c in range(len(t)):
            yield b, c, v[b, v_mask[b]], t[c, t_mask[c]]


@compares("07", "attention_weights", "attended_score", "scan")
def cross_attention():
    """Both directions, and the weights by which each word reads."""
    t2i = similarity.cross_attention(*pictures_and_words())
    i2t = similarity.cross_attention(*pictures_and_words(), direction="i2t", smooth=4.0, lse=5.0)
    for b, c, regions, words in real_pairs():
        torch.testing.assert_close(taught("07")["scan"](words, regions), t2i[b, c])
        torch.testing.assert_close(taught("07")["scan"](regions, words, 4.0, 5.0), i2t[b, c])
        weights = taught("07")["attention_weights"](words, regions)
        torch.testing.assert_close(taught("07")["attended_score"](weights, words, regions), t2i[b, c])
        sides = [Embedding(None, x[None]) for x in (regions, words)]
        torch.testing.assert_close(weights, similarity.CrossAttention().weights(*sides)[0])


@compares("07", "one_caption")
def cross_attention_by_captions():
    v, v_mask, t, t_mask = pictures_and_words()
    expected = similarity.cross_attention(v, v_mask, t, t_mask)
    for c in range(len(t)):
        mine = taught("07")["one_caption"](v, v_mask, t[c, t_mask[c]])
        torch.testing.assert_close(mine, expected[:, c])


@compares("07", "relevance_from_products")
def cross_attention_without_reading():
    expected = similarity.cross_attention(*pictures_and_words(), aggregate="mean")
    for b, c, regions, words in real_pairs():
        r, w = (F.normalize(x, dim=1) for x in (regions, words))
        weights = taught("07")["attention_weights"](words, regions)
        mine = taught("07")["relevance_from_products"](weights, w @ r.T, r @ r.T)
        torch.testing.assert_close(mine.mean(), expected[b, c])


@compares("07", "refocus", "bfan")
def focal_attention():
    for focus in ("equal", "prob"):
        expected = similarity.focal_attention(*pictures_and_words(), focus)
        for b, c, regions, words in real_pairs():
            torch.testing.assert_close(taught("07")["bfan"](words, regions, focus), expected[b, c])
            weights = taught("07")["attention_weights"](words, regions, 20.0)
            sides = [Embedding(None, x[None]) for x in (regions, words)]
            theirs = similarity.FocalAttention(focus).weights(*sides)[0]
            torch.testing.assert_close(taught("07")["refocus"](weights, focus), theirs)


@compares("08", "hide_own", "merge", "mine")
def mined_negatives():
    v, t = (torch.randn(rows, 6) for rows in (11, 37))
    owner = torch.randint(11, (37,))
    theirs = mine_offline_negatives(v, t, owner, texts=9, pictures=4, block=5)
    for block in (3, 11):
        texts, pictures = taught("08")["mine"](v, t, owner, 9, 4, block)
        assert texts.tolist() == theirs.texts.tolist() and pictures.tolist() == theirs.pictures.tolist()


@compares("10", "sort_weigh_sum")
def weights_of_old_poolers():
    x = elements(6)[0]
    for theta, pool in (
        ([0.2] * 5, pooling.MeanPool()),
        ([1.0, 0, 0, 0, 0], pooling.MaxPool()),
        ([0.5, 0.5, 0, 0, 0], pooling.KMaxPool(2)),
    ):
        ours = taught("10")["sort_weigh_sum"](x, torch.tensor(theta, dtype=x.dtype))
        torch.testing.assert_close(ours, pool(x))


@compares("10", "sort_rows")
def sorted_rows():
    x, mask = elements(6)
    pair = [x.clone().requires_grad_() for _ in range(2)]
    for mine, sort in zip(pair, (taught("10")["sort_rows"], pooling.sort_descending), strict=True):
        sort(mine, mask).square().sum().backward()
    torch.testing.assert_close(taught("10")["sort_rows"](x, mask), pooling.sort_descending(x, mask))
    torch.testing.assert_close(pair[0].grad, pair[1].grad)


@compares("10", "safe_softmax")
def softmax_without_padding():
    for width in (1, 6):
        x, mask = elements(width)
        theirs = masking.softmax_over_real(x, mask)
        torch.testing.assert_close(taught("10")["safe_softmax"](x, mask), theirs)


@compares("10", "place_code", "gpo_weights")
def weights_of_places():
    pool = pooling.GPO()
    for count in (1, 2, 7, 36):
        ours = taught("10")["gpo_weights"](taught("10")["place_code"](count), pool.gru, pool.linear)
        torch.testing.assert_close(ours, pool.weights(torch.tensor([count]))[0])


@compares("10", "adpool")
def adaptive_pool():
    x, mask = elements(6)
    pool = pooling.AdPool(6).double()
    real = masking.sorted_mask(x, mask)
    token = taught("10")["token_level"](pooling.sort_descending(x, mask), real, pool.token.weight.T)
    both = taught("10")["adpool"](token, x, mask, pool.balance.weight.T)
    torch.testing.assert_close(both, pool(x, mask))
    even = taught("10")["adpool"](token, x, mask, torch.zeros(6, 1).double())
    torch.testing.assert_close(even, (token + pooling.SoftPool()(x, mask)) / 2)


@compares("13", "heads", "add_global")
def sets_of_heads():
    x, mask = elements(6)
    net = sets.PIENet(6, slots=3, hidden=5).double()
    global_ = x.mean(1)
    found = taught("13")["heads"](x, mask, net.attend[0].weight.T, net.attend[2].weight.T)
    ours = taught("13")["add_global"](found, global_, net.project.weight, net.project.bias)
    torch.testing.assert_close(ours, net(x, global_, mask))


@compares("13", "mil", "match_probability")
def similarities_of_sets():
    v, t = (torch.randn(*shape, dtype=torch.float64) for shape in ((3, 2, 5), (4, 3, 5)))
    torch.testing.assert_close(taught("13")["mil"](v, t), similarity.mil(v, t))
    ours = taught("13")["match_probability"](v, t, 3.0, -1.0)
    torch.testing.assert_close(ours, similarity.match_probability(v, t, 3.0, -1.0))


@compares("13", "circular_variance")
def spread_of_sets():
    given = torch.randn(5, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(taught("13")["circular_variance"](given), sets.circular_variance(given))


@compares("13", "sample")
def clouds_of_points():
    mean, log_variance = torch.randn(2, 5, 3, dtype=torch.float64)
    torch.manual_seed(4)
    points = sample_gaussians(mean, log_variance, 6)
    torch.manual_seed(4)
    noise = torch.randn(5, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(taught("13")["sample"](mean, log_variance, noise), points)


@compares("05", "norm")
def normalised():
    x, _ = elements(6)
    torch.testing.assert_close(taught("05")["norm"](x), nn.LayerNorm(6).double()(x))


@compares("05", "block")
def transformer_block():
    x, mask = elements(8)
    theirs = Block(8, 2, 16, 0.0).double()
    layer = theirs.layer
    with torch.no_grad():
        for bias in (layer.linear1.bias, layer.linear2.bias):  # the thesis has none; the others begin at zero
            bias.zero_()
    weights = (
        layer.self_attn.in_proj_weight,
        layer.self_attn.out_proj.weight,
        layer.linear1.weight,
        layer.linear2.weight,
    )
    ours = taught("05")["block"](x, mask, *weights, 2)
    torch.testing.assert_close(ours[mask], theirs(x, mask)[mask])


@compares("05", "push")
def padding_in_front():
    """A caption that is pushed gives what the package gives for one that begins at that position."""
    mask = torch.arange(6) < torch.tensor([3, 6, 2])[:, None]
    tokens = torch.arange(18).view(3, 6).masked_fill(~mask, 0)
    theirs = CaptionTransformer(18, 4, 8, layers=1, heads=2, longest=6).double().eval()
    for start in range(4):
        shift = torch.tensor([min(start, 3), 0, start])
        moved, real = taught("05")["push"](tokens, mask, shift)
        assert torch.equal(moved[real], tokens[mask])
        late = theirs(moved, real)[0]
        for row in range(3):
            begins = int(shift[row])
            theirs_late = deepcopy(theirs)
            theirs_late.positions = nn.Parameter(theirs.positions[begins:])
            alone = theirs_late(tokens[row : row + 1, mask[row]], None)[0][0]
            torch.testing.assert_close(late[row, real[row]], alone)


@compares("06", "node_pooling")
def pools_of_nodes():
    x, mask = elements(6)
    pool = NodePooling(6, 3).double()
    pools, weights = taught("06")["node_pooling"](x, mask, pool.weight)
    torch.testing.assert_close(pools, pool(x, mask))
    torch.testing.assert_close(weights, pool.weights(x, mask))


@compares("06", "hardest", "pool_loss", "attend", "node_hinges", "attention_loss")
def node_losses():
    """Equal values and equal gradients of both losses on nodes, with the negatives of random scores."""
    x, x_mask = elements(6)
    y, y_mask = x.flip(0, 2).contiguous(), x_mask.flip(0)
    S = batches()[-1][:4, :4]
    hardest = taught("06")["hardest"](S, torch.eye(4) > 0)
    for margin in (0.0, 0.2, 1.0):
        pair = [x.clone().requires_grad_() for _ in range(2)]
        mine = taught("06")["pool_loss"](pair[0], y, *hardest, margin)
        mine = mine + taught("06")["attention_loss"](pair[0], y, x_mask, y_mask, *hardest, margin)
        theirs = node_pooling_loss(pair[1], y, S, margin)
        theirs = theirs + node_cross_attention_loss(pair[1], x_mask, y, y_mask, S, margin)
        torch.testing.assert_close(mine, theirs)
        (mine + theirs).backward()
        torch.testing.assert_close(pair[0].grad, pair[1].grad)


def seven_similarities():
    """Seven similarities of 33 pairs, and the unit vectors that the last four come from."""
    v, t, *others = F.normalize(torch.randn(6, 33, 5, dtype=torch.float64), dim=-1)
    v_own, t_off, v_off, t_own = others
    online = torch.rand(2, 33, dtype=torch.float64) - 0.5
    pairs = [(v, t_off), (v_off, t), (v_off, t_off), (v_own, t_own)]
    found = [(v * t).sum(1), *online, *((a * b).sum(1) for a, b in pairs)]
    return found, [(v_own, t_off), (v_off, t_own)]


@compares("09", "off_tri", "new_pairs", "weighted_online")
def offline_losses():
    found, sides = seven_similarities()
    positive, online, offline = found[0], found[1:3], found[3:5]
    for margins in ((0.2, 0.0), (0.5, 0.1)):
        equation_3 = taught("09")["off_tri"](positive, online, offline, *margins)
        torch.testing.assert_close(equation_3, offline_triplet(*found[:5], *margins))
        equation_4 = equation_3 + taught("09")["new_pairs"](positive, *sides, margins[1])
        torch.testing.assert_close(equation_4, offline_quintuplet(*found, *margins))
        for options in ((1.5, 0.3), (1.0, 0.7)):
            weighted = sum(
                taught("09")["weighted_online"](positive, *pair, margins[0], *options)
                for pair in zip(online, offline, strict=True)
            )
            plain = sum(taught("09")["hinge"](margins[0], positive, one).sum() for one in online)
            theirs = adaptive_offline_quintuplet(*found, *margins, *options)
            torch.testing.assert_close(equation_4 - plain + weighted, theirs)


@compares("09", "by_hand")
def gradients_by_hand():
    """Equation 6 is the gradient of the package's loss, where only one side's negatives are near."""
    positive, online, _, offline, *_ = seven_similarities()[0]
    points = [one.clone().requires_grad_() for one in (positive, online, offline)]
    far = torch.full_like(positive, -9)
    adaptive_offline_quintuplet(points[0], points[1], far, points[2], far, far, far).backward()
    for mine, point in zip(taught("09")["by_hand"](positive, online, offline), points, strict=True):
        torch.testing.assert_close(mine.double(), point.grad)


@compares("14", "shares_of", "receive", "predict_set")
def slot_attention():
    """Equations 2 to 5, with padding that holds anything, on weights of the package's module."""
    module = SlotSetPrediction(6, slots=3, iterations=2, hidden=10).double().eval()
    local, whole = torch.randn(5, 9, 6).double(), torch.randn(5, 6).double()
    mask = torch.arange(9) < torch.tensor([9, 4, 1, 7, 2])[:, None]
    theirs = module(local, whole, mask)
    torch.testing.assert_close(taught("14")["predict_set"](module, local, whole, mask), theirs)
    module.keep_attention = True
    module(local, whole, mask)
    x = module.norm_local(local)
    queries = module.query(module.norm_slots(module.start.expand(5, -1, -1)))
    shares = taught("14")["shares_of"](module.key(x), queries, mask)
    torch.testing.assert_close(shares.detach(), module.attention[:, 0])


@compares("14", "smooth", "gradient_by_hand")
def smooth_chamfer_by_hand():
    """Equations 6 and 8: values, and the gradient by every cosine."""
    for k, n in ((4, 4), (1, 1), (3, 5)):
        v, t = (torch.randn(2, size, 6).double() for size in (k, n))
        v, t = F.normalize(v, dim=-1), F.normalize(t, dim=-1)
        for alpha in (1.0, 16.0, 100.0):
            theirs = similarity.smooth_chamfer(v, t, alpha)
            torch.testing.assert_close(taught("14")["smooth"](v, t, alpha), theirs)
            c = (v[0] @ t[0].T).requires_grad_()
            score = similarity.SmoothChamfer(alpha).score(c.clone()[None, :, :, None]).sum()
            (expected,) = torch.autograd.grad(score, c)
            mine = taught("14")["gradient_by_hand"](c.detach(), alpha)
            torch.testing.assert_close(mine, expected)


@compares("16", "decode", "rec_loss")
def latent_target_by_hand():
    module = LatentTargetDecoder(6, 5, hidden=9).double()
    z, target = torch.randn(4, 6).double(), torch.randn(4, 5).double()
    weights = [parameter.detach() for parameter in module.parameters()]
    pred = taught("16")["decode"](z, *weights)
    torch.testing.assert_close(pred, module(z).detach())
    mine = taught("16")["rec_loss"](pred, target)
    torch.testing.assert_close(mine, reconstruction_loss(pred, target))


@compares("15", "pulls")
def pulls_by_hand():
    """Equation 2: minus the gradient of the package's loss, one direction of it, times tau."""
    v, t = (F.normalize(torch.randn(6, 5).double(), dim=1) for _ in range(2))  # (B, D), (C, D)
    for tau in (0.05, 0.7):
        both = []
        for queries, others in ((v, t), (t, v)):
            by_query = [taught("15")["pulls"](queries[own], others, own, tau) for own in range(6)]
            both.append([torch.stack(one) for one in zip(*by_query, strict=True)])
        (first, to_t), (second, to_v) = both  # (6, D), (6, 6, D)
        x, y = v.clone().requires_grad_(), t.clone().requires_grad_()
        expected = torch.autograd.grad(-12 * tau * info_nce(x @ y.T, tau), (x, y))
        torch.testing.assert_close(first + to_v.sum(0), expected[0])
        torch.testing.assert_close(second + to_t.sum(0), expected[1])


@compares("15", "probe")
def probe_by_hand():
    z = torch.randn(30, 4).double() + 1
    said = (torch.rand(30, 3) > 0.6).double()
    for alpha in (1.0, 20.0):
        theirs = Ridge(alpha=alpha).fit(z.numpy(), said.numpy()).coef_  # as in `probes`
        mine = taught("15")["probe"](z, said, alpha)
        torch.testing.assert_close(mine, torch.from_numpy(theirs).T)


@compares("15", "loss_by_place")
def losses_of_places():
    """Added up over the places, with how many captions are so long, they are the loss of a caption."""
    logits, words = torch.randn(18, 9).double(), torch.randint(9, (5, 6))
    mask = torch.arange(6) < torch.tensor([6, 2, 4, 1, 5])[:, None]
    mine = taught("15")["loss_by_place"](logits, words, mask)
    theirs = captioning_loss(logits, words, mask)
    torch.testing.assert_close((mine * mask.sum(0)).sum() / 5, theirs)


@compares("16", "path")
def multiplier_by_hand():
    """The value of each step, also where it is held at both ends, and with other options."""
    rec = [0.02] * 30 + [0.9] * 30 + torch.rand(30).tolist()
    for options in ({}, {"lr": 0.2}, {"initial": 3.0, "lr": 2.0, "momentum": 0.5, "maximum": 9.0}):
        same = options | {"dampening": options.get("momentum", 0.9)}
        multiplier, used = LagrangeMultiplier(0.2, **same), []
        for one in rec:
            used.append(float(multiplier.value))
            multiplier.step(torch.tensor(one))
        mine = taught("16")["path"](rec, 0.2, **options)
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(used), rtol=1e-4, atol=1e-4)


@compares("04", "verdict")
def verdicts_of_one_measure():
    for differences in CASES:
        left = doubts(differences, 1.5)
        mine = taught("04")["verdict"](left.mean, 1.5, left.equal, left.beyond)
        assert {"better": "reproduced", "worse": "contradicted"}.get(mine, mine) == judge(left, "better")


@compares("17", "combine")
def three_ideas():
    made = taught("17")["combine"](get("vsepp_region_gru"))
    assert made.image.reasoner == get("2ad_region_gru+relations").image.reasoner
    assert (made.image.pool, made.losses) == (get("2ad_region_gru").image.pool, get("2ad_region_gru").losses)


@compares("17", "found_first")
def first_pictures():
    owner = torch.arange(35)[torch.randperm(35)] // 5
    scores = torch.rand(7, 35)
    own, true = taught("17")["found_first"](scores.argmax(0), owner, torch.ones(35, 7) > 0)
    assert own == pytest.approx(evaluation.evaluate(scores, owner)["t2i_r1"]) and true == 100


@compares("09", "cross_ranks")
def worse_of_two_ranks():
    owner = torch.arange(35)[torch.randperm(35)] // 5
    for scores in (torch.rand(7, 35), torch.randn(7, 35).round()):
        theirs = evaluation.cross_retrieval_ranks(scores, owner)
        torch.testing.assert_close(taught("09")["cross_ranks"](scores, owner).double(), theirs)


@compares("18", "cached_step")
def gradient_of_a_whole_batch():
    data = small_data(counts=False)
    tokenizer = recipe().tokenizer(data.train.captions)
    model = System(recipe(), data, tokenizer).model.double().train()
    batch = next(iter(make_loader(data.train, tokenizer, 10)))
    batch.pictures = batch.pictures.double()

    def loss(v, t):
        return ((v @ t.T) / 0.1).logsumexp(0).sum()

    def theirs():
        v, t = model(batch, 3)
        loss(v.vectors, t.vectors).backward()

    def mine():
        towers = (
            lambda x: model.encode_pictures(x).vectors,
            lambda x: model.encode_captions(x.clamp(min=0), x >= 0).vectors,
        )
        words = torch.where(batch.token_mask, batch.tokens, -1)
        taught("18")["cached_step"](towers, (batch.pictures, words), loss, 3)

    found = []
    for step in (theirs, mine):
        model.zero_grad()
        step()
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    torch.testing.assert_close(*found)


@compares("18", "gather_backward")
def way_back_of_a_gather():
    gradients = torch.randn(3, 6, 2, dtype=torch.float64)
    with (
        patch("torch.distributed.all_reduce", lambda one: one.copy_(gradients.sum(0))),
        patch("torch.distributed.get_rank", lambda: 1),
    ):
        theirs, _ = _Gather.backward(SimpleNamespace(sizes=[2, 2, 2]), gradients[1].clone())
    torch.testing.assert_close(taught("18")["gather_backward"](gradients, 1), theirs)


def indexed():
    dice = np.random.default_rng(7)
    return tuple(dice.standard_normal((rows, 16)).astype(np.float32) for rows in (400, 5))


@compares("19", "exact_search")
def search_in_blocks():
    vectors, queries = indexed()
    for query, wanted in zip(queries, top(flat(vectors), queries), strict=True):
        assert taught("19")["exact_search"](vectors, query, 10, 7)[1].tolist() == wanted.tolist()


@compares("19", "search_cells")
def search_in_cells():
    vectors, queries = indexed()
    index = quantised("IVF8,Flat", vectors, vectors)
    index.nprobe = 3
    centres = index.quantizer.reconstruct_n(0, 8)
    cell_of = index.quantizer.search(vectors, 1)[1][:, 0]
    members = [np.flatnonzero(cell_of == cell) for cell in range(8)]
    for query, wanted in zip(queries, top(index, queries), strict=True):
        found = taught("19")["search_cells"](query, centres, members, vectors, 10, 3)
        assert found.tolist() == wanted.tolist()


@compares("19", "scores_from_codes")
def search_by_codes():
    vectors, queries = indexed()
    index = quantised("PQ4x4", vectors, vectors)
    codebooks = faiss.vector_to_array(index.pq.centroids).reshape(4, 16, 4)
    packed = faiss.vector_to_array(index.codes).reshape(len(vectors), 2)  # two codes a byte
    codes = np.stack([packed & 15, packed >> 4], 2).reshape(len(vectors), 4)
    for query in queries:
        mine = taught("19")["scores_from_codes"](query, codebooks, codes)
        theirs, rows = index.search(query[None], len(vectors))
        np.testing.assert_allclose(mine[rows[0]], theirs[0], atol=1e-4)


def all_negatives_one_by_one(S, margin=0.2):
    pairs = permutations(range(len(S)), 2)
    return sum((margin + S[i, j] - own).clamp(min=0) for i, j in pairs for own in (S[i, i], S[j, j]))


def test_notebook_04_lets_a_loop_agree_with_the_package():
    (agree,) = (cell.source for cell in cells("04") if "\nnear = " in cell.source)
    exec(agree, taught("04") | {"seed": 0, "all_negatives": all_negatives_one_by_one})


HELD_BY_THEIR_CHECKS = (
    *(
        "02.mean",
        "02.gru",
        "03.captions",
        "03.precision",
        "03.ranks",
        "04.all",
        "04.siblings",
        "04.p_values",
        "04.holm",
    ),
    *("05.attention", "10.kmax", "10.token", "11.loss", "11.rule", "13.soft"),
)
"""Exercises whose references are the package's own functions, or torch's: `test_checks` runs the cells."""


@pytest.mark.parametrize("key", HELD_BY_THEIR_CHECKS)
def test_the_check_of_a_cell_compares_it_with_the_package(key):
    assert key in solved() and borrowed(EXERCISES[key].reference, (), EXERCISES[key].instead)


@pytest.mark.parametrize("notebook, name", COMPARED)
def test_the_cell_and_the_package_agree(notebook, name):
    torch.manual_seed(7)
    COMPARED[notebook, name]()


def rows(notebook):
    """Names of the cell's and of the package's code, from the notebook's table of paper, cell and package."""
    found = []
    for cell in cells(notebook):
        if cell.cell_type == "markdown" and re.search(
            r"^\| .*in this notebook \| in the package", cell.source, re.M
        ):
            for line in cell.source.splitlines():
                parts = [part.strip() for part in line.strip("| ").split(" | ")]
                if len(parts) == 3 and "`" in parts[1] and "`" in parts[2]:
                    found.append((parts[1], parts[2]))
    return found


@pytest.mark.parametrize("notebook", sorted(set(TEXTS) - {"00"}))
def test_the_table_of_paper_and_code_is_true(notebook):
    assert rows(notebook), "the notebook has no table | paper | in this notebook | in the package |"
    for here, there in rows(notebook):
        for name in re.findall(r"`(vsecore[\w.]+)", there):
            module, attribute = name.rsplit(".", 1)
            assert hasattr(importlib.import_module(module), attribute), name
        for name in re.findall(r"`(\w+)`", here):
            defined = taught(notebook).get(name)
            if callable(defined):
                held = {solved()[key] for key in HELD_BY_THEIR_CHECKS}
                assert (notebook, name) in {*COMPARED, *held}, f"{name} of {notebook} is compared nowhere"
