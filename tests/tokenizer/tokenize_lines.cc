// tokenize_lines TOKENIZER.JSON: reads one JSON object per line, {"text":
// "..."} or {"ids": [...]}, and answers each with a line of JSON: the ids of
// the text, or {"hex": "..."}, the bytes of the ids. {"text": ..., "special":
// true} lets special tokens be recognised. For compare_hf.py.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "ecphory/tokenizer.h"

namespace {

using ecphory::Result;
using ecphory::Tokenizer;
using Json = nlohmann::json;

std::string Hex(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte & 0xff);
    out += digits;
  }
  return out;
}

Result<Json> Answer(const Tokenizer& tokenizer, const Json& line) {
  if (line.contains("ids")) {
    ECPHORY_ASSIGN_OR_RETURN(const std::string bytes,
                             tokenizer.Decode(line["ids"]));
    return Json{{"hex", Hex(bytes)}};
  }
  ecphory::EncodeOptions options;
  options.parse_special = line.value("special", false);
  const std::string text = line["text"];
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           tokenizer.Encode(text, options));
  return Json(ids);
}

Result<Tokenizer> Load(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ecphory::NotFound("%s: cannot be opened", path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  return Tokenizer::FromJson(json, path);
}

ecphory::Status Run(const char* path) {
  ECPHORY_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Load(path));
  for (std::string line; std::getline(std::cin, line);) {
    ECPHORY_ASSIGN_OR_RETURN(const Json answer,
                             Answer(tokenizer, Json::parse(line)));
    std::cout << answer.dump() << '\n';
  }
  return ecphory::Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenize_lines TOKENIZER.JSON < lines\n");
    return 2;
  }
  std::ios::sync_with_stdio(false);
  const ecphory::Status status = Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
