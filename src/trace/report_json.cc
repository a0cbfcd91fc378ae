// A report as JSON: every number, by name.
#include <nlohmann/json.hpp>

#include "ecphory/engram_report.h"
#include "text/utf8.h"

namespace ecphory {

namespace {

using Json = nlohmann::ordered_json;

Json PercentilesJson(const EngramPercentiles& p) {
  return Json{{"count", p.count}, {"p50", p.p50}, {"p90", p.p90},
              {"p95", p.p95},     {"p99", p.p99}, {"max", p.max}};
}

Json EffectsJson(const std::vector<EngramTokenEffect>& effects) {
  Json list = Json::array();
  for (const EngramTokenEffect& e : effects) {
    list.push_back(Json{{"position", e.position},
                        {"id", e.id},
                        {"before", ReplaceInvalidUtf8(e.before)},
                        {"piece", ReplaceInvalidUtf8(e.piece)},
                        {"bits_on", e.bits_on},
                        {"bits_off", e.bits_off}});
  }
  return list;
}

Json ReuseJson(const std::vector<EngramReuse>& reuse) {
  const auto by_ngram = [](const std::vector<double>& shares) {
    Json json = Json::object();
    for (size_t i = 0; i + 1 < shares.size(); ++i) {
      json[std::to_string(i + 2)] = shares[i];
    }
    json["all"] = shares.back();
    return json;
  };
  Json list = Json::array();
  for (const EngramReuse& r : reuse) {
    list.push_back(Json{{"window", r.window},
                        {"within", by_ngram(r.within)},
                        {"across", by_ngram(r.across)}});
  }
  return list;
}

Json GatesJson(const std::vector<EngramGateHistogram>& gates) {
  Json list = Json::array();
  for (const EngramGateHistogram& g : gates) {
    list.push_back(Json{{"layer", g.layer},
                        {"stream", g.stream},
                        {"mean_gate", g.mean_gate},
                        {"mean_move", g.mean_move},
                        {"bins", g.bins}});
  }
  return list;
}

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

Json LossJson(const EngramLoss& loss) {
  const auto tokens = static_cast<double>(loss.tokens);
  const auto bytes = static_cast<double>(loss.bytes);
  const auto side = [&](double bits) {
    return Json{{"bits", bits},
                {"bits_per_token", Ratio(bits, tokens)},
                {"bits_per_byte", Ratio(bits, bytes)}};
  };
  return Json{{"tokens", loss.tokens},
              {"bytes", loss.bytes},
              {"on", side(loss.bits_on)},
              {"off", side(loss.bits_off)}};
}

Json SpeedJson(const EngramSpeed& s) {
  const auto side = [](uint64_t tokens, double on, double off) {
    const auto count = static_cast<double>(tokens);
    return Json{{"tokens", tokens},
                {"seconds_on", on},
                {"seconds_off", off},
                {"tokens_per_second_on", Ratio(count, on)},
                {"tokens_per_second_off", Ratio(count, off)}};
  };
  return Json{{"prompt", side(s.prompt_tokens, s.prompt_seconds_on,
                              s.prompt_seconds_off)},
              {"decode", side(s.decode_tokens, s.decode_seconds_on,
                              s.decode_seconds_off)}};
}

Json StoreJson(const EngramStoreUse& s) {
  return Json{{"rows", s.rows},
              {"cache_hits", s.cache_hits},
              {"rows_read", s.rows_read},
              {"bytes_read", s.bytes_read},
              {"read_seconds", s.read_seconds},
              {"wait_seconds", s.wait_seconds}};
}

Json KindJson(const EngramKindReport& k) {
  Json cache = Json::array();
  for (const EngramCachePoint& point : k.cache) {
    cache.push_back(Json{{"bytes", point.bytes}, {"hit_rate", point.hit_rate}});
  }
  return Json{{"kind", k.kind},
              {"texts", k.texts},
              {"tokens_given", k.tokens_given},
              {"tokens", k.tokens},
              {"loss", LossJson(k.loss)},
              {"speed", SpeedJson(k.speed)},
              {"decode_read_seconds", PercentilesJson(k.read)},
              {"decode_wait_seconds", PercentilesJson(k.wait)},
              {"store", StoreJson(k.store)},
              {"reuse", ReuseJson(k.reuse)},
              {"lru_cache", std::move(cache)},
              {"unbounded_cache_hit_rate", k.best_hit_rate},
              {"gates", GatesJson(k.gates)},
              {"helped", EffectsJson(k.helped)},
              {"hurt", EffectsJson(k.hurt)}};
}

Json ConditionsJson(const EngramReportConditions& c) {
  Json tables = Json::array();
  for (const EngramTableResidency& table : c.tables) {
    tables.push_back(Json{{"layer", table.layer},
                          {"bytes", table.bytes},
                          {"page_cache_bytes_before", table.resident_before},
                          {"page_cache_bytes_after", table.resident_after}});
  }
  return Json{{"path", ReplaceInvalidUtf8(c.path)},
              {"name", ReplaceInvalidUtf8(c.name)},
              {"version", c.version},
              {"backend", c.backend},
              {"threads", c.threads},
              {"processor", ReplaceInvalidUtf8(c.processor)},
              {"memory_bytes", c.memory_bytes},
              {"system", ReplaceInvalidUtf8(c.system)},
              {"engram_io",
               {{"place", c.io.place},
                {"mode", c.io.mode},
                {"direct", c.io.direct},
                {"reason", ReplaceInvalidUtf8(c.io.reason)}}},
              {"engram_cache_bytes", c.cache_bytes},
              {"context", c.context},
              {"chunk", c.chunk},
              {"batch", 1},
              {"concurrency", 1},
              {"tables", std::move(tables)}};
}

}  // namespace

std::string EngramReportJson(const EngramReport& report) {
  Json kinds = Json::array();
  for (const auto& kind : report.kinds) kinds.push_back(KindJson(kind));
  const Json json{{"conditions", ConditionsJson(report.conditions)},
                  {"max_ngram", report.max_ngram},
                  {"rows_per_token", report.rows_per_token},
                  {"kinds", std::move(kinds)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ecphory
