"""Rotary positions: adjacent pairs rotate as complex numbers; angles are fp32 products."""
import math

import numpy as np
import torch


def inverse_frequencies(width, theta, scaling=None):
    """fp32 [width/2]; with `scaling` (YaRN) the low frequencies are divided by its factor."""
    power = np.array([np.float32(float(theta) ** (2 * i / width)) for i in range(width // 2)])
    f = (np.float32(1.0) / power).astype(np.float32)
    if scaling:
        def correction(turns):
            return width * math.log(scaling["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(correction(scaling["beta_fast"])), 0)
        high = min(math.ceil(correction(scaling["beta_slow"])), width - 1)
        span = high - low if high != low else 0.001
        ramp = np.clip((np.arange(width // 2, dtype=np.float32) - np.float32(low)) / np.float32(span), 0, 1).astype(np.float32)
        keep = np.float32(1) - ramp
        f = f / np.float32(scaling["factor"]) * (np.float32(1) - keep) + f * keep
    return torch.from_numpy(f.astype(np.float32))


def rotation(positions, inv_freq, dtype):
    """(cos, sin), each [T, width/2]."""
    angle = positions.float()[:, None] * inv_freq[None, :]
    wide = angle.double() if dtype == torch.float64 else angle
    return torch.cos(wide), torch.sin(wide)


def rotate_tail(x, cos, sin, inverse=False):
    """Rotates the last 2*len(cos) channels of x [B, T, .., C]; cos and sin are [T, width/2]."""
    r = 2 * cos.shape[-1]
    shape = (1, cos.shape[0]) + (1,) * (x.dim() - 3) + (cos.shape[1],)
    c, s = cos.view(shape), sin.view(shape)
    s = -s if inverse else s
    head, tail = x[..., :-r], x[..., -r:].to(cos.dtype).unflatten(-1, (-1, 2))
    a, b = tail[..., 0], tail[..., 1]
    tail = torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)
    return torch.cat((head, tail.to(x.dtype)), -1)
