// SPDX-License-Identifier: Apache-2.0
#include "pattern.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace alltoall {
namespace {

/// Alike with every standard library, unlike the distributions of <random>.
double fraction(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::vector<double> popularity(int ranks, double exponent, std::mt19937_64& random) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  for (size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random() % left]);
  std::vector<double> share(order.size());
  double sum = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    sum += share[static_cast<size_t>(order[k])] = std::pow(static_cast<double>(k + 1), -exponent);
  }
  for (double& s : share) s /= sum;
  return share;
}

/// How many of `ranks` ranks have the same number as `rank` modulo `stride`.
uint64_t like_number(size_t ranks, size_t rank, size_t stride) {
  return (ranks - 1 - rank % stride) / stride + 1;
}

}  // namespace

std::optional<Pattern> Pattern::parse(const std::string& text) {
  static const std::map<std::string, Kind> kKinds = {
      {"uniform", Kind::kUniform}, {"random", Kind::kRandom}, {"zipf", Kind::kZipf},
      {"hot", Kind::kHot},         {"stride", Kind::kStride}, {"sparse", Kind::kSparse}};
  const size_t colon = text.find(':');
  const auto kind = kKinds.find(text.substr(0, colon));
  if (kind == kKinds.end()) return std::nullopt;
  Pattern pattern;
  pattern.kind_ = kind->second;
  pattern.text_ = text;
  const bool has_value = pattern.kind_ != Kind::kUniform && pattern.kind_ != Kind::kRandom;
  if (has_value != (colon != std::string::npos)) return std::nullopt;
  if (!has_value) return pattern;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, pattern.value_);
  if (error != std::errc() || rest != end || !std::isfinite(pattern.value_)) return std::nullopt;
  const double v = pattern.value_;
  const bool whole = pattern.kind_ == Kind::kHot || pattern.kind_ == Kind::kStride;
  const bool valid = whole                          ? v >= 1 && v == std::floor(v) && v < 1e9
                     : pattern.kind_ == Kind::kZipf ? v >= 0 && v <= 10
                                                    : v >= 0 && v <= 1;
  return valid ? std::optional(pattern) : std::nullopt;
}

Matrix Pattern::bytes(int ranks, uint64_t size, uint64_t granule, uint64_t seed) const {
  const auto n = static_cast<size_t>(ranks);
  const auto whole = static_cast<double>(size);
  std::mt19937_64 random(seed);
  const std::vector<double> share =
      kind_ == Kind::kZipf ? popularity(ranks, value_, random) : std::vector<double>();
  const size_t hot = std::min(n, static_cast<size_t>(kind_ == Kind::kHot ? value_ : 1));
  const auto stride = static_cast<size_t>(kind_ == Kind::kStride ? value_ : 1);
  Matrix matrix(n, std::vector<uint64_t>(n));
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      uint64_t& bytes = matrix[from][to];
      switch (kind_) {
        case Kind::kUniform:
          bytes = size / n;
          break;
        case Kind::kRandom:
          bytes = static_cast<uint64_t>(2 * whole / ranks * fraction(random));
          break;
        case Kind::kZipf:
          bytes = static_cast<uint64_t>(whole * share[to]);
          break;
        case Kind::kHot:
          bytes = to < hot ? size / hot : 0;
          break;
        case Kind::kStride:
          bytes = from % stride == to % stride ? size / like_number(n, from, stride) : 0;
          break;
        case Kind::kSparse:
          bytes = fraction(random) < value_ ? size / n : 0;
          break;
      }
      bytes -= bytes % granule;
    }
  }
  return matrix;
}

std::vector<uint64_t> received_by(const Matrix& bytes, int rank) {
  std::vector<uint64_t> sizes;
  for (const auto& row : bytes) sizes.push_back(row[static_cast<size_t>(rank)]);
  return sizes;
}

uint64_t busiest_node_bytes(const Matrix& bytes, const std::vector<int>& node) {
  std::map<int, uint64_t> sent, received;
  for (size_t from = 0; from < bytes.size(); ++from) {
    for (size_t to = 0; to < bytes.size(); ++to) {
      if (node[from] == node[to]) continue;
      sent[node[from]] += bytes[from][to];
      received[node[to]] += bytes[from][to];
    }
  }
  uint64_t most = 0;
  for (const auto& counts : {sent, received}) {
    for (const auto& [_, count] : counts) most = std::max(most, count);
  }
  return most;
}

}  // namespace alltoall
