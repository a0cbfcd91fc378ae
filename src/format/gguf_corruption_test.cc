// Every way we know in which a GGUF file can be wrong, one row each.
#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_bytes.h"

namespace ecphory {
namespace {

using gguf_bytes::ArrayKey;
using gguf_bytes::Key;
using gguf_bytes::LE;
using gguf_bytes::Parse;
using gguf_bytes::Start;
using gguf_bytes::Str;
using gguf_bytes::Tensor;
using gguf_bytes::Type;
using gguf_bytes::U32;
using gguf_bytes::U64;
using gguf_bytes::WithData;

constexpr StatusCode kCorrupt = StatusCode::kCorrupt;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr uint32_t kF32 = 0;
constexpr uint32_t kF64 = 28;
constexpr uint32_t kQ8_0 = 8;

// A file with these keys and no tensor.
std::string Keys(uint64_t count, const std::string& keys) {
  return Start(0, count) + keys;
}

// A file with these tensors and that much data.
std::string Tensors(uint64_t count, const std::string& tensors,
                    size_t data_bytes) {
  return WithData(Start(count, 0) + tensors, data_bytes);
}

// Room for counts to be plausible.
std::string Filler() { return std::string(200000, 'a'); }

struct Corruption {
  const char* name;
  std::string bytes;
  StatusCode code;
  const char* fragment;  // of the message
};
void PrintTo(const Corruption& row, std::ostream* out) { *out << row.name; }

std::vector<Corruption> FileRows() {
  return {
      {"Empty", "", kCorrupt, "ends inside the magic number"},
      {"HalfMagic", "GGU", kCorrupt, "ends inside the magic number"},
      {"OtherMagic", "GGML" + Filler(), kCorrupt, "starts with 47474d4c"},
      {"NoVersion", "GGUF", kCorrupt, "ends inside the version"},
      {"Version0", Start(0, 0, 0), kUnsupported, "GGUF version 0"},
      {"Version1", Start(0, 0, 1), kUnsupported, "GGUF version 1"},
      {"Version2", Start(0, 0, 2), kUnsupported, "GGUF version 2"},
      {"Version4", Start(0, 0, 4), kUnsupported, "GGUF version 4"},
      {"BigEndian", Start(0, 0, 0x03000000), kUnsupported,
       "big-endian GGUF file (version 3"},
      {"NoTensorCount", "GGUF" + U32(3), kCorrupt,
       "ends inside the tensor count"},
      {"NoKeyCount", "GGUF" + U32(3) + U64(0) + U32(0), kCorrupt,
       "ends inside the key count"},
      {"KeyCount2To63", Start(0, uint64_t{1} << 63) + Filler(), kCorrupt,
       "ends inside keys"},
      {"KeyCountTooLarge", Start(0, 100) + std::string(1000, '\0'), kCorrupt,
       "ends inside keys: 100 x 14 bytes"},
      {"TensorCount2To63", Start(uint64_t{1} << 63, 0) + Filler(), kCorrupt,
       "ends inside tensors"},
      {"TensorCountTooLarge", Start(100, 0) + std::string(3000, '\0'), kCorrupt,
       "ends inside tensors: 100 x 33 bytes"},
      {"CountPassesTheKeyLimit", Start(0, 70000) + std::string(1 << 20, 'a'),
       kUnsupported, "70000 keys, at most 65536"},
  };
}

std::vector<Corruption> KeyRows() {
  const std::string u8_key = Key("a", GgufType::kU8, LE<uint8_t>(1));
  return {
      {"OneKeyTooFew", Keys(2, u8_key + std::string(13, '\0')), kCorrupt,
       "ends inside keys"},
      {"KeyLengthPastTheEnd", Keys(1, U64(1000) + "abc" + U64(0)), kCorrupt,
       "key 0: the file ends inside a key"},
      {"KeyLengthMax", Keys(1, U64(UINT64_MAX) + Filler()), kCorrupt,
       "key 0: the file ends inside a key"},
      {"KeyTooLong", Keys(1, U64(65536) + Filler()), kCorrupt,
       "a key has 65536 bytes, at most 65535"},
      {"KeyEmpty", Keys(1, Key("", GgufType::kU64, U64(1))), kCorrupt,
       "key 0: a key is empty"},
      {"KeyTwice", Keys(2, u8_key + u8_key), kCorrupt,
       "key 'a': appears twice"},
      {"KeyWithNewline", Keys(1, Key("a\nb", GgufType::kBool, "\x02")),
       kCorrupt, "key 'a\\x0ab': a bool"},
      {"ValueTypeMissing", Keys(1, Str("abcdefghij") + "\x01"), kCorrupt,
       "key 'abcdefghij': the file ends inside a value type"},
      {"ValueType13", Keys(1, Str("a") + U32(13) + U64(0)), kCorrupt,
       "key 'a': a value type is 13"},
      {"ValueTypeMax", Keys(1, Str("a") + U32(UINT32_MAX) + U64(0)), kCorrupt,
       "a value type is 4294967295"},
      {"U64Cut", Keys(1, Key("abcd", GgufType::kU64, U32(1))), kCorrupt,
       "key 'abcd': the file ends inside a value"},
      {"F64Cut", Keys(1, Key("abcd", GgufType::kF64, U32(1))), kCorrupt,
       "key 'abcd': the file ends inside a value"},
      {"Bool2", Keys(1, Key("a", GgufType::kBool, "\x02")), kCorrupt,
       "a bool is stored as 2"},
      {"StringPastTheEnd",
       Keys(1, Key("a", GgufType::kString, U64(5) + "abcd")), kCorrupt,
       "key 'a': the file ends inside a string: 5 x 1 bytes"},
      {"StringLengthMax", Keys(1, Key("a", GgufType::kString, U64(UINT64_MAX))),
       kCorrupt, "key 'a': the file ends inside a string"},
      {"StringLengthCut", Keys(1, Key("a", GgufType::kString, U32(5))),
       kCorrupt, "key 'a': the file ends inside a string: 1 x 8"},
  };
}

std::vector<Corruption> ArrayRows() {
  return {
      {"ElementType13", Keys(1, Key("a", GgufType::kArray, U32(13) + U64(0))),
       kCorrupt, "an array's element type is 13"},
      {"ArrayOfArrays", Keys(1, ArrayKey("a", GgufType::kArray, 1, Filler())),
       kUnsupported, "key 'a': arrays of arrays"},
      {"EmptyArrayOfArrays", Keys(1, ArrayKey("a", GgufType::kArray, 0, "")),
       kUnsupported, "key 'a': arrays of arrays"},
      {"CountCut",
       Keys(1, Key("a", GgufType::kArray, Type(GgufType::kU8) + U32(1))),
       kCorrupt, "ends inside an array's count"},
      {"CountOverflows",
       Keys(1, ArrayKey("a", GgufType::kU64, uint64_t{1} << 61, Filler())),
       kCorrupt, "key 'a': the file ends inside a value"},
      {"CountMaxOfBytes",
       Keys(1, ArrayKey("a", GgufType::kU8, UINT64_MAX, Filler())), kCorrupt,
       "key 'a': the file ends inside a value"},
      {"CountOneTooMany",
       Keys(1, ArrayKey("a", GgufType::kU32, 3, U32(1) + U32(2))), kCorrupt,
       "a value: 3 x 4 bytes expected"},
      {"StringCountTooLarge",
       Keys(1, ArrayKey("a", GgufType::kString, uint64_t{1} << 60, Filler())),
       kCorrupt, "ends inside an array of strings"},
      {"SecondStringCut",
       Keys(1, ArrayKey("a", GgufType::kString, 2, Str("x") + U64(9) + "y")),
       kCorrupt, "ends inside a string: 9 x 1"},
      {"BoolArray255",
       Keys(1, ArrayKey("a", GgufType::kBool, 3, std::string("\0\1\xff", 3))),
       kCorrupt, "a bool is stored as 255"},
  };
}

std::vector<Corruption> AlignmentRows() {
  const auto alignment = [](GgufType type, const std::string& value) {
    return Start(1, 1) + Key("general.alignment", type, value) +
           Tensor("t", {8}, kF32, 0) + Filler();
  };
  return {
      {"Zero", alignment(GgufType::kU32, U32(0)), kCorrupt,
       "'general.alignment' is 0, expected a power of two"},
      {"Three", alignment(GgufType::kU32, U32(3)), kCorrupt,
       "'general.alignment' is 3, expected a power of two"},
      {"Negative", alignment(GgufType::kI32, LE<int32_t>(-32)), kCorrupt,
       "'general.alignment' holds -32"},
      {"String", alignment(GgufType::kString, Str("32")), kCorrupt,
       "'general.alignment' is of type string"},
      {"Array", alignment(GgufType::kArray, Type(GgufType::kU32) + U64(0)),
       kCorrupt, "'general.alignment' is of type u32 array"},
      {"LargerThanTheFile", alignment(GgufType::kU64, U64(uint64_t{1} << 63)),
       kCorrupt, "offset 9223372036854775808 reach past the end"},
  };
}

std::vector<Corruption> TensorRows() {
  const uint64_t huge = uint64_t{1} << 40;
  return {
      {"NameEmpty", Tensors(1, Tensor("", {8, 1}, kF32, 0), 32), kCorrupt,
       "tensor 0: a tensor name is empty"},
      {"NameTooLong", Start(1, 0) + U64(65536) + Filler(), kCorrupt,
       "tensor 0: a tensor name has 65536 bytes"},
      {"NamePastTheEnd", Start(1, 0) + U64(99) + std::string(40, 'a'), kCorrupt,
       "tensor 0: the file ends inside a tensor name"},
      {"Rank0", Tensors(1, Tensor("t", {}, kF32, 0), 32), kCorrupt,
       "tensor 't': 0 dimensions, expected 1 to 4"},
      {"Rank5", Tensors(1, Tensor("t", {1, 1, 1, 1, 1}, kF32, 0), 32), kCorrupt,
       "tensor 't': 5 dimensions, expected 1 to 4"},
      {"RankMax", Start(1, 0) + Str("t") + U32(UINT32_MAX) + Filler(), kCorrupt,
       "4294967295 dimensions"},
      {"DimensionsCut",
       Start(1, 0) + Str(std::string(20, 't')) + U32(4) + U32(1), kCorrupt,
       "ends inside the dimensions"},
      {"TypeCut", Start(1, 0) + Str(std::string(20, 't')) + U32(1) + U64(1),
       kCorrupt, "ends inside the tensor type"},
      {"OffsetCut",
       Start(1, 0) + Str(std::string(20, 't')) + U32(1) + U64(1) + U32(0),
       kCorrupt, "ends inside the data offset"},
      {"DimensionZero", Tensors(1, Tensor("t", {8, 0}, kF32, 0), 32), kCorrupt,
       "tensor 't': a dimension is 0"},
      {"ProductOverflows", Tensors(1, Tensor("t", {huge, huge}, kF32, 0), 32),
       kCorrupt, "tensor 't': shape [1099511627776, 1099511627776] has more"},
      {"ProductOverflowsToSmall",
       Tensors(1,
               Tensor("t", {uint64_t{1} << 32, (uint64_t{1} << 32) + 1, 8},
                      kF32, 0),
               32),
       kCorrupt, "has more than 2^64 values"},
      {"BytesOverflow",
       Tensors(1, Tensor("t", {uint64_t{1} << 61}, kF64, 0), 32), kCorrupt,
       "tensor 't': 2305843009213693952 values of type F64"},
      {"TypeUnknown", Tensors(1, Tensor("t", {8}, 250, 0), 32), kUnsupported,
       "tensor 't': ggml tensor type id 250"},
      {"TypeMax", Tensors(1, Tensor("t", {8}, UINT32_MAX, 0), 32), kUnsupported,
       "tensor 't': ggml tensor type id 4294967295"},
      {"TypeWithoutKernels", Tensors(1, Tensor("t", {256}, 14, 0), 256),
       kUnsupported, "tensor 't': tensor type Q6_K"},
      {"BlocksDoNotFit", Tensors(1, Tensor("t", {33}, kQ8_0, 0), 64), kCorrupt,
       "tensor 't': shape [33]: rows of 33 values"},
      {"BlocksCrossRows", Tensors(1, Tensor("t", {16, 2}, kQ8_0, 0), 64),
       kCorrupt, "tensor 't': shape [2, 16]: rows of 16 values"},
      {"OffsetNotAligned", Tensors(1, Tensor("t", {8}, kF32, 4), 64), kCorrupt,
       "tensor 't': data offset 4 is not a multiple of the alignment 32"},
      {"OffsetWraps", Tensors(1, Tensor("t", {8}, kF32, UINT64_MAX - 31), 64),
       kCorrupt, "tensor 't': data offset 18446744073709551584"},
      {"OffsetPastTheEnd", Tensors(1, Tensor("t", {8}, kF32, 1 << 20), 64),
       kCorrupt, "tensor 't': 32 bytes at offset"},
      {"DataOneByteShort", Tensors(1, Tensor("t", {8}, kF32, 0), 31), kCorrupt,
       "tensor 't': 32 bytes at offset 64 reach past the end of the file (95"},
      {"DataMissing", Start(1, 0) + Tensor("t", {8}, kF32, 0), kCorrupt,
       "tensor 't': 32 bytes at offset 64 reach past the end"},
      {"NameTwice",
       Tensors(2, Tensor("t", {8}, kF32, 0) + Tensor("t", {8}, kF32, 32), 64),
       kCorrupt, "tensor 't': appears twice"},
      {"SameData",
       Tensors(2, Tensor("a", {8}, kF32, 0) + Tensor("b", {8}, kF32, 0), 64),
       kCorrupt, "overlap"},
      {"Overlap",
       Tensors(3,
               Tensor("a", {8}, kF32, 64) + Tensor("b", {9}, kF32, 0) +
                   Tensor("c", {8}, kF32, 32),
               128),
       kCorrupt, "tensors 'b' (36 bytes at 128) and 'c' (at 160) overlap"},
  };
}

std::vector<Corruption> AllRows() {
  std::vector<Corruption> all;
  const auto add = [&](std::vector<Corruption> rows) {
    all.insert(all.end(), rows.begin(), rows.end());
  };
  add(FileRows());
  add(KeyRows());
  add(ArrayRows());
  add(AlignmentRows());
  add(TensorRows());
  return all;
}

class GgufCorruption : public ::testing::TestWithParam<Corruption> {};

TEST_P(GgufCorruption, IsNamed) {
  const Corruption& row = GetParam();
  const auto parsed = Parse(row.bytes);
  ASSERT_FALSE(parsed.ok());
  const std::string& message = parsed.status().message();
  EXPECT_EQ(parsed.status().code(), row.code) << message;
  EXPECT_NE(message.find(row.fragment), std::string::npos) << message;
  EXPECT_EQ(message.rfind("m.gguf: ", 0), 0u) << message;
  for (const char c : message) {
    EXPECT_TRUE(std::isprint(static_cast<unsigned char>(c))) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, GgufCorruption, ::testing::ValuesIn(AllRows()),
                         [](const auto& row) { return row.param.name; });

// A valid file with a key of every kind and two tensors.
std::string Valid() {
  return WithData(
      Start(2, 4) + Key("a", GgufType::kU32, U32(7)) +
          Key("b", GgufType::kString, Str("text")) +
          ArrayKey("c", GgufType::kI16, 3, LE<int16_t>(-1) + U32(0)) +
          ArrayKey("d", GgufType::kString, 2, Str("x") + Str("")) +
          Tensor("t", {4, 2}, kF32, 0) + Tensor("u", {32}, kQ8_0, 32),
      32 + 34);
}

TEST(GgufDamage, EveryTruncationIsCorrupt) {
  const std::string valid = Valid();
  ASSERT_TRUE(Parse(valid).ok()) << Parse(valid).status().ToString();
  for (size_t size = 0; size < valid.size(); ++size) {
    const auto parsed = Parse(valid.substr(0, size));
    EXPECT_EQ(parsed.status().code(), kCorrupt) << size;
  }
}

TEST(GgufDamage, AnyChangedByteIsParsedOrNamed) {
  const std::string valid = Valid();
  for (size_t at = 0; at < valid.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::string damaged = valid;
      damaged[at] = static_cast<char>(value);
      const auto parsed = Parse(damaged);
      if (!parsed.ok()) {
        EXPECT_FALSE(parsed.status().message().empty()) << at;
      }
    }
  }
}

}  // namespace
}  // namespace ecphory
