// ecphory tokenize: text to ids, pieces, compressed ids and Engram rows.
#include <memory>

#include "commands.h"
#include "flags.h"
#include "output.h"
#include "prompt.h"
#include "token_input.h"
#include "utf8.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
One line a token: position, id, compressed id, piece, and with --rows the rows
it reads in each Engram layer (of a fresh sequence). Without TEXT and --tokens
the text is read from standard input.

Examples:
  ecphory tokenize -m model.gguf "The lynx is a cat."
  ecphory tokenize -m model.gguf --tokens 1,2,3 --rows --json)";

struct TokenizeFlags {
  ModelFlags model;
  std::string text;
  std::string tokens;
  bool has_text = false;
  bool has_tokens = false;
  bool rows = false;
  bool json = false;
};

using TokenRows = std::vector<EngramTokenRows>;  // [layers]

// Printable form of a token's bytes: quoted, control characters, quotes and
// bytes above ASCII that are not the whole of a character as \xNN.
std::string Quote(std::string_view bytes) {
  const bool whole = IsUtf8(bytes);
  std::string quoted = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !whole)) {
      quoted += Format("\\x%02x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += Format("%02x", static_cast<uint8_t>(c));
  return hex;
}

Result<std::vector<int32_t>> Ids(const TokenizeFlags& flags,
                                 const Model& model) {
  if (flags.has_tokens) return ParseTokenList(flags.tokens);
  std::string text = flags.text;
  if (!flags.has_text) {
    ECPHORY_ASSIGN_OR_RETURN(text, ReadPromptFromStandardInput());
  }
  return EncodePrompt(model, text);
}

// -1 when the model has no Engram or the id is unknown to it.
int32_t CompressedId(const Model& model, int32_t id) {
  const auto map = model.token_map();
  const bool known = id >= 0 && static_cast<size_t>(id) < map.size();
  return known ? map[static_cast<size_t>(id)] : -1;
}

std::string_view Piece(const Model& model, int32_t id) {
  const Tokenizer* tokenizer = model.tokenizer();
  return tokenizer == nullptr ? std::string_view() : tokenizer->TokenBytes(id);
}

std::string RowsText(const TokenRows& layers) {
  std::string text;
  for (const EngramTokenRows& layer : layers) {
    text += Format("  layer %u:", layer.layer);
    for (const uint64_t row : layer.rows) text += " " + std::to_string(row);
  }
  return text;
}

Json RowsJson(const TokenRows& layers) {
  Json json = Json::array();
  for (const EngramTokenRows& layer : layers) {
    json.push_back(Json{{"layer", layer.layer}, {"rows", layer.rows}});
  }
  return json;
}

Status PrintTable(const Model& model, const std::vector<int32_t>& ids,
                  const std::vector<TokenRows>& rows) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t compressed = CompressedId(model, ids[i]);
    text += Format("%5zu %7d %7s  %s", i, ids[i],
                   compressed < 0 ? "-" : std::to_string(compressed).c_str(),
                   Quote(Piece(model, ids[i])).c_str());
    if (!rows.empty()) text += RowsText(rows[i]);
    text += "\n";
  }
  return Print(text);
}

Status PrintTokensJson(const Model& model, const std::vector<int32_t>& ids,
                       const std::vector<TokenRows>& rows) {
  Json tokens = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view piece = Piece(model, ids[i]);
    Json token{{"id", ids[i]}, {"piece", piece}, {"bytes", Hex(piece)}};
    const int32_t compressed = CompressedId(model, ids[i]);
    token["compressed"] = compressed < 0 ? Json(nullptr) : Json(compressed);
    if (!rows.empty()) token["engram"] = RowsJson(rows[i]);
    tokens.push_back(std::move(token));
  }
  return PrintJson(Json{{"ids", ids}, {"tokens", std::move(tokens)}});
}

Status CheckIds(const Model& model, const std::vector<int32_t>& ids) {
  const uint32_t vocab = model.config().vocab_size;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < vocab) continue;
    return OutOfRange("token %zu is %d, expected 0 to %u", i, ids[i],
                      vocab - 1);
  }
  return {};
}

Status RunTokenize(const TokenizeFlags& flags) {
  if (flags.has_text && flags.has_tokens) {
    return InvalidArgument("TEXT and --tokens are given, expected one of them");
  }
  ECPHORY_ASSIGN_OR_RETURN(const auto model, OpenModel(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(flags, *model));
  ECPHORY_RETURN_IF_ERROR(CheckIds(*model, ids));
  std::vector<TokenRows> rows;
  if (flags.rows && !model->config().engram.enabled()) {
    return Unsupported("--rows: %s has no Engram layers",
                       flags.model.path.c_str());
  }
  if (flags.rows) {
    ECPHORY_ASSIGN_OR_RETURN(rows, model->EngramRows(ids, {}));
  }
  return flags.json ? PrintTokensJson(*model, ids, rows)
                    : PrintTable(*model, ids, rows);
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand(
      "tokenize", "Show a text's tokens and the Engram rows they read");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model, /*run_flags=*/false);
  CLI::Option* text = command->add_option("TEXT", flags->text, "The text");
  CLI::Option* tokens = AddText(*command, "--tokens", &flags->tokens, "IDS",
                                "Token ids between commas, in place of a text");
  command->add_flag("--rows", flags->rows,
                    "Show the Engram rows of each token");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([=] {
    flags->has_text = text->count() > 0;
    flags->has_tokens = tokens->count() > 0;
    *action = [=] { return RunTokenize(*flags); };
  });
}

}  // namespace ecphory::cli
