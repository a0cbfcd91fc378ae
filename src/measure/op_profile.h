// Where a forward pass spends its time, by the operators it calls.
//
// All arithmetic goes through one table of functions (ops/ops.h), so a table
// whose functions time those of another one sees it all, and the forward pass
// needs no hook.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ecphory/bench.h"
#include "measure/op_cost.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace ecphory::measure {

enum class Part : uint8_t {
  kEmbed,
  kEngram,  // projection and gate
  kMhc,
  kNorm,
  kProjections,  // of attention: queries, the index's among them, window KV,
                 // output
  kRows,         // rope, rounding, rows moved into caches
  kAttention,
  kCompressor,  // its products, in one call with the index weights' where a
                // layer has both, and pooling
  kIndexer,     // its scores and selection
  kRouter,
  kExperts,
  kHead,
};
inline constexpr size_t kParts = 12;
const char* PartName(Part part);

// What one part took. Seconds are those of the calls, `cost` what they had to
// do.
struct PartTime {
  double seconds = 0;
  uint64_t calls = 0;
  OpCost cost;
};

// Counts the calls of the table it hands out. Of one thread: the table's
// functions count into the profile that is active in the thread that calls
// them.
class OpProfile {
 public:
  // `weights` tell products of one part from those of another; both outlive
  // the profile.
  OpProfile(const Ops& inner, const Weights& weights);
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;

  // Its functions may be called only while a Scope of this profile lives.
  const Ops& ops() const { return timed_; }

  class Scope {
   public:
    explicit Scope(OpProfile* profile);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    OpProfile* outer_;
  };

  const PartTime& of(Part part) const {
    return parts_[static_cast<size_t>(part)];
  }
  OpCost cost() const;
  double seconds() const;
  // Spent on counting, outside all parts.
  double overhead() const { return overhead_; }
  void Reset();

  // For the functions of the table.
  const Ops& inner() const { return inner_; }
  Part PartOf(const Matrix& weight) const;
  void Add(Part part, double seconds, const OpCost& cost);
  void AddOverhead(double seconds) { overhead_ += seconds; }

 private:
  const Ops& inner_;
  Ops timed_;
  std::map<const uint8_t*, Part> part_of_;  // by the matrix's first byte
  std::array<PartTime, kParts> parts_;
  double overhead_ = 0;
};

// Entries of Ops that a profile times; all of them, as a test checks.
size_t TimedEntries();

}  // namespace ecphory::measure
