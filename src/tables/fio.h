// The same reads by fio: a second opinion about the device.
#pragma once

#include "ecphory/engram_measure.h"
#include "ecphory/status.h"
#include "io/table_file.h"
#include "tables/read_probe.h"

namespace ecphory::tables {

// kNotFound when fio is not installed. Reads only.
Result<ReadRate> RunFio(const TableFile& file, const ProbeRange& range,
                        uint32_t read_bytes, uint32_t depth, double seconds);

// The figures of fio's JSON report. kCorrupt when it is none.
Result<ReadRate> ParseFio(const std::string& json);

}  // namespace ecphory::tables
