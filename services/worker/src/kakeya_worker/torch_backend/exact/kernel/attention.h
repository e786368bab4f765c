// Attention in the order of docs/numerics.md: blocks of 16 keys aligned on the history, sinks first, each key in its place.
//
// A key that a query does not see counts with a weight of zero, so leaving it out changes nothing.
#pragma once

#include "ahead.h"
#include "integer_attention.h"
#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

#if defined(__AVX512F__)
constexpr int kMixSums = 16;  // that registers hold
#else
constexpr int kMixSums = 4;
#endif
constexpr int kBlocksAhead = 1;  // from the block that is computed to the one that is fetched: docs/decisions/exact-mode.md

// Some queries (of one or several heads that share a KV head) over one lane; a head fills its vectors, or not.
template <class KV, int kHeadVectors, bool kFills, int kQueries>
class AttentionTile {
 public:
  // `next` is what is computed after it, to be fetched meanwhile; null: nothing.
  AttentionTile(const HeadShape& shape, const Attention& row, int64_t first, const Attention* next)
      : shape_(shape), row_(row), next_(next) {
    for (int q = 0; q < kQueries; ++q) {
      const int64_t query = (first + q) / shape.group(), head = (first + q) % shape.group();
      to_[q] = (query * shape.num_heads + head) * shape.padded_head_dim;
      visible_[q] = row.visible + query * row.num_blocks;
      mixed_[q] = row.mixed + (query * shape.num_heads + head) * shape.head_dim;
      scores_[q] = row.scores + q * row.num_blocks * kBlock;
    }
  }

  void run() {
    F most[kQueries];
    for (int q = 0; q < kQueries; ++q) most[q] = all(-__builtin_inff());
    for (int block = 0; block < row_.num_blocks; ++block)
      if (seen(block) != 0) score(block, most);
    weigh(most);
    mix();
  }

 private:
  int64_t head_dim() const { return kFills ? kHeadVectors * kLanes : shape_.head_dim; }

  // The keys of a block that any of the queries sees.
  uint32_t seen(int block) const {
    uint32_t keys = 0;
    for (int q = 0; q < kQueries; ++q) keys |= visible_[q][block];
    return keys;
  }

  const typename KV::Stored* slot(const char* lane, int block, int place) const {
    return reinterpret_cast<const typename KV::Stored*>(lane) + row_.slots[block * kBlock + place] * head_dim();
  }

  // The block that is computed some steps later, or where there is none, one that is in the caches.
  const typename KV::Stored* ahead(int step) const {
    const char* first = block_at(step + kBlocksAhead, row_, next_, head_dim() * sizeof(typename KV::Stored));
    return first == nullptr ? slot(row_.values, row_.num_blocks - 1, 0) : reinterpret_cast<const typename KV::Stored*>(first);
  }

  static void fetch(const typename KV::Stored* head) {
    const char* first = reinterpret_cast<const char*>(head);
#pragma GCC unroll 8
    for (int byte = 0; byte < kHeadVectors * kLanes * static_cast<int>(sizeof(typename KV::Stored)); byte += 64)
      __builtin_prefetch(first + byte);
  }

  struct OfQueries {
    FloatPart part[kQueries];
  };

  // One part of the queries' products with a key: of vectors kFirst, kFirst + kStep .. the fold by halves. Depth first, so
  // that few of them are alive at a time.
  template <int kFirst, int kStep>
  KAKEYA_LOCAL OfQueries products(const typename KV::Stored* key_at, const float* queries, int p) const {
    OfQueries sums;
    if constexpr (kStep == kHeadVectors) {
      const FloatPart key = load_head_part<KV>(key_at, head_dim(), kFirst, p);
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q)
        sums.part[q] = Float32::load_part(queries + to_[q] + kFirst * kLanes + p * kPartLanes) * key;
    } else {
      sums = products<kFirst, 2 * kStep>(key_at, queries, p);
      const OfQueries others = products<kFirst + kStep, 2 * kStep>(key_at, queries, p);
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) sums.part[q] = sums.part[q] + others.part[q];
    }
    return sums;
  }

  // Scaled products of the queries with a block's keys; -infinity where a query does not see the key.
  void score(int block, F* most) const {
    const float* queries = block < row_.num_sink_blocks ? row_.to_sinks : row_.to_recent;
    const typename KV::Stored* next = ahead(block);
    alignas(64) F folded[kQueries][kBlock];  // all but the last 16 products of each, which are folded together
    for (int place = 0; place < kBlock; ++place) {
      const auto* key_at = slot(row_.keys, block, place);
      fetch(next + place * head_dim());
      const auto fold_vectors = [&](auto p) {
        const OfQueries sums = products<0, 1>(key_at, queries, p);
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) folded[q][place].part[p] = sums.part[q];
      };
      KAKEYA_EACH_PART(fold_vectors(p));
    }
    for (int q = 0; q < kQueries; ++q) {
      F scores = fold_all(folded[q]) * shape_.scale;
      scores = select(in_lanes(visible_[q][block]), scores, all(-__builtin_inff()));
      most[q] = larger(most[q], scores);
      store(scores_[q] + block * kBlock, scores);
    }
  }

  void weigh(const F* most) const {
    for (int q = 0; q < kQueries; ++q) {
      const float maximum = largest(most[q]);
      for (int block = 0; block < row_.num_blocks; ++block)
        if (seen(block) != 0) {
          float* scores = scores_[q] + block * kBlock;
          store(scores, exp_of(load(scores) - maximum));
        }
    }
  }

  // What a block brings to the sum of values: those that any of the queries sees, with their weights.
  struct Values {
    int num = 0;
    const typename KV::Stored* at[kBlock];
    const typename KV::Stored* next[kBlock];  // those that are fetched meanwhile
    float weights[kQueries][kBlock];
  };

  Values values_of(int block) const {
    Values values;
    const typename KV::Stored* next = ahead(row_.num_blocks + block);
    for (uint32_t keys = seen(block); keys != 0; keys &= keys - 1, ++values.num) {
      const int place = __builtin_ctz(keys);
      values.at[values.num] = slot(row_.values, block, place);
      values.next[values.num] = next + place * head_dim();
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) values.weights[q][values.num] = scores_[q][block * kBlock + place];
    }
    return values;
  }

  // Weighted values, in a block place after place, then block after block, over the sum of the weights in the same order.
  void mix() const {
    constexpr int kMost = kMixSums / kQueries > 8 ? 8 : kMixSums / kQueries, kAtOnce = kMost < kHeadVectors ? kMost : kHeadVectors;
    F total[kQueries][kHeadVectors];
    clear(total);
    for (int block = 0; block < row_.num_blocks; ++block) {
      const Values values = values_of(block);
      for (int v = 0; v < kHeadVectors; v += kAtOnce) add_values<kAtOnce>(values, v, total);
    }
    float weights[kQueries];
    sum_weights(weights);
    for (int q = 0; q < kQueries; ++q)
      for (int v = 0; v < kHeadVectors; ++v)
        store_some(mixed_[q] + v * kLanes, total[q][v] / weights[q], head_dim() - v * kLanes);
  }

  // Vectors v .. v + kAtOnce - 1 of them.
  template <int kAtOnce>
  void add_values(const Values& values, int v, F (&total)[kQueries][kHeadVectors]) const {
    constexpr int kLineLanes = 64 / sizeof(typename KV::Stored);
    F sum[kQueries][kAtOnce];
    clear(sum);
    for (int key = 0; key < values.num; ++key) {
#pragma GCC unroll 8
      for (int lane = 0; lane < kAtOnce * kLanes; lane += kLineLanes) __builtin_prefetch(values.next[key] + v * kLanes + lane);
#pragma GCC unroll 8
      for (int i = 0; i < kAtOnce; ++i) {
        const F value = load_head<KV>(values.at[key], head_dim(), v + i);
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) sum[q][i] = sum[q][i] + value * values.weights[q][key];
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 8
      for (int i = 0; i < kAtOnce; ++i) total[q][v + i] = total[q][v + i] + sum[q][i];
  }

  template <int kNum>
  static void clear(F (&sums)[kQueries][kNum]) {
    for (auto& of_query : sums)
      for (F& sum : of_query) sum = all(0.0f);
  }

  void sum_weights(float* totals) const {
    for (int q = 0; q < kQueries; ++q) totals[q] = 0.0f;
    for (int block = 0; block < row_.num_blocks; ++block) {
      if (seen(block) == 0) continue;
      float sums[kQueries] = {};
      for (int place = 0; place < kBlock; ++place)
        for (int q = 0; q < kQueries; ++q) sums[q] += scores_[q][block * kBlock + place];
      for (int q = 0; q < kQueries; ++q) totals[q] += sums[q];
    }
  }

  const HeadShape& shape_;
  const Attention& row_;
  const Attention* next_;
  int64_t to_[kQueries];
  const uint16_t* visible_[kQueries];
  float* mixed_[kQueries];
  float* scores_[kQueries];
};

template <class KV, int kHeadVectors, bool kFills>
inline void attend_in_tiles(const HeadShape& shape, const Attention& row, int64_t first, int64_t num) {
  const int64_t last = first + num;
  const auto behind = [&](int num) { return first + num < last ? &row : row.next; };
  for (; last - first >= 4; first += 4) AttentionTile<KV, kHeadVectors, kFills, 4>(shape, row, first, behind(4)).run();
  for (; last - first >= 2; first += 2) AttentionTile<KV, kHeadVectors, kFills, 2>(shape, row, first, behind(2)).run();
  for (; last - first >= 1; first += 1) AttentionTile<KV, kHeadVectors, kFills, 1>(shape, row, first, behind(1)).run();
}

template <class KV, int kHeadVectors>
inline void attend_over(const HeadShape& shape, const Attention& row, int64_t first, int64_t num) {
  if (shape.head_dim == kHeadVectors * kLanes) return attend_in_tiles<KV, kHeadVectors, true>(shape, row, first, num);
  return attend_in_tiles<KV, kHeadVectors, false>(shape, row, first, num);
}

template <class KV>
inline void attend_with(const HeadShape& shape, const Attention& row, int64_t first, int64_t num) {
  switch (shape.padded_head_dim / kLanes) {
    case 1: return attend_over<KV, 1>(shape, row, first, num);
    case 2: return attend_over<KV, 2>(shape, row, first, num);
    case 4: return attend_over<KV, 4>(shape, row, first, num);
    case 8: return attend_over<KV, 8>(shape, row, first, num);
    default: return attend_over<KV, 16>(shape, row, first, num);
  }
}

void attend(const HeadShape& shape, const Attention& row, int64_t first, int64_t num) {
  switch (shape.kv_type) {
    case kInt8Kv: return attend_in_integers(shape, row, first, num);
    case kFloat32Kv: return attend_with<Float32>(shape, row, first, num);
    default: return attend_with<BFloat16>(shape, row, first, num);
  }
}

}  // namespace
}  // namespace kakeya
