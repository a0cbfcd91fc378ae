"""A minute on a CPU: the loss falls, a stopped run goes on exactly as if it had not stopped, an exported model is the one trained.

usage: test_train.py     (text: testdata/sample.txt, from the public-domain and WordNet parts of the corpus)"""
import os
import sys
import tempfile

import numpy as np
import torch

import export
import model
import prepare
import train
import train_tokenizer
import weights
from data import segments_of

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(1)      # tiny tensors: more threads only wait for one another


def make_data(directory):
    documents = prepare.read_documents(os.path.join(HERE, "testdata", "sample.txt"))
    tok = train_tokenizer.train(documents, 512)
    tok.save(os.path.join(directory, "tokenizer.json"))
    for part, docs in (("train", documents[:-20]), ("valid", documents[-20:])):
        tokens, starts, sources = prepare.encode(docs, tok, {}, [])
        np.savez(os.path.join(directory, part + ".npz"), tokens=tokens, starts=starts, sources=sources,
                 bytes=sum(len(d.encode()) for d in docs), names=np.array(["other"]))


def trainer(directory, run, *more):
    sys.argv = ["train.py", "--config", os.path.join(HERE, "configs", "tiny.json"), "--tokenizer", os.path.join(directory, "tokenizer.json"),
                "--data", directory, "--run", os.path.join(directory, run), "--steps", "40", "--batch", "4", "--length", "64",
                "--warmup", "4", "--dense-steps", "10", "--device", "cpu", "--eval-every", "1000", *more]
    os.makedirs(os.path.join(directory, run), exist_ok=True)
    return train.Trainer(train.arguments())


def check_training(directory):
    straight = trainer(directory, "straight")
    losses = [straight.train_step()[0].item() for _ in range(40)]
    first, last = np.mean(losses[:5]), np.mean(losses[-5:])
    print(f"loss {first:.3f} -> {last:.3f}")
    assert last < first - 1.0
    stopped = trainer(directory, "stopped")
    for _ in range(15):
        stopped.train_step()
    stopped.save()
    resumed = trainer(directory, "stopped")
    assert resumed.step == 15
    again = [resumed.train_step()[0].item() for _ in range(25)]
    assert again == losses[15:], "a resumed run differs"
    for key, t in straight.store.masters.items():
        assert torch.equal(t, resumed.store.masters[key]), key
    resumed.save()
    return resumed


def check_export(directory, trained):
    path = os.path.join(directory, "stopped", "checkpoint.pt")
    cfg, tables, masters = export.restore(path, os.path.join(directory, "tokenizer.json"))
    with open(os.path.join(directory, "tokenizer.json"), encoding="utf-8") as f:
        weights.export(os.path.join(directory, "export"), cfg, tables, masters, f.read())
    cfg, tables, w = weights.load(os.path.join(directory, "export"))
    tokens = torch.randint(3, 512, (1, 50), generator=torch.Generator().manual_seed(1))
    tokens[0, 0] = 0
    with torch.no_grad():
        before = model.logits(trained.store.rounded(torch.float32), trained.cfg, trained.tables, tokens)
        after = model.logits(w, cfg, tables, tokens)
    assert torch.equal(before, after), (before - after).abs().max()


def check_packing(trained):
    """Two documents in one sequence give the logits that each gives alone (but for the rounding of rope angles)."""
    g = torch.Generator().manual_seed(2)
    one, two = (torch.cat((torch.zeros(1, dtype=torch.long), torch.randint(3, 512, (n - 1,), generator=g)))[None] for n in (20, 33))
    packed = torch.cat((one, two), 1)
    opt = model.Options(round_state=False)
    with torch.no_grad():
        w = {k: v.double() for k, v in trained.store.rounded(torch.float32).items()}
        alone = torch.cat([model.logits(w, trained.cfg, trained.tables, t, opt=opt) for t in (one, two)], 1)
        together = model.logits(w, trained.cfg, trained.tables, packed, segments=segments_of(packed), opt=opt)
    assert (alone - together).abs().max() < 1e-4, (alone - together).abs().max()


def test_train():
    with tempfile.TemporaryDirectory() as directory:
        make_data(directory)
        trained = check_training(directory)
        check_export(directory, trained)
        check_packing(trained)


if __name__ == "__main__":
    test_train()
    print("ok")
