#include "exit_code.h"

namespace ecphory::cli {

int ExitCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInvalidArgument: return 2;
    case StatusCode::kNotFound: return 3;
    case StatusCode::kCorrupt: return 4;
    case StatusCode::kUnsupported: return 5;
    case StatusCode::kOutOfRange: return 6;
    case StatusCode::kResourceExhausted: return 7;
    case StatusCode::kIoError: return 8;
    case StatusCode::kDeviceError: return 9;
    case StatusCode::kInternal: return 70;
    case StatusCode::kCancelled: return kExitCancelled;
  }
  return 70;
}

}  // namespace ecphory::cli
