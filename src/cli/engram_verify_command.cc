// ecphory engram verify: every row read once, every fault counted.
#include <memory>

#include "ecphory/engram_tables.h"
#include "engram_commands.h"
#include "engram_input.h"
#include "engram_output.h"
#include "flags.h"
#include "output.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Reads every byte of the tables past the page cache and looks for NaN codes,
scales of 255, values that overflow, and runs of zeros where a page was never
written; a table of another size than its primes give is refused at once. With
a manifest the bytes are also held against their checksums: PATH.xxh is used
where it exists. The exit code is 4 when there is any fault. A killed run goes
on where it was, with --state or --write-manifest.

Examples:
  ecphory engram verify model.gguf
  ecphory engram verify model.gguf --write-manifest model.gguf.xxh
  ecphory engram verify copy.gguf --manifest model.gguf.xxh
  ecphory engram verify qwen-table.gguf --eos 248044
  ecphory engram verify rows.bin --config DeepSeek-V4.1/config.json --json)";

struct VerifyFlags {
  VerifyOptions options;
  bool json = false;
};

std::string CheckLine(const TableCheck& check) {
  std::string text = Format(
      "  %s: %s rows, %s with NaN codes, %s with scale 255, %s "
      "with values not finite\n",
      TableLabel(check.layer).c_str(), Grouped(check.rows).c_str(),
      Grouped(check.nan_rows).c_str(), Grouped(check.bad_scale_rows).c_str(),
      Grouped(check.not_finite_rows).c_str());
  if (check.zero_rows == 0) return text;
  return text + Format(
                    "      %s rows of zeros, the first is row %s; %s of them "
                    "in %s holes\n",
                    Grouped(check.zero_rows).c_str(),
                    Grouped(check.first_zero_row).c_str(),
                    Grouped(check.missing_rows).c_str(),
                    Grouped(check.missing_runs).c_str());
}

std::string FaultLine(const TableFault& fault) {
  return Format("  %s, row %s%s, at offset %llu of %s: %s\n",
                fault.region.c_str(), Grouped(fault.row).c_str(),
                fault.rows > 1
                    ? (" and " + Grouped(fault.rows - 1) + " more").c_str()
                    : "",
                static_cast<unsigned long long>(fault.offset),
                fault.file.c_str(), fault.what.c_str());
}

std::string SumsLine(const VerifyReport& report) {
  std::string text = "  checksum of all     " + report.whole_digest + "\n";
  if (!report.manifest_checked.empty()) {
    text += Format("  held against        %s, %s chunks\n",
                   report.manifest_checked.c_str(),
                   Grouped(report.chunks_checked).c_str());
  }
  if (!report.manifest_written.empty()) {
    text += "  manifest written    " + report.manifest_written + "\n";
  }
  return text;
}

std::string ReportText(const VerifyReport& report) {
  std::string text = Format(
      "%s: %s read in %.1f s, %s%s\n", report.path.c_str(),
      HumanBytes(report.bytes - report.resumed_bytes).c_str(), report.seconds,
      RateText(report.bytes - report.resumed_bytes, report.seconds).c_str(),
      report.direct ? "" : ", through the page cache");
  if (report.resumed_bytes > 0) {
    text += Format("  %s were read by an earlier run\n",
                   HumanBytes(report.resumed_bytes).c_str());
  }
  for (const TableCheck& check : report.tables) text += CheckLine(check);
  text += SumsLine(report);
  for (const TableFault& fault : report.first_faults) text += FaultLine(fault);
  if (report.faults > report.first_faults.size()) {
    text += Format("  %s faults in all\n", Grouped(report.faults).c_str());
  }
  return text + (report.faults == 0 ? "  no fault\n" : "");
}

Json TablesJson(const VerifyReport& report) {
  Json tables = Json::array();
  for (const TableCheck& check : report.tables) {
    Json table{{"layer", LayerJson(check.layer)},
               {"name", check.name},
               {"rows", check.rows},
               {"nan_rows", check.nan_rows},
               {"bad_scale_rows", check.bad_scale_rows},
               {"not_finite_rows", check.not_finite_rows},
               {"zero_rows", check.zero_rows},
               {"missing_runs", check.missing_runs},
               {"missing_rows", check.missing_rows}};
    table["first_zero_row"] =
        check.zero_rows > 0 ? Json(check.first_zero_row) : Json(nullptr);
    tables.push_back(std::move(table));
  }
  return tables;
}

Json ReportJson(const VerifyReport& report) {
  Json faults = Json::array();
  for (const TableFault& fault : report.first_faults) {
    faults.push_back(Json{{"what", fault.what},
                          {"region", fault.region},
                          {"file", fault.file},
                          {"row", fault.row},
                          {"rows", fault.rows},
                          {"offset", fault.offset}});
  }
  return Json{{"path", report.path},
              {"bytes", report.bytes},
              {"resumed_bytes", report.resumed_bytes},
              {"seconds", report.seconds},
              {"direct", report.direct},
              {"tables", TablesJson(report)},
              {"faults", report.faults},
              {"first_faults", std::move(faults)},
              {"whole_digest", report.whole_digest},
              {"manifest_checked", report.manifest_checked},
              {"chunks_checked", report.chunks_checked},
              {"manifest_written", report.manifest_written}};
}

Status RunVerify(const VerifyFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckTableInput(flags.options.input));
  PhaseProgress progress(flags.options.input.path);
  VerifyOptions options = flags.options;
  options.progress = progress.Callback();
  ECPHORY_ASSIGN_OR_RETURN(const VerifyReport report, VerifyTables(options));
  progress.Erase();
  ECPHORY_RETURN_IF_ERROR(flags.json ? PrintJson(ReportJson(report))
                                     : PrintLines(ReportText(report)));
  if (report.faults == 0) return {};
  return Corrupt(
      "%s: %llu fault%s in the tables; fetch the damaged parts again",
      report.path.c_str(), static_cast<unsigned long long>(report.faults),
      report.faults == 1 ? "" : "s");
}

}  // namespace

void AddEngramVerifyCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<VerifyFlags>();
  VerifyOptions& options = flags->options;
  CLI::App* command = group.add_subcommand(
      "verify", "Check every row of the tables, and their checksums");
  command->footer(kFooter);
  AddTableInput(*command, &options.input);
  AddPath(*command, "--manifest", &options.manifest, "FILE",
          "Checksums to hold the tables against (default: PATH.xxh, if any)");
  AddPath(*command, "--write-manifest", &options.write_manifest, "FILE",
          "Write the checksums of tables without a fault");
  AddPath(*command, "--state", &options.state, "FILE",
          "What is done so far, for the next run after a killed one");
  AddInteger(*command, "--threads", &options.threads, 1, 64,
             "Reads in flight (default: the processors, at most 8)");
  command->add_flag("--json", flags->json, "Print the report as JSON");
  command->callback([=] { *action = [=] { return RunVerify(*flags); }; });
}

}  // namespace ecphory::cli
