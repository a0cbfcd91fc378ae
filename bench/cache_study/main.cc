// Which rows to keep in memory: the study behind engram/row_cache.h.
#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"

namespace ecphory::study {

namespace {

constexpr char kUsage[] =
    "usage: engram_cache_study tokenize TOKENIZER.json TEXT OUT\n"
    "       engram_cache_study curves|choices|cold|sampling|reuse|replay "
    "FACTS.json MAP.i32 KINDS [NAME...]";

bool Wanted(const std::vector<std::string>& names, const std::string& name) {
  if (names.empty()) return true;
  for (const std::string& wanted : names) {
    if (wanted == name) return true;
  }
  return false;
}

Status Run(const std::string& command, const engram::Hasher& hasher,
           const Kind& kind) {
  if (command == "reuse") return Reuse(hasher, kind);
  if (command == "replay") return Replay(hasher, kind);
  ECPHORY_ASSIGN_OR_RETURN(const Sample sample,
                           MakeSample(hasher, kind, /*layer=*/0, /*head=*/0));
  if (command == "curves") Curves(sample);
  if (command == "choices") Choices(sample);
  if (command == "cold") ColdStart(sample);
  if (command == "sampling") SamplingError(sample);
  return {};
}

Status RunAll(const std::vector<std::string>& args) {
  if (args.size() == 4 && args[0] == "tokenize") {
    return Tokenize(args[1], args[2], args[3]);
  }
  if (args.size() < 4) return InvalidArgument("%s", kUsage);
  ECPHORY_ASSIGN_OR_RETURN(const engram::Hasher hasher,
                           ReleasedHasher(args[1], args[2]));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<Kind> kinds, ReadKinds(args[3]));
  const std::vector<std::string> names(args.begin() + 4, args.end());
  for (const Kind& kind : kinds) {
    if (!Wanted(names, kind.name)) continue;
    ECPHORY_RETURN_IF_ERROR(Run(args[0], hasher, kind));
  }
  return {};
}

}  // namespace

}  // namespace ecphory::study

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const ecphory::Status status = ecphory::study::RunAll(args);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
