// What a measurement was made on.
#pragma once

#include "ecphory/engram_measure.h"
#include "io/table_file.h"
#include "tables/table_files.h"
#include "tables/table_set.h"

namespace ecphory::tables {

// Date, kernel, processor and memory.
void FillMachine(TablesBench* bench);

// Sizes and codec of the tables, and the files under them.
void FillTables(const TableSet& set, const TableFiles& files,
                TablesBench* bench);

TableFileInfo DescribeFile(const TableFile& file);

}  // namespace ecphory::tables
