// Attention over int8 keys and values, as docs/numerics.md has it under "Int8 KV": blocks of 16 keys aligned on the history,
// sinks first. Products are whole numbers and exact, so that their order inside a block is free.
//
// A block's keys are turned once for many queries: a vector holds four numbers (a quad) of each of the keys. So are its
// values: a vector holds one number of each of four keys.
#pragma once

#include "ahead.h"
#include "integer_kv.h"
#include "product.h"
#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

constexpr float kWeightLimit = 255.0f;
constexpr int kRowLanes = 4 * kPartLanes;                             // numbers of a slot in one part of a vector
constexpr int kMaxRowParts = (kMaxHeadDim + kRowLanes - 1) / kRowLanes;  // that a slot takes
constexpr int kBlockQuads = kBlock / 4;
constexpr int kFetchedAhead = 10;  // blocks from the one that is computed to the one that is fetched: docs/decisions/exact-mode.md
constexpr int kSecondCache = 2;   // for __builtin_prefetch
constexpr int kMaxBlocks = 2;  // whose keys are scored at once, so that each number of a query is fetched once for both

typedef int16_t ShortsPart __attribute__((vector_size(kVectorBytes)));

// Quads of bytes as pairs of 16 bits: of numbers 0 and 2, and of 1 and 3.
struct Pairs {
  IntPart even, odd;

  static Pairs of(IntPart quads) {
    const ShortsPart shorts = (ShortsPart)quads;
    return {(IntPart)((ShortsPart)(shorts << 8) >> 8), (IntPart)(shorts >> 8)};
  }
};

// Numbers of four keys, and what weights of 8 bits they are multiplied with: the numbers, signed, lie in a vector, and the
// weights, unsigned, are the same for all lanes.
#if defined(__AVX512VNNI__)
struct ValueQuads {
  typedef uint8_t Weight;
  IntPart all;

  static ValueQuads of(IntPart quads) { return {quads}; }
  static void store_weights(I whole, uint8_t* to) { store_bytes(reinterpret_cast<char*>(to), whole); }
  IntPart add_to(IntPart sum, const uint8_t* weights) const {
    int32_t quad;
    std::memcpy(&quad, weights, sizeof quad);
    return (IntPart)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(quad), (__m512i)all);
  }
};
#else
struct ValueQuads {
  typedef int16_t Weight;
  Pairs all;

  static ValueQuads of(IntPart quads) { return {Pairs::of(quads)}; }
  static void store_weights(I whole, int16_t* to) { store_pairs(whole, to); }
  IntPart add_to(IntPart sum, const int16_t* weights) const {
    int32_t pairs[2];
    std::memcpy(pairs, weights, sizeof pairs);
    return add_pairs(add_pairs(sum, all.even, IntPart{} + pairs[0]), all.odd, IntPart{} + pairs[1]);
  }
};
#endif

#define KAKEYA_INTERLEAVE(name, first, second)      \
  KAKEYA_LOCAL void name(IntPart& x, IntPart& y) {   \
    const IntPart a = x, b = y;                      \
    x = __builtin_shufflevector(a, b, KAKEYA_LIST first);  \
    y = __builtin_shufflevector(a, b, KAKEYA_LIST second); \
  }
#define KAKEYA_LIST(...) __VA_ARGS__

// Of two vectors lanes 0, 2 .. and lanes 1, 3 .. change places, lanes singly, in twos, in fours, in eights.
#if defined(__AVX512F__)
KAKEYA_INTERLEAVE(turn_1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
KAKEYA_INTERLEAVE(turn_2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
KAKEYA_INTERLEAVE(turn_4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
KAKEYA_INTERLEAVE(turn_8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#elif defined(__AVX2__)
KAKEYA_INTERLEAVE(turn_1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15))
KAKEYA_INTERLEAVE(turn_2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
KAKEYA_INTERLEAVE(turn_4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
#else
KAKEYA_INTERLEAVE(turn_1, (0, 4, 2, 6), (1, 5, 3, 7))
KAKEYA_INTERLEAVE(turn_2, (0, 1, 4, 5), (2, 3, 6, 7))
#endif
#undef KAKEYA_INTERLEAVE
#undef KAKEYA_LIST

// Bytes of four vectors x, in each 16 of them: vector v becomes the quads (x0_i, x1_i, x2_i, x3_i) of bytes 4 v .. 4 v + 3.
#if defined(__AVX512F__)
#define KAKEYA_UNPACK(half, bits, a, b) (IntPart) _mm512_unpack##half##_epi##bits((__m512i)(a), (__m512i)(b))
#elif defined(__AVX2__)
#define KAKEYA_UNPACK(half, bits, a, b) (IntPart) _mm256_unpack##half##_epi##bits((__m256i)(a), (__m256i)(b))
#else
typedef int8_t BytesPart __attribute__((vector_size(16)));
#define KAKEYA_UNPACK(half, bits, a, b) unpack##half##_##bits(a, b)
inline IntPart unpacklo_8(IntPart a, IntPart b) {
  return (IntPart)__builtin_shufflevector((BytesPart)a, (BytesPart)b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline IntPart unpackhi_8(IntPart a, IntPart b) {
  return (IntPart)__builtin_shufflevector((BytesPart)a, (BytesPart)b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline IntPart unpacklo_16(IntPart a, IntPart b) {
  return (IntPart)__builtin_shufflevector((ShortsPart)a, (ShortsPart)b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline IntPart unpackhi_16(IntPart a, IntPart b) {
  return (IntPart)__builtin_shufflevector((ShortsPart)a, (ShortsPart)b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#endif

KAKEYA_LOCAL void interleave_bytes(IntPart (&x)[4]) {
  const IntPart low = KAKEYA_UNPACK(lo, 8, x[0], x[1]), high = KAKEYA_UNPACK(hi, 8, x[0], x[1]);
  const IntPart other_low = KAKEYA_UNPACK(lo, 8, x[2], x[3]), other_high = KAKEYA_UNPACK(hi, 8, x[2], x[3]);
  x[0] = KAKEYA_UNPACK(lo, 16, low, other_low);
  x[1] = KAKEYA_UNPACK(hi, 16, low, other_low);
  x[2] = KAKEYA_UNPACK(lo, 16, high, other_high);
  x[3] = KAKEYA_UNPACK(hi, 16, high, other_high);
}
#undef KAKEYA_UNPACK

// Pairs of 0 and 2 and of 1 and 3 out of quads that follow one another: two vectors of them.
KAKEYA_LOCAL Pairs load_pairs_of_quads(const char* quads) {
  IntPart a, b;
  std::memcpy(&a, quads, sizeof a);
  std::memcpy(&b, quads + sizeof a, sizeof b);
#if defined(__AVX512F__)
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
#elif defined(__AVX2__)
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14), __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)};
#else
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6), __builtin_shufflevector(a, b, 1, 3, 5, 7)};
#endif
}

// Lane i of vector j becomes lane j of vector i.
KAKEYA_LOCAL void transpose(IntPart (&x)[kPartLanes]) {
  const auto turn = [&](auto step, const auto& both) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < kPartLanes; ++i)
      if (!(i & step)) both(x[i], x[i + step]);
  };
  turn(std::integral_constant<int, 1>{}, turn_1);
  turn(std::integral_constant<int, 2>{}, turn_2);
#if defined(__AVX2__) || defined(__AVX512F__)
  turn(std::integral_constant<int, 4>{}, turn_4);
#endif
#if defined(__AVX512F__)
  turn(std::integral_constant<int, 8>{}, turn_8);
#endif
}

struct AddedIntegers {
  static KAKEYA_LOCAL IntPart join(IntPart a, IntPart b) { return a + b; }
};

constexpr int kFewQueries = 4;  // for no more a block's keys are not turned

// Some queries (of one or several heads that share a KV head) over one lane; a slot fills its vectors, or not.
template <bool kFills>
class IntegerAttention {
 public:
  IntegerAttention(const HeadShape& shape, const Attention& row, int64_t first, int64_t num)
      : shape_(shape),
        row_(row),
        num_(static_cast<int>(num)),
        num_row_parts_(static_cast<int>((shape.head_dim + kRowLanes - 1) / kRowLanes)),
        slot_bytes_(shape.slot_bytes()) {
    // The transform's factor for queries and for keys is taken back here: a power of two.
    const float scale = shape.scale / static_cast<float>(shape.head_dim & -shape.head_dim);
    for (int q = 0; q < num_; ++q) {
      const int64_t query = (first + q) / shape.group(), head = (first + q) % shape.group();
      const int64_t to = (query * shape.num_heads + head) * shape.padded_head_dim;
      to_sinks_[q] = row.to_sinks + to;
      to_recent_[q] = row.to_recent + to;
      sink_scale_[q] = StoredQuery::scale(to_sinks_[q], shape.padded_head_dim) * scale;
      recent_scale_[q] = StoredQuery::scale(to_recent_[q], shape.padded_head_dim) * scale;
      visible_[q] = row.visible + query * row.num_blocks;
      mixed_[q] = row.mixed + (query * shape.num_heads + head) * shape.head_dim;
      scores_[q] = row.scores + q * row.num_blocks * kBlock;
      most_[q] = all(-__builtin_inff());
      sum_of_weights_[q] = all(0.0f);
    }
    for (int q = 0; q < num_; ++q)
      for (int v = 0; v < num_vectors(); ++v) total_[q][v] = FloatPart{};
  }

  void run() {
    for (int block = next_seen(0); block < row_.num_blocks;) {
      const int next = next_seen(block + 1);
      const bool alike = next < row_.num_blocks && (block < row_.num_sink_blocks) == (next < row_.num_sink_blocks);
      fetch_ahead(block);
      if (kFills && num_ <= kFewQueries) {
        score_few(block);
        block = next;
      } else if (alike) {
        fetch_ahead(next);
        score<2>({block, next});
        block = next_seen(next + 1);
      } else {
        score<1>({block});
        block = next;
      }
    }
    float most[kIntegerTileQueries];
    for (int q = 0; q < num_; ++q) most[q] = largest(most_[q]);
    for (int block = next_seen(0); block < row_.num_blocks; block = next_seen(block + 1)) {
      fetch_ahead(row_.num_blocks + block);
      mix(block, most);
    }
    finish();
  }

 private:
  int num_vectors() const { return 4 * num_row_parts_; }

  // The first block from this one on of which any of the queries sees a key.
  int next_seen(int block) const {
    for (; block < row_.num_blocks; ++block)
      for (int q = 0; q < num_; ++q)
        if (visible_[q][block] != 0) return block;
    return block;
  }

  // Calls act(how many queries a tile takes, as a constant, and the first of them) until all have had their turn.
  template <class Act>
  KAKEYA_LOCAL void in_tiles(const Act& act) const {
    for (int first = 0; first < num_;)
      first += static_cast<int>(with_tile<4>(num_ - first, [&](auto num) __attribute__((always_inline)) { act(num, first); }));
  }

  const char* slot(const char* lane, int block, int place) const {
    return lane + row_.slots[block * kBlock + place] * slot_bytes_;
  }

  // Blocks go by faster than memory answers, so one is fetched that is computed some steps later. More lines can be on their
  // way to the second cache than to the first.
  KAKEYA_LOCAL void fetch_ahead(int step) const {
    const char* first = block_at(step + kFetchedAhead, row_, row_.next, slot_bytes_);
    if (first == nullptr) return;
    for (int64_t byte = 0; byte < kBlock * slot_bytes_; byte += 64) __builtin_prefetch(first + byte, 0, kSecondCache);
  }

  // Part r of a slot's numbers, zeros beyond head_dim.
  IntPart load_row(const char* slot, int r) const {
    IntPart numbers{};
    const int64_t left = shape_.head_dim - r * kRowLanes;
    if (kFills || left >= kRowLanes) std::memcpy(&numbers, slot + r * kRowLanes, sizeof numbers);
    else std::memcpy(&numbers, slot + r * kRowLanes, left);
    return numbers;
  }

  F scales(const char* lane, int block) const {
    float some[kBlock];
    for (int place = 0; place < kBlock; ++place) some[place] = Slot::scale(slot(lane, block, place), shape_.head_dim);
    return load(some);
  }

  // Some blocks' keys: of each quad one lane a key.
  template <int kBlocks>
  void turn_keys(const int (&blocks)[kBlocks]) {
    for (int r = 0; r < num_row_parts_; ++r)
      for (int b = 0; b < kBlocks; ++b)
        for (int p = 0; p < kParts; ++p) {
          IntPart rows[kPartLanes];
#pragma GCC unroll 16
          for (int key = 0; key < kPartLanes; ++key)
            rows[key] = load_row(slot(row_.keys, blocks[b], p * kPartLanes + key), r);
          transpose(rows);
#pragma GCC unroll 16
          for (int quad = 0; quad < kPartLanes; ++quad) keys_[p][r * kPartLanes + quad][b] = Pairs::of(rows[quad]);
        }
  }

  template <int kBlocks>
  void score(const int (&blocks)[kBlocks]) {
    turn_keys(blocks);
    F scales[kBlocks];
    for (int b = 0; b < kBlocks; ++b) scales[b] = this->scales(row_.keys, blocks[b]);
    in_tiles([&](auto num, int first) __attribute__((always_inline)) { score_some<num>(blocks, first, scales); });
  }

  template <int kQueries, int kBlocks>
  KAKEYA_LOCAL void score_some(const int (&blocks)[kBlocks], int first, const F (&scales)[kBlocks]) {
    const int num_quads = static_cast<int>((shape_.head_dim + 3) / 4);
    const bool is_sink = blocks[0] < row_.num_sink_blocks;
    const char* quads[kQueries];
    for (int q = 0; q < kQueries; ++q) quads[q] = StoredQuery::quads((is_sink ? to_sinks_ : to_recent_)[first + q]);
    I products[kQueries][kBlocks];
    for (int p = 0; p < kParts; ++p) {
      IntPart sums[kQueries][kBlocks] = {};
      for (int quad = 0; quad < num_quads; ++quad) {
        Pairs keys[kBlocks];
#pragma GCC unroll 2
        for (int b = 0; b < kBlocks; ++b) keys[b] = keys_[p][quad][b];
#pragma GCC unroll 4
        for (int q = 0; q < kQueries; ++q) {
          int32_t pairs[2];
          std::memcpy(pairs, quads[q] + quad * sizeof pairs, sizeof pairs);
          const IntPart even = IntPart{} + pairs[0], odd = IntPart{} + pairs[1];
#pragma GCC unroll 2
          for (int b = 0; b < kBlocks; ++b)
            sums[q][b] = add_pairs(add_pairs(sums[q][b], keys[b].even, even), keys[b].odd, odd);
        }
      }
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
        for (int b = 0; b < kBlocks; ++b) products[q][b].part[p] = sums[q][b];
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
      for (int b = 0; b < kBlocks; ++b) put_scores(blocks[b], first + q, products[q][b], scales[b]);
  }

  KAKEYA_LOCAL void put_scores(int block, int q, I products, F scales) {
    F scores = to_float(products) * scales * (block < row_.num_sink_blocks ? sink_scale_ : recent_scale_)[q];
    scores = select(in_lanes(visible_[q][block]), scores, all(-__builtin_inff()));
    most_[q] = larger(most_[q], scores);
    store(scores_[q] + block * kBlock, scores);
  }

  void score_few(int block) {
    const F scales = this->scales(row_.keys, block);
    with_tile<kFewQueries>(num_, [&](auto num) __attribute__((always_inline)) { score_rows<num>(block, scales); });
  }

  // A few queries' products with a block's keys, as the slots have them: a part of a slot's numbers at a time.
  template <int kQueries>
  KAKEYA_LOCAL void score_rows(int block, F scales) {
    const float* const* stored = block < row_.num_sink_blocks ? to_sinks_ : to_recent_;
    Pairs queries[kMaxRowParts][kQueries];
    for (int r = 0; r < num_row_parts_; ++r)
      for (int q = 0; q < kQueries; ++q)
        queries[r][q] = load_pairs_of_quads(StoredQuery::quads(stored[q]) + r * 2 * kVectorBytes);
    I sums[kQueries][kBlock];
    for (int key = 0; key < kBlock; ++key) {
      const char* own = slot(row_.keys, block, key);
      IntPart parts[kQueries][kParts] = {};
      for (int r = 0; r < num_row_parts_; r += kParts)
        for (int p = 0; p < kParts && r + p < num_row_parts_; ++p) {
          const Pairs keys = Pairs::of(load_row(own, r + p));
#pragma GCC unroll 4
          for (int q = 0; q < kQueries; ++q) {
            const Pairs& query = queries[r + p][q];
            parts[q][p] = add_pairs(add_pairs(parts[q][p], keys.even, query.even), keys.odd, query.odd);
          }
        }
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) KAKEYA_EACH_PART(sums[q][key].part[p] = parts[q][p]);
    }
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) put_scores(block, q, join_all<AddedIntegers>(sums[q]), scales);
  }

  // Part r of four keys' values: of each number one lane, as four vectors.
  KAKEYA_LOCAL void load_values(int block, int four, int r, IntPart (&x)[4]) const {
#pragma GCC unroll 4
    for (int key = 0; key < 4; ++key) x[key] = load_row(slot(row_.values, block, 4 * four + key), r);
    interleave_bytes(x);
  }

  void turn_values(int block) {
    for (int four = 0; four < kBlockQuads; ++four)
      for (int r = 0; r < num_row_parts_; ++r) {
        IntPart x[4];
        load_values(block, four, r, x);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) values_[four][4 * r + v] = ValueQuads::of(x[v]);
      }
  }

  void mix(int block, const float* most) {
    const F scales = this->scales(row_.values, block);
    if (num_ <= kFewQueries) {
      with_tile<kFewQueries>(num_, [&](auto num) __attribute__((always_inline)) { mix_few<num>(block, most, scales); });
      return;
    }
    turn_values(block);
    for (int q = 0; q < num_; q += kLanes) weigh(block, q, num_ - q < kLanes ? num_ - q : kLanes, most, scales);
    in_tiles([&](auto num, int first) __attribute__((always_inline)) { mix_some<num>(first); });
  }

  // A query's weights with the values' scales in them; those without are added up.
  KAKEYA_LOCAL F weigh_one(int block, int q, const float* most, F scales) {
    const F weight = exp_of(load(scores_[q] + block * kBlock) - most[q]);
    sum_of_weights_[q] = sum_of_weights_[q] + weight;
    return select(in_lanes(visible_[q][block]), weight * scales, all(0.0f));
  }

  // The weights of at most 16 queries, with the values' scales in them, as whole numbers.
  void weigh(int block, int first, int num, const float* most, F scales) {
    F weights[kLanes];
    I bits[kLanes];  // they grow with the weight, and what is not a number is above all
    for (int i = 0; i < num; ++i) {
      weights[i] = weigh_one(block, first + i, most, scales);
      bits[i] = as<I>(absolute(weights[i]));
    }
    for (int i = num; i < kLanes; ++i) bits[i] = all(0);
    const F largest = as<F>(largest_of_all(bits));
    float inverse[kLanes];
    store(inverse, select(is_below(largest, all(kLeastMagnitude)), all(0.0f), all(kWeightLimit) / largest));
    store(weight_scale_ + first, largest / all(kWeightLimit));
    for (int i = 0; i < num; ++i) ValueQuads::store_weights(round_to_int(weights[i] * inverse[i]), weights_[first + i]);
  }

  template <int kQueries>
  KAKEYA_LOCAL void mix_some(int first) {
    constexpr int kAtOnce = kParts == 1 ? 4 : kParts == 2 ? 2 : 1;  // vectors of values: their sums are in registers
    for (int v = 0; v < num_vectors(); v += kAtOnce) {
      IntPart sums[kQueries][kAtOnce] = {};
#pragma GCC unroll 4
      for (int four = 0; four < kBlockQuads; ++four)
#pragma GCC unroll 4
        for (int i = 0; i < kAtOnce; ++i) {
          const ValueQuads values = values_[four][v + i];
#pragma GCC unroll 4
          for (int q = 0; q < kQueries; ++q) sums[q][i] = values.add_to(sums[q][i], weights_[first + q] + 4 * four);
        }
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
        for (int i = 0; i < kAtOnce; ++i) {
          FloatPart& total = total_[first + q][v + i];
          total = total + __builtin_convertvector(sums[q][i], FloatPart) * weight_scale_[first + q];
        }
    }
  }

  // Of few queries, without tables in between.
  template <int kQueries>
  KAKEYA_LOCAL void mix_few(int block, const float* most, F scales) {
    float weight_scale[kQueries];
    for (int q = 0; q < kQueries; ++q) {
      const F weights = weigh_one(block, q, most, scales);
      const float largest = as<float>(kakeya::largest(as<I>(absolute(weights))));
      weight_scale[q] = largest / kWeightLimit;
      const float inverse = largest < kLeastMagnitude ? 0.0f : kWeightLimit / largest;
      ValueQuads::store_weights(round_to_int(weights * inverse), weights_[q]);
    }
    for (int r = 0; r < num_row_parts_; ++r) {
      IntPart sums[kQueries][4] = {};
#pragma GCC unroll 4
      for (int four = 0; four < kBlockQuads; ++four) {
        IntPart x[4];
        load_values(block, four, r, x);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v)
#pragma GCC unroll 4
          for (int q = 0; q < kQueries; ++q) sums[q][v] = ValueQuads::of(x[v]).add_to(sums[q][v], weights_[q] + 4 * four);
      }
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          FloatPart& total = total_[q][4 * r + v];
          total = total + __builtin_convertvector(sums[q][v], FloatPart) * weight_scale[q];
        }
    }
  }

  // Each four lanes of a vector are numbers that follow one another; the next four come 16 numbers later.
  void finish() const {
    constexpr int kRun = 4, kRunsApart = 16;
    for (int q = 0; q < num_; ++q) {
      const float weight = fold(sum_of_weights_[q]);
      float numbers[kMaxRowParts * kRowLanes];
      for (int v = 0; v < num_vectors(); ++v) {
        const FloatPart mixed = total_[q][v] / weight;
        for (int lane = 0; lane < kPartLanes; lane += kRun)
          std::memcpy(numbers + v / 4 * kRowLanes + lane / kRun * kRunsApart + v % 4 * kRun,
                      reinterpret_cast<const char*>(&mixed) + lane * sizeof(float), kRun * sizeof(float));
      }
      std::memcpy(mixed_[q], numbers, shape_.head_dim * sizeof(float));
    }
  }

  const HeadShape& shape_;
  const Attention& row_;
  const int num_;
  const int num_row_parts_;
  const int64_t slot_bytes_;
  const float* to_sinks_[kIntegerTileQueries];
  const float* to_recent_[kIntegerTileQueries];
  float sink_scale_[kIntegerTileQueries], recent_scale_[kIntegerTileQueries];
  const uint16_t* visible_[kIntegerTileQueries];
  float* mixed_[kIntegerTileQueries];
  float* scores_[kIntegerTileQueries];
  F most_[kIntegerTileQueries], sum_of_weights_[kIntegerTileQueries];
  FloatPart total_[kIntegerTileQueries][4 * kMaxRowParts];
  Pairs keys_[kParts][kMaxHeadDim / 4][kMaxBlocks];
  ValueQuads values_[kBlockQuads][4 * kMaxRowParts];
  ValueQuads::Weight weights_[kIntegerTileQueries][kBlock];
  float weight_scale_[kIntegerTileQueries];
};

void attend_in_integers(const HeadShape& shape, const Attention& row, int64_t first, int64_t num) {
  if (shape.head_dim % kRowLanes == 0) IntegerAttention<true>(shape, row, first, num).run();
  else IntegerAttention<false>(shape, row, first, num).run();
}

}  // namespace
}  // namespace kakeya
