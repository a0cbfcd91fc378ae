// What a measurement was made on.
#pragma once

#include "ecphory/engram_measure.h"
#include "io/table_file.h"

namespace ecphory::tables {

// Date, kernel, processor and memory.
void FillMachine(TablesBench* bench);

TableFileInfo DescribeFile(const TableFile& file);

}  // namespace ecphory::tables
