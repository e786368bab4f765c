// The integer product of packed weights with quantized activations, for each instruction set.
//
// Four weights of one output, unsigned, meet four activations, signed: a `quad`. Sums may wrap around on the way;
// the corrections they start from bring them back.
#pragma once

#include "variant.h"
#include "vectors.h"

namespace kakeya {
namespace {

constexpr int kVectors = kPanel / kLanes;  // of a panel's outputs
constexpr int kPrefetchBytes = 2048;       // ahead of what is read from memory: about its latency
constexpr int kOwnLines = 2 * kVectors;    // of two quads in the panel itself

#if defined(__AVX512VNNI__)

typedef int8_t Activation;
typedef BytePart Narrow;
inline IntPart in_quads(IntPart x) { return x; }

struct Quad {
  __m512i all;
  explicit Quad(const Activation* a) : all(_mm512_set1_epi32(as<int32_t>(*reinterpret_cast<const Activation(*)[4]>(a)))) {}
};

inline IntPart multiply_add(IntPart sum, const uint8_t* weights, const Quad& quad) {
  return (IntPart)_mm512_dpbusd_epi32((__m512i)sum, _mm512_load_si512(weights), quad.all);
}

constexpr int kTileTokens = 3;  // 3 tokens x 2 bytes x 4 vectors are 24 of 32 registers
constexpr int kTileVectors = 4;

#elif defined(__AVX2__)

// Pairs of 16 bits, of bytes 0 and 2 and of bytes 1 and 3: what multiplies bytes here saturates.
typedef int16_t Activation;
typedef ShortPart Narrow;
inline IntPart in_quads(IntPart x) { return __builtin_shufflevector(x, x, 0, 2, 1, 3, 4, 6, 5, 7); }

struct Quad {
  __m256i even, odd;
  explicit Quad(const Activation* a) {
    int32_t pairs[2];
    std::memcpy(pairs, a, sizeof pairs);
    even = _mm256_set1_epi32(pairs[0]);
    odd = _mm256_set1_epi32(pairs[1]);
  }
};

inline IntPart multiply_add(IntPart sum, const uint8_t* weights, const Quad& quad) {
  const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights));
  const __m256i even = _mm256_and_si256(w, _mm256_set1_epi32(0x00FF00FF)), odd = _mm256_srli_epi16(w, 8);
  return sum + ((IntPart)_mm256_madd_epi16(even, quad.even) + (IntPart)_mm256_madd_epi16(odd, quad.odd));
}

constexpr int kTileTokens = 1;
constexpr int kTileVectors = 2;  // 2 bytes x 2 vectors of two parts are 8 of 16 registers

#else

typedef int16_t Activation;
typedef ShortPart Narrow;
inline IntPart in_quads(IntPart x) { return x; }

struct Quad {
  IntPart value[4];
  explicit Quad(const Activation* a) {
    for (int i = 0; i < 4; ++i) value[i] = IntPart{} + a[i];
  }
};

inline IntPart multiply_add(IntPart sum, const uint8_t* weights, const Quad& quad) {
  UIntPart w;  // little-endian: the first weight is the lowest byte
  std::memcpy(&w, weights, sizeof w);
  for (int i = 0; i < 4; ++i) sum += (IntPart)((w >> (8 * i)) & 0xFFu) * quad.value[i];
  return sum;
}

constexpr int kTileTokens = 1;
constexpr int kTileVectors = 1;

#endif

// Both sums of some tokens for kTileVectors vectors of a panel's outputs.
//
// Meanwhile lines of 64 bytes are fetched that are needed soon: kLines in two quads.
template <int kTokens, int kLines>
inline void sum_tile(const uint8_t* weights, int64_t num_quads, const char* rows, int64_t stride, const int32_t* corrections,
                     const char* lines, int first_vector, I (&sums)[2 * kTokens][kVectors]) {
  constexpr int kRows = 2 * kTokens;
  constexpr int kTileParts = kTileVectors * kParts;
  IntPart tile[kRows][kTileParts];
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) tile[row][p] = IntPart{} + corrections[row];
  for (int64_t quad = 0; quad < num_quads; ++quad, weights += kPanel * 4) {
    if (kLines == 1 && quad % 2 == 0) __builtin_prefetch(lines + quad / 2 * 64, 0, 2);
#pragma GCC unroll 4
    for (int line = 0; line < kLines / 2; ++line)
      __builtin_prefetch(lines + (quad * (kLines / 2) + line) * 64, 0, kLines == kOwnLines ? 3 : 2);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const Quad activations(reinterpret_cast<const Activation*>(rows + row * stride) + 4 * quad);
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p)
        tile[row][p] = multiply_add(tile[row][p], weights + p * kVectorBytes, activations);
    }
  }
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) sums[row][first_vector + p / kParts].part[p % kParts] = tile[row][p];
}

// ((upper * 256 + lower) * scale of the row) * scale of the channel (+ bias) (+ what is there).
inline void dequantize(const Matrix& matrix, int64_t panel, const I (&upper)[kVectors], const I (&lower)[kVectors], float scale,
                       float* y, bool adds) {
  for (int v = 0; v < kVectors; ++v) {
    int64_t first = panel * kPanel + v * kLanes, left = matrix.out - first;
    if (left <= 0) return;
    F value = to_float(upper[v]) * 256.0f + to_float(lower[v]);
    value = value * scale * load(matrix.scales + first);
    if (matrix.bias != nullptr) value = value + load_some(matrix.bias + first, left);
    if (adds) value = load_some(y + first, left) + value;
    store_some(y + first, value, left);
  }
}

template <int kTokens, int kLines>
inline int64_t tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, const char* lines,
                    const Target& target) {
  const int64_t num_quads = (matrix.in + 3) / 4;
  const uint8_t* weights = matrix.values + panel * num_quads * kPanel * 4;
  const char* rows = x.values + 2 * token * x.stride;
  const int32_t* corrections = x.corrections + 2 * token;
  I sums[2 * kTokens][kVectors];
  sum_tile<kTokens, kLines>(weights, num_quads, rows, x.stride, corrections, lines, 0, sums);
  for (int v = kTileVectors; v < kVectors; v += kTileVectors)
    sum_tile<kTokens, 0>(weights + v * 64, num_quads, rows, x.stride, corrections, lines, v, sums);
  for (int t = 0; t < kTokens; ++t)
    dequantize(matrix, panel, sums[2 * t], sums[2 * t + 1], x.scales[token + t], target.y + (token + t) * target.stride,
               target.adds);
  return kTokens;
}

// Returns how many tokens it took.
template <int kLines>
inline int64_t next_tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, int64_t num_tokens,
                         const char* lines, const Target& target) {
  const int64_t left = num_tokens - token;
  if constexpr (kTileTokens >= 3)
    if (left == 3 || left > 4) return tile<3, kLines>(matrix, panel, x, token, lines, target);
  if constexpr (kTileTokens >= 2)
    if (left >= 2) return tile<2, kLines>(matrix, panel, x, token, lines, target);
  return tile<1, kLines>(matrix, panel, x, token, lines, target);
}

// All tiles of a panel but the first: they find it in a cache, and fetch the next panel while there is some of it left.
template <int kLines>
inline void other_tiles(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, int64_t num_tokens,
                        const Target& target) {
  const int64_t num_quads = (matrix.in + 3) / 4, panel_bytes = num_quads * kPanel * 4;
  const char* next = reinterpret_cast<const char*>(matrix.values) + (panel + 1) * panel_bytes;
  for (int64_t fetched = 0; token < num_tokens; fetched += num_quads * kLines / 2 * 64)
    token += fetched < panel_bytes ? next_tile<kLines>(matrix, panel, x, token, num_tokens, next + fetched, target)
                                   : next_tile<0>(matrix, panel, x, token, num_tokens, next, target);
}

void product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
             const Target& target) {
  if (num_tokens == 0) return;
  const int64_t panel_bytes = (matrix.in + 3) / 4 * kPanel * 4;
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    const char* own = reinterpret_cast<const char*>(matrix.values) + panel * panel_bytes;
    const int64_t token = next_tile<kOwnLines>(matrix, panel, x, 0, num_tokens, own + kPrefetchBytes, target);
    const int64_t num_others = (num_tokens - token) / kTileTokens;  // the next panel is fetched by all of them, or nearly
    if (num_others >= 8) other_tiles<1>(matrix, panel, x, token, num_tokens, target);
    else if (num_others >= 4) other_tiles<2>(matrix, panel, x, token, num_tokens, target);
    else other_tiles<4>(matrix, panel, x, token, num_tokens, target);
  }
}

}  // namespace
}  // namespace kakeya
