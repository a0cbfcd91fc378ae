#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "io/fault_file.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

constexpr StatusCode kCorrupt = StatusCode::kCorrupt;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

// A shard's bytes: header length, header, data.
std::string Shard(const std::string& header, size_t data_bytes) {
  std::string out;
  AppendLE(static_cast<uint64_t>(header.size()), &out);
  return out + header + std::string(data_bytes, '\x11');
}

std::shared_ptr<RandomAccessFile> MemoryOf(const std::string& bytes) {
  return MakeMemoryFile(
      "m.safetensors",
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Result<TensorIndex> Parse(const RandomAccessFile& file) {
  TensorIndex index;
  index.AddFile({file.path(), file.size()});
  ECPHORY_RETURN_IF_ERROR(ParseSafetensors(file, 0, &index));
  ECPHORY_RETURN_IF_ERROR(index.Finish());
  return index;
}

Result<TensorIndex> Parse(const std::string& bytes) {
  return Parse(*MemoryOf(bytes));
}

// "name":{...} with the given raw JSON parts.
std::string Member(const std::string& name, const std::string& dtype,
                   const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}
std::string Object(const std::string& members) { return "{" + members + "}"; }

// A shard with one member and 24 bytes of data.
std::string One(const std::string& dtype, const std::string& shape,
                const std::string& offsets) {
  return Shard(Object(Member("t", dtype, shape, offsets)), 24);
}

struct Corruption {
  const char* name;
  std::string bytes;
  StatusCode code;
  const char* fragment;  // of the message
};
void PrintTo(const Corruption& row, std::ostream* out) { *out << row.name; }

std::vector<Corruption> FileRows() {
  std::string wrong_length;
  AppendLE(uint64_t{100'000'001}, &wrong_length);
  std::string long_header;
  AppendLE(uint64_t{50}, &long_header);
  const std::string t = Member("t", "F32", "[6]", "[0,24]");
  return {
      {"Empty", "", kCorrupt, "0 bytes, too short"},
      {"SevenBytes", "1234567", kCorrupt, "7 bytes, too short"},
      {"LengthPastTheLimit", wrong_length + "{}", kCorrupt,
       "header length 100000001"},
      {"LengthPastTheEnd", long_header + "{}", kCorrupt,
       "header of 50 bytes, but only 2 follow"},
      {"LengthZero", Shard("", 8), kCorrupt, "does not start with '{'"},
      {"Array", Shard("[]", 0), kCorrupt, "does not start with '{'"},
      {"LeadingSpace", Shard(" {}", 0), kCorrupt, "does not start with '{'"},
      {"ByteOrderMark", Shard("\xef\xbb\xbf{}", 0), kCorrupt,
       "does not start with '{'"},
      {"Unclosed", Shard("{" + t, 24), kCorrupt, "not valid JSON at byte"},
      {"TrailingGarbage", Shard(Object(t) + "x", 24), kCorrupt,
       "not valid JSON at byte"},
      {"NulAfterTheObject", Shard(Object(t) + std::string("\0x", 2), 24),
       kCorrupt, "NUL at byte"},
      {"Comment", Shard("{/**/}", 0), kCorrupt, "not valid JSON at byte"},
      {"InvalidUtf8", Shard("{\"\xff\":1}", 0), kCorrupt,
       "not valid JSON at byte"},
      {"DataCut", Shard(Object(t), 23), kCorrupt,
       "tensor 't': data_offsets [0, 24] are outside the file's 23"},
      {"DataAppended", Shard(Object(t), 25), kCorrupt,
       "25 data bytes, but the tensors end at 24"},
      {"DataOfNobody", Shard("{}", 1), kCorrupt,
       "1 data bytes, but the tensors end at 0"},
  };
}

std::vector<Corruption> MemberRows() {
  const std::string t = Member("t", "F32", "[6]", "[0,24]");
  std::string deep(100000, '[');
  return {
      {"NameTwice", Shard(Object(t + "," + t), 24), kCorrupt,
       "header: 't': appears twice"},
      {"NumberForTensor", Shard("{\"t\":5}", 0), kCorrupt,
       "'t': unexpected number"},
      {"StringForTensor", Shard("{\"t\":\"x\"}", 0), kCorrupt,
       "'t': unexpected string"},
      {"NullForTensor", Shard("{\"t\":null}", 0), kCorrupt,
       "'t': unexpected null"},
      {"ArrayForTensor", Shard("{\"t\":[1]}", 0), kCorrupt,
       "'t': unexpected array"},
      {"DeepNesting", Shard("{\"t\":" + deep, 0), kCorrupt,
       "'t': unexpected array"},
      {"NoDtype", Shard("{\"t\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4),
       kCorrupt, "'t': has no \"dtype\""},
      {"NoShape",
       Shard("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), kCorrupt,
       "'t': has no \"shape\""},
      {"NoOffsets", Shard("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4),
       kCorrupt, "'t': has no \"data_offsets\""},
      {"UnknownField", Shard("{\"t\":{\"strides\":[1]}}", 0), kCorrupt,
       "'t': 'strides': unexpected array"},
      {"FieldTwice", Shard("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0),
       kCorrupt, "'t': 'dtype': appears twice"},
      {"DtypeIsNumber", Shard("{\"t\":{\"dtype\":1}}", 0), kCorrupt,
       "'t': 'dtype': unexpected number"},
      {"DtypeUnknown", One("F7", "[6]", "[0,24]"), kUnsupported,
       "tensor 't': dtype 'F7' is not supported"},
      {"DtypeOfGguf", One("Q8_0", "[32]", "[0,24]"), kUnsupported,
       "tensor 't': dtype 'Q8_0'"},
      {"DtypeWithNewline", One("a\\nb", "[6]", "[0,24]"), kUnsupported,
       "dtype 'a\\x0ab'"},
      {"ShapeIsString", Shard("{\"t\":{\"shape\":\"6\"}}", 0), kCorrupt,
       "'t': 'shape': unexpected string"},
      {"ShapeIsNested", One("F32", "[[6]]", "[0,24]"), kCorrupt,
       "'t': 'shape': unexpected array"},
      {"ShapeNegative", One("F32", "[-6]", "[0,24]"), kCorrupt,
       "'t': 'shape': unexpected negative number"},
      {"ShapeFraction", One("F32", "[6.0]", "[0,24]"), kCorrupt,
       "'t': 'shape': unexpected number that is not an integer"},
      {"ShapePast2To64", One("F32", "[18446744073709551616]", "[0,24]"),
       kCorrupt, "'t': 'shape': unexpected number that is not an integer"},
      {"ShapeTooLong", One("F32", "[6,1,1,1,1,1,1,1,1]", "[0,24]"), kCorrupt,
       "'t': 'shape': more dimensions"},
      {"ShapeOverflows", One("F32", "[4294967296,4294967296,6]", "[0,24]"),
       kCorrupt,
       "tensor 't': shape [4294967296, 4294967296, 6] has more than 2^64"},
      {"BytesOverflow", One("F64", "[2305843009213693952]", "[0,0]"), kCorrupt,
       "tensor 't': 2305843009213693952 values of type F64"},
      {"ShapeTooLarge", One("F32", "[7]", "[0,24]"), kCorrupt,
       "tensor 't': F32 [7] takes 28 bytes, 24 are stored"},
      {"ShapeTooSmall", One("F32", "[5]", "[0,24]"), kCorrupt,
       "tensor 't': F32 [5] takes 20 bytes, 24 are stored"},
      {"OffsetsOne", One("F32", "[6]", "[0]"), kCorrupt,
       "'t': expected two numbers"},
      {"OffsetsThree", One("F32", "[6]", "[0,24,24]"), kCorrupt,
       "'t': 'data_offsets': expected two numbers"},
      {"OffsetsReversed", One("F32", "[6]", "[24,0]"), kCorrupt,
       "tensor 't': data_offsets [24, 0]"},
      {"OffsetsPastTheEnd", One("F32", "[6]", "[1,25]"), kCorrupt,
       "tensor 't': data_offsets [1, 25] are outside"},
      {"OffsetsMax",
       One("F32", "[6]", "[18446744073709551592,18446744073709551615]"),
       kCorrupt, "are outside the file's 24 data bytes"},
      {"Hole",
       Shard(Object(Member("a", "U8", "[4]", "[0,4]") + "," +
                    Member("b", "U8", "[4]", "[5,9]")),
             9),
       kCorrupt, "tensor 'b' starts at data byte 5"},
      {"Overlap",
       Shard(Object(Member("a", "U8", "[4]", "[0,4]") + "," +
                    Member("b", "U8", "[4]", "[3,7]")),
             7),
       kCorrupt, "the data has an overlap"},
      {"MetadataIsArray", Shard("{\"__metadata__\":[]}", 0), kCorrupt,
       "'__metadata__': unexpected array"},
      {"MetadataHoldsNumber", Shard("{\"__metadata__\":{\"a\":1}}", 0),
       kCorrupt, "'__metadata__': 'a': unexpected number"},
      {"MetadataHoldsObject", Shard("{\"__metadata__\":{\"a\":{}}}", 0),
       kCorrupt, "'__metadata__': 'a': unexpected object"},
      {"MetadataKeyTwice",
       Shard("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0), kCorrupt,
       "'__metadata__': 'a': appears twice"},
      {"MetadataTwice", Shard("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       kCorrupt, "'__metadata__': appears twice"},
  };
}

std::vector<Corruption> AllRows() {
  std::vector<Corruption> all = FileRows();
  for (Corruption& row : MemberRows()) all.push_back(std::move(row));
  return all;
}

class SafetensorsCorruption : public ::testing::TestWithParam<Corruption> {};

TEST_P(SafetensorsCorruption, IsNamed) {
  const Corruption& row = GetParam();
  const auto index = Parse(row.bytes);
  ASSERT_FALSE(index.ok());
  const std::string& message = index.status().message();
  EXPECT_EQ(index.status().code(), row.code) << message;
  EXPECT_NE(message.find(row.fragment), std::string::npos) << message;
  EXPECT_EQ(message.rfind("m.safetensors: ", 0), 0u) << message;
  for (const char c : message) {
    EXPECT_TRUE(std::isprint(static_cast<unsigned char>(c))) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, SafetensorsCorruption,
                         ::testing::ValuesIn(AllRows()),
                         [](const auto& row) { return row.param.name; });

TEST(Safetensors, PlacesTensorsInAnyOrder) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             Member("b", "BF16", "[2,3]", "[8,20]") + "," +
                             Member("a", "F32", "[2]", "[0,8]") + "," +
                             Member("none", "F32", "[0,4]", "[8,8]") + "," +
                             Member("scalar", "I64", "[]", "[20,28]") + "}   ";
  const auto index = Parse(Shard(header, 28));
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(index->tensors().size(), 4u);
  const TensorInfo* b = index->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_EQ(b->ShapeString(), "[2, 3]");
  EXPECT_EQ(b->offset, 8 + header.size() + 8);
  EXPECT_EQ(b->bytes, 12u);
  EXPECT_EQ(index->Find("scalar")->values(), 1u);
  EXPECT_EQ(index->Find("none")->bytes, 0u);
  EXPECT_EQ(index->Find("__metadata__"), nullptr);
}

TEST(Safetensors, EveryTruncationIsCorrupt) {
  const std::string valid = One("F32", "[6]", "[0,24]");
  ASSERT_TRUE(Parse(valid).ok());
  for (size_t size = 0; size < valid.size(); ++size) {
    EXPECT_EQ(Parse(valid.substr(0, size)).status().code(), kCorrupt) << size;
  }
}

TEST(Safetensors, IoErrorsComeThrough) {
  const auto file = MemoryOf(One("F32", "[6]", "[0,24]"));
  for (const uint64_t read : {0u, 1u}) {
    FaultPlan plan;
    plan.fail_read = read;
    EXPECT_EQ(Parse(*MakeFaultFile(file, plan)).status().code(),
              StatusCode::kIoError);
  }
}

class SafetensorsDirectory : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }
  // A shard with one U8 tensor of four bytes for every name.
  void PutShard(const std::string& name,
                const std::vector<std::string>& tensors) {
    std::string members;
    for (size_t i = 0; i < tensors.size(); ++i) {
      members +=
          (i == 0 ? "" : ",") + Member(tensors[i], "U8", "[4]",
                                       "[" + std::to_string(4 * i) + "," +
                                           std::to_string(4 * i + 4) + "]");
    }
    Put(name, Shard(Object(members), 4 * tensors.size()));
  }
  void PutIndex(const std::string& json) {
    Put("model.safetensors.index.json", json);
  }
  // The error, which must be of this code.
  std::string Error(StatusCode code) {
    const auto index = OpenSafetensorsDirectory(dir_.path());
    EXPECT_EQ(index.status().code(), code) << index.status().ToString();
    return index.status().message();
  }
  void ExpectError(StatusCode code, const std::string& fragment) {
    const std::string message = Error(code);
    EXPECT_NE(message.find(fragment), std::string::npos) << message;
  }

  TestDirectory dir_;
};

TEST_F(SafetensorsDirectory, FollowsTheIndex) {
  PutShard("x.safetensors", {"a", "b"});
  PutShard("y.safetensors", {"c"});
  PutShard("unrelated.safetensors", {"d"});
  PutIndex(R"({"metadata":{"total_size":12,"note":null},"weight_map":
              {"a":"x.safetensors","c":"y.safetensors","b":"x.safetensors"}})");
  const auto index = OpenSafetensorsDirectory(dir_.path());
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(index->tensors().size(), 3u);
  EXPECT_EQ(index->files()[index->Find("c")->file].path,
            dir_ / "y.safetensors");
}

TEST_F(SafetensorsDirectory, IndexMustBeTrue) {
  PutShard("x.safetensors", {"a", "b"});
  PutShard("y.safetensors", {"c"});
  PutIndex(R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors",
                             "c":"y.safetensors"}})");
  ExpectError(kCorrupt, "tensor 'b' should be in 'y.safetensors' but is in ");
  PutIndex(R"({"weight_map":{"a":"x.safetensors","b":"x.safetensors",
                             "d":"y.safetensors"}})");
  ExpectError(kCorrupt,
              "tensor 'd' should be in 'y.safetensors' but is missing");
  PutIndex(R"({"weight_map":{"a":"x.safetensors","c":"y.safetensors"}})");
  ExpectError(kCorrupt, "does not list tensor 'b'");
  PutIndex(R"({"weight_map":{"a":"x.safetensors","b":"z.safetensors"}})");
  ExpectError(StatusCode::kNotFound,
              "shard 'z.safetensors' is missing (it should hold tensor 'b')");
}

TEST_F(SafetensorsDirectory, IndexMustBeWellFormed) {
  PutShard("x.safetensors", {"a"});
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "not valid JSON"},
      {"[]", "unexpected array"},
      {"5", "unexpected value"},
      {"{}", "has no \"weight_map\""},
      {R"({"weight_map":[]})", "unexpected array"},
      {R"({"weight_map":"x"})", "'weight_map': unexpected value"},
      {R"({"weight_map":{"a":1}})", "'weight_map': 'a': expected a file name"},
      {R"({"weight_map":{"a":{}}})", "'weight_map': 'a': unexpected object"},
      {R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})",
       "'weight_map': 'a': appears twice"},
      {R"({"weight_map":{},"weight_map":{}})", "'weight_map': appears twice"},
      {R"({"weight_map":{"a":"../x.safetensors"}})", "expected a file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "expected a file name"},
      {R"({"weight_map":{"a":".."}})", "expected a file name"},
      {R"({"weight_map":{"a":""}})", "expected a file name"},
      {R"({"weight_map":{"a":"x\u0000y"}})", "expected a file name"},
      {R"({"metadata":{"a":{}},"weight_map":{}})", "unexpected object"},
      {R"({"other":1,"weight_map":{}})", "'other': unexpected value"},
      {R"({"weight_map":{}} x)", "not valid JSON"},
  };
  for (const auto& [json, fragment] : rows) {
    PutIndex(json);
    ExpectError(kCorrupt, fragment);
    ExpectError(kCorrupt, dir_ / "model.safetensors.index.json: ");
  }
}

TEST_F(SafetensorsDirectory, WithoutIndexPrefersTheSingleFile) {
  PutShard("model.safetensors", {"a"});
  PutShard("golden.safetensors", {"b"});
  const auto index = OpenSafetensorsDirectory(dir_.path());
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_NE(index->Find("a"), nullptr);
  EXPECT_EQ(index->Find("b"), nullptr);
}

TEST_F(SafetensorsDirectory, WithoutIndexTakesEveryShard) {
  PutShard("model-00001-of-00002.safetensors", {"a"});
  PutShard("model-00002-of-00002.safetensors", {"b"});
  const auto index = OpenSafetensorsDirectory(dir_.path());
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(index->tensors().size(), 2u);
}

TEST_F(SafetensorsDirectory, WithoutIndexNoticesAMissingPart) {
  PutShard("model-00001-of-00003.safetensors", {"a"});
  PutShard("model-00003-of-00003.safetensors", {"b"});
  ExpectError(StatusCode::kNotFound, "part 2 of 3 of 'model' is missing");
}

TEST_F(SafetensorsDirectory, DuplicatesAcrossShardsAreNamed) {
  PutShard("x.safetensors", {"a"});
  PutShard("y.safetensors", {"a"});
  const std::string message = Error(kCorrupt);
  EXPECT_EQ(message, dir_ / "y.safetensors" +
                         ": tensor 'a': appears twice (first in " +
                         dir_ / "x.safetensors" + ")");
}

TEST_F(SafetensorsDirectory, EmptyAndMissingDirectories) {
  ExpectError(StatusCode::kNotFound, "holds no *.safetensors file");
  EXPECT_EQ(OpenSafetensorsDirectory(dir_ / "none").status().code(),
            StatusCode::kNotFound);
}

TEST(SafetensorsGolden, OpensTheFixtures) {
  for (const char* model : {"A", "B", "C"}) {
    const std::string path =
        std::string(ECPHORY_TEST_DATA) + "/golden/v41/" + model;
    const auto index = OpenSafetensorsDirectory(path);
    ASSERT_TRUE(index.ok()) << index.status().ToString();
    EXPECT_EQ(index->files().size(), *model == 'A' ? 2u : 1u);
    EXPECT_EQ(index->Find("layers.0.attn.wq_a.weight")->dtype, DType::kF8E4M3);
    EXPECT_EQ(index->Find("layers.0.ffn.experts.0.w1.weight")->dtype,
              DType::kI8);
    EXPECT_EQ(index->Find("s7.logits"), nullptr);
  }
}

}  // namespace
}  // namespace ecphory
