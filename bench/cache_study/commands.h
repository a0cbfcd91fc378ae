// The steps of the row cache study; docs/engram-cache.md says what they showed.
// All print tables with tabs between columns.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "stream.h"

namespace ecphory::study {

// A text to token ids.
Status Tokenize(const std::string& tokenizer_json, const std::string& text_path,
                const std::string& out_path);
// Hit rates of policies at sizes from 1 MB to 8 GB.
void Curves(const Sample& sample);
// The row cache's policy with other parameters.
void Choices(const Sample& sample);
// Hit rates of the first 1,000 tokens, those up to 10,000, 100,000, ...
void ColdStart(const Sample& sample);
// The same size sampled twice as thinly as the other.
void SamplingError(const Sample& sample);
// Repeats inside a token, between neighbours, by distance, across sequences.
Status Reuse(const engram::Hasher& hasher, const Kind& kind);
// The real cache over all 48 rows a token.
Status Replay(const engram::Hasher& hasher, const Kind& kind);

}  // namespace ecphory::study
