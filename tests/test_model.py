"""VSE: two towers, unit vectors, one space."""

import pytest
import torch
from torch import nn

from vsecore.data.batches import Batch
from vsecore.encoders import BiGRUEncoder, CellEncoder
from vsecore.model import VSE
from vsecore.pooling import MaxPool, MeanPool
from vsecore.pooling.set_pools import ProjectedPool
from vsecore.similarity import Cosine


def model(image_encoder=None, width=6):
    torch.manual_seed(0)
    return VSE(
        image_encoder or CellEncoder(7, width), MeanPool(), BiGRUEncoder(30, 8, 6), MaxPool(), Cosine()
    )


class FirstTwo(nn.Module):
    """A pool that gives a set, and says what came first."""

    def forward(self, x, mask):
        return x[:, :2], {"first": x[:, 0]}


def batch():
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 3:] = False
    token_mask = torch.ones(4, 6, dtype=torch.bool)
    token_mask[2, 2:] = False
    return Batch(
        pictures=torch.randn(3, 5, 7, generator=generator),
        picture_mask=mask,
        tokens=torch.randint(0, 30, (4, 6), generator=generator),
        token_mask=token_mask,
        picture_rows=torch.tensor([4, 0, 2]),
        caption_rows=torch.tensor([20, 1, 11, 2]),
        owner_rows=torch.tensor([4, 0, 2, 0]),
    )


def test_an_embedding_keeps_what_was_pooled():
    x = batch()
    v, t = model()(x)
    assert v.elements.shape == (3, 5, 6) and t.elements.shape == (4, 6, 6)
    assert torch.equal(v.mask, x.picture_mask) and torch.equal(t.mask, x.token_mask)
    assert (len(v), len(t)) == (3, 4) and v.extra == {}
    some = t[torch.tensor([3, 0])]
    assert torch.equal(some.elements, t.elements[[3, 0]]) and torch.equal(some.mask, t.mask[[3, 0]])
    assert t.map(torch.Tensor.double).float().vectors.dtype == torch.float32


@pytest.mark.parametrize("pool", [MeanPool(), ProjectedPool(6), MaxPool()], ids=["mean", "projected", "max"])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_a_mean_of_cells_is_taken_before_they_are_projected_where_no_cell_is_read(pool, drop):
    vse, x, seen = model(CellEncoder(7, 6, drop=drop)), batch(), []
    vse.image_pool = pool
    vse.image_encoder.register_forward_hook(lambda encoder, read, encoded: seen.append(encoded[0].shape[1]))
    gradients = []
    for read in ({"vectors", "elements"}, {"vectors"}):
        torch.manual_seed(2)
        v, _ = vse(x, read=read)
        gradients.append(torch.autograd.grad(v.vectors[..., 0].sum(), vse.image_encoder.project.weight)[0])
    assert seen == [5, 5 if drop or isinstance(pool, MaxPool) else 1]
    torch.testing.assert_close(*gradients)
    vse.image_reasoner = nn.MultiheadAttention(6, 1)
    assert not vse._averages_projections()


def test_a_pool_or_encoder_of_ones_own_sees_every_cell():
    class Squared(CellEncoder):
        def forward(self, pictures, mask=None):
            cells, mask = super().forward(pictures, mask)
            return cells.square(), mask

    class Rectified(MeanPool):
        def forward(self, x, mask=None):
            return super().forward(x.relu(), mask)

    x = batch()
    for encoder, pool in ((Squared(7, 6), MeanPool()), (CellEncoder(7, 6), Rectified())):
        vse = model(encoder)
        vse.image_pool = pool
        torch.testing.assert_close(vse(x, read={"vectors"})[0].vectors, vse(x)[0].vectors)


def test_a_tower_may_have_no_pool_or_one_with_more_to_say():
    vse = model()
    vse.image_pool = None
    v = vse.encode_pictures(batch().pictures, batch().picture_mask)
    assert v.vectors is None and len(v) == 3
    with pytest.raises(ValueError, match="no vectors"):
        vse.scores(v, v)
    vse.image_pool = FirstTwo()
    v = vse.encode_pictures(batch().pictures, batch().picture_mask)
    torch.testing.assert_close(v.vectors.norm(dim=-1), torch.ones(3, 2))
    assert torch.equal(v.extra["first"], v.elements[:, 0])


def test_a_tower_is_its_encoder_its_pool_and_length_one():
    vse, x = model(), batch()
    elements = vse.image_encoder.project(x.pictures[1, :3])  # two of its five cells are padding
    wanted = nn.functional.normalize(elements.mean(0), dim=0)
    torch.testing.assert_close(vse.encode_pictures(x.pictures, x.picture_mask).vectors[1], wanted)


def test_towers_of_different_width_are_refused():
    vse = model(width=5)
    with pytest.raises(ValueError, match="t is"):
        vse.scores(*vse(batch()))


def test_pretrained_parameters_are_those_of_the_backbones():
    backbone = nn.Conv2d(3, 7, 4)
    assert list(model().pretrained_parameters()) == []
    found = list(model(CellEncoder(7, 6, backbone)).pretrained_parameters())
    assert {id(p) for p in found} == {id(p) for p in backbone.parameters()}
