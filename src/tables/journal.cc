#include "tables/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "io/errno_status.h"
#include "io/file.h"
#include "io/file_internal.h"
#include "io/file_writes.h"
#include "tables/digest.h"

namespace ecphory::tables {

namespace {

// A record for each chunk of a 16 TiB file stays far below.
constexpr uint64_t kMaxJournalBytes = uint64_t{256} << 20;

// Of one line, whatever the paths in `signature` are.
std::string HeaderText(const std::string& signature) {
  std::string text = "ecphory-journal 1 ";
  for (const char c : signature) {
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

std::string Line(const std::string& text) {
  return Hex(Digest::Of(text)) + " " + text + "\n";
}

bool IsHeader(const std::string& text) {
  return text.rfind("ecphory-journal ", 0) == 0;
}

// The text of a whole, unaltered line without its newline; nothing otherwise.
std::optional<std::string> TextOf(const std::string& line) {
  if (line.size() < 18 || line[16] != ' ') return {};
  const auto sum = ParseHex(std::string_view(line).substr(0, 16));
  std::string text = line.substr(17);
  if (sum != Digest::Of(text)) return {};
  return text;
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::Open(const std::string& path,
                                               const std::string& signature) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string bytes,
                           ReadWholeFile(path, kMaxJournalBytes));
  std::unique_ptr<Journal> journal(new Journal());
  journal->path_ = path;
  ECPHORY_RETURN_IF_ERROR(journal->Load(bytes, signature));
  return journal;
}

Status Journal::Load(const std::string& bytes, const std::string& signature) {
  size_t valid = 0;
  for (size_t at = 0, end; (end = bytes.find('\n', at)) != std::string::npos;
       at = end + 1) {
    auto text = TextOf(bytes.substr(at, end - at));
    if (!text) break;
    records_.push_back(std::move(*text));
    valid = end + 1;
  }
  if (records_.empty() || !IsHeader(records_[0])) {
    return InvalidArgument("%s: exists and is no journal of this program",
                           path_.c_str());
  }
  if (records_[0] != HeaderText(signature)) {
    return InvalidArgument(
        "%s: belongs to a job with another source or other options",
        path_.c_str());
  }
  records_.erase(records_.begin());
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd_.valid()) return FileError(errno, path_, "open");
  if (::ftruncate(fd_.get(), static_cast<off_t>(valid)) != 0) {
    return FileError(errno, path_, "drop an unfinished record");
  }
  return {};
}

bool Journal::IsOne(const std::string& path) {
  const auto bytes = ReadWholeFile(path, kMaxJournalBytes);
  if (!bytes.ok()) return false;
  const auto text = TextOf(bytes->substr(0, bytes->find('\n')));
  return text && IsHeader(*text);
}

Result<std::unique_ptr<Journal>> Journal::Create(const std::string& path,
                                                 const std::string& signature) {
  ECPHORY_ASSIGN_OR_RETURN(const auto writer, AtomicFileWriter::Create(path));
  const std::string line = Line(HeaderText(signature));
  ECPHORY_RETURN_IF_ERROR(writer->Write(AsBytes(line)));
  ECPHORY_RETURN_IF_ERROR(writer->Commit());
  return Open(path, signature);
}

Status Journal::Append(const std::string& text) {
  const std::string line = Line(text);
  ECPHORY_RETURN_IF_ERROR(AppendAll(fd_.get(), path_, AsBytes(line)));
  if (::fdatasync(fd_.get()) != 0) return FileError(errno, path_, "sync");
  records_.push_back(text);
  return {};
}

Status Journal::Remove() {
  if (::unlink(path_.c_str()) == 0 || errno == ENOENT) return {};
  return FileError(errno, path_, "remove");
}

}  // namespace ecphory::tables
