// The model's weights as views into the mapped files, or a device's copy of
// them, grouped as the forward pass reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/anonymous_memory.h"
#include "base/thread_pool.h"
#include "ecphory/status.h"
#include "io/file.h"
#include "model/source.h"
#include "ops/device_array.h"
#include "ops/moe.h"
#include "tensor/matrix.h"

namespace ecphory {

struct HyperConnectionWeights {
  Matrix fn;                 // [(2 + H) * H, H * D]
  DeviceArray<float> scale;  // [3]: of pre, post and comb
  DeviceArray<float> base;   // [(2 + H) * H]
};

struct CompressorWeights {          // KV sources
  Matrix wkv;                       // [d, D]
  Matrix wgate;                     // [d, D]; empty at ratio 1
  DeviceArray<float> norm;          // [d]
  Matrix index_wk;                  // [index_head_dim, d]
  DeviceArray<float> index_k_norm;  // [index_head_dim]
};

struct IndexerWeights {  // index sources
  Matrix wq_b;           // [index_n_heads * index_head_dim, q_lora_rank]
  Matrix weights_proj;   // [index_n_heads, D]
};

struct AttentionWeights {
  Matrix wq_a;  // [q_lora_rank, D]
  Matrix wq_b;  // [n_heads * d, q_lora_rank]
  Matrix wkv;   // [d, D]
  Matrix wo_a;  // [o_groups * o_lora_rank, n_heads * d / o_groups]
  Matrix wo_b;  // [D, o_groups * o_lora_rank]
  DeviceArray<float> q_norm;     // [q_lora_rank]
  DeviceArray<float> kv_norm;    // [d]
  DeviceArray<float> sink;       // [n_heads]
  CompressorWeights compressor;  // when config.IsKvSource(layer)
  IndexerWeights indexer;        // when config.IsIndexSource(layer)
};

struct MoeWeights {
  Matrix gate;                    // [n_experts, D]
  DeviceArray<float> bias;        // [n_experts]
  DeviceArray<float> bias_image;  // [n_experts] (bias_vl); empty when absent
  std::vector<Expert> experts;    // [n_experts]
  Expert shared;                  // inner = n_shared_experts * expert_dim
  // The same two for operators; empty on a host device.
  DeviceArray<Expert> device_experts;  // [n_experts]
  DeviceArray<Expert> device_shared;   // [1]
};

struct EngramWeights {
  Matrix wkv;                   // [(H + 1) * D, columns * head_dim]
  DeviceArray<float> q_weight;  // [H, D]
  DeviceArray<float> k_weight;  // [H, D]
};

struct LayerWeights {
  HyperConnectionWeights hc_attn;
  HyperConnectionWeights hc_ffn;
  DeviceArray<float> attn_norm;  // [D]
  DeviceArray<float> ffn_norm;   // [D]
  AttentionWeights attn;
  MoeWeights moe;
  EngramWeights engram;  // when config.engram.IndexOfLayer(layer) >= 0
};

struct Weights {
  Matrix embed;             // [vocab, D]
  Matrix head;              // [vocab, D]
  DeviceArray<float> norm;  // [D]
  std::vector<LayerWeights> layers;
  // Keep the views valid: mapped files, or memory that holds what was read. The
  // Engram tables' ranges are in none of them.
  std::vector<std::shared_ptr<FileMapping>> mappings;
  std::vector<std::shared_ptr<AnonymousMemory>> copies;
  DeviceArray<uint8_t> device_copy;  // of another device than the host
  uint64_t mapped_bytes = 0;         // of all
  uint64_t resident_bytes = 0;
};

// How a file is opened: OpenFile, or what stands in for it in a test.
using FileOpener = std::function<Result<std::shared_ptr<RandomAccessFile>>(
    const std::string& path)>;

struct WeightLoading {
  bool copy = false;           // into memory of the process, by `pool`
  ThreadPool* pool = nullptr;  // needed to copy
  FileOpener open = OpenFile;  // to copy
  // Where operators will read them: another device than the host has all of
  // them copied to its memory (`copy` or not), and no mapping stays.
  Device* device = &HostDevice();
  // Bytes read and in all; false cancels. May be empty.
  std::function<bool(uint64_t done, uint64_t total)> progress = {};
};

// Maps or reads the files and binds every tensor, checking name, dtype and
// shape of each against the config. Errors name file, tensor, found and
// expected.
Result<Weights> LoadWeights(const ModelSource& source,
                            const WeightLoading& loading = {});

}  // namespace ecphory
