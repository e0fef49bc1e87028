"""Windows: what a fully connected head sees when it slides over features larger than those it was made for."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Windows(nn.Module):
    """Adaptive average pooling, of every window by itself: (B, C, H, W) → (B, P, C, *pooled).

    The P windows are `window` large, one step apart, in rows from left to right.
    """

    def __init__(self, window: tuple[int, int], pooled: tuple[int, int]) -> None:
        super().__init__()
        self.window, self.pooled = window, pooled

    def forward(self, features: Tensor) -> Tensor:
        height, width = self.window
        # Views until they are put side by side: as quick as a convolution with the head's weights, which would keep
        # them a second time, in an order of its own.
        windows = features.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, rows, columns, height, width)
        windows = windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)
        if self.pooled == self.window:
            return windows
        return F.adaptive_avg_pool2d(windows.flatten(0, 1), self.pooled).view(*windows.shape[:3], *self.pooled)

    def extra_repr(self) -> str:
        return f"window={self.window}, pooled={self.pooled}"
