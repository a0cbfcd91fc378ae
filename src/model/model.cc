#include "ecphory/model.h"

#include <algorithm>
#include <utility>

#include "base/heap.h"
#include "base/quote.h"
#include "model/device_weights.h"
#include "model/memory_plan.h"
#include "model/model_impl.h"
#include "model/rope_table.h"
#include "ops/ops.h"

namespace ecphory {

namespace {

// For a device that reads whole tables by itself there is little left to read:
// broken rows, so as to name them.
engram::StoreOptions StoreOptionsOf(const ModelOptions& options,
                                    EngramPlace place, bool resident) {
  if (resident) {
    return {.io = IoMode::kPread,
            .io_threads = 1,
            .queue_depth = 1,
            .cache_bytes = 0};
  }
  const IoMode mode = *ParseIoMode(options.engram_io);
  return {.io = place == EngramPlace::kHost ? IoMode::kRam : mode,
          .io_threads = options.engram_io_threads,
          .queue_depth = options.engram_queue_depth,
          .cache_bytes = options.engram_cache_bytes};
}

Status LoadTables(std::span<const engram::TableSource> tables,
                  const ModelOptions& options, Model::Impl* impl) {
  const bool shared = impl->planned.engram_place == EngramPlace::kHost;
  ECPHORY_ASSIGN_OR_RETURN(
      impl->tables,
      ResidentTables::Load(tables, *impl->device,
                           shared ? MemoryKind::kShared : MemoryKind::kDevice,
                           options.on_load));
  impl->engram_io.reason =
      std::to_string(impl->planned.engram_table_bytes) + " bytes in " +
      (shared ? "pinned memory of the host, which " : "the memory of ") +
      impl->device->name() + (shared ? " reads" : "");
  return Status::Ok();
}

Status OpenEngram(const ModelOptions& options, Model::Impl* impl) {
  if (!impl->source.config.engram.enabled()) return Status::Ok();
  const EngramPlace place = impl->planned.engram_place;
  const bool resident = place != EngramPlace::kDisk && !impl->device->is_host();
  const uint64_t before = HeapInUse();
  ECPHORY_ASSIGN_OR_RETURN(impl->hasher, MakeHasher(impl->source));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<engram::TableSource> tables,
                           EngramTables(impl->source));
  ECPHORY_ASSIGN_OR_RETURN(
      impl->store,
      engram::Store::Open(tables, StoreOptionsOf(options, place, resident)));
  const engram::IoReport& io = impl->store->io();
  impl->info.memory.engram_cache = io.cache_bytes;
  const uint64_t after = HeapInUse();
  impl->info.memory.engram_reading = after - std::min(before, after);
  impl->engram_io.place = EngramPlaceName(place);
  if (resident) return LoadTables(tables, options, impl);
  impl->engram_io.reason = io.reason;
  if (place != EngramPlace::kDisk) return Status::Ok();
  impl->engram_io.mode = IoModeName(io.mode);
  impl->engram_io.direct = io.direct;
  impl->engram_io.fallback = io.fallback;
  impl->engram_io.cache_bytes = io.cache_bytes;
  return Status::Ok();
}

Status StartBackend(const ModelOptions& options, Model::Impl* impl) {
  ECPHORY_ASSIGN_OR_RETURN(impl->device, OpenDevice(options.backend));
  impl->forward.device = impl->device.get();
  impl->forward.ops = &impl->device->ops();
  ECPHORY_ASSIGN_OR_RETURN(impl->threads, ChooseThreads(options));
  ECPHORY_ASSIGN_OR_RETURN(impl->pool, StartThreads(impl->threads));
  return Status::Ok();
}

// Before anything is loaded.
Status CheckTablesFit(const std::string& path, const Model::Impl& impl) {
  const PlannedModel& planned = impl.planned;
  if (planned.engram_place == EngramPlace::kHost) {
    return CheckFits(
        path + ": Engram tables in memory (host)",
        planned.engram_table_bytes + impl.info.memory.copied_weights,
        "leave them on disk (disk)");
  }
  if (planned.engram_place != EngramPlace::kGpu) return Status::Ok();
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t weights,
                           DeviceWeightBytes(impl.source));
  return CheckFits(path + ": Engram tables (gpu) and weights",
                   planned.engram_table_bytes + weights, *impl.device,
                   "leave the tables in memory of the host (host) or on disk "
                   "(disk)");
}

Status ReadHeaders(const std::string& path, const ModelOptions& options,
                   Model::Impl* impl) {
  const uint64_t before = HeapInUse();
  ECPHORY_ASSIGN_OR_RETURN(impl->source, OpenModelSource(path));
  ModelOptions planned = options;
  planned.threads = static_cast<uint32_t>(impl->pool->threads());
  ECPHORY_ASSIGN_OR_RETURN(impl->planned, PlanModel(impl->source, planned));
  ECPHORY_ASSIGN_OR_RETURN(impl->info,
                           DescribeModel(impl->source, {}, planned));
  MemoryPlan& plan = impl->info.memory;
  const uint64_t after = HeapInUse();
  plan.names = after - std::min(before, after);
  if (plan.copied_weights > 0) {
    ECPHORY_RETURN_IF_ERROR(CheckFits(path + ": weights to copy",
                                      plan.copied_weights,
                                      "leave them in the mapped file (map)"));
  }
  return CheckTablesFit(path, *impl);
}

Status ReadWeights(const ModelOptions& options, Model::Impl* impl) {
  WeightLoading loading;
  loading.pool = impl->pool.get();
  loading.device = impl->device.get();
  loading.progress = options.on_load;
  loading.copy = options.weights == "copy";
  ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding,
                           BindCaller(impl->threads));
  ECPHORY_ASSIGN_OR_RETURN(impl->weights, LoadWeights(impl->source, loading));
  return Status::Ok();
}

Status PlanForward(Model::Impl* impl) {
  const ModelConfig& config = impl->source.config;
  ForwardModel& forward = impl->forward;
  forward.config = &config;
  forward.weights = &impl->weights;
  forward.pool = impl->pool.get();
  forward.hasher = impl->hasher ? &*impl->hasher : nullptr;
  forward.store = impl->store.get();
  forward.tables = impl->tables.get();
  Device& device = *impl->device;
  ECPHORY_ASSIGN_OR_RETURN(
      impl->inv_freq,
      DeviceArray<float>::Of(device,
                             RopeInvFreq(config.rope_theta, config.rope_dim)));
  ECPHORY_ASSIGN_OR_RETURN(
      impl->inv_freq_compress,
      DeviceArray<float>::Of(
          device, YarnInvFreq(config.compress_rope_theta, config.rope_dim,
                              config.yarn)));
  forward.inv_freq = impl->inv_freq.data();
  forward.inv_freq_compress = impl->inv_freq_compress.data();
  return {};
}

// Rows of every token of a fresh sequence, [tokens][layers].
Result<std::vector<std::vector<EngramTokenRows>>> HashTokens(
    const engram::Hasher& hasher, std::span<const int32_t> tokens,
    std::span<const uint8_t> dead) {
  std::vector<int32_t> compressed(tokens.size());
  ECPHORY_RETURN_IF_ERROR(hasher.Compress(tokens, dead, compressed));
  const engram::Layout& layout = hasher.layout();
  const size_t columns = layout.columns();
  std::vector<std::vector<uint64_t>> rows(layout.layers.size());
  std::vector<std::span<uint64_t>> views;
  for (auto& layer : rows) {
    layer.resize(tokens.size() * columns);
    views.emplace_back(layer);
  }
  engram::History history;
  hasher.Hash(compressed, &history, views);

  std::vector<std::vector<EngramTokenRows>> result(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      const auto begin =
          rows[layer].begin() + static_cast<ptrdiff_t>(t * columns);
      result[t].push_back(
          {.layer = layout.layers[layer].layer_id,
           .rows = {begin, begin + static_cast<ptrdiff_t>(columns)}});
    }
  }
  return result;
}

}  // namespace

std::vector<uint8_t> ImagePositions(const ModelConfig& config,
                                    std::span<const int32_t> tokens,
                                    std::span<const uint8_t> mask) {
  std::vector<uint8_t> image(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    const bool masked = !mask.empty() && mask[t] != 0;
    image[t] = masked || tokens[t] == config.image_token_id ? 1 : 0;
  }
  return image;
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Open(const std::string& path,
                                                 const ModelOptions& options) {
  auto impl = std::make_unique<Impl>();
  if (options.weights != "copy" && options.weights != "map") {
    return InvalidArgument("weights = %s: expected map or copy",
                           Quoted(options.weights).c_str());
  }
  ECPHORY_RETURN_IF_ERROR(StartBackend(options, impl.get()));
  ECPHORY_RETURN_IF_ERROR(ReadHeaders(path, options, impl.get()));
  ECPHORY_RETURN_IF_ERROR(OpenEngram(options, impl.get()));
  ECPHORY_RETURN_IF_ERROR(ReadWeights(options, impl.get()));
  ECPHORY_RETURN_IF_ERROR(PlanForward(impl.get()));
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const { return impl_->source.config; }
const ModelInfo& Model::info() const { return impl_->info; }

const Tokenizer* Model::tokenizer() const {
  return impl_->source.tokenizer ? &*impl_->source.tokenizer : nullptr;
}

const char* Model::backend() const { return impl_->device->name().c_str(); }

uint32_t Model::threads() const {
  return static_cast<uint32_t>(impl_->pool->threads());
}

MemoryPlan Model::PlanMemory(const SessionOptions& options,
                             uint32_t sequences) const {
  MemoryPlan plan =
      ecphory::PlanMemory(config(), options, impl_->planned, sequences);
  const MemoryPlan& opened = info().memory;
  plan.mapped_weights = opened.mapped_weights;
  plan.copied_weights = opened.copied_weights;
  plan.resident_weights = opened.resident_weights;
  plan.names = opened.names;
  plan.engram_cache = opened.engram_cache;
  plan.engram_reading = opened.engram_reading;
  if (!impl_->device->is_host()) {
    LeaveToDevice(config(), options, impl_->planned, &plan);
  }
  return plan;
}

const EngramIoFacts& Model::engram_io() const { return impl_->engram_io; }

std::span<const int32_t> Model::token_map() const {
  if (!impl_->hasher) return {};
  return impl_->hasher->token_map();
}

Result<std::vector<std::vector<EngramTokenRows>>> Model::EngramRows(
    std::span<const int32_t> tokens,
    std::span<const uint8_t> image_mask) const {
  if (!impl_->hasher) {
    return InvalidArgument("%s: the model has no Engram memory",
                           impl_->source.path.c_str());
  }
  if (!image_mask.empty() && image_mask.size() != tokens.size()) {
    return InvalidArgument("image mask of %zu positions for %zu tokens",
                           image_mask.size(), tokens.size());
  }
  return HashTokens(*impl_->hasher, tokens,
                    ImagePositions(config(), tokens, image_mask));
}

}  // namespace ecphory
