// What a released directory's config.json says about its n-gram table.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "ple/layout.h"

namespace ecphory::ple {

// Holds the constants that came with a table against `directory`/config.json,
// as far as there is one and it says: ngram_size, heads_per_ngram,
// ple_embed_dim, one of ple_layer_ids, a scalar eos_token_id. Arrays that are
// short drop a term of the hash or a head, and nothing else tells. Errors name
// file and key.
Status CheckModelConfig(const std::string& directory, const Layout& layout);

}  // namespace ecphory::ple
