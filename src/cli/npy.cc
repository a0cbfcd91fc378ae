#include "npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "ecphory/partial_files.h"
#include "file_text.h"
#include "output.h"

namespace ecphory::cli {

namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
// One fixed size, so that the data's place does not depend on the row count.
// NumPy asks for a multiple of 64; 256 holds any shape of a few dimensions.
constexpr size_t kHeaderBytes = 256;
// 128 Mi ids of 8 bytes: far beyond any context.
constexpr size_t kMaxNpyBytes = size_t{1} << 30;

Status Bad(const std::string& path, const char* found, const char* expected) {
  return Corrupt("%s: %s, expected %s", path.c_str(), found, expected);
}

// The bytes after magic, version and header length, and the header's text.
struct NpyParts {
  std::string header;
  std::string data;
};

Result<NpyParts> SplitNpy(const std::string& path, const std::string& bytes) {
  const char* expected = "a NumPy .npy file (np.save)";
  if (bytes.size() < 12 || bytes.compare(0, kMagicBytes, kMagic) != 0) {
    return Bad(path, "no .npy magic at its beginning", expected);
  }
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const size_t version = byte(6);
  if (version < 1 || version > 3) {
    return Unsupported("%s: .npy version %zu, expected 1 to 3", path.c_str(),
                       version);
  }
  const size_t begin = version == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - begin) {
    return Bad(path, "header longer than the file", expected);
  }
  return NpyParts{bytes.substr(begin, length), bytes.substr(begin + length)};
}

// The text between `open` and `close` that follows "'key':".
Result<std::string> HeaderField(const std::string& path,
                                const std::string& header, const char* key,
                                char open, char close) {
  const size_t at = header.find("'" + std::string(key) + "':");
  const size_t begin =
      at == std::string::npos ? at : header.find(open, at + strlen(key) + 3);
  const size_t end =
      begin == std::string::npos ? begin : header.find(close, begin + 1);
  if (end == std::string::npos) {
    return Corrupt("%s: .npy header has no usable '%s'", path.c_str(), key);
  }
  return header.substr(begin + 1, end - begin - 1);
}

struct IntKind {
  size_t bytes;
  bool is_signed;
};

Result<IntKind> ParseIntKind(const std::string& path,
                             const std::string& descr) {
  const char order = descr.size() == 3 ? descr[0] : '?';
  const char kind = descr.size() == 3 ? descr[1] : '?';
  const size_t bytes = descr.size() == 3 ? size_t(descr[2] - '0') : 0;
  const bool integer = kind == 'i' || kind == 'u' || kind == 'b';
  const bool width = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  const bool little = order == '<' || bytes == 1;
  if (!integer || !width || !little) {
    return Unsupported(
        "%s: elements of type '%s', expected little-endian integers or bool",
        path.c_str(), descr.c_str());
  }
  return IntKind{bytes, kind == 'i'};
}

// Number of elements of "(7,)" or, as batches of one are saved, "(1, 7)".
Result<uint64_t> ParseLength(const std::string& path,
                             const std::string& shape) {
  const std::string one = "1, ";
  const bool batch = shape.size() > one.size() && shape.rfind(one, 0) == 0;
  const std::string row = batch ? shape.substr(one.size()) + "," : shape;
  unsigned long long length = 0;
  int used = 0;
  if (std::sscanf(row.c_str(), "%llu ,%n", &length, &used) == 1 && used > 0 &&
      static_cast<size_t>(used) == row.size()) {
    return static_cast<uint64_t>(length);
  }
  return Unsupported("%s: shape (%s), expected one sequence: (7,) or (1, 7)",
                     path.c_str(), shape.c_str());
}

int64_t DecodeInt(const char* data, IntKind kind) {
  uint64_t bits = 0;
  for (size_t i = 0; i < kind.bytes; ++i) {
    bits |= uint64_t(static_cast<unsigned char>(data[i])) << (8 * i);
  }
  const unsigned unused = 64 - 8 * static_cast<unsigned>(kind.bytes);
  const auto extended = static_cast<int64_t>(bits << unused);
  if (kind.is_signed) return extended >> unused;
  return static_cast<int64_t>(std::min(bits, uint64_t{INT64_MAX}));
}

const char* Descr(NpyType type) {
  switch (type) {
    case NpyType::kF32: return "<f4";
    case NpyType::kI32: return "<i4";
    case NpyType::kU8: return "|u1";
  }
  return "";
}

// Appends the element that says "nothing here".
void PadElement(NpyType type, std::vector<uint8_t>* bytes) {
  const float none = -std::numeric_limits<float>::infinity();
  const int32_t minus_one = -1;
  uint8_t element[4] = {};
  if (type == NpyType::kF32) std::memcpy(element, &none, sizeof(none));
  if (type == NpyType::kI32) std::memcpy(element, &minus_one, 4);
  bytes->insert(bytes->end(), element,
                element + (type == NpyType::kU8 ? 1 : 4));
}

}  // namespace

Result<std::vector<int64_t>> ReadNpyInts(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string bytes,
                           ReadFileText(path, kMaxNpyBytes));
  ECPHORY_ASSIGN_OR_RETURN(const NpyParts parts, SplitNpy(path, bytes));
  ECPHORY_ASSIGN_OR_RETURN(
      const std::string descr,
      HeaderField(path, parts.header, "descr", '\'', '\''));
  ECPHORY_ASSIGN_OR_RETURN(const IntKind kind, ParseIntKind(path, descr));
  ECPHORY_ASSIGN_OR_RETURN(const std::string shape,
                           HeaderField(path, parts.header, "shape", '(', ')'));
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t length, ParseLength(path, shape));
  if (parts.data.size() % kind.bytes != 0 ||
      parts.data.size() / kind.bytes != length) {
    return Corrupt("%s: %zu bytes of data, expected %llu elements of %zu bytes",
                   path.c_str(), parts.data.size(),
                   static_cast<unsigned long long>(length), kind.bytes);
  }
  std::vector<int64_t> values(length);
  for (size_t i = 0; i < length; ++i) {
    values[i] = DecodeInt(parts.data.data() + i * kind.bytes, kind);
  }
  return values;
}

NpyWriter::NpyWriter(std::string path, NpyType type,
                     std::vector<uint64_t> row_shape)
    : path_(std::move(path)), type_(type), row_shape_(std::move(row_shape)) {}

NpyWriter::~NpyWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
  ForgetPartialFile(temporary_);
}

Result<std::unique_ptr<NpyWriter>> NpyWriter::Create(
    const std::string& path, NpyType type, std::vector<uint64_t> row_shape) {
  std::unique_ptr<NpyWriter> writer(
      new NpyWriter(path, type, std::move(row_shape)));
  struct stat existing = {};
  if (stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    return InvalidArgument(
        "%s: exists and is no regular file, expected a name "
        "to write a .npy file to",
        path.c_str());
  }
  const std::string stem = path + ".partial-" + std::to_string(getpid()) + "-";
  for (int n = 0; writer->fd_ < 0; ++n) {
    writer->temporary_ = stem + std::to_string(n);
    writer->fd_ = MakePartialFile(writer->temporary_, [](const char* name) {
      return open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
    if (writer->fd_ < 0 && errno != EEXIST) {
      return ErrnoError(errno, "%s", path.c_str());
    }
  }
  return writer;
}

uint64_t NpyWriter::RowBytes() const {
  uint64_t bytes = type_ == NpyType::kU8 ? 1 : 4;
  for (uint64_t n : row_shape_) bytes *= n;
  return bytes;
}

Status NpyWriter::Write(const void* data, size_t bytes, uint64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(errno, "%s", path_.c_str());
    from += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

uint64_t NpyWriter::RowOffset(uint64_t row) const {
  return kHeaderBytes + row * RowBytes();
}

Status NpyWriter::AppendRows(const void* data, uint64_t rows) {
  ECPHORY_RETURN_IF_ERROR(Write(data, rows * RowBytes(), RowOffset(rows_)));
  rows_ += rows;
  return {};
}

Status NpyWriter::ReadRow(uint64_t row, std::vector<uint8_t>* bytes) const {
  bytes->resize(RowBytes());
  for (size_t done = 0; done < bytes->size();) {
    const ssize_t n = pread(fd_, bytes->data() + done, bytes->size() - done,
                            static_cast<off_t>(RowOffset(row) + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoError(n < 0 ? errno : EIO, "%s", path_.c_str());
    done += static_cast<size_t>(n);
  }
  return {};
}

Status NpyWriter::Widen(uint64_t width) {
  const std::vector<uint64_t> narrow = row_shape_, wide = {width};
  std::vector<uint8_t> bytes;
  // From the last row back, so that none is overwritten before it is read.
  for (uint64_t row = rows_; row-- > 0;) {
    row_shape_ = narrow;
    ECPHORY_RETURN_IF_ERROR(ReadRow(row, &bytes));
    row_shape_ = wide;
    while (bytes.size() < RowBytes()) PadElement(type_, &bytes);
    ECPHORY_RETURN_IF_ERROR(Write(bytes.data(), bytes.size(), RowOffset(row)));
  }
  row_shape_ = wide;
  return {};
}

std::string NpyWriter::Header() const {
  std::string shape = std::to_string(rows_) + ",";
  for (uint64_t n : row_shape_) shape += " " + std::to_string(n) + ",";
  std::string header(kMagic, kMagicBytes);
  header += std::string("\x01\x00", 2);
  header += static_cast<char>((kHeaderBytes - 10) & 0xFF);
  header += static_cast<char>((kHeaderBytes - 10) >> 8);
  header += Format("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                   Descr(type_), shape.c_str());
  header.resize(kHeaderBytes - 1, ' ');
  return header + "\n";
}

Status NpyWriter::Commit() {
  const std::string header = Header();
  ECPHORY_RETURN_IF_ERROR(Write(header.data(), header.size(), 0));
  if (fsync(fd_) != 0) return ErrnoError(errno, "%s", path_.c_str());
  if (FinishPartialFile(temporary_, [this](const char* name) {
        return rename(name, path_.c_str());
      }) != 0) {
    return ErrnoError(errno, "%s", path_.c_str());
  }
  close(std::exchange(fd_, -1));
  return {};
}

}  // namespace ecphory::cli
