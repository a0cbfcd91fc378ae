#include "ecphory/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace ecphory {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(Status::Ok().ok());
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    const std::string name = StatusCodeName(static_cast<StatusCode>(code));
    EXPECT_NE(name, "unknown") << code;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_STREQ(StatusCodeName(static_cast<StatusCode>(99)), "unknown");
}

TEST(Status, MakersFormatAndSetTheCode) {
  EXPECT_EQ(InvalidArgument("%d", 7).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(NotFound("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(Corrupt("x").code(), StatusCode::kCorrupt);
  EXPECT_EQ(Unsupported("x").code(), StatusCode::kUnsupported);
  EXPECT_EQ(OutOfRange("x").code(), StatusCode::kOutOfRange);
  EXPECT_EQ(ResourceExhausted("x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(IoError("x").code(), StatusCode::kIoError);
  EXPECT_EQ(Cancelled("x").code(), StatusCode::kCancelled);
  EXPECT_EQ(Internal("x").code(), StatusCode::kInternal);
  EXPECT_EQ(Corrupt("%s: key %d", "a.gguf", 3).ToString(),
            "corrupt: a.gguf: key 3");
}

TEST(Status, LongMessagesAreKeptWhole) {
  const std::string text(100000, 'x');
  EXPECT_EQ(Corrupt("%s!", text.c_str()).message(), text + "!");
}

TEST(Status, ErrnoErrorNamesTheSystemError) {
  const Status status = ErrnoError(ENOENT, "open %s", "a.gguf");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "open a.gguf: No such file or directory");
  EXPECT_EQ(ErrnoError(ENOSPC, "a").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError(EMFILE, "a").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoError(EIO, "a").code(), StatusCode::kIoError);
}

TEST(Status, WithContextPutsTheContextInFront) {
  const Status status = NotFound("key 'a'").WithContext("m.gguf");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "m.gguf: key 'a'");
  EXPECT_TRUE(Status().WithContext("m.gguf").ok());
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value = 3;
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 3);
  EXPECT_TRUE(value.status().ok());

  const Result<int> error = Corrupt("bad");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().message(), "bad");
}

TEST(Result, FromAnOkStatusIsOurBug) {
  const Result<int> result = Status::Ok();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

Result<std::unique_ptr<int>> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("%d is odd", x);
  return std::make_unique<int>(x / 2);
}

Result<int> Quarter(int x) {
  ECPHORY_ASSIGN_OR_RETURN(const auto half, Half(x));
  ECPHORY_ASSIGN_OR_RETURN(const auto quarter, Half(*half));
  return *quarter;
}

Status CheckQuarter(int x) {
  ECPHORY_RETURN_IF_ERROR(Quarter(x).status());
  return Status::Ok();
}

TEST(Result, MacrosPropagateTheFirstError) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(CheckQuarter(7).message(), "7 is odd");
  EXPECT_TRUE(CheckQuarter(8).ok());
}

}  // namespace
}  // namespace ecphory
