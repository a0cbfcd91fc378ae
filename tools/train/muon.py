"""Muon: momentum whose matrix is replaced by the nearest orthogonal one before each step (Newton-Schulz, in bf16 on a GPU)."""
import torch


def orthogonalise(g, steps=5):
    """Approximately U V' of each matrix [.., m, n]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = (g.bfloat16() if g.is_cuda else g.float())
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    """Each parameter is a stack of matrices [.., m, n]; `split` in a group cuts m into that many matrices of their own."""

    def __init__(self, groups, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(groups, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, split=1))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                buf = state["momentum"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(buf, group["momentum"])
                m, n = p.shape[-2] // group["split"], p.shape[-1]
                u = orthogonalise(g.reshape(-1, m, n)).view_as(p)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(u * (group["lr"] * max(1.0, m / n) ** 0.5))
