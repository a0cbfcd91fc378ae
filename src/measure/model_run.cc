#include "measure/model_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "ecphory/batch.h"
#include "measure/filled_state.h"
#include "measure/op_profile.h"
#include "measure/sampler.h"
#include "measure/spread.h"
#include "model/forward.h"
#include "model/model_impl.h"
#include "model/snapshot.h"

namespace ecphory::measure {

namespace {

// Steps before the first one that counts: they bring the caches of the
// processor and of page tables into the state of a generation under way.
constexpr size_t kWarmSteps = 4;

// Steps that count: at least so many, more while there is time.
constexpr size_t kFewestSteps = 8;
constexpr size_t kMostSteps = 256;
// A step is a round of its own, and they are given this many times the time of
// a figure.
constexpr double kStepPatience = 10;

constexpr uint64_t kDefaultContext = 1024;
constexpr uint32_t kDefaultPrompt = 512;
constexpr size_t kPromptRounds = 3;
constexpr size_t kProfiledSteps = 8;

// Threads of OpenBLAS watch for another call for so long, on processors that
// others then have for themselves.
constexpr std::chrono::milliseconds kPeerWatches{50};

SessionOptions SessionFor(const BenchOptions& bench, const ModelConfig& config,
                          uint64_t context, uint32_t chunk) {
  SessionOptions options = bench.session;
  options.context =
      static_cast<uint32_t>(std::min<uint64_t>(config.max_positions, context));
  options.chunk = std::min(chunk, options.context);
  options.prefill = ecphory::Prefill::kFull;  // flops of a prompt are known
  return options;
}

const char* ActivationsName(Activations activations) {
  switch (activations) {
    case Activations::kF32: return "f32";
    case Activations::kBF16: return "bf16";
    case Activations::kInt8: return "int8";
  }
  return "unknown";
}

// Of a model's products.
Arithmetic ArithmeticOf(const BenchOptions& options) {
  switch (options.session.activations) {
    case Activations::kF32: return Arithmetic::kF32;
    case Activations::kBF16: return Arithmetic::kBF16;
    case Activations::kInt8: return Arithmetic::kNone;
  }
  return Arithmetic::kNone;
}

// Tokens that a decode figure appends at most.
constexpr uint64_t kDecodeRoom = kWarmSteps + kMostSteps + kProfiledSteps;

class ModelBench {
 public:
  ModelBench(const BenchOptions& options, Yardsticks& yardsticks,
             std::shared_ptr<const Model> model)
      : options_(options),
        yardsticks_(yardsticks),
        model_(std::move(model)),
        profile_(*model_->impl().forward.ops, model_->impl().weights) {
    forward_ = model_->impl().forward;
    forward_.ops = &profile_.ops();
  }

  uint32_t prompt() const {
    return options_.prompt.value_or(
        std::min(kDefaultPrompt, config().max_positions));
  }

  // The first prompt of a model just opened.
  Status FirstToken(double* seconds) {
    const double start = Now();
    ECPHORY_ASSIGN_OR_RETURN(
        prompt_session_,
        Session::Create(model_,
                        SessionFor(options_, config(), prompt(), prompt())));
    ECPHORY_RETURN_IF_ERROR(RunPrompt(1));
    *seconds = Now() - start;
    return {};
  }

  Result<BenchPass> Prefill();
  Result<BenchPass> Decode(uint64_t context, uint32_t sequences);

 private:
  const ModelConfig& config() const { return model_->config(); }
  // Whether a step draws the token of the next one, as in a generation: on a
  // device that begins with it before the host has it.
  bool FollowsDraws() const { return !forward_.device->is_host(); }

  Status RunPrompt(uint64_t seed) {
    ECPHORY_RETURN_IF_ERROR(prompt_session_->Truncate(0));
    return prompt_session_->Append(RandomTokens(config(), prompt(), seed), {});
  }

  // On the threads of the model, so that none but these watch for work.
  ThreadPool& pool() const { return *model_->impl().pool; }
  Result<Beside> Bounds() {
    return yardsticks_.BoundsOf({.arithmetic = ArithmeticOf(options_)}, pool());
  }
  Status Look(Beside* beside) const {
    ECPHORY_ASSIGN_OR_RETURN(const ThreadBinding binding,
                             BindCaller(model_->impl().threads));
    beside->Look();
    return {};
  }
  // Passes that were timed, in rounds of one or more, and what was measured
  // beside the rounds.
  struct Rounds {
    std::vector<double> passes;
    std::vector<double> means;  // of each round
    Beside beside;
  };
  // Of a pass whose bytes and operations are known.
  void Fill(const Rounds& rounds, BenchPass* pass) {
    pass->figure.seconds = SpreadOf(rounds.passes);
    rounds.beside.Hold(rounds.means, &pass->figure);
    yardsticks_.Add(rounds.beside);
  }

  // Appends a token to each sequence.
  using Step = std::function<Status(std::span<const int32_t> tokens)>;
  Result<Rounds> TimePrompts(Beside* peer);
  Result<Rounds> TimeSteps(const Step& step, uint64_t room, size_t sequences);
  Result<Rounds> TimeBatch(const SessionOptions& options,
                           const std::vector<uint8_t>& filled,
                           uint32_t sequences);
  Result<Rounds> TimeSession(const SessionOptions& options,
                             const std::vector<uint8_t>& filled);
  Status ProfilePasses(const SessionOptions& session,
                       std::span<SequenceState> states, size_t tokens,
                       size_t passes, BenchPass* pass);
  void FillParts(double wall, double wait, size_t passes, BenchPass* pass);

  const BenchOptions& options_;
  Yardsticks& yardsticks_;
  const std::shared_ptr<const Model> model_;
  OpProfile profile_;
  ForwardModel forward_;  // with the profile's operators
  std::unique_ptr<Session> prompt_session_;
};

// `peer` is looked at too, and first, so that its threads sleep again.
Result<ModelBench::Rounds> ModelBench::TimePrompts(Beside* peer) {
  Rounds rounds;
  ECPHORY_ASSIGN_OR_RETURN(rounds.beside, Bounds());
  const auto look = [&]() -> Status {
    peer->Look();
    if (!peer->sides().empty()) std::this_thread::sleep_for(kPeerWatches);
    return Look(&rounds.beside);
  };
  ECPHORY_RETURN_IF_ERROR(look());
  for (size_t round = 0; round < kPromptRounds; ++round) {
    const double start = Now();
    ECPHORY_RETURN_IF_ERROR(RunPrompt(2 + round));
    rounds.passes.push_back(Now() - start);
    ECPHORY_RETURN_IF_ERROR(look());
  }
  rounds.means = rounds.passes;
  return rounds;
}

Result<BenchPass> ModelBench::Prefill() {
  BenchPass pass;
  pass.tokens = prompt();
  pass.figure.name = "prefill";
  Beside peer;
  if (forward_.device->is_host()) {
    ECPHORY_ASSIGN_OR_RETURN(peer, yardsticks_.PeerOf(pool()));
  }
  ECPHORY_ASSIGN_OR_RETURN(const Rounds rounds, TimePrompts(&peer));
  const SessionOptions session =
      SessionFor(options_, config(), prompt(), prompt());
  ECPHORY_ASSIGN_OR_RETURN(
      SequenceState state,
      SequenceState::Create(config(), session, *forward_.device));
  ECPHORY_RETURN_IF_ERROR(
      ProfilePasses(session, {&state, 1}, prompt(), 1, &pass));
  Fill(rounds, &pass);
  BenchFigure beside_peer;
  beside_peer.flops = pass.figure.flops;
  peer.Hold(rounds.means, &beside_peer);
  pass.of_sgemm = beside_peer.share.median;
  yardsticks_.Add(peer);
  return pass;
}

// All sequences begin with the same rows, in caches of their own; their tokens
// differ.
Result<BenchPass> ModelBench::Decode(uint64_t context, uint32_t sequences) {
  BenchPass pass;
  pass.context = context;
  pass.tokens = pass.sequences = sequences;
  pass.figure.name = "decode/" + std::to_string(context);
  if (sequences > 1) pass.figure.name += " x " + std::to_string(sequences);
  const SessionOptions options =
      SessionFor(options_, config(), context + kDecodeRoom, 1);
  std::vector<SequenceState> states;
  ECPHORY_ASSIGN_OR_RETURN(
      SequenceState first,
      FilledState(config(), options, context, forward_.hasher, pool(),
                  *forward_.device));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<uint8_t> filled,
                           EncodeSnapshot(config(), first));
  ECPHORY_ASSIGN_OR_RETURN(const Rounds rounds,
                           sequences > 1 ? TimeBatch(options, filled, sequences)
                                         : TimeSession(options, filled));
  states.push_back(std::move(first));
  while (states.size() < sequences) {
    ECPHORY_ASSIGN_OR_RETURN(
        SequenceState state,
        SequenceState::Create(config(), options, *forward_.device));
    ECPHORY_RETURN_IF_ERROR(DecodeSnapshot(config(), filled, &state));
    state.history = states[0].history;
    states.push_back(std::move(state));
  }
  SessionOptions scratch = options;
  scratch.chunk = sequences;
  ECPHORY_RETURN_IF_ERROR(
      ProfilePasses(scratch, states, 1, kProfiledSteps, &pass));
  Fill(rounds, &pass);
  return pass;
}

Result<ModelBench::Rounds> ModelBench::TimeSession(
    const SessionOptions& options, const std::vector<uint8_t>& filled) {
  ECPHORY_ASSIGN_OR_RETURN(const auto session,
                           Session::Create(model_, options));
  ECPHORY_RETURN_IF_ERROR(session->Restore(filled));
  int32_t drawn = -1;
  std::mt19937_64 random;
  const auto step = [&](std::span<const int32_t> token) -> Status {
    if (!FollowsDraws()) {
      session->Prefetch(token);
      return session->Append(token, {});
    }
    if (drawn < 0) drawn = token[0];
    session->Prefetch({&drawn, 1});
    ECPHORY_ASSIGN_OR_RETURN(drawn, session->Step(drawn, SamplerOptions(),
                                                  random(), /*goes_on=*/true));
    return {};
  };
  return TimeSteps(step, session->context() - session->position(), 1);
}

Result<ModelBench::Rounds> ModelBench::TimeBatch(
    const SessionOptions& options, const std::vector<uint8_t>& filled,
    uint32_t sequences) {
  ECPHORY_ASSIGN_OR_RETURN(const auto batch,
                           Batch::Create(model_, options, sequences));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<BatchToken> next;
  std::vector<BatchDraw> draws;
  for (uint32_t i = 0; i < sequences; ++i) {
    ECPHORY_ASSIGN_OR_RETURN(auto session, batch->NewSession());
    ECPHORY_RETURN_IF_ERROR(session->Restore(filled));
    next.push_back({session.get(), 0});
    draws.push_back({session.get(), {.temperature = 0}, 0});
    sessions.push_back(std::move(session));
  }
  std::vector<int32_t> drawn;
  std::mt19937_64 random;
  const auto step = [&](std::span<const int32_t> tokens) -> Status {
    if (!drawn.empty()) tokens = drawn;
    for (size_t i = 0; i < next.size(); ++i) next[i].token = tokens[i];
    batch->Prefetch(next);
    if (!FollowsDraws()) {
      ECPHORY_RETURN_IF_ERROR(batch->Step(next));
      return batch->Draw(draws).status();
    }
    for (BatchDraw& draw : draws)
      draw = {draw.session, SamplerOptions(), random()};
    ECPHORY_ASSIGN_OR_RETURN(drawn, batch->Step(next, draws, /*goes_on=*/true));
    return {};
  };
  return TimeSteps(step, sessions[0]->context() - sessions[0]->position(),
                   next.size());
}

// Tokens are random, or drawn as a generation does by default: a sequence that
// a model writes would choose its experts in some other way, but no less of
// them.
//
// A round is as many steps as fit beside a look; where that is more than two,
// one comes first that does not count, as caches hold what was looked at.
Result<ModelBench::Rounds> ModelBench::TimeSteps(const Step& step,
                                                 uint64_t room,
                                                 size_t sequences) {
  const size_t steps = std::min<uint64_t>(room, kWarmSteps + kMostSteps);
  const std::vector<int32_t> tokens =
      RandomTokens(config(), steps * sequences, 3);
  const double round = options_.seconds / options_.rounds / 2;
  const double begin = Now();
  const auto enough = [&](const Rounds& rounds) {
    return rounds.passes.size() >= kFewestSteps &&
           Now() - begin > kStepPatience * options_.seconds;
  };
  size_t done = 0;
  double last = 0;
  const auto next = [&]() -> Status {
    const double start = Now();
    ECPHORY_RETURN_IF_ERROR(
        step(std::span(tokens).subspan(done++ * sequences, sequences)));
    last = Now() - start;
    return {};
  };
  Rounds rounds;
  ECPHORY_ASSIGN_OR_RETURN(rounds.beside, Bounds());
  while (done < kWarmSteps) ECPHORY_RETURN_IF_ERROR(next());
  ECPHORY_RETURN_IF_ERROR(Look(&rounds.beside));
  while (done < steps && !enough(rounds)) {
    if (last < round / 2 && done + 1 < steps) ECPHORY_RETURN_IF_ERROR(next());
    double sum = 0, count = 0;
    do {
      ECPHORY_RETURN_IF_ERROR(next());
      rounds.passes.push_back(last);
      sum += last;
      ++count;
    } while (done < steps && sum + last / 2 < round);
    rounds.means.push_back(sum / count);
    ECPHORY_RETURN_IF_ERROR(Look(&rounds.beside));
  }
  return rounds;
}

// Parts, bytes and operations, of passes of their own: looking costs time.
// `tokens` of each state.
Status ModelBench::ProfilePasses(const SessionOptions& session,
                                 std::span<SequenceState> states, size_t tokens,
                                 size_t passes, BenchPass* pass) {
  ECPHORY_ASSIGN_OR_RETURN(const auto forward,
                           Forward::Create(forward_, session, states.size()));
  ECPHORY_RETURN_IF_ERROR(forward->LetLogitsStay());
  const OpProfile::Scope scope(&profile_);
  const std::vector<uint8_t> image(tokens * states.size());
  std::vector<ForwardSegment> segments;
  for (SequenceState& state : states) segments.push_back({&state, tokens});
  double wall = 0, waited = 0;
  for (size_t i = 0; i < passes + 1; ++i) {  // the first one warms up
    if (i == 1) {
      profile_.Reset();
      wall = 0;
      waited = forward->stats().engram_wait_seconds;
    }
    for (SequenceState& state : states) {
      if (state.position + tokens <= state.context) continue;
      state.TruncateTo(0);
      state.history = {};
    }
    const std::vector<int32_t> ids =
        RandomTokens(config(), tokens * states.size(), 100 + i);
    ForwardChunk chunk;
    chunk.tokens = ids;
    chunk.image = image;
    const double start = Now();
    ECPHORY_RETURN_IF_ERROR(forward->Run(chunk, segments));
    wall += Now() - start;
  }
  const double wait = forward->stats().engram_wait_seconds - waited;
  FillParts(wall - profile_.overhead(), wait, passes, pass);
  return {};
}

void ModelBench::FillParts(double wall, double wait, size_t passes,
                           BenchPass* pass) {
  const double n = static_cast<double>(passes);
  const OpCost cost = profile_.cost();
  pass->figure.bytes = cost.stored / n;
  pass->figure.flops = cost.flops / n;
  pass->experts = cost.experts / n;
  pass->engram_wait_seconds = wait / n;
  const auto add = [&](const std::string& name, double seconds,
                       uint64_t calls) {
    if (seconds <= 0) return;
    pass->parts.push_back({name, seconds / n, seconds / wall, calls / passes});
  };
  for (size_t i = 0; i < kParts; ++i) {
    const PartTime& time = profile_.of(static_cast<Part>(i));
    add(PartName(static_cast<Part>(i)), time.seconds, time.calls);
  }
  add("waiting for rows", wait, 0);
  add("everything else", wall - profile_.seconds() - wait, 0);
  std::stable_sort(pass->parts.begin(), pass->parts.end(),
                   [](const BenchPart& a, const BenchPart& b) {
                     return a.seconds > b.seconds;
                   });
}

// Steps that are measured at least.
constexpr uint64_t kRoomForSteps = kWarmSteps + kFewestSteps;

std::vector<uint64_t> ContextsOf(const BenchOptions& options,
                                 const ModelConfig& config) {
  if (options.contexts) return *options.contexts;
  const uint64_t room = config.max_positions;
  return {std::min(kDefaultContext, room - std::min(room, kRoomForSteps))};
}

}  // namespace

size_t ModelSteps(const BenchOptions& options) {
  if (options.model.empty()) return 0;
  const size_t of_context = options.sequences > 1 ? 2 : 1;
  return 2 + of_context * (options.contexts ? options.contexts->size() : 1);
}

Status CheckRoom(const BenchOptions& options, const ModelConfig& config) {
  if (options.prompt.value_or(0) > config.max_positions) {
    return InvalidArgument("prompt of %u tokens: the model's maximum is %u",
                           *options.prompt, config.max_positions);
  }
  for (const uint64_t context : ContextsOf(options, config)) {
    if (context + kRoomForSteps <= config.max_positions) continue;
    return InvalidArgument(
        "context of %llu tokens and %llu steps behind it: the model's maximum "
        "is %u",
        static_cast<unsigned long long>(context),
        static_cast<unsigned long long>(kRoomForSteps), config.max_positions);
  }
  return {};
}

Result<BenchModel> MeasureModel(
    const BenchOptions& options, Yardsticks& yardsticks,
    const std::function<Status(const std::string&)>& step) {
  BenchModel result;
  result.path = options.model;
  ECPHORY_RETURN_IF_ERROR(step("opening the model"));
  const double start = Now();
  ECPHORY_ASSIGN_OR_RETURN(const auto model,
                           Model::Open(options.model, options.model_options));
  ECPHORY_RETURN_IF_ERROR(CheckRoom(options, model->config()));
  result.open_seconds = Now() - start;
  result.name = model->config().name;
  result.threads = model->threads();
  result.backend = model->backend();
  result.engram_place = model->engram_io().place;
  result.engram_io = model->engram_io().mode;
  result.activations = ActivationsName(options.session.activations);
  ModelBench bench(options, yardsticks, model);
  result.prompt = bench.prompt();
  ECPHORY_RETURN_IF_ERROR(bench.FirstToken(&result.first_token_seconds));
  result.first_token_seconds += result.open_seconds;
  ECPHORY_RETURN_IF_ERROR(step("prefill"));
  ECPHORY_ASSIGN_OR_RETURN(result.prefill, bench.Prefill());
  result.routed_experts = model->config().n_layers * model->config().n_experts;
  const auto decode = [&](uint64_t context, uint32_t sequences) -> Status {
    ECPHORY_RETURN_IF_ERROR(step("decode/" + std::to_string(context)));
    ECPHORY_ASSIGN_OR_RETURN(BenchPass pass, bench.Decode(context, sequences));
    result.decode.push_back(std::move(pass));
    return {};
  };
  for (const uint64_t context : ContextsOf(options, model->config())) {
    ECPHORY_RETURN_IF_ERROR(decode(context, 1));
    if (options.sequences == 1) continue;
    ECPHORY_RETURN_IF_ERROR(decode(context, options.sequences));
  }
  return result;
}

}  // namespace ecphory::measure
