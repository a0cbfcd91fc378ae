// ecphory engram bench: the store measured through every way in.
#include <memory>

#include "ecphory/engram_measure.h"
#include "ecphory/engram_trace.h"
#include "engram_commands.h"
#include "engram_input.h"
#include "engram_json.h"
#include "file_text.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "sizes.h"
#include "token_input.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Looks rows up as a model does, through each way in, and holds the rates against
what the device itself makes of 4096-byte reads in the same run. 'cold' empties
the page cache of the tables first and says what was in it before and after;
'warm' asks for the same rows again, of the ways that keep them. A token's rows
are asked for one token at a time; the sweep has batches of 64 tokens and at
most so many reads in flight. With --text or --tokens-file the rows are those of
a real text; otherwise they are uniform random, which no text is.

Examples:
  ecphory engram bench model.gguf --text book.txt
  ecphory engram bench model.gguf --depths 1,48,256 --io uring,pread
  ecphory engram bench model.gguf --tokens-file ids.npy --json --svg sweep.svg
  ecphory engram bench memory.gguf --fio --seconds 2)";

constexpr size_t kMaxTextBytes = size_t{1} << 28;

struct BenchFlags {
  TablesBenchOptions options;
  std::string text;
  std::string tokens_file;
  std::string svg;
  std::string state = "both";
  float seconds = 0.5f;
  uint32_t cache_mb = 0;
  bool sequential = false;
  bool json = false;
};

double Percent(uint64_t part, uint64_t whole) {
  return 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string PointLine(const BenchPoint& point, uint64_t table_bytes) {
  const std::string depth =
      point.depth == 0 ? "token" : std::to_string(point.depth);
  const std::string share =
      point.of_ceiling > 0 ? Format("%.2f", point.of_ceiling) : "-";
  return Format(
      "  %-9s %-5s %6s %12s %9.0f %9.0f %9.0f %8.2f %7s %6.1f%% %6.1f%%\n",
      point.mode.c_str(), point.state.c_str(), depth.c_str(),
      Grouped(static_cast<uint64_t>(point.rows_per_second)).c_str(),
      point.p50_us, point.p95_us, point.p99_us, point.cpu_us_per_row,
      share.c_str(), Percent(point.resident_before, table_bytes),
      Percent(point.resident_after, table_bytes));
}

std::string RateLine(const ReadRate& rate) {
  return Format("  %-9s %-5s %6u %12s %9.0f %9.0f %9.0f %8.2f\n",
                rate.way.c_str(), "", rate.depth,
                Grouped(static_cast<uint64_t>(rate.reads_per_second)).c_str(),
                rate.p50_us, rate.p95_us, rate.p99_us, rate.cpu_us_per_read);
}

std::string ConditionsText(const TablesBench& bench) {
  std::string text = Format(
      "%s: %s of %s, %u rows a token, row cache %s\n  %s\n  %s, %u processors, "
      "%s of memory, %s, %s\n",
      bench.path.c_str(), HumanBytes(bench.table_bytes).c_str(),
      bench.codec.c_str(), bench.rows_per_token,
      bench.cache_bytes == 0 ? "off" : HumanBytes(bench.cache_bytes).c_str(),
      bench.pattern.c_str(), bench.cpu.c_str(), bench.processors,
      HumanBytes(bench.memory_bytes).c_str(), bench.kernel.c_str(),
      bench.date.c_str());
  for (const TableFileInfo& file : bench.files) {
    text += Format("  %s on %s%s\n", file.path.c_str(), file.device.c_str(),
                   file.direct ? "" : ", O_DIRECT refused");
  }
  return text;
}

std::string BenchText(const TablesBench& bench) {
  std::string text = ConditionsText(bench);
  text += Format("\n  %-9s %-5s %6s %12s %9s %9s %9s %8s %7s %7s %7s\n",
                 "way in", "", "depth", "rows/s", "p50 us", "p95 us", "p99 us",
                 "cpu us", "of dev", "before", "after");
  for (const ReadRate& rate : bench.ceiling) text += RateLine(rate);
  for (const ReadRate& rate : bench.fio) text += RateLine(rate);
  for (const BenchPoint& point : bench.points) {
    text += PointLine(point, bench.table_bytes);
  }
  text +=
      "\n  times are of a lookup, of a read in the device's lines; cpu is "
      "of a row;\n  before and after: share of the tables in the page "
      "cache\n";
  for (const std::string& note : bench.notes) text += "  " + note + "\n";
  return text;
}

Json PointJson(const BenchPoint& point) {
  return Json{{"mode", point.mode},
              {"used", point.used},
              {"state", point.state},
              {"depth", point.depth},
              {"tokens", point.tokens},
              {"rows", point.rows},
              {"rows_per_second", point.rows_per_second},
              {"p50_us", point.p50_us},
              {"p95_us", point.p95_us},
              {"p99_us", point.p99_us},
              {"cpu_us_per_row", point.cpu_us_per_row},
              {"of_ceiling", point.of_ceiling},
              {"resident_before", point.resident_before},
              {"resident_after", point.resident_after}};
}

Json ConditionsJson(const TablesBench& bench) {
  Json files = Json::array();
  for (const TableFileInfo& file : bench.files) {
    files.push_back(Json{{"path", file.path},
                         {"bytes", file.bytes},
                         {"file_system", file.file_system},
                         {"device", file.device},
                         {"device_kind", file.device_kind},
                         {"direct", file.direct}});
  }
  return Json{{"date", bench.date},
              {"kernel", bench.kernel},
              {"cpu", bench.cpu},
              {"processors", bench.processors},
              {"memory_bytes", bench.memory_bytes},
              {"pattern", bench.pattern},
              {"codec", bench.codec},
              {"row_bytes", bench.row_bytes},
              {"rows_per_token", bench.rows_per_token},
              {"table_bytes", bench.table_bytes},
              {"cache_bytes", bench.cache_bytes},
              {"files", std::move(files)}};
}

Json BenchJson(const TablesBench& bench) {
  Json ceiling = Json::array(), fio = Json::array(), points = Json::array();
  for (const ReadRate& rate : bench.ceiling) ceiling.push_back(RateJson(rate));
  for (const ReadRate& rate : bench.fio) fio.push_back(RateJson(rate));
  for (const BenchPoint& point : bench.points) {
    points.push_back(PointJson(point));
  }
  return Json{
      {"path", bench.path},           {"conditions", ConditionsJson(bench)},
      {"device", std::move(ceiling)}, {"fio", std::move(fio)},
      {"points", std::move(points)},  {"notes", bench.notes}};
}

Status ReadPattern(const BenchFlags& flags, TablesBenchOptions* options) {
  using Pattern = TablesBenchOptions::Pattern;
  const int given = !flags.text.empty() + !flags.tokens_file.empty() +
                    (flags.sequential ? 1 : 0);
  if (given > 1) {
    return InvalidArgument(
        "expected at most one of --text, --tokens-file and --sequential");
  }
  if (flags.sequential) options->pattern = Pattern::kSequential;
  if (!flags.text.empty()) {
    options->pattern = Pattern::kText;
    ECPHORY_ASSIGN_OR_RETURN(options->text,
                             ReadFileText(flags.text, kMaxTextBytes));
  }
  if (!flags.tokens_file.empty()) {
    options->pattern = Pattern::kText;
    ECPHORY_ASSIGN_OR_RETURN(options->tokens,
                             ReadTokensFile(flags.tokens_file));
  }
  return {};
}

Status CheckPicture(const BenchFlags& flags) {
  if (flags.svg.empty()) return {};
  const TableInput& input = flags.options.input;
  std::vector<std::string> inputs = input.more_tables;
  inputs.insert(inputs.end(), {input.path, input.config, input.tokenizer,
                               flags.text, flags.tokens_file});
  return CheckTextFile(flags.svg, inputs).WithContext("--svg");
}

Status RunBench(const BenchFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckTableInput(flags.options.input));
  ECPHORY_RETURN_IF_ERROR(CheckPicture(flags));
  TablesBenchOptions options = flags.options;
  ECPHORY_RETURN_IF_ERROR(ReadPattern(flags, &options));
  options.seconds = static_cast<double>(flags.seconds);
  options.cache_bytes = uint64_t{flags.cache_mb} << 20;
  options.cold = flags.state != "warm";
  options.warm = flags.state != "cold";
  Progress progress("measuring");
  options.progress = [&](const std::string& what, uint64_t done,
                         uint64_t total) {
    progress.Show(done, total, ", " + what);
    return !Interrupted();
  };
  ECPHORY_ASSIGN_OR_RETURN(const TablesBench bench, BenchTables(options));
  progress.Erase();
  if (!flags.svg.empty()) {
    ECPHORY_RETURN_IF_ERROR(WriteTextFile(flags.svg, BenchPicture(bench)));
  }
  return flags.json ? PrintJson(BenchJson(bench))
                    : PrintLines(BenchText(bench));
}

}  // namespace

void AddEngramBenchCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<BenchFlags>();
  TablesBenchOptions& options = flags->options;
  CLI::App* command = group.add_subcommand(
      "bench", "Measure lookups through every way in, against the device");
  command->footer(kFooter);
  AddTableInput(*command, &options.input);
  AddPath(*command, "--text", &flags->text, "FILE",
          "Rows of this text, by the tables' own tokenizer");
  AddPath(*command, "--tokens-file", &flags->tokens_file, "FILE",
          "Rows of these token ids, a .npy or .json file");
  command->add_flag("--sequential", flags->sequential,
                    "Rows in the order of the tables");
  AddList(
      *command, "--io",
      [flags](const std::vector<std::string>& names) {
        flags->options.modes = names;
      },
      "WAY,...",
      "Ways in: uring, pread, buffered, mmap, ram (default: all that fit)");
  AddList(
      *command, "--depths",
      [flags](const std::vector<std::string>& texts) {
        flags->options.depths.clear();
        for (const std::string& text : texts) {
          flags->options.depths.push_back(
              ParseInteger("--depths", text, 1, 4096));
        }
      },
      "N,...", "Reads in flight (default: 1,4,16,48,128,256)");
  AddChoice<std::string>(*command, "--state", &flags->state,
                         {{"cold", "cold"}, {"warm", "warm"}, {"both", "both"}},
                         "State of the page cache (default: both)");
  AddReal(
      *command, "--seconds", &flags->seconds,
      [](float value) { return value > 0 && value <= 600; },
      "more than 0, up to 600", "For each measurement (default: 0.5)");
  AddInteger(*command, "--cache", &flags->cache_mb, 0, 1048576,
             "Row cache of the store, MiB (default: 0, off)");
  AddSeed(*command, "--seed", &options.seed, "Of random rows (default: 1)");
  command->add_flag("--fio", options.fio,
                    "Also let fio measure the device, where it is installed");
  AddPath(*command, "--tokenizer", &options.input.tokenizer, "FILE",
          "A tokenizer.json for --text, where the tables carry none");
  AddPath(*command, "--svg", &flags->svg, "FILE",
          "Write a picture of the sweep");
  command->add_flag("--json", flags->json, "Print JSON with the conditions");
  command->callback([=] { *action = [=] { return RunBench(*flags); }; });
}

}  // namespace ecphory::cli
