// The Engram memory in C++, built with its source: what the C API does,
// with Status, spans and plain values.
//
//   engram_cpp FILE
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engram/memory.h"

namespace {

using ecphory::Status;
using ecphory::engram::History;
using ecphory::engram::Memory;
using ecphory::engram::RowFormat;
using ecphory::engram::Ticket;

Status ReadFirstTable(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const auto memory, Memory::Open(path, {}));
  const std::vector<int32_t> tokens = {5, 6, 7, 5, 6, 7};
  const size_t each = tokens.size() * memory->columns();
  std::vector<uint64_t> rows(memory->tables() * each);
  History history;  // of one sequence; a copy is a snapshot
  ECPHORY_RETURN_IF_ERROR(memory->Hash(tokens, {}, &history, rows));

  std::vector<uint16_t> values(each * memory->width());
  const Ticket ticket = memory->store().Submit({.table = 0,
                                                .rows = {rows.data(), each},
                                                .out = values.data(),
                                                .format = RowFormat::kBf16});
  // Compute here what does not need the rows.
  ECPHORY_RETURN_IF_ERROR(memory->store().Wait(ticket));
  std::printf("first row %llu, first value %#06x; %s\n",
              static_cast<unsigned long long>(rows[0]), values[0],
              memory->store().io().reason.c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = ReadFirstTable(argc > 1 ? argv[1] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
