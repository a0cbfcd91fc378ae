#include "measure/sampler.h"

#include <algorithm>
#include <chrono>

namespace ecphory::measure {

namespace {

// A call that takes longer than a round should is repeated all the same: three
// times beyond four times the time for all rounds, once beyond ten times.
constexpr uint32_t kFewRounds = 3;
constexpr double kPatience = 4;
constexpr double kLimit = 10;

double TimeOf(const std::function<void()>& call) {
  const double start = Now();
  call();
  return Now() - start;
}

void Once(const Subject& subject) {
  if (subject.before) subject.before();
  subject.call();
}

// Each call by itself, as many as the time allows, in `rounds` rounds.
double RoundOfSingles(const Subject& subject, uint64_t calls) {
  double sum = 0;
  for (uint64_t i = 0; i < calls; ++i) {
    subject.before();
    sum += TimeOf(subject.call);
  }
  return sum / static_cast<double>(calls);
}

double RoundOfMany(const Subject& subject, uint64_t calls) {
  const double start = Now();
  for (uint64_t i = 0; i < calls; ++i) subject.call();
  return (Now() - start) / static_cast<double>(calls);
}

}  // namespace

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<double> Sample(const Subject& subject, const SampleOptions& options,
                           const std::function<void()>& between) {
  const double begin = Now();
  double once = 0;
  // The first call finds nothing in caches and tables of pages. Where it is
  // short, the second tells how many make a round.
  for (int i = 0; i < 2 && once < options.seconds; ++i) {
    once = std::max(TimeOf([&] { Once(subject); }), 1e-9);
  }
  const double round = options.seconds / options.rounds;
  const auto calls = static_cast<uint64_t>(std::max(1.0, round / once));
  std::vector<double> seconds;
  if (between) between();
  for (uint32_t i = 0; i < options.rounds; ++i) {
    const double spent = (Now() - begin) / options.seconds;
    if (i >= kFewRounds && spent > kPatience) break;
    if (i > 0 && spent > kLimit) break;
    if (between && calls > 1) Once(subject);  // finds caches as others do
    seconds.push_back(subject.before ? RoundOfSingles(subject, calls)
                                     : RoundOfMany(subject, calls));
    if (between) between();
  }
  return seconds;
}

}  // namespace ecphory::measure
