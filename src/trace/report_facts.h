// Derived numbers and lines that the report's text and page share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ecphory/engram_report.h"

namespace ecphory::trace {

double PerToken(const EngramLoss& loss, double bits);
double PerByte(const EngramLoss& loss, double bits);  // 0 without a tokenizer
double PerSecond(uint64_t tokens, double seconds);
// Of distinct requests, those that the store's cache answered.
double StoreHitRate(const EngramStoreUse& store);
// "123 us", "4.56 ms"
std::string Duration(double seconds);

// Name and value of each condition, in the order in which they are shown.
std::vector<std::pair<std::string, std::string>> ConditionLines(
    const EngramReportConditions& conditions);

}  // namespace ecphory::trace
