// The forward pass of DeepSeek-V4.1 over one chunk of tokens: of one sequence,
// or one of each of several.
//
// Read forward.cc beside docs/architecture.md: it is the model, once, for every
// backend. It calls only operators (ops/ops.h) and the Engram store, and
// allocates nothing per call; forward_steps.cc holds the glue. What operators
// read and write lies in the device's memory (ops/device.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ecphory/session.h"
#include "engram/hasher.h"
#include "engram/store.h"
#include "model/caches.h"
#include "model/engram_fetch.h"
#include "model/forward_scratch.h"
#include "model/hyper_connections.h"
#include "model/resident_tables.h"
#include "model/weights.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace ecphory {

// What a forward pass reads and never writes; shared by all sessions of a
// model, and outlives them.
struct ForwardModel {
  const ModelConfig* config = nullptr;
  const Weights* weights = nullptr;
  Device* device = nullptr;
  const Ops* ops = nullptr;  // the device's, or those that time them
  ThreadPool* pool = nullptr;
  const engram::Hasher* hasher = nullptr;  // null: model without Engram
  engram::Store* store = nullptr;          // null likewise
  // The tables, when the device takes rows from them itself.
  const ResidentTables* tables = nullptr;
  const float* inv_freq = nullptr;           // [rope_dim / 2], ratio 0 layers
  const float* inv_freq_compress = nullptr;  // [rope_dim / 2], all others
};

// Tokens of a chunk that continue one sequence.
struct ForwardSegment {
  SequenceState* state = nullptr;
  size_t tokens = 0;
};

// A token to be drawn from the logits of a sequence.
struct ForwardDraw {
  SequenceState* state = nullptr;
  SampleRow row;  // logits and ids are set
  std::vector<int32_t> penalized;
  Sampled sampled;  // is set
};

// One chunk of tokens to run.
struct ForwardChunk {
  std::span<const int32_t> tokens;  // 1 .. SessionOptions::chunk
  std::span<const uint8_t> image;   // [tokens] 1 = image position
  // Far from the end of a prompt: only the layers before the last KV source
  // run, and what that source keeps is stored. Takes LogitsWanted::kNone.
  bool encoder_only = false;
  // Rows of older positions are not in the windows of the layers after the last
  // KV source. At most the position of the chunk.
  uint64_t decoder_begin = 0;
  // The chunk to be run after it, when it is known: its Engram rows are read
  // while this one is computed.
  std::span<const int32_t> next_tokens;  // 0 .. SessionOptions::chunk
  std::span<const uint8_t> next_image;   // [next_tokens]
  bool next_encoder_only = false;
  LogitsWanted logits = LogitsWanted::kLast;  // of each sequence
  bool logits_to_host = false;  // in the pass, wherever they could stay
  // kAll: logits [count, vocab] of tokens first .. first + count of the chunk.
  std::function<Status(size_t first, size_t count, std::span<const float>)>
      on_logits;
  TensorObserver* observer = nullptr;
};

// The memory that passes are computed in. Any number of sequences may take
// turns in one; not thread-safe.
class Forward : private ForwardScratch {
 public:
  // Takes all memory for chunks of options.chunk tokens of up to `sequences`
  // sequences at a time, or says that there is not so much.
  static Result<std::unique_ptr<Forward>> Create(const ForwardModel& model,
                                                 const SessionOptions& options,
                                                 size_t sequences = 1);
  ~Forward();
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // Takes what operators will keep for passes of `shape`, so that none of them
  // wants memory later. Before the first.
  Status Reserve(const ScratchShape& shape);

  // From now on logits of a last token stay in the memory of a device that is
  // none of the host until they are asked for, or a pass after the next takes
  // their place: then they are fetched. Of sequences that are asked for none
  // when this is gone.
  Status LetLogitsStay();

  // Advances `state` by the chunk. On error (a table row that cannot be read,
  // an observer of logits that refuses, a device that fails) the state's
  // position is unchanged and the chunk may be run again.
  Status Run(const ForwardChunk& chunk, SequenceState* state);
  // The same for several states, no one twice, whose contexts this can hold:
  // the chunk's tokens are those of the segments, one after the other. Each
  // state and its logits become what they would by themselves, or all stay.
  // What is the chunk's alone (encoder_only, decoder_begin, next_*, kAll and
  // observers) is for one segment.
  Status Run(const ForwardChunk& chunk,
             std::span<const ForwardSegment> segments);
  // The same for a step, a token of each state and its logits, and Draw() from
  // them; `draws` are of the states in their order. `goes_on`: the caller will
  // at once call this again for the same states and the tokens drawn, or call
  // DropAhead(). A device begins that step behind this one, before the host
  // has the tokens, and is given its rows before this returns.
  Status Run(const ForwardChunk& chunk,
             std::span<const ForwardSegment> segments,
             std::span<ForwardDraw> draws, bool goes_on);
  // The step that was begun does not come: it runs to its end, for which this
  // waits, and is not committed. Whatever else is done with its states, and
  // their end, comes after this; other calls of this class see to it
  // themselves.
  void DropAhead();
  bool ahead() const { return ahead_ != nullptr; }

  // Logits of the state's last token, from the device to the host; nothing when
  // they are there, or nowhere.
  Status FetchLogits(SequenceState* state);
  // Draws from them, where they are: of up to `sequences` that have some. An
  // error is the device's; what was drawn may be a fault (CheckSampled).
  Status Draw(std::span<ForwardDraw> draws);

  // Asks for the Engram rows of the chunk that is to be run next, unless it has
  // been begun ahead. Guessing wrong costs reads and nothing else.
  void Prefetch(std::span<const int32_t> tokens, std::span<const uint8_t> image,
                std::span<const ForwardSegment> segments);
  // Drops what was asked for ahead.
  void CancelPrefetch();

  // The session's counters that it keeps, over all calls of Run(): the Engram
  // part, and replayed steps.
  SessionStats stats() const;

 private:
  // Tokens of the chunk under way that continue one sequence: what the caches
  // and positions are of.
  struct Segment {
    SequenceState* state = nullptr;
    size_t first = 0;  // of the chunk's tokens
    size_t tokens = 0;
    int32_t published_keys = -1;    // before the chunk
    uint64_t candidate_groups = 0;  // groups candidates_ covers; 0: none

    size_t last() const { return first + tokens - 1; }
    uint64_t position() const { return state->position; }
    // Groups of so many tokens that the chunk completes.
    uint64_t first_group(uint64_t ratio) const { return position() / ratio; }
    size_t groups(uint64_t ratio) const {
      return static_cast<size_t>((position() + tokens) / ratio -
                                 first_group(ratio));
    }
  };
  // Rows of a segment's caches.
  struct RowPlace {
    RowCache* cache = nullptr;
    uint64_t first = 0;
    size_t rows = 0;
  };
  // Index scores of some tokens of a segment.
  struct ScoreTile {
    Segment* segment = nullptr;
    size_t first = 0;  // of the chunk's tokens
    size_t tokens = 0;
    const RowCache* keys = nullptr;
    uint64_t groups = 0;
    float* scores = nullptr;  // [tokens, groups], of scores_
    uint8_t* mask = nullptr;  // of candidates_, or null
  };

  Forward(const ForwardModel& model, const SessionOptions& options,
          size_t sequences);
  Status Allocate();

  // The model, in the order of the pass (forward.cc).
  Status RunLayers();
  void Embed();
  Status Engram(uint32_t layer);
  Status EnterDecoder(uint32_t layer);
  void Attention(uint32_t layer, const float* x, float* y);
  void StoreKv(uint32_t layer);
  void PublishCompressed(uint32_t layer);
  void SelectCompressed(uint32_t layer);
  void Moe(uint32_t layer, const float* x, float* y);
  Status Logits();

  // The sequences (forward_segments.cc).
  void BeginSegments(std::span<const ForwardSegment> segments);
  void Commit();
  void CommitLogits();
  void Abandon();

  // What the host writes for a pass, where the device reads it.
  struct HostInputs {
    int32_t* ids = nullptr;              // [T]
    uint8_t* image = nullptr;            // [T]
    int64_t* positions = nullptr;        // [T]
    int64_t* group_positions = nullptr;  // [KV sources, T]
  };

  // Glue (forward_steps.cc).
  Status RunOnDevice(bool begun);
  Status RunOperators(const HostInputs& inputs);
  Status RunAgain();
  HostInputs OwnInputs();
  void WriteInputs(const HostInputs& to);
  void WriteTokens(const HostInputs& to);
  void WritePositions(const HostInputs& to);
  void SendInputs(const HostInputs& from);
  void SendRows(const EngramWeights& weights, float* kv,
                EngramFetch::Rows* rows);
  void ProjectRows(const EngramWeights& weights, const EngramFetch::Rows& rows,
                   float* kv);
  Status CheckRows();
  Status BeginEngram();
  Status BeginRows(std::span<const int32_t> tokens,
                   std::span<const uint8_t> image, size_t layers);
  size_t EngramLayers(bool encoder_only) const;
  bool WaitsForAsking(std::span<const int32_t> tokens,
                      std::span<const ForwardSegment> segments) const;
  void StoreWindow(uint32_t layer, const float* kv);
  // What attention makes of the layer's input, first what is waited for and
  // then the rest, and of qr_.
  void ProjectInput(uint32_t layer, const float* x, bool queries);
  void ProjectBeside(uint32_t layer, const float* x, bool queries);
  void ProjectQueries(uint32_t layer);
  size_t PoolTokens(uint32_t layer);
  template <typename Place>
  void StoreRows(const float* x, const Place& place);
  void StoreCompressed(uint32_t layer, size_t groups);
  const RowCache& KeysFor(uint32_t layer, const Segment& segment,
                          uint64_t* groups) const;
  bool IsCandidateSource(uint32_t layer) const {
    return static_cast<int32_t>(layer) == config_.candidate_source_layer_id;
  }
  void Select(uint32_t layer);
  void SelectTiles(uint32_t layer);
  IndexScoresArgs ScoresOf(uint32_t layer, const ScoreTile& tile) const;
  uint8_t* MaskOf(const Segment& segment);
  void Attend(uint32_t layer);
  AttentionArgs AttentionOf(uint32_t layer, const Segment& segment);
  void GroupedOutput(const AttentionWeights& weights, float* y);
  void Route(const MoeWeights& weights, const float* x);
  void RunExperts(std::span<const Expert> experts,
                  const DeviceArray<Expert>& device_experts, const int32_t* ids,
                  const float* weights, size_t topk, const float* x,
                  bool accumulate, float* y);
  Status EmitLogits();
  Status EmitAllLogits();
  Status NeedLogits(size_t tokens);
  void PlaceLogits(const float* logits, size_t count);
  void Head(size_t first, size_t count, float* logits);
  Status ChooseLogits();
  Status FetchHeld(size_t which);
  Status FetchRow(const float* from, std::vector<float>* logits);
  Status DrawHere(std::span<ForwardDraw* const> draws);
  void DrawThere(std::span<ForwardDraw* const> draws);
  Status QueueDraws(std::span<ForwardDraw* const> draws);
  void TakeDrawn(std::span<ForwardDraw* const> draws);
  void BeginDraws(std::span<ForwardDraw> draws);
  Status DrawInPass();
  Status EndDraws(std::span<ForwardDraw> draws);
  // y = x * W^T, rounded in bf16 mode.
  void Project(const Matrix& weight, const float* x, size_t rows, float* y) {
    Project(weight, x, rows, y, projected_);
  }
  void Project(const Matrix& weight, const float* x, size_t rows, float* y,
               MatmulInput input);
  // Of all tokens, several at once; those that are not `rounded` stay fp32 in
  // bf16 mode as well.
  struct Projection {
    const Matrix* weight;
    const float* x;
    float* y;
    bool rounded = true;
  };
  void ProjectAll(const std::vector<Projection>& projections);
  // x = rms_norm(x, weight), rounded in bf16 mode.
  void Norm(const DeviceArray<float>& weight, const float* x, size_t rows,
            float* y);
  void Norm(const DeviceArray<float>& weight, float* x, size_t rows) {
    Norm(weight, x, rows, x);
  }
  void Rope(uint32_t layer, float* x, size_t rows, size_t heads, size_t dim,
            const int64_t* positions, bool inverse = false);
  // Whether what operators write is rounded, in bf16 mode.
  bool RoundsToBf16() const {
    return options_.activations == Activations::kBF16;
  }
  // For an observer, of what the operator that takes it rounds itself.
  void RoundSeen(uint32_t layer, float* x, size_t count) {
    if (!RoundsToBf16() || !Observed(layer)) return;
    ops_.round_bf16({.x = x, .count = count}, pool_);
  }

  // A step recorded ahead (forward_replay.cc).
  struct Step {
    bool ready = false;
    // What it was recorded for, and what a sequence's keys slot is after it.
    struct Sequence {
      uint64_t id = 0;
      uint64_t position = 0;
      int32_t published_before = -1;
      int32_t published_after = -1;
    };
    std::vector<Sequence> sequences;
    size_t place = 0;  // of its Engram rows
    std::unique_ptr<Recording> work;
    std::vector<size_t> tables;  // for whose rows it waits, in order
    // In shared memory, of its own: the step before may not have read its.
    HostFlag* flags = nullptr;  // [Engram layers] their rows have come
    HostInputs inputs;          // positions are there
    const float* logits = nullptr;
    // Where they are put.
    size_t logits_at = 0;
    bool logits_to_host = false;
  };
  // Steps of odd and of even positions differ where groups have two tokens.
  static constexpr size_t kSteps = 2;
  Step& StepAt(uint64_t position) { return steps_[position % kSteps]; }
  Status AllocateSteps();
  bool IsStep() const;
  bool IsRecorded(const Step& step) const;
  Result<EngramFetch::Rows> TakeRows(size_t index, size_t first);
  Step* RecordNextStep();
  Status RecordStep(Step* step);
  bool ReplayStep();
  bool Launch(Step* step);
  void Follow(Step* step);
  bool IsAhead(std::span<const int32_t> tokens, std::span<const uint8_t> image,
               std::span<const ForwardSegment> segments) const;
  bool BeginStep(Step* next);
  void FeedAhead();
  bool TakeLogitsPlace(size_t which);
  Status HandOverRows(const Step& step, Status status);
  bool ReplayedWithRows();

  // Makes an operator's calls for all segments, or tiles, at once:
  // args_of(segment) are the arguments.
  template <typename Args, typename Of, typename ArgsOf>
  void CallForAll(void (*op)(const Calls<Args>&, ThreadPool&),
                  std::span<Of> all, const ArgsOf& args_of) {
    auto& calls = std::get<std::vector<Args>>(calls_);
    calls.clear();
    for (Of& one : all) calls.push_back(args_of(one));
    op(std::span<const Args>(calls), pool_);
  }

  size_t tokens() const { return chunk_->tokens.size(); }
  bool Observed(uint32_t layer) const;
  template <typename T>
  std::span<const T> Seen(const T* x, size_t count, std::vector<T>* copy) const;
  void Observe(uint32_t layer, const char* name, const float* x,
               const std::vector<uint64_t>& shape) const;
  void ObserveSite(uint32_t layer, const std::string& site);
  void ObserveStreams(uint32_t layer, const char* name);
  void ObserveEngramValue(uint32_t layer) const;
  void ObserveRows(uint32_t layer, const char* name, const RowCache& cache,
                   uint64_t first_row, size_t rows) const;
  void ObserveCandidates(uint32_t layer, const uint8_t* mask, size_t rows,
                         uint64_t blocks) const;
  void ObserveSelected(uint32_t layer) const;
  void ObserveRouter(uint32_t layer) const;

  const ForwardModel& model_;
  const ModelConfig& config_;
  const Ops& ops_;
  ThreadPool& pool_;
  const SessionOptions options_;
  const size_t sequences_;  // at most
  // What the inputs of projections are: in bf16 mode all have been rounded, in
  // int8 mode the operators round them.
  const MatmulInput projected_;
  HyperConnections streams_;
  std::unique_ptr<Queue> queue_;

  // [segments, vocab] inside logits_, of the host but where they stay; there
  // when the queue has finished.
  const float* last_logits_ = nullptr;
  bool logits_stay_ = false;
  // Passes take turns with logits_ (0) and other_logits_ (1), so that one that
  // fails leaves those that were there.
  size_t logits_at_ = 0;             // of the pass under way, or the last one
  DeviceArray<float> other_logits_;  // [sequences, vocab]
  // Sequences' logits that lie in either.
  std::vector<std::weak_ptr<DeviceLogits>> held_[2];
  std::unique_ptr<EngramFetch> engram_;  // none: no memory, or gates shut
  // [1] 1: a row of the pass was broken when it was decoded.
  DeviceArray<uint32_t> engram_broken_;

  Step steps_[kSteps];
  DeviceArray<HostFlag> step_flags_;  // shared, as all inputs of steps
  DeviceArray<int32_t> step_ids_;
  DeviceArray<uint8_t> step_image_;
  DeviceArray<int64_t> step_positions_;
  DeviceArray<int64_t> step_group_positions_;
  Step* recording_ = nullptr;  // null: work is done, not recorded
  Step* replayed_ = nullptr;   // the last one that was
  Step* ahead_ = nullptr;      // the device has it, for tokens drawn last
  Status ahead_rows_;          // it has its rows, or cannot have them
  bool recording_failed_ = false;
  uint64_t replayed_steps_ = 0;

  // Of the chunk under way.
  const ForwardChunk* chunk_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<ForwardDraw*> draws_;
  bool goes_on_ = false;
  bool drawn_ = false;  // in the pass
  std::vector<ScoreTile> tiles_;
  std::vector<Projection> projections_;
  std::vector<EngramFetch::Stretch> stretches_;
  // Arguments of calls under way, by operator.
  std::tuple<std::vector<MatmulArgs>, std::vector<StoreRowsArgs>,
             std::vector<PoolGroupsArgs>, std::vector<IndexScoresArgs>,
             std::vector<CandidateBlocksArgs>, std::vector<SelectTopkArgs>,
             std::vector<AttentionArgs>>
      calls_;
};

}  // namespace ecphory
