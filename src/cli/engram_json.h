// Measured rates as JSON.
#pragma once

#include "ecphory/engram_measure.h"
#include "output.h"

namespace ecphory::cli {

inline Json RateJson(const ReadRate& rate) {
  return Json{{"way", rate.way},
              {"depth", rate.depth},
              {"read_bytes", rate.read_bytes},
              {"reads", rate.reads},
              {"reads_per_second", rate.reads_per_second},
              {"p50_us", rate.p50_us},
              {"p95_us", rate.p95_us},
              {"p99_us", rate.p99_us},
              {"cpu_us_per_read", rate.cpu_us_per_read}};
}

}  // namespace ecphory::cli
