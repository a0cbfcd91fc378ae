// Small pieces of text that the tables, pages and reports share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::trace {

// printf to a string.
std::string Print(const char* format, ...) ECPHORY_PRINTF(1, 2);
// 1,234,567
std::string Grouped(uint64_t number);
// "1.5 kB", decimal units.
std::string Bytes(double bytes);

// A token's bytes on one line, in double quotes: control characters, quotes,
// and bytes that are no whole character as \n or \xNN.
std::string QuotePiece(std::string_view bytes);
// Columns that UTF-8 `text` takes in a terminal (wide East Asian characters
// two, combining marks none), near enough for padding.
size_t DisplayWidth(std::string_view text);

// `items` after `prefix`, separated by two blanks, broken before `width`
// columns; later lines begin with as many blanks as `prefix` has columns.
std::string WrapItems(const std::string& prefix,
                      const std::vector<std::string>& items, size_t width);

bool IsWholeUtf8(std::string_view bytes);
// Two lower-case digits a byte.
std::string Hex(std::string_view bytes);

// `text` for HTML content and quoted attributes: & < > " ' escaped, bytes that
// are no UTF-8 as U+FFFD, control characters as their pictures (U+2400 on).
std::string EscapeHtml(std::string_view text);
// JSON for a <script> element: no "<", so no tag can end it.
std::string EscapeScript(std::string_view json);

// What surrounds a partial UTF-8 piece: the whole characters that the bytes
// [begin, end) of `text` belong to; empty when they are no part of any.
std::string WholeCharacters(std::string_view text, size_t begin, size_t end);

}  // namespace ecphory::trace
