// What stands behind ecphory::Model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "ecphory/model.h"
#include "engram/hasher.h"
#include "engram/store.h"
#include "model/forward.h"
#include "model/source.h"
#include "model/weights.h"

namespace ecphory {

struct Model::Impl {
  ModelSource source;
  ModelInfo info;
  Weights weights;
  std::optional<engram::Hasher> hasher;
  std::unique_ptr<engram::Store> store;
  std::unique_ptr<ThreadPool> pool;
  std::string backend;
  ForwardModel forward;  // points into the members above
};

}  // namespace ecphory
