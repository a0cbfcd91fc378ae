#include "dump.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ecphory::cli {

DumpObserver::DumpObserver(uint32_t layer, std::string directory, bool made)
    : layer_(layer), directory_(std::move(directory)), made_(made) {}

DumpObserver::~DumpObserver() {
  files_.clear();
  if (made_) rmdir(directory_.c_str());  // unless something is in it
}

Result<std::unique_ptr<DumpObserver>> DumpObserver::Create(
    uint32_t layer, std::string directory) {
  const bool made = mkdir(directory.c_str(), 0777) == 0;
  if (!made && errno != EEXIST) {
    return ErrnoError(errno, "--dump: %s", directory.c_str());
  }
  return std::unique_ptr<DumpObserver>(
      new DumpObserver(layer, std::move(directory), made));
}

void DumpObserver::OnF32(uint32_t, const std::string& name,
                         std::span<const float> values,
                         const std::vector<uint64_t>& shape) {
  Append(name, NpyType::kF32, values.data(), shape);
}

void DumpObserver::OnI32(uint32_t, const std::string& name,
                         std::span<const int32_t> values,
                         const std::vector<uint64_t>& shape) {
  Append(name, NpyType::kI32, values.data(), shape);
}

void DumpObserver::OnU8(uint32_t, const std::string& name,
                        std::span<const uint8_t> values,
                        const std::vector<uint64_t>& shape) {
  Append(name, NpyType::kU8, values.data(), shape);
}

void DumpObserver::Append(const std::string& name, NpyType type,
                          const void* data,
                          const std::vector<uint64_t>& shape) {
  if (status_.ok()) status_ = TryAppend(name, type, data, shape);
}

Status DumpObserver::TryAppend(const std::string& name, NpyType type,
                               const void* data,
                               const std::vector<uint64_t>& shape) {
  const std::vector<uint64_t> row_shape(shape.begin() + 1, shape.end());
  std::unique_ptr<NpyWriter>& file = files_[name];
  if (file == nullptr) {
    ECPHORY_ASSIGN_OR_RETURN(
        file,
        NpyWriter::Create(directory_ + "/" + name + ".npy", type, row_shape));
  }
  // Scores and candidates have a column per compressed entry: later chunks see
  // more of them.
  const bool grows = row_shape.size() == 1 && file->row_shape().size() == 1 &&
                     row_shape[0] > file->row_shape()[0];
  if (grows) ECPHORY_RETURN_IF_ERROR(file->Widen(row_shape[0]));
  if (file->row_shape() != row_shape) {
    return Unsupported(
        "--dump: the shape of '%s' changes from chunk to chunk; give a --chunk "
        "of all tokens",
        name.c_str());
  }
  return file->AppendRows(data, shape[0]);
}

Status DumpObserver::Commit() {
  ECPHORY_RETURN_IF_ERROR(status_);
  for (auto& [name, file] : files_) ECPHORY_RETURN_IF_ERROR(file->Commit());
  return {};
}

}  // namespace ecphory::cli
