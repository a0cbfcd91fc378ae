"""Sinkhorn normalisation of the stream-mixing matrices: plain PyTorch, and Triton kernels for training on a GPU.

The GPU version keeps a matrix in registers through all rounds; its backward pass runs them again, notes the divisors, and undoes
the steps one by one."""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def sinkhorn_plain(logits, iterations, eps):
    """logits [.., H, H]: row softmax + eps, a column step, then iterations-1 row and column steps."""
    x = torch.softmax(logits, -1) + eps
    x = x / (x.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        x = x / (x.sum(-1, keepdim=True) + eps)
        x = x / (x.sum(-2, keepdim=True) + eps)
    return x


def sinkhorn(logits, iterations, eps):
    if logits.is_cuda and triton is not None and logits.dtype == torch.float32 and (logits.shape[-1] & (logits.shape[-1] - 1)) == 0:
        return _sinkhorn_gpu(logits.contiguous(), iterations, eps)
    return sinkhorn_plain(logits, iterations, eps)


if triton is not None:
    @triton.jit
    def _start(z):
        e = tl.exp(z - tl.max(z, axis=2, keep_dims=True))
        return e / tl.sum(e, axis=2, keep_dims=True)

    @triton.jit
    def _places(n, H: tl.constexpr, BLOCK: tl.constexpr):
        """Offsets of BLOCK matrices, of their rows, of their columns; which of them exist."""
        b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        row, column = tl.arange(0, H)[None, :, None], tl.arange(0, H)[None, None, :]
        one = b[:, None, None]
        return one * (H * H) + row * H + column, one * H + row, one * H + column, (b < n)[:, None, None]

    @triton.jit
    def _forward_kernel(z_ptr, out_ptr, n, rounds, eps, H: tl.constexpr, BLOCK: tl.constexpr):
        at, rows, columns, ok = _places(n, H, BLOCK)
        x = _start(tl.load(z_ptr + at, mask=ok, other=0.0)) + eps
        x = x / (tl.sum(x, axis=1, keep_dims=True) + eps)
        for _ in range(rounds - 1):
            x = x / (tl.sum(x, axis=2, keep_dims=True) + eps)
            x = x / (tl.sum(x, axis=1, keep_dims=True) + eps)
        tl.store(out_ptr + at, x, mask=ok)

    @triton.jit
    def _backward_kernel(z_ptr, grad_ptr, out_ptr, sums_ptr, n, rounds, eps, H: tl.constexpr, BLOCK: tl.constexpr):
        """Runs forward keeping every divisor, then back: a step y = x / s gives dx = (g - sum(g y)) / s and x = y s."""
        at, rows, columns, ok = _places(n, H, BLOCK)
        softmax = _start(tl.load(z_ptr + at, mask=ok, other=0.0))
        g = tl.load(grad_ptr + at, mask=ok, other=0.0)
        first = tl.sum(softmax + eps, axis=1, keep_dims=True) + eps
        x = (softmax + eps) / first
        page = n * H
        for i in range(rounds - 1):
            by_row = tl.sum(x, axis=2, keep_dims=True) + eps
            tl.store(sums_ptr + 2 * i * page + rows, by_row, mask=ok)
            x = x / by_row
            by_column = tl.sum(x, axis=1, keep_dims=True) + eps
            tl.store(sums_ptr + (2 * i + 1) * page + columns, by_column, mask=ok)
            x = x / by_column
        tl.debug_barrier()
        for k in range(rounds - 1):
            i = rounds - 2 - k
            by_column = tl.load(sums_ptr + (2 * i + 1) * page + columns, mask=ok, other=1.0)
            g = (g - tl.sum(g * x, axis=1, keep_dims=True)) / by_column
            x = x * by_column
            by_row = tl.load(sums_ptr + 2 * i * page + rows, mask=ok, other=1.0)
            g = (g - tl.sum(g * x, axis=2, keep_dims=True)) / by_row
            x = x * by_row
        g = (g - tl.sum(g * x, axis=1, keep_dims=True)) / first
        g = softmax * (g - tl.sum(g * softmax, axis=2, keep_dims=True))
        tl.store(out_ptr + at, g, mask=ok)

    BLOCK = 64

    def _launch_forward(logits, rounds, eps):
        out, h = torch.empty_like(logits), logits.shape[-1]
        n = out.numel() // (h * h)
        _forward_kernel[(triton.cdiv(n, BLOCK),)](logits, out, n, rounds, eps, H=h, BLOCK=BLOCK)
        return out

    def _launch_backward(logits, grad, rounds, eps):
        out, h = torch.empty_like(logits), logits.shape[-1]
        n = out.numel() // (h * h)
        sums = logits.new_empty(max(1, 2 * (rounds - 1)) * n * h)
        _backward_kernel[(triton.cdiv(n, BLOCK),)](logits, grad, out, sums, n, rounds, eps, H=h, BLOCK=BLOCK)
        return out

    @torch.library.custom_op("ecphory::sinkhorn", mutates_args=())
    def _sinkhorn_gpu(logits: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
        return _launch_forward(logits, iterations, eps)

    @torch.library.custom_op("ecphory::sinkhorn_backward", mutates_args=())
    def _sinkhorn_backward(logits: torch.Tensor, grad: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
        return _launch_backward(logits, grad, iterations, eps)

    @_sinkhorn_gpu.register_fake
    def _(logits, iterations, eps):
        return torch.empty_like(logits)

    @_sinkhorn_backward.register_fake
    def _(logits, grad, iterations, eps):
        return torch.empty_like(logits)

    def _keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.iterations, ctx.eps = inputs[1], inputs[2]

    def _grad(ctx, grad):
        logits, = ctx.saved_tensors
        return _sinkhorn_backward(logits, grad.contiguous(), ctx.iterations, ctx.eps), None, None

    _sinkhorn_gpu.register_autograd(_grad, setup_context=_keep)
