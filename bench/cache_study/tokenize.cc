// Text to token files: every document of the text begins with the bos token
// and is followed by -1.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "commands.h"
#include "ecphory/tokenizer.h"

namespace ecphory::study {

namespace {

constexpr char kSeparator = '\x1e';  // between documents

}  // namespace

Status Tokenize(const std::string& tokenizer_json, const std::string& text_path,
                const std::string& out_path) {
  std::ifstream json_file(tokenizer_json), text_file(text_path);
  if (!json_file || !text_file) return NotFound("an input cannot be opened");
  const std::string json(std::istreambuf_iterator<char>(json_file), {});
  const std::string text(std::istreambuf_iterator<char>(text_file), {});
  ECPHORY_ASSIGN_OR_RETURN(const Tokenizer tokenizer,
                           Tokenizer::FromJson(json, tokenizer_json));
  std::ofstream out(out_path, std::ios::binary);
  size_t documents = 0, tokens = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kSeparator, begin), text.size());
    ECPHORY_ASSIGN_OR_RETURN(
        std::vector<int32_t> ids,
        tokenizer.Encode(std::string_view(text).substr(begin, end - begin),
                         {.add_bos = true, .parse_special = true}));
    ids.push_back(-1);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
    ++documents;
    tokens += ids.size() - 1;
    begin = end + 1;
  }
  out.close();
  if (!out) return IoError("%s cannot be written", out_path.c_str());
  std::printf("%s: %zu bytes, %zu documents, %zu tokens\n", text_path.c_str(),
              text.size(), documents, tokens);
  return {};
}

}  // namespace ecphory::study
