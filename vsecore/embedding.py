"""The output of a tower, which every similarity and loss reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """Scale vectors (..., D) to length one; a zero vector stays zero and its gradient stays finite.

    Dividing by max(length, tiny), as is usual, would multiply the gradient of a zero vector by 1/tiny.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
    return x / torch.where(length > 0, length, 1)  # (..., D)


@dataclass
class Embedding:
    """Embedded pictures or captions. Each similarity or loss takes what it needs.

    Attributes:
        vectors: unit vectors (B, D), or sets of them (B, K, D); None if only elements are compared.
        elements: the vectors before pooling, (B, N, D): cells, regions, patches or words; None if nothing
            reads them later.
        mask: bool (B, N), True where an element is real; None: all are.
        extra: whatever else a head returns, by name, each with B rows: "slots" before a global vector is
            added, "log_variance".
    """

    vectors: Tensor | None
    elements: Tensor | None = None
    mask: Tensor | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return B, the number of pictures or captions."""
        for tensor in (self.vectors, self.elements, *self.extra.values()):
            if tensor is not None:
                return len(tensor)
        raise ValueError("the embedding holds nothing")

    def needed(self, name: str) -> Tensor:
        """Return the vectors, (B, D) or (B, K, D), the elements, (B, N, D), or a name in `extra`."""
        tensor = {**self.extra, "vectors": self.vectors, "elements": self.elements}.get(name)
        if tensor is None:
            raise ValueError(
                f"the embedding has no {name}: a loss or similarity must name what it reads in its attribute "
                "`reads`, and vectors, slots and the like come from a tower's pool: not every pool has them"
            )
        return tensor

    def only(self, names: Collection[str]) -> Embedding:
        """Keep what has one of these names: "vectors", "elements" (with the mask), or a name in `extra`."""
        elements, mask = (self.elements, self.mask) if "elements" in names else (None, None)
        vectors = self.vectors if "vectors" in names else None
        return Embedding(
            vectors, elements, mask, {name: x for name, x in self.extra.items() if name in names}
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Embedding:
        """Return the same embedding with every tensor changed by a function."""
        vectors, elements, mask = (
            None if tensor is None else change(tensor) for tensor in (self.vectors, self.elements, self.mask)
        )
        return Embedding(vectors, elements, mask, {name: change(x) for name, x in self.extra.items()})

    def __getitem__(self, rows: slice | Tensor) -> Embedding:
        return self.map(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str) -> Embedding:
        """Return the embedding on a device."""
        return self.map(lambda tensor: tensor.to(device))

    def float(self) -> Embedding:
        """Return the embedding in float32, its mask as it is."""
        return self.map(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)


def joined(parts: Sequence[Embedding]) -> Embedding:
    """Concatenate embeddings; smaller sets are padded to the size of the largest."""
    most = max(0 if part.elements is None else part.elements.shape[1] for part in parts)

    def padded(x: Tensor) -> Tensor:
        if x.shape[1] == most:
            return x
        return torch.cat([x, x.new_zeros(len(x), most - x.shape[1], *x.shape[2:])], dim=1)

    def cat(tensors: Iterable[Tensor | None], pad: bool = True) -> Tensor | None:
        given = [padded(tensor) if pad else tensor for tensor in tensors if tensor is not None]
        return torch.cat(given) if given else None

    return Embedding(
        cat((part.vectors for part in parts), pad=False),
        cat(part.elements for part in parts),
        cat(part.mask for part in parts),
        {name: torch.cat([part.extra[name] for part in parts]) for name in parts[0].extra},
    )
