// The integer product of packed weights with quantized activations, for each instruction set.
//
// Four weights of one output, unsigned, meet four activations, signed: a `quad`. Sixteen of them are a group, whose sum
// is exact in 32 bits. It may wrap around on the way; the corrections, with which it begins, bring it back.
#pragma once

#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

constexpr int kVectors = kPanel / kLanes;  // of a panel's outputs
constexpr int kPrefetchBytes = 2048;       // ahead of what is read from memory: about its latency
constexpr int kOwnLines = 2 * kVectors;    // of two quads in the panel itself

constexpr int64_t kGroupQuads = kGroup / 4;

inline void store_bytes(char* to, I x) {
  KAKEYA_EACH_PART(const BytePart bytes = __builtin_convertvector(x.part[p], BytePart);
                   std::memcpy(to + p * kPartLanes, &bytes, sizeof bytes));
}

// An activation has 16 bits: 256 * upper + lower, both signed. Some instructions multiply these bytes, some all of it.
#if defined(__AVX512VNNI__)

constexpr int kTokenRows = 2;  // upper bytes, lower bytes

inline void store_activations(char* row, int64_t stride, int64_t i, I, I upper, I lower) {
  store_bytes(row + i, upper);
  store_bytes(row + stride / 2 + i, lower);
}

struct Activations {
  __m512i all;
  Activations(const char* row, int64_t quad) {
    int32_t bytes;
    std::memcpy(&bytes, row + 4 * quad, sizeof bytes);
    all = _mm512_set1_epi32(bytes);
  }
};

struct Weights {
  __m512i all;
  Weights() = default;
  explicit Weights(const uint8_t* from) : all(_mm512_load_si512(from)) {}
  explicit Weights(UIntPart bytes) : all((__m512i)bytes) {}
};

inline IntPart multiply_add(IntPart sum, const Weights& weights, const Activations& x) {
  return (IntPart)_mm512_dpbusd_epi32((__m512i)sum, weights.all, x.all);
}

constexpr int kTileTokens = 3;  // 3 tokens x 2 rows x 4 vectors are 24 of 32 registers
constexpr int tile_vectors(int) { return 4; }

#else

constexpr int kTokenRows = 1;

#if defined(__AVX2__)

// Pairs, of numbers 0 and 2 and of numbers 1 and 3: a quad's weights become pairs of 16 bits by a mask and a shift.
inline IntPart in_pairs(IntPart x) { return __builtin_shufflevector(x, x, 0, 2, 1, 3, 4, 6, 5, 7); }

struct Activations {
  __m256i even, odd;
  Activations(const char* row, int64_t quad) {
    int32_t pair;  // one by one: of both at once compilers make no broadcasts from memory
    std::memcpy(&pair, row + 8 * quad, sizeof pair);
    even = _mm256_set1_epi32(pair);
    std::memcpy(&pair, row + 8 * quad + 4, sizeof pair);
    odd = _mm256_set1_epi32(pair);
  }
};

struct Weights {
  __m256i even, odd;
  Weights() = default;
  explicit Weights(const uint8_t* from) : Weights(_mm256_load_si256(reinterpret_cast<const __m256i*>(from))) {}
  explicit Weights(UIntPart bytes) : Weights((__m256i)bytes) {}
  explicit Weights(__m256i quads) {
    even = _mm256_and_si256(quads, _mm256_set1_epi32(0x00FF00FF));
    odd = _mm256_srli_epi16(quads, 8);
  }
};

inline IntPart multiply_add(IntPart sum, const Weights& weights, const Activations& x) {
  return sum + (IntPart)_mm256_madd_epi16(weights.even, x.even) + (IntPart)_mm256_madd_epi16(weights.odd, x.odd);
}

constexpr int kTileTokens = 4;
constexpr int tile_vectors(int num_tokens) { return num_tokens > 1 ? 1 : 2; }  // weights and sums fit 16 registers

#else

inline IntPart in_pairs(IntPart x) { return x; }

struct Activations {
  IntPart value[4];
  Activations(const char* row, int64_t quad) {
    int16_t values[4];
    std::memcpy(values, row + 8 * quad, sizeof values);
    for (int i = 0; i < 4; ++i) value[i] = IntPart{} + values[i];
  }
};

struct Weights {
  UIntPart quads;  // little-endian: the first weight is the lowest byte
  Weights() = default;
  explicit Weights(const uint8_t* from) { std::memcpy(&quads, from, sizeof quads); }
  explicit Weights(UIntPart bytes) : quads(bytes) {}
};

inline IntPart multiply_add(IntPart sum, const Weights& weights, const Activations& x) {
  for (int i = 0; i < 4; ++i) sum += (IntPart)((weights.quads >> (8 * i)) & 0xFFu) * x.value[i];
  return sum;
}

constexpr int kTileTokens = 1;
constexpr int tile_vectors(int) { return 1; }

#endif

inline void store_activations(char* row, int64_t, int64_t i, I whole, I, I) {
  KAKEYA_EACH_PART(const ShortPart shorts = __builtin_convertvector(in_pairs(whole.part[p]), ShortPart);
                   std::memcpy(row + (i + p * kPartLanes) * 2, &shorts, sizeof shorts));
}

#endif

// What a token's products with a panel come to, before the row's scale.
struct Sums {
  F y[kVectors];

  FloatPart& part(int number) { return y[number / kParts].part[number % kParts]; }
};

// Adds a group's products with a token, each times its scale.
template <int kTileParts>
inline void add_group(const IntPart (*rows)[kTileParts], const FloatPart* scales, int first_vector, Sums& sums) {
#pragma GCC unroll 8
  for (int p = 0; p < kTileParts; ++p) {
    const IntPart product = kTokenRows == 2 ? (rows[0][p] << 8) + rows[kTokenRows - 1][p] : rows[0][p];
    FloatPart& y = sums.y[first_vector + p / kParts].part[p % kParts];
    y = y + __builtin_convertvector(product, FloatPart) * scales[p];
  }
}

// The sums of some tokens for some vectors of a panel's outputs; scales are those of the panel.
//
// Meanwhile lines of 64 bytes are fetched that are needed soon: kLines in two quads.
template <int kTokens, int kLines>
inline void sum_tile(const uint8_t* weights, const uint16_t* scales, int64_t num_quads, const Quantized& x, int64_t token,
                     const char* lines, int first_vector, Sums* sums) {
  constexpr int kRows = kTokenRows * kTokens;
  constexpr int kTileParts = tile_vectors(kTokens) * kParts;
  const char* rows = x.values + token * x.stride;
  const int32_t* corrections = x.corrections + token * x.num_corrections();
  for (int64_t quad = 0; quad < num_quads; scales += kPanel, corrections += kTokenRows) {
    IntPart tile[kRows][kTileParts];
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const int32_t correction = corrections[row / kTokenRows * x.num_corrections() + row % kTokenRows];
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p) tile[row][p] = IntPart{} + correction;
    }
    const int64_t end = num_quads - quad > kGroupQuads ? quad + kGroupQuads : num_quads;
    for (; quad < end; ++quad, weights += kPanel * 4) {
      if (kLines == 1 && quad % 2 == 0) __builtin_prefetch(lines + quad / 2 * 64, 0, 2);
#pragma GCC unroll 4
      for (int line = 0; line < kLines / 2; ++line)
        __builtin_prefetch(lines + (quad * (kLines / 2) + line) * 64, 0, kLines == kOwnLines ? 3 : 2);
      Weights parts[kTileParts];
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p) parts[p] = Weights(weights + p * kVectorBytes);
#pragma GCC unroll 6
      for (int row = 0; row < kRows; ++row) {
        const Activations activations(rows + row * (x.stride / kTokenRows), quad);
#pragma GCC unroll 8
        for (int p = 0; p < kTileParts; ++p) tile[row][p] = multiply_add(tile[row][p], parts[p], activations);
      }
    }
    FloatPart of_group[kTileParts];
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) of_group[p] = BFloat16::load_part(scales + first_vector * kLanes + p * kPartLanes);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) add_group(tile + t * kTokenRows, of_group, first_vector, sums[t]);
  }
}

// The sums times the row's scale (+ bias) (+ what is there).
inline void finish(const Matrix& matrix, int64_t panel, const Sums& sums, float scale, float* y, bool adds) {
  for (int v = 0; v < kVectors; ++v) {
    int64_t first = panel * kPanel + v * kLanes, left = matrix.out - first;
    if (left <= 0) return;
    F value = sums.y[v] * scale;
    if (matrix.bias != nullptr) value = value + load_some(matrix.bias + first, left);
    if (adds) value = load_some(y + first, left) + value;
    store_some(y + first, value, left);
  }
}

// Memory that is needed soon, of which tiles fetch some while they compute.
struct Ahead {
  const char* next;
  const char* end;
};

// The products of some tokens with a panel. In two quads it fetches kLines lines of 64 bytes, as long as there are any.
template <int kTokens, int kLines>
inline void tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, Ahead& ahead, const Target& target) {
  const int64_t num_quads = matrix.num_quads();
  const uint8_t* weights = matrix.values + panel * num_quads * kPanel * 4;
  const uint16_t* scales = matrix.scales + panel * matrix.num_groups() * kPanel;
  Sums sums[kTokens] = {};
  for (int v = 0; v < kVectors; v += tile_vectors(kTokens)) {
    if (ahead.next < ahead.end) {
      sum_tile<kTokens, kLines>(weights + v * 64, scales, num_quads, x, token, ahead.next, v, sums);
      ahead.next += num_quads * kLines / 2 * 64;
    } else {
      sum_tile<kTokens, 0>(weights + v * 64, scales, num_quads, x, token, nullptr, v, sums);
    }
  }
  for (int t = 0; t < kTokens; ++t)
    finish(matrix, panel, sums[t], x.scales[token + t], target.y + (token + t) * target.stride, target.adds);
}

// Calls act(how many tokens the next tile takes, as a constant) of those that are left. Returns the number.
template <int kMost, class Act>
KAKEYA_LOCAL int64_t with_tile(int64_t left, const Act& act) {
  if constexpr (kMost >= 4)
    if (left >= 4) return act(std::integral_constant<int, 4>{}), 4;
  if constexpr (kMost >= 3)
    if (left == 3 || left > 4) return act(std::integral_constant<int, 3>{}), 3;
  if constexpr (kMost >= 2)
    if (left >= 2) return act(std::integral_constant<int, 2>{}), 2;
  return act(std::integral_constant<int, 1>{}), 1;
}

// The next tile of a panel. Returns after which token it ends.
template <int kLines>
inline int64_t next_tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, int64_t num_tokens,
                         Ahead& ahead, const Target& target) {
  return token + with_tile<kTileTokens>(num_tokens - token, [&](auto tokens) __attribute__((always_inline)) {
           tile<tokens, kLines>(matrix, panel, x, token, ahead, target);
         });
}

template <int kLines>
inline void tiles(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, int64_t num_tokens, Ahead ahead,
                  const Target& target) {
  while (token < num_tokens) token = next_tile<kLines>(matrix, panel, x, token, num_tokens, ahead, target);
}

void int8_product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
                  const Target& target) {
  if (num_tokens == 0) return;
  const int64_t panel_bytes = matrix.num_quads() * kPanel * 4;
  const int num_passes = kVectors / tile_vectors(num_tokens > 1 ? 2 : 1);  // over a panel, of a tile
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    const char* own = reinterpret_cast<const char*>(matrix.values) + panel * panel_bytes;
    Ahead next = {own + panel_bytes, own + 2 * panel_bytes};
    int64_t token = 0;
    if constexpr (tile_vectors(1) == kVectors) {  // the first tile reads from memory, just behind what it fetches
      Ahead close = {own + kPrefetchBytes, next.end};
      token = next_tile<kOwnLines>(matrix, panel, x, 0, num_tokens, close, target);
    }
    // The other ones find it in a cache. All passes together fetch the next panel.
    const int64_t passes = (num_tokens - token + kTileTokens - 1) / kTileTokens * num_passes;
    if (passes >= 8) tiles<1>(matrix, panel, x, token, num_tokens, next, target);
    else if (passes >= 4) tiles<2>(matrix, panel, x, token, num_tokens, next, target);
    else tiles<4>(matrix, panel, x, token, num_tokens, next, target);
  }
}

}  // namespace
}  // namespace kakeya
