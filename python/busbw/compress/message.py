"""How selected entries travel: a fixed number of bytes for a bucket, the same on every rank."""

from dataclasses import dataclass

import torch

_ALIGNMENT = 8
"""Bytes. Both halves of a message start at a multiple of the widest type, so that they can be viewed."""

MAX_ENTRIES = 2**31 - 1
"""Indices travel as int32."""


@dataclass(frozen=True)
class Message:
    """The layout of `k` indices (int32) followed by `k` values.

    Attributes:
        k: number of entries.
        value_dtype: the type in which values travel.
    """

    k: int
    value_dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Length of one rank's message in bytes."""
        return self._values_at + _aligned(self.k * self.value_dtype.itemsize)

    @property
    def _values_at(self) -> int:
        return _aligned(self.k * 4)

    def encode(self, values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Write entries as bytes.

        Args:
            values: shape `[k]`, of `value_dtype`.
            indices: shape `[k]`, below 2^31.

        Returns:
            uint8 of shape `[nbytes]`, on the device of `values`.
        """
        message = torch.zeros(self.nbytes, dtype=torch.uint8, device=values.device)
        self._indices(message).copy_(indices)
        self._values(message).copy_(values)
        return message

    def add_all(self, messages: torch.Tensor, total: torch.Tensor) -> None:
        """Add the entries of every rank's message to `total`.

        Ranks are added one after another, in their order: every rank then gets the same sum to the
        last bit (one `index_add_` of them all would add in any order on a GPU, and the copies of the model
        would drift apart).

        Args:
            messages: uint8 of shape `[ranks, nbytes]`.
            total: shape `[n]`, changed in place.
        """
        if self.k == 0:
            return
        for message in messages:
            total.index_add_(0, self._indices(message).long(), self._values(message).to(total.dtype))

    def _indices(self, message: torch.Tensor) -> torch.Tensor:
        return message[: 4 * self.k].view(torch.int32)

    def _values(self, message: torch.Tensor) -> torch.Tensor:
        end = self._values_at + self.k * self.value_dtype.itemsize
        return message[self._values_at : end].view(self.value_dtype)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
