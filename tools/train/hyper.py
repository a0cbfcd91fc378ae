"""Manifold-constrained hyper-connections: how a sublayer reads from and writes to the H residual streams."""
import torch

from sinkhorn import sinkhorn


def mix(h, fn, scale, base, cfg):
    """h [B, T, H, D] -> pre [B, T, H], post [B, T, H], comb [B, T, H, H] (source, destination)."""
    n = cfg.hc_mult
    acc = torch.float64 if h.dtype == torch.float64 else torch.float32
    z = h.flatten(-2)
    rms = torch.rsqrt(z.to(acc).square().mean(-1, keepdim=True) + cfg.rms_norm_eps)
    m = torch.nn.functional.linear(z, fn.to(z.dtype)).to(acc) * rms
    scale, base = scale.to(acc), base.to(acc)
    pre = torch.sigmoid(m[..., :n] * scale[0] + base[:n]) + cfg.hc_eps
    post = 2 * torch.sigmoid(m[..., n:2 * n] * scale[1] + base[n:2 * n])
    logits = m[..., 2 * n:] * scale[2] + base[2 * n:]
    return pre, post, sinkhorn(logits.unflatten(-1, (n, n)), cfg.hc_sinkhorn_iters, cfg.hc_eps)


def collapse(h, pre):
    return (pre[..., None] * h.to(pre.dtype)).sum(-2).to(h.dtype)


def expand(y, h, post, comb):
    """out[k] = post[k] * y + sum_j comb[j][k] * h[j]."""
    carried = (comb[..., None] * h.to(comb.dtype)[..., :, None, :]).sum(-3)
    return (post[..., None] * y.to(post.dtype)[..., None, :] + carried).to(h.dtype)
