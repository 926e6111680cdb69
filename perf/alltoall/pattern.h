// SPDX-License-Identifier: Apache-2.0
//
// Who sends how much to whom in one exchange. Pure: all ranks derive the same from the same seed.
//
//   Pattern::parse("zipf:1.0")->bytes(ranks, size, granule, seed)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace alltoall {

/// Bytes from each rank (first index) to each (second).
using Matrix = std::vector<std::vector<uint64_t>>;

class Pattern {
 public:
  /// uniform, random, zipf:S, hot:K, stride:K or sparse:P; nullopt for anything else.
  static std::optional<Pattern> parse(const std::string& text);

  bool uniform() const { return kind_ == Kind::kUniform; }
  const std::string& text() const { return text_; }

  /// `size` is what a rank sends, itself included:
  ///   uniform    size / ranks to each
  ///   random     to each a number between 0 and twice that, drawn for each pair
  ///   zipf:S     to each the share of its popularity: 1 / k^S for the k-th of a random order
  ///   hot:K      size / K to each of the first K ranks, nothing to others
  ///   stride:K   shared evenly by the ranks whose number is alike modulo K: with as many GPUs on
  ///              every node, in block order, the ranks of its own rail
  ///   sparse:P   size / ranks to each with probability P, drawn for each pair
  /// rounded down to multiples of `granule` bytes.
  Matrix bytes(int ranks, uint64_t size, uint64_t granule, uint64_t seed) const;

 private:
  enum class Kind { kUniform, kRandom, kZipf, kHot, kStride, kSparse };

  Kind kind_ = Kind::kUniform;
  double value_ = 0;  ///< S, K or P
  std::string text_;
};

/// What a rank receives, by source.
std::vector<uint64_t> received_by(const Matrix& bytes, int rank);
/// Bytes that the node with most of them sends to other nodes, or gets from them. `node` is by
/// rank.
uint64_t busiest_node_bytes(const Matrix& bytes, const std::vector<int>& node);

}  // namespace alltoall
