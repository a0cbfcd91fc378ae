#include "engram_output.h"

#include <cmath>

#include "interrupt.h"
#include "sizes.h"

namespace ecphory::cli {

TableProgress PhaseProgress::Callback() {
  return [this](const std::string& phase, uint64_t done, uint64_t total) {
    return Show(phase, done, total);
  };
}

bool PhaseProgress::Show(const std::string& phase, uint64_t done,
                         uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (phase != phase_) {
    phase_ = phase;
    begin_ = now;
    begin_bytes_ = done;
    line_ = std::make_unique<Progress>(phase + " " + subject_);
  }
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const uint64_t moved = done - begin_bytes_;
  std::string detail;
  if (seconds > 0 && moved > 0) {
    const double left = seconds * static_cast<double>(total - done) /
                        static_cast<double>(moved);
    detail =
        ", " + RateText(moved, seconds) + ", " + DurationText(left) + " left";
  }
  line_->Show(done, total, detail);
  return !Interrupted();
}

void PhaseProgress::Erase() {
  if (line_) line_->Erase();
}

std::string RateText(uint64_t bytes, double seconds) {
  if (seconds <= 0) return "";
  return HumanBytes(
             static_cast<uint64_t>(static_cast<double>(bytes) / seconds)) +
         "/s";
}

std::string DurationText(double seconds) {
  const auto whole = static_cast<unsigned long long>(std::ceil(seconds));
  if (whole < 60) return Format("%llu s", whole);
  if (whole < 3600) return Format("%llu min %02llu s", whole / 60, whole % 60);
  return Format("%llu h %02llu min", whole / 3600, whole / 60 % 60);
}

std::string TableLabel(std::optional<uint32_t> layer) {
  return layer ? "layer " + std::to_string(*layer) : "table";
}

Json LayerJson(std::optional<uint32_t> layer) {
  return layer ? Json(*layer) : Json(nullptr);
}

std::string WrittenText(const WrittenTables& written) {
  const std::string rate =
      RateText(written.bytes - written.resumed_bytes, written.seconds);
  std::string text = Format(
      "wrote %s, %s (%s bytes) in %.1f s%s\n", written.output.c_str(),
      HumanBytes(written.bytes).c_str(), Grouped(written.bytes).c_str(),
      written.seconds,
      written.verified ? (", " + rate + "; read back and compared").c_str()
                       : ", with holes");
  if (written.resumed_bytes > 0) {
    text += Format("  %s were there from an earlier run\n",
                   HumanBytes(written.resumed_bytes).c_str());
  }
  for (const WrittenTable& table : written.tables) {
    text += Format(
        "  %s: %s rows of %llu bytes (%s, %u values) at "
        "offset %llu\n",
        TableLabel(table.layer).c_str(), Grouped(table.rows).c_str(),
        static_cast<unsigned long long>(table.row_bytes), written.codec.c_str(),
        written.width, static_cast<unsigned long long>(table.offset));
  }
  return text;
}

Json WrittenJson(const WrittenTables& written) {
  Json tables = Json::array();
  for (const WrittenTable& table : written.tables) {
    tables.push_back(Json{{"layer", LayerJson(table.layer)},
                          {"rows", table.rows},
                          {"row_bytes", table.row_bytes},
                          {"offset", table.offset}});
  }
  return Json{{"output", written.output},
              {"bytes", written.bytes},
              {"resumed_bytes", written.resumed_bytes},
              {"seconds", written.seconds},
              {"verified", written.verified},
              {"codec", written.codec},
              {"width", written.width},
              {"tables", std::move(tables)}};
}

}  // namespace ecphory::cli
