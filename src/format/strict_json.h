// Event-driven JSON reading that accepts only what a handler asks for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ecphory/status.h"

namespace ecphory {

// Every event is an error until a handler overrides it, so that depth, types
// and memory are bounded by what the handler expects, not by the text.
class StrictJsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Parses all of `text`. kCorrupt says what is wrong; names no file.
  Status Parse(std::string_view text);

  bool null() override { return Fail("unexpected null"); }
  bool boolean(bool) override { return Fail("unexpected true or false"); }
  bool number_integer(int64_t) override {
    return Fail("unexpected negative number");
  }
  bool number_unsigned(uint64_t) override { return Fail("unexpected number"); }
  bool number_float(double, const std::string&) override {
    return Fail("unexpected number that is not an integer below 2^64");
  }
  bool string(std::string&) override { return Fail("unexpected string"); }
  bool binary(nlohmann::json::binary_t&) override {
    return Fail("unexpected binary value");
  }
  bool start_object(size_t) override { return Fail("unexpected object"); }
  bool key(std::string&) override { return Fail("unexpected key"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return Fail("unexpected array"); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& exception) override;

 protected:
  // Stops the parse: return Fail("what is wrong").
  bool Fail(const std::string& message) {
    error_ = Where() + message;
    return false;
  }

 private:
  // Put in front of every message: names of the members around the event, each
  // followed by ": ".
  virtual std::string Where() const { return ""; }

  std::string error_;
};

}  // namespace ecphory
