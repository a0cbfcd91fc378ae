#include "model/engram_place.h"

#include "base/quote.h"
#include "io/io_mode.h"
#include "ops/device.h"

namespace ecphory {

namespace {

constexpr EngramPlace kPlaces[] = {EngramPlace::kDisk, EngramPlace::kHost,
                                   EngramPlace::kGpu};

Result<EngramPlace> ParsePlace(const std::string& name) {
  for (const EngramPlace place : kPlaces) {
    if (name == EngramPlaceName(place)) return place;
  }
  return InvalidArgument("engram_place = %s: expected disk, host or gpu",
                         Quoted(name).c_str());
}

// Each is said in one way only: a whole table in memory is a place.
Status CheckReading(EngramPlace place, const ModelOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const IoMode mode, ParseIoMode(options.engram_io));
  if (mode == IoMode::kRam) {
    return InvalidArgument(
        "engram_io = ram: whole tables in memory are engram_place = host");
  }
  if (place == EngramPlace::kDisk) return {};
  if (mode != IoMode::kAuto) {
    return InvalidArgument(
        "engram_io = %s: with engram_place = %s nothing is read from disk, "
        "expected auto",
        options.engram_io.c_str(), EngramPlaceName(place));
  }
  if (options.engram_cache_bytes.value_or(0) > 0) {
    return InvalidArgument(
        "an Engram cache of %llu bytes: with engram_place = %s the whole "
        "tables are in memory, expected none",
        static_cast<unsigned long long>(*options.engram_cache_bytes),
        EngramPlaceName(place));
  }
  return {};
}

}  // namespace

const char* EngramPlaceName(EngramPlace place) {
  switch (place) {
    case EngramPlace::kDisk: return "disk";
    case EngramPlace::kHost: return "host";
    case EngramPlace::kGpu: break;
  }
  return "gpu";
}

Result<EngramPlace> FindEngramPlace(const ModelOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const EngramPlace place,
                           ParsePlace(options.engram_place));
  ECPHORY_RETURN_IF_ERROR(CheckReading(place, options));
  if (place != EngramPlace::kGpu) return place;
  ECPHORY_ASSIGN_OR_RETURN(const auto device, OpenDevice(options.backend));
  if (!device->is_host()) return place;
  return InvalidArgument(
      "engram_place = gpu: %s computes in the memory of the process, expected "
      "disk or host, or a CUDA device to compute on",
      device->name().c_str());
}

}  // namespace ecphory
