// Definitions of testing.h (a _test.cc, so that no shipped library holds them).
#include "model/testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "format/safetensors.h"

namespace ecphory::testing {

namespace {

void DieIfError(const Status& status, const std::string& what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), status.ToString().c_str());
  std::abort();
}

std::vector<double> LogSoftmax(std::span<const float> x) {
  double max = -INFINITY, sum = 0;
  for (float v : x) max = std::max(max, static_cast<double>(v));
  for (float v : x) sum += std::exp(v - max);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] - max - std::log(sum);
  return out;
}

size_t ArgMax(std::span<const float> x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

}  // namespace

GoldenFile::GoldenFile(const std::string& path) {
  auto file = OpenFile(path);
  DieIfError(file.status(), path);
  file_ = *file;
  index_.AddFile({path, file_->size()});
  DieIfError(ParseSafetensors(*file_, 0, &index_), path);
}

bool GoldenFile::Has(const std::string& name) const {
  return index_.Find(name) != nullptr;
}

const TensorInfo& GoldenFile::Info(const std::string& name) const {
  const TensorInfo* info = index_.Find(name);
  if (info == nullptr)
    DieIfError(NotFound("golden tensor %s", name.c_str()), file_->path());
  return *info;
}

std::vector<uint8_t> GoldenFile::Bytes(const TensorInfo& info) const {
  std::vector<uint8_t> bytes(info.bytes);
  DieIfError(file_->ReadExact(info.offset, bytes), info.name);
  return bytes;
}

std::vector<uint64_t> GoldenFile::Shape(const std::string& name) const {
  return Info(name).shape;
}

std::vector<float> GoldenFile::F32(const std::string& name) const {
  const std::vector<uint8_t> bytes = Bytes(Info(name));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<int64_t> GoldenFile::Ints(const std::string& name) const {
  const TensorInfo& info = Info(name);
  const std::vector<uint8_t> bytes = Bytes(info);
  std::vector<int64_t> values;
  const size_t count = static_cast<size_t>(info.values());
  for (size_t i = 0; i < count; ++i) {
    int32_t i32 = 0;
    int64_t i64 = 0;
    switch (info.dtype) {
      case DType::kI32:
        std::memcpy(&i32, bytes.data() + 4 * i, 4);
        values.push_back(i32);
        break;
      case DType::kI64:
        std::memcpy(&i64, bytes.data() + 8 * i, 8);
        values.push_back(i64);
        break;
      default: values.push_back(bytes[i]);
    }
  }
  return values;
}

std::vector<std::string> GoldenFile::Names() const {
  std::vector<std::string> names;
  for (const TensorInfo& info : index_.tensors()) names.push_back(info.name);
  return names;
}

std::string GoldenDir(const std::string& name) {
  return std::string(ECPHORY_TEST_DATA) + "/golden/v41/" + name;
}

Capture::Tensor& Capture::At(uint32_t layer, const std::string& name,
                             const std::vector<uint64_t>& shape) {
  Tensor& tensor = tensors_["L" + std::to_string(layer) + "." + name];
  if (tensor.shape.empty()) {
    tensor.shape = shape;
  } else {
    tensor.shape[0] += shape[0];
  }
  return tensor;
}

void Capture::OnF32(uint32_t layer, const std::string& name,
                    std::span<const float> values,
                    const std::vector<uint64_t>& shape) {
  auto& out = At(layer, name, shape).f32;
  out.insert(out.end(), values.begin(), values.end());
}

void Capture::OnI32(uint32_t layer, const std::string& name,
                    std::span<const int32_t> values,
                    const std::vector<uint64_t>& shape) {
  auto& out = At(layer, name, shape).ints;
  out.insert(out.end(), values.begin(), values.end());
}

void Capture::OnU8(uint32_t layer, const std::string& name,
                   std::span<const uint8_t> values,
                   const std::vector<uint64_t>& shape) {
  auto& out = At(layer, name, shape).ints;
  out.insert(out.end(), values.begin(), values.end());
}

std::vector<const char*> Backends() {
  std::vector<const char*> backends = {"ref", "cpu"};
  if (BuiltWithCuda()) backends.push_back("cuda");
  return backends;
}

std::string Unavailable(const std::string& backend) {
  const auto device = OpenDevice(backend);
  return device.ok() ? "" : device.status().message();
}

std::shared_ptr<const Model> OpenOrDie(const std::string& path,
                                       const std::string& backend,
                                       uint32_t threads) {
  auto model = Model::Open(
      path, {.threads = threads, .backend = backend, .engram_io_threads = 2});
  DieIfError(model.status(), path);
  return *model;
}

std::vector<float> RunLogits(const std::shared_ptr<const Model>& model,
                             std::span<const int32_t> tokens,
                             const RunOptions& options) {
  auto session = Session::Create(model, options.session);
  DieIfError(session.status(), "session");
  std::vector<float> all;
  const size_t step = options.step == 0 ? tokens.size() : options.step;
  for (size_t at = 0; at < tokens.size(); at += step) {
    const size_t count = std::min(step, tokens.size() - at);
    AppendOptions append;
    if (!options.image_mask.empty()) {
      append.image_mask = std::span(options.image_mask).subspan(at, count);
    }
    append.logits = LogitsWanted::kAll;
    append.observer = options.observer;
    append.on_logits = [&](size_t, size_t, std::span<const float> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
      return Status::Ok();
    };
    DieIfError((*session)->Append(tokens.subspan(at, count), append), "append");
  }
  return all;
}

std::vector<double> RowErrors(std::span<const float> a,
                              std::span<const float> b, size_t columns) {
  std::vector<double> errors(a.size() / columns);
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]);
    // NaN must not pass for a small error.
    if (!(error <= errors[i / columns])) errors[i / columns] = error;
  }
  return errors;
}

double MaxOf(const std::vector<double>& values) {
  double max = 0;
  for (double value : values) {
    if (!(value <= max)) max = value;
  }
  return max;
}

double MeanKl(std::span<const float> p, std::span<const float> q,
              size_t columns) {
  double sum = 0;
  const size_t rows = p.size() / columns;
  for (size_t r = 0; r < rows; ++r) {
    const auto lp = LogSoftmax(p.subspan(r * columns, columns));
    const auto lq = LogSoftmax(q.subspan(r * columns, columns));
    for (size_t i = 0; i < columns; ++i)
      sum += std::exp(lp[i]) * (lp[i] - lq[i]);
  }
  return sum / static_cast<double>(rows);
}

double Top1Agreement(std::span<const float> a, std::span<const float> b,
                     size_t columns) {
  size_t same = 0;
  const size_t rows = a.size() / columns;
  for (size_t r = 0; r < rows; ++r) {
    same += ArgMax(a.subspan(r * columns, columns)) ==
            ArgMax(b.subspan(r * columns, columns));
  }
  return static_cast<double>(same) / static_cast<double>(rows);
}

}  // namespace ecphory::testing
