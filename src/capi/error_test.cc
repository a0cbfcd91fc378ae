#include "capi/error.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace ecphory::capi {
namespace {

TEST(Error, EveryExceptionBecomesAStatus) {
  EXPECT_EQ(Guard([]() -> Status { throw std::bad_alloc(); }),
            ECPHORY_ENGRAM_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(LastError(), "out of memory");
  EXPECT_EQ(Guard([]() -> Status { throw std::runtime_error("why"); }),
            ECPHORY_ENGRAM_INTERNAL);
  EXPECT_STREQ(LastError(), "why");
  EXPECT_EQ(Guard([]() -> Status { throw 7; }), ECPHORY_ENGRAM_INTERNAL);
}

TEST(Error, EveryCodeHasItsNumberAndName) {
  const Status statuses[] = {InvalidArgument("m"),
                             NotFound("m"),
                             Corrupt("m"),
                             Unsupported("m"),
                             OutOfRange("m"),
                             ResourceExhausted("m"),
                             IoError("m"),
                             Cancelled("m"),
                             Status(StatusCode::kDeviceError, "m"),
                             Internal("m")};
  int number = 0;
  for (const Status& status : statuses) {
    const ecphory_engram_status reported = Report(status);
    EXPECT_EQ(static_cast<int>(reported), ++number);
    EXPECT_STREQ(ecphory_engram_status_name(reported),
                 StatusCodeName(status.code()));
  }
  EXPECT_STREQ(ecphory_engram_status_name(ECPHORY_ENGRAM_OK), "ok");
  EXPECT_STREQ(
      ecphory_engram_status_name(static_cast<ecphory_engram_status>(11)),
      "unknown");
}

TEST(Error, MessagesAreTheThreadsOwnAndBounded) {
  ReportText(ECPHORY_ENGRAM_CORRUPT, std::string(5000, 'x').c_str());
  EXPECT_EQ(std::string(LastError()), std::string(1023, 'x'));
  std::thread([] { EXPECT_STREQ(LastError(), ""); }).join();
  EXPECT_EQ(Report(Status()), ECPHORY_ENGRAM_OK);
  EXPECT_EQ(std::string(LastError()).size(), 1023u);
}

struct AsksAtTheEnd {
  ~AsksAtTheEnd() {
    ReportText(ECPHORY_ENGRAM_CORRUPT, "late");
    EXPECT_STRNE(LastError(), "");
  }
  int touched = 0;
};
thread_local AsksAtTheEnd asks_at_the_end;

TEST(Error, AThreadThatEndsMayStillAsk) {
  std::thread([] {
    asks_at_the_end.touched = 1;  // outlives what the first error makes
    ReportText(ECPHORY_ENGRAM_CORRUPT, "early");
    EXPECT_STREQ(LastError(), "early");
  }).join();
}

}  // namespace
}  // namespace ecphory::capi
