#!/usr/bin/env python3
"""Writes the seed corpora of the file format targets into fuzz/corpus/.

The seeds are checked in; run this again after changing it.
"""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f",
           BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def save(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def element(kind, value):
    return text(value) if kind == STR else struct.pack("<" + SCALARS[kind], value)


def scalar(key, kind, value):
    return text(key) + struct.pack("<I", kind) + element(kind, value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARR, kind, len(values))
    return head + b"".join(element(kind, value) for value in values)


def tensor(name, dims, kind, offset):
    head = text(name) + struct.pack("<I", len(dims))
    return head + struct.pack(f"<{len(dims)}QIQ", *dims, kind, offset)


def gguf(keys, tensors=(), data=b"", alignment=32, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def gguf_seeds():
    every = [scalar(f"k{kind}", kind, 1) for kind in SCALARS]
    every.append(scalar("string", STR, "text"))
    every += [array(f"a{kind}", kind, [0, 1]) for kind in SCALARS]
    every.append(array("strings", STR, ["", "token", "é"]))
    save("gguf", "empty", gguf([]))
    save("gguf", "every_type", gguf(every))
    save("gguf", "two_tensors", gguf(
        [scalar("general.alignment", U32, 64)],
        [tensor("a.weight", [4, 2], 0, 0), tensor("b.weight", [32], 8, 64)],
        bytes(128), alignment=64))
    save("gguf", "architecture", gguf(
        [scalar("general.architecture", STR, "deepseek41"),
         scalar("deepseek41.rms_norm_eps", F32, 1e-20),
         array("deepseek41.engram.multipliers", U64, [76632096046245, 2**63 - 1]),
         array("tokenizer.ggml.tokens", STR, ["a", "b"])],
        [tensor("blk.1.engram_embd.weight", [264, 3], 24, 0)], bytes(800)))
    save("gguf", "version_2", gguf([], version=2))
    save("gguf", "big_endian", gguf([], version=3 << 24))


def ple_seeds():
    table = [tensor("per_layer_token_embd.weight", [32, 128], 8, 0)]
    data = bytes([1]) * (128 * 34)

    def constants(prefix):
        return [array(prefix + "layer_multipliers", U64, [23703573157769, 3, 5]),
                array(prefix + "head_offsets", U64, [0, 5, 12, 23]),
                array(prefix + "head_vocab_sizes", U64, [5, 7, 11, 13])]

    save("ple", "sidecar", gguf(
        [scalar("general.architecture", STR, "qwen38-next-ple"),
         scalar("qwen38-next.ple.row_length", U32, 32),
         scalar("qwen38-next.ple.total_rows", U64, 36),
         scalar("qwen38-next.ple.table_rows", U64, 128),
         *constants("qwen38-next.ple.")], table, data))
    save("ple", "model", gguf(
        [array("qwen4exp.ple.layers", U32, [1]),
         scalar("qwen4exp.ple.ngram_size", U32, 3),
         scalar("qwen4exp.ple.heads_per_ngram", U32, 2),
         scalar("qwen4exp.ple.conv_kernel", U32, 4),
         scalar("qwen4exp.ple.eos_token_id", U32, 2),
         scalar("qwen4exp.ple.image_token_id", U32, 9),
         scalar("qwen4exp.embedding_length_per_layer_input", U32, 32),
         scalar("qwen4exp.block_count", U32, 4),
         scalar("qwen4exp.hyper_connection.count", U32, 4),
         array("qwen4exp.attention.recurrent_layers", BOOL,
               [True, True, True, False]),
         *constants("qwen4exp.ple.")], table, data))


def engram_source_seeds():
    p = "deepseek41.engram."
    keys = [scalar("general.architecture", STR, "deepseek41"),
            scalar(p + "encoding", STR, "e4m3_e8m0_32_row33"),
            array(p + "layer_ids", U32, [1]),
            array(p + "rows", U64, [5]),
            scalar(p + "compressed_vocab_size", U32, 4),
            scalar(p + "pad_id", U32, 1),
            array(p + "token_map", U32, [0, 1, 2, 3, 1]),
            array(p + "primes", U64, [5]),
            array(p + "multipliers", U64, [3, 5])]
    tables = [tensor("blk.1.engram_embd.weight", [33, 5], 24, 0)]
    save("engram_source", "tables", gguf(keys, tables, bytes(range(165)) + bytes(27)))
    save("engram_source", "keys_alone", gguf(keys))
    save("engram_source", "unnamed_layer", gguf(
        keys, [tensor("blk.2.engram_embd.weight", [33, 5], 24, 0)], bytes(192)))
    config = {"engram_layer_ids": [1, 3], "engram_num_embeddings": [3144, 3424],
              "engram_max_ngram_size": 4, "engram_n_heads": 2,
              "engram_head_dim": 64, "engram_vocab_size": 500,
              "engram_compressed_vocab_size": 394, "engram_pad_id": 2}
    save("engram_source", "config", json.dumps(config).encode())
    save("engram_source", "text_config", json.dumps(
        {"text_config": {**config, "vocab_size": 512}}).encode())


def shard(header, data=b""):
    encoded = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    save("safetensors", "empty", shard({}))
    save("safetensors", "metadata", shard({"__metadata__": {"format": "pt"}}))
    save("safetensors", "tensors", shard(
        {"a.weight": entry("F8_E4M3", [2, 4], 0, 8),
         "a.scale": entry("F8_E8M0", [1, 1], 8, 9),
         "b": entry("BF16", [3], 9, 15), "scalar": entry("I64", [], 15, 23),
         "none": entry("F32", [0, 5], 23, 23)}, bytes(23)))
    save("safetensors", "hole", shard({"a": entry("U8", [1], 1, 2)}, bytes(2)))


def npy(header, data, version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def npy_seeds():
    for dtype, size in [("<f4", 4), ("<f8", 8), ("<i4", 4), ("|u1", 1)]:
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (2, 1), }}"
        save("npy", dtype.strip("<|"), npy(header, bytes(2 * size)))
    save("npy", "version_2", npy(
        "{'shape': (), 'fortran_order': False, 'descr': '<u8'}\n", bytes(8), 2))


gguf_seeds()
ple_seeds()
engram_source_seeds()
safetensors_seeds()
npy_seeds()
