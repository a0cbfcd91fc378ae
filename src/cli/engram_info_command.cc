// ecphory engram info: where tables are and how fast they can be read.
#include <algorithm>
#include <memory>

#include "ecphory/engram_measure.h"
#include "engram_commands.h"
#include "engram_input.h"
#include "engram_json.h"
#include "engram_output.h"
#include "flags.h"
#include "output.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Shows each table's place, size and row format, the file system and device under
it, whether the kernel allows O_DIRECT and io_uring there, and for about a
second measures random reads of 4096 bytes: the time of one read alone, and how
many a second 64 in flight make. The last line is what '--engram-io auto' picks.

Examples:
  ecphory engram info model.gguf
  ecphory engram info DeepSeek-V4.1-Flash --no-measure
  ecphory engram info qwen-table.gguf --eos 248044
  ecphory engram info rows.bin --config DeepSeek-V4.1-Flash/config.json --json)";

struct InfoFlags {
  TablesInfoOptions options;
  bool no_measure = false;
  bool json = false;
};

using Ull = unsigned long long;

std::string TableText(const TableInfo& table) {
  std::string text = Format(
      "  %s: %s rows of %llu bytes, %s, %u values, %s\n"
      "      %s at offset %llu of %s\n",
      TableLabel(table.layer).c_str(), Grouped(table.rows).c_str(),
      static_cast<Ull>(table.row_bytes), table.codec.c_str(), table.width,
      HumanBytes(table.bytes).c_str(), table.name.c_str(),
      static_cast<Ull>(table.offset), table.file.c_str());
  if (!table.scale_file.empty()) {
    text +=
        Format("      scales at offset %llu of %s\n",
               static_cast<Ull>(table.scale_offset), table.scale_file.c_str());
  }
  return text + Format("      %s of it in the page cache\n",
                       HumanBytes(table.resident_bytes).c_str());
}

std::string FileText(const TableFileInfo& file) {
  return Format(
      "  %s, %s\n      on %s\n      O_DIRECT %s\n", file.path.c_str(),
      HumanBytes(file.bytes).c_str(), file.device.c_str(),
      file.direct ? "allowed" : ("refused: " + file.direct_refusal).c_str());
}

std::string RateLine(const ReadRate& rate) {
  if (rate.depth == 1) {
    return Format("  one at a time   p50 %.0f us, p99 %.0f us (%s)\n",
                  rate.p50_us, rate.p99_us, rate.way.c_str());
  }
  return Format("  %u in flight    %s reads a second (%s)\n", rate.depth,
                Grouped(static_cast<uint64_t>(rate.reads_per_second)).c_str(),
                rate.way.c_str());
}

std::string PerLayerText(const PerLayerInfo& info) {
  const auto [least, most] =
      std::minmax_element(info.head_sizes.begin(), info.head_sizes.end());
  std::string text = Format(
      "  per-layer n-gram table: %zu heads of %s to %s rows, %s in all; EOS %d",
      info.head_sizes.size(), Grouped(*least).c_str(), Grouped(*most).c_str(),
      Grouped(info.rows).c_str(), info.eos_id);
  if (info.image_id) text += Format(", image token %d", *info.image_id);
  return text + "\n";
}

std::string InfoText(const TablesInfo& info) {
  std::string text = Format(
      "%s: %s, %s in %zu tables\n"
      "  a token wakes %u rows a layer (n-grams of 2 to %u), %u reads in all\n",
      info.path.c_str(), info.kind.c_str(), HumanBytes(info.bytes).c_str(),
      info.tables.size(), info.columns, info.max_ngram, info.reads_per_token);
  if (info.per_layer) text += PerLayerText(*info.per_layer);
  for (const TableInfo& table : info.tables) text += TableText(table);
  text += "\nfiles\n";
  for (const TableFileInfo& file : info.files) text += FileText(file);
  text += Format(
      "  io_uring %s\n",
      info.uring ? "allowed" : ("refused: " + info.uring_refusal).c_str());
  if (!info.measured.empty()) text += "\nrandom reads of 4096 bytes\n";
  for (const ReadRate& rate : info.measured) text += RateLine(rate);
  if (!info.auto_mode.empty()) {
    text += Format("  --engram-io auto: %s, %s\n", info.auto_mode.c_str(),
                   info.auto_reason.c_str());
  }
  for (const std::string& warning : info.warnings) {
    text += "\nwarning: " + warning + "\n";
  }
  return text;
}

Json TableJson(const TableInfo& table) {
  Json json{{"layer", LayerJson(table.layer)},
            {"name", table.name},
            {"file", table.file},
            {"offset", table.offset},
            {"codec", table.codec},
            {"rows", table.rows},
            {"width", table.width},
            {"row_bytes", table.row_bytes},
            {"bytes", table.bytes},
            {"resident_bytes", table.resident_bytes}};
  if (!table.scale_file.empty()) {
    json["scale_file"] = table.scale_file;
    json["scale_offset"] = table.scale_offset;
  }
  return json;
}

Json PerLayerJson(const PerLayerInfo& info) {
  return Json{
      {"head_sizes", info.head_sizes},
      {"rows", info.rows},
      {"eos_id", info.eos_id},
      {"image_id", info.image_id ? Json(*info.image_id) : Json(nullptr)}};
}

Json InfoJson(const TablesInfo& info) {
  Json tables = Json::array(), files = Json::array(), rates = Json::array();
  for (const TableInfo& table : info.tables) tables.push_back(TableJson(table));
  for (const TableFileInfo& file : info.files) {
    files.push_back(Json{{"path", file.path},
                         {"bytes", file.bytes},
                         {"file_system", file.file_system},
                         {"device_kind", file.device_kind},
                         {"device", file.device},
                         {"direct", file.direct},
                         {"direct_refusal", file.direct_refusal}});
  }
  for (const ReadRate& rate : info.measured) rates.push_back(RateJson(rate));
  return Json{
      {"path", info.path},
      {"kind", info.kind},
      {"columns", info.columns},
      {"max_ngram", info.max_ngram},
      {"compressed_vocab", info.compressed_vocab},
      {"per_layer",
       info.per_layer ? PerLayerJson(*info.per_layer) : Json(nullptr)},
      {"bytes", info.bytes},
      {"reads_per_token", info.reads_per_token},
      {"tables", std::move(tables)},
      {"files", std::move(files)},
      {"io_uring", info.uring},
      {"io_uring_refusal", info.uring_refusal},
      {"measured", std::move(rates)},
      {"auto", Json{{"mode", info.auto_mode}, {"reason", info.auto_reason}}},
      {"warnings", info.warnings}};
}

Status RunInfo(const InfoFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckTableInput(flags.options.input));
  TablesInfoOptions options = flags.options;
  options.measure = !flags.no_measure;
  ECPHORY_ASSIGN_OR_RETURN(const TablesInfo info, InspectTables(options));
  return flags.json ? PrintJson(InfoJson(info)) : PrintLines(InfoText(info));
}

}  // namespace

void AddEngramInfoCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* command = group.add_subcommand(
      "info", "Show where tables are and how fast they can be read");
  command->footer(kFooter);
  AddTableInput(*command, &flags->options.input);
  command->add_flag("--no-measure", flags->no_measure,
                    "Do not read from the tables");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([=] { *action = [=] { return RunInfo(*flags); }; });
}

}  // namespace ecphory::cli
