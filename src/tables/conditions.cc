#include "tables/conditions.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "engram/config.h"
#include "io/device_facts.h"

namespace ecphory::tables {

namespace {

// The value of the first line of /proc/cpuinfo that begins with "model name".
std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string UtcDate() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%FT%TZ", &utc);
  return std::string(text, length);
}

}  // namespace

void FillMachine(TablesBench* bench) {
  bench->date = UtcDate();
  utsname name = {};
  if (::uname(&name) == 0) {
    bench->kernel = std::string(name.sysname) + " " + name.release;
  }
  bench->cpu = CpuModel();
  bench->processors = std::thread::hardware_concurrency();
  struct sysinfo memory = {};
  if (::sysinfo(&memory) == 0) {
    bench->memory_bytes = uint64_t{memory.totalram} * memory.mem_unit;
  }
}

void FillTables(const TableSet& set, const TableFiles& files,
                TablesBench* bench) {
  const engram::TableSource& table = set.tables[0];
  bench->rows_per_token =
      set.source.config.columns() * static_cast<uint32_t>(set.tables.size());
  bench->table_bytes = files.bytes();
  bench->row_bytes = TableRowBytes(table.codec, table.width) +
                     TableScaleBytes(table.codec, table.width);
  bench->codec = engram::RowEncodingName(table.codec, table.width);
  for (const auto& file : files.files) {
    bench->files.push_back(DescribeFile(*file));
  }
}

TableFileInfo DescribeFile(const TableFile& file) {
  const DeviceFacts facts = DeviceFactsOf(file);
  TableFileInfo info;
  info.path = file.path();
  info.bytes = file.size();
  info.file_system = facts.file_system;
  info.device_kind = DeviceKindName(facts.kind);
  info.device = DescribeDevice(facts);
  info.direct = file.direct() >= 0;
  info.direct_refusal = file.direct_refusal();
  return info;
}

}  // namespace ecphory::tables
