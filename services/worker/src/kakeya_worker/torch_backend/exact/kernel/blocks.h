// The exact product of GGUF's blocks with quantized activations, for each instruction set.
//
// Weights are unsigned, of 4, 5, 6 or 8 bits, in units of 32 inputs. Where a block is one run, its product is exact in 32
// bits. Where it has several, the products of upper and of lower bytes are, times the runs' scales and summed over the
// block; together they become a float by one rounding.
#pragma once

#include "product.h"

namespace kakeya {
namespace {

constexpr int64_t kUnit = 32;  // inputs
constexpr int kPanelParts = kPanel / kPartLanes;

typedef int16_t ShortPairs __attribute__((vector_size(kVectorBytes)));

// How many tokens a tile has at most, and how many parts of a panel: sums, weights and activations fit the registers.
#if defined(__AVX512F__)
constexpr int most_tokens(bool has_runs) { return has_runs ? 4 : kTileTokens; }
constexpr int block_parts(bool has_runs, int num_tokens) { return has_runs && num_tokens > 2 ? 2 : 4; }
#elif defined(__AVX2__)
constexpr int most_tokens(bool) { return kTileTokens; }
constexpr int block_parts(bool, int num_tokens) { return num_tokens > 2 ? 1 : 2; }
#else
constexpr int most_tokens(bool) { return kTileTokens; }
constexpr int block_parts(bool, int) { return 1; }
#endif

// Upper bytes of each token, then its lower ones: [tokens, 2, stride / 2].
inline char* byte_rows(const Quantized& x) { return kTokenRows == 2 ? x.values : x.bytes; }

// One of GGUF's types: a scale for each kSub * kSubs inputs. Where kSubs > 1, each kSub inputs have a whole one in it, too.
//
// A panel of 64 outputs lies in memory block after block, and a block is
//   float16 scales [64]; float16 offsets [64] where there are minima;
//   where kSubs > 1, int8 sub-scales [kSubs / 2, 64, 2]; minima alike;
//   units: of the low four bits [4, 64, 4], of quads 2 s in a byte's lower half and of quads 2 s + 1 in its upper half;
//     then fifth bits [64, 4], of quad q in bit q; or fifth and sixth ones [2, 64, 4], of quad 4 h + q in bits 2 q.
//     Eight bits are [8, 64, 4].
template <int kBits_, int kSub_, int kSubs_, int kZero_, bool kHasMinima_>
struct Blocks {
  static constexpr int kBits = kBits_, kSub = kSub_, kSubs = kSubs_;
  static constexpr int kZero = kZero_;  // is taken from each weight
  static constexpr bool kHasMinima = kHasMinima_;
  static constexpr int64_t kUnits = kSub * kSubs / kUnit;
  static constexpr int64_t kScaleBytes = kPanel * 2, kSubBytes = kSubs > 1 ? kPanel * kSubs : 0;
  static constexpr int64_t kHeadBytes = (kScaleBytes + kSubBytes) * (kHasMinima ? 2 : 1);
  static constexpr int64_t kUnitBytes = kPanel * kUnit * kBits / 8;
  static constexpr int64_t kBytes = kHeadBytes + kUnits * kUnitBytes;

  static KAKEYA_LOCAL int64_t panel_bytes(const Matrix& matrix) { return matrix.in / (kUnit * kUnits) * kBytes; }
};

// Calls act(Blocks<...>{}) with a matrix's.
template <class Act>
KAKEYA_LOCAL void with_blocks(int64_t format, const Act& act) {
  switch (format) {
    case kQ4_0: return act(Blocks<4, 32, 1, 8, false>{});
    case kQ4_1: return act(Blocks<4, 32, 1, 0, true>{});
    case kQ5_0: return act(Blocks<5, 32, 1, 16, false>{});
    case kQ5_1: return act(Blocks<5, 32, 1, 0, true>{});
    case kQ8_0: return act(Blocks<8, 32, 1, 128, false>{});
    case kQ4_K: return act(Blocks<4, 32, 8, 0, true>{});
    case kQ5_K: return act(Blocks<5, 32, 8, 0, true>{});
    case kQ6_K: return act(Blocks<6, 16, 16, 32, false>{});
  }
}

inline UIntPart load_bytes(const uint8_t* from) {
  UIntPart bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// x with some bits of y, where it has none.
inline UIntPart with_bits(UIntPart x, UIntPart y, uint32_t bits) {
#if defined(__AVX512F__)  // one instruction, of which compilers make two
  return (UIntPart)_mm512_ternarylogic_epi32((__m512i)x, (__m512i)y, _mm512_set1_epi32(static_cast<int32_t>(bits)), 0xF8);
#else
  return x | (y & bits);
#endif
}

// A quad of a unit for a part of a panel's outputs, where `unit` points: a byte a weight.
template <class Format>
KAKEYA_LOCAL UIntPart unpacked(const uint8_t* unit, int quad) {
  if constexpr (Format::kBits == 8) return load_bytes(unit + quad * kPanel * 4);
  const UIntPart packed = load_bytes(unit + quad / 2 * kPanel * 4);
  const UIntPart low = (quad % 2 == 0 ? packed : packed >> 4) & 0x0F0F0F0Fu;
  const uint8_t* above = unit + kPanel * kUnit / 2;
  if constexpr (Format::kBits == 5) {
    const UIntPart high = load_bytes(above);
    return with_bits(low, quad < 4 ? high << (4 - quad) : high >> (quad - 4), 0x10101010u);
  }
  if constexpr (Format::kBits == 6) {
    const UIntPart high = load_bytes(above + quad / 4 * kPanel * 4);
    return with_bits(low, quad % 4 < 2 ? high << (4 - quad % 4 * 2) : high >> (quad % 4 * 2 - 4), 0x30303030u);
  }
  return low;
}

// Pairs of int8 as pairs of 16 bits.
inline IntPart load_pairs(const uint8_t* from) {
#if defined(__AVX512F__)
  return (IntPart)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return (IntPart)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  IntPart pairs;
  for (int lane = 0; lane < kPartLanes; ++lane) {
    const auto first = static_cast<int8_t>(from[2 * lane]), second = static_cast<int8_t>(from[2 * lane + 1]);
    pairs[lane] = static_cast<int32_t>(static_cast<uint16_t>(first) | static_cast<uint32_t>(second) << 16);
  }
  return pairs;
#endif
}

inline IntPart one_of(IntPart pairs, bool second) { return second ? pairs >> 16 : (pairs << 16) >> 16; }

inline IntPart all_pairs(const int16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return IntPart{} + both;
}

// What follows is for blocks of several runs. A strip of a run is as many inputs as have a product that add_scaled() takes:
// of a row of bytes, with unsigned weights. It takes one of 16 bits in an instruction: 16 * 15 * 128, 8 * 31 * 128 and
// 4 * 63 * 128 are below 2^15.
#if defined(__AVX512VNNI__)

// Of 5 and 6 bits a strip is a run: one whose product has 16 bits would be too short to pay.
constexpr int strip_inputs(int bits) { return bits == 5 ? 32 : 16; }

inline IntPart add_bytes(IntPart sum, UIntPart weights, int32_t bytes) {
  return (IntPart)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(bytes));
}

// A run's scale out of a pair, as add_scaled() takes it: for 4 bits in the lower half, else in all of a lane.
template <int kBits>
inline IntPart scale_of(IntPart pairs, bool second) {
  if constexpr (kBits != 4) return one_of(pairs, second);
  return second ? (IntPart)((UIntPart)pairs >> 16) : pairs & 0xFFFF;
}

template <int kBits>
inline IntPart add_scaled(IntPart sum, IntPart product, IntPart scale) {
  if constexpr (kBits != 4) return sum + product * scale;
  return add_pairs(sum, product, scale);
}

#elif defined(__AVX2__)

constexpr int strip_inputs(int bits) { return bits == 4 ? 32 : bits == 5 ? 16 : 8; }

inline IntPart add_bytes(IntPart sum, UIntPart weights, int32_t bytes) {  // two sums of 16 bits, each of half the inputs
  return (IntPart)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)weights, _mm256_set1_epi32(bytes)));
}

// A run's scale out of a pair, in both halves.
template <int kBits>
inline IntPart scale_of(IntPart pairs, bool second) {
  return second ? (pairs & ~0xFFFF) | (IntPart)((UIntPart)pairs >> 16) : (pairs << 16) | (pairs & 0xFFFF);
}

template <int kBits>
inline IntPart add_scaled(IntPart sum, IntPart product, IntPart scale) {
  return add_pairs(sum, product, scale);
}

#else

constexpr int strip_inputs(int bits) { return bits == 6 ? 16 : 32; }

inline IntPart add_bytes(IntPart sum, UIntPart weights, int32_t bytes) {
  for (int i = 0; i < 4; ++i) sum += (IntPart)((weights >> (8 * i)) & 0xFFu) * static_cast<int8_t>(bytes >> (8 * i));
  return sum;
}

template <int kBits>
inline IntPart scale_of(IntPart pairs, bool second) {
  return one_of(pairs, second);
}

template <int kBits>
inline IntPart add_scaled(IntPart sum, IntPart product, IntPart scale) {
  return sum + product * scale;
}

#endif

// 256 * upper + lower by one rounding: both summands are exact.
inline FloatPart value_of(IntPart upper, IntPart lower) {
  upper += lower >> 8;
  const IntPart low = ((upper & 15) << 8) | (lower & 255);
  return __builtin_convertvector(upper >> 4, FloatPart) * 4096.0f + __builtin_convertvector(low, FloatPart);
}

// What a token's sums, times a block's pairs of whole scales or minima, come to.
struct PairSums {
  IntPart upper, lower;

  KAKEYA_LOCAL void add(IntPart pairs, const int16_t* upper_sums, const int16_t* lower_sums) {
    upper = add_pairs(upper, pairs, all_pairs(upper_sums));
    lower = add_pairs(lower, pairs, all_pairs(lower_sums));
  }
};

inline IntPart times(IntPart pairs, int16_t factor) { return (IntPart)((ShortPairs)pairs * factor); }

// The products of a unit with some tokens, for some parts of a panel's outputs; exact.
template <class Format, int kTokens, int kTileParts>
KAKEYA_LOCAL void multiply_unit(const uint8_t* unit, int64_t input, const Quantized& x, int64_t token,
                                IntPart (&whole)[kTokens][kTileParts]) {
  IntPart tile[kTokens * kTokenRows][kTileParts];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const int32_t correction = -Format::kZero * RunSums(x, token + t).whole32(input / kUnit);
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) {
      tile[t * kTokenRows + kTokenRows - 1][p] = IntPart{} + correction;
      if (kTokenRows == 2) tile[t * kTokenRows][p] = IntPart{};
    }
  }
  const char* rows = x.values + token * x.stride;
#pragma GCC unroll 8
  for (int quad = 0; quad < kUnit / 4; ++quad) {
    Weights weights[kTileParts];
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) weights[p] = Weights(unpacked<Format>(unit + p * kVectorBytes, quad));
#pragma GCC unroll 8
    for (int row = 0; row < kTokens * kTokenRows; ++row) {
      const Activations activations(rows + row * (x.stride / kTokenRows), input / 4 + quad);
#pragma GCC unroll 8
      for (int p = 0; p < kTileParts; ++p) tile[row][p] = multiply_add(tile[row][p], weights[p], activations);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 8
    for (int p = 0; p < kTileParts; ++p) {
      const IntPart* of = tile[t * kTokenRows] + p;
      whole[t][p] = kTokenRows == 2 ? (of[0] << 8) + of[kTileParts] : of[0];
    }
}

// Fetches a share of what is needed soon, if `lines` is not null. Never a function of its own: compilers take one without
// effects for one that need not be called.
template <class Format, int kTileParts>
KAKEYA_LOCAL void fetch(const char* lines, int part, int64_t unit) {
  constexpr int64_t kShares = kPanelParts / kTileParts * Format::kUnits, kLines = (Format::kBytes / 64 + kShares - 1) / kShares;
  if (lines == nullptr) return;
#pragma GCC unroll 16
  for (int64_t line = 0; line < kLines; ++line)
    __builtin_prefetch(lines + ((part / kTileParts * Format::kUnits + unit) * kLines + line) * 64, 0, 2);
}

// Adds the products of a block of one run with some tokens, for some parts of a panel's outputs, times its scales.
template <class Format, int kTokens, int kTileParts>
inline void add_block(const uint8_t* block, int part, const Quantized& x, int64_t token, int64_t input, const char* lines,
                      Sums* sums) {
  fetch<Format, kTileParts>(lines, part, 0);
  const auto* halves = reinterpret_cast<const uint16_t*>(block) + part * kPartLanes;
  IntPart whole[kTokens][kTileParts];
  multiply_unit<Format, kTokens, kTileParts>(block + Format::kHeadBytes + part * kVectorBytes, input, x, token, whole);
#pragma GCC unroll 8
  for (int p = 0; p < kTileParts; ++p) {
    const FloatPart scale = Float16::load_part(halves + p * kPartLanes);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      FloatPart& y = sums[t].part(part + p);
      y = y + __builtin_convertvector(whole[t][p], FloatPart) * scale;
      if constexpr (Format::kHasMinima)
        y = y + static_cast<float>(RunSums(x, token + t).whole32(input / kUnit)) *
                    Float16::load_part(halves + kPanel + p * kPartLanes);
    }
  }
}

// Adds those of a block of several runs.
template <class Format, int kTokens, int kTileParts>
inline void add_runs(const uint8_t* block, int part, const Quantized& x, int64_t token, int64_t input, const char* lines,
                     Sums* sums) {
  constexpr int kBits = Format::kBits, kStrip = strip_inputs(kBits), kRows = 2 * kTokens, kRuns = kUnit / Format::kSub;
  const uint8_t* subs = block + Format::kScaleBytes * (Format::kHasMinima ? 2 : 1) + part * kPartLanes * 2;
  const uint8_t* units = block + Format::kHeadBytes + part * kVectorBytes;
  const auto* halves = reinterpret_cast<const uint16_t*>(block) + part * kPartLanes;
  const char* rows = byte_rows(x) + token * x.stride + input;
  IntPart products[kRows][kTileParts] = {};
  for (int64_t u = 0; u < Format::kUnits; ++u, units += Format::kUnitBytes, rows += kUnit) {
    fetch<Format, kTileParts>(lines, part, u);
#pragma GCC unroll 2
    for (int run = 0; run < kRuns; ++run) {
      const int64_t number = u * kRuns + run;
      IntPart scales[kTileParts];
#pragma GCC unroll 4
      for (int p = 0; p < kTileParts; ++p)
        scales[p] = scale_of<kBits>(load_pairs(subs + (number / 2 * kPanel + p * kPartLanes) * 2), number % 2 == 1);
#pragma GCC unroll 4
      for (int strip = 0; strip < Format::kSub / kStrip; ++strip) {
        IntPart tile[kRows][kTileParts] = {};
#pragma GCC unroll 8
        for (int i = 0; i < kStrip / 4; ++i) {
          const int quad = (run * Format::kSub + strip * kStrip) / 4 + i;
          UIntPart weights[kTileParts];
#pragma GCC unroll 4
          for (int p = 0; p < kTileParts; ++p) weights[p] = unpacked<Format>(units + p * kVectorBytes, quad);
#pragma GCC unroll 16
          for (int row = 0; row < kRows; ++row) {
            int32_t bytes;
            std::memcpy(&bytes, rows + row * (x.stride / 2) + quad * 4, sizeof bytes);
#pragma GCC unroll 4
            for (int p = 0; p < kTileParts; ++p) tile[row][p] = add_bytes(tile[row][p], weights[p], bytes);
          }
        }
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
          for (int p = 0; p < kTileParts; ++p) products[row][p] = add_scaled<kBits>(products[row][p], tile[row][p], scales[p]);
      }
    }
  }
  const int64_t first_run = input / Format::kSub;
#pragma GCC unroll 4
  for (int p = 0; p < kTileParts; ++p) {
    const FloatPart scale = Float16::load_part(halves + p * kPartLanes);
    const uint8_t* pairs = subs + p * kPartLanes * 2;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const RunSums of(x, token + t);
      const int16_t *upper = of.upper(Format::kSub) + first_run, *lower = of.lower(Format::kSub) + first_run;
      PairSums whole = {products[2 * t][p], products[2 * t + 1][p]}, minima = {};
#pragma GCC unroll 8
      for (int pair = 0; pair < Format::kSubs / 2; ++pair) {
        const uint8_t* from = pairs + pair * kPanel * 2;
        if constexpr (Format::kZero != 0) whole.add(times(load_pairs(from), -Format::kZero), upper + 2 * pair, lower + 2 * pair);
        if constexpr (Format::kHasMinima) minima.add(load_pairs(from + Format::kSubBytes), upper + 2 * pair, lower + 2 * pair);
      }
      FloatPart& y = sums[t].part(part + p);
      y = y + value_of(whole.upper, whole.lower) * scale;
      if constexpr (Format::kHasMinima)
        y = y - __builtin_convertvector((minima.upper << 8) + minima.lower, FloatPart) *
                    Float16::load_part(halves + kPanel + p * kPartLanes);
    }
  }
}

template <class Format, int kTokens>
inline void block_tile(const Matrix& matrix, int64_t panel, const Quantized& x, int64_t token, const Target& target) {
  const int64_t num_bytes = Format::panel_bytes(matrix);
  const uint8_t* blocks = matrix.values + panel * num_bytes;
  Sums sums[kTokens] = {};
  constexpr int64_t kAhead = Format::kBytes > kPrefetchBytes ? Format::kBytes : kPrefetchBytes;
  constexpr int kTileParts = block_parts(Format::kSubs > 1, kTokens);
  for (int64_t at = 0, input = 0; at < num_bytes; at += Format::kBytes, input += kUnit * Format::kUnits) {
    const char* ahead = token == 0 ? reinterpret_cast<const char*>(blocks) + at + kAhead : nullptr;
    for (int part = 0; part < kPanelParts; part += kTileParts)
      if constexpr (Format::kSubs > 1) add_runs<Format, kTokens, kTileParts>(blocks + at, part, x, token, input, ahead, sums);
      else add_block<Format, kTokens, kTileParts>(blocks + at, part, x, token, input, ahead, sums);
  }
  for (int t = 0; t < kTokens; ++t)
    finish(matrix, panel, sums[t], x.scales[token + t], target.y + (token + t) * target.stride, target.adds);
}

template <class Format>
void block_product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
                   const Target& target) {
  for (int64_t panel = first_panel; panel < last_panel; ++panel)
    for (int64_t token = 0; token < num_tokens;)
      token += with_tile<most_tokens(Format::kSubs > 1)>(num_tokens - token, [&](auto tokens) __attribute__((always_inline)) {
        block_tile<Format, tokens>(matrix, panel, x, token, target);
      });
}

// The weight of a unit's quad, where `unit` points to the byte of its first quad.
template <class Format>
KAKEYA_LOCAL int32_t weight_of(const uint8_t* unit, int64_t quad) {
  if constexpr (Format::kBits == 8) return unit[quad * kPanel * 4];
  const int32_t low = unit[quad / 2 * kPanel * 4] >> (quad % 2 * 4) & 15;
  const uint8_t* above = unit + kPanel * kUnit / 2;
  if constexpr (Format::kBits == 5) return low | (above[0] >> quad & 1) << 4;
  if constexpr (Format::kBits == 6) return low | (above[quad / 4 * kPanel * 4] >> (quad % 4 * 2) & 3) << 4;
  return low;
}

// One row of a table; y [in].
template <class Format>
void embed_blocks(const Matrix& table, int64_t row, float* y) {
  const uint8_t* block = table.values + row / kPanel * Format::panel_bytes(table);
  const int64_t lane = row % kPanel;
  for (int64_t first = 0; first < table.in; first += kUnit * Format::kUnits, block += Format::kBytes) {
    const auto* halves = reinterpret_cast<const uint16_t*>(block) + lane;
    const uint8_t* subs = block + Format::kScaleBytes * (Format::kHasMinima ? 2 : 1) + lane * 2;
    for (int64_t i = 0; i < kUnit * Format::kUnits; ++i) {
      const uint8_t* unit = block + Format::kHeadBytes + i / kUnit * Format::kUnitBytes + lane * 4 + i % 4;
      const int64_t sub = i / Format::kSub, of_pair = sub / 2 * kPanel * 2 + sub % 2;
      const int32_t scale = Format::kSubs > 1 ? static_cast<int8_t>(subs[of_pair]) : 1;
      float& weight = y[first + i];
      weight = static_cast<float>(scale * (weight_of<Format>(unit, i % kUnit / 4) - Format::kZero)) * Float16::one(halves[0]);
      if constexpr (Format::kHasMinima) {
        const float offset = Float16::one(halves[kPanel]);
        if constexpr (Format::kSubs > 1) weight = weight - static_cast<float>(subs[Format::kSubBytes + of_pair]) * offset;
        else weight = weight + offset;
      }
    }
  }
}

// Panels first_panel .. last_panel - 1 of a matrix times all tokens.
void product(const Matrix& matrix, const Quantized& x, int64_t num_tokens, int64_t first_panel, int64_t last_panel,
             const Target& target) {
  if (matrix.format == kInt8) return int8_product(matrix, x, num_tokens, first_panel, last_panel, target);
  with_blocks(matrix.format, [&](auto blocks) {
    block_product<decltype(blocks)>(matrix, x, num_tokens, first_panel, last_panel, target);
  });
}

}  // namespace
}  // namespace kakeya
